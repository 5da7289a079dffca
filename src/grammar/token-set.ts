/** What is found out about a tokenizer's tokens once, for all grammars. Plain data over shared memory. */

import { type BelowNodes, belowNodes } from './byte-classes.js';
import { compileGrammar } from './compile.js';
import { type CountedProfile, profileOf } from './counted-profile.js';
import { ANY, anyRules } from './json/terminals.js';
import { plainLength } from './plain-text.js';
import { sortedIds, type TokenSpelling, type TokenTrie, trieOfSorted } from './token-trie.js';

/**
 * Tokens of nothing but plain characters (plain-text.ts) stand apart: where a state takes any text, those below a node are taken as
 * they are, and only the others are walked.
 */
export interface TokenSet {
  readonly trie: TokenTrie;
  /** Plain tokens in the order of the tree; those at and below a node are from `plainAt[node]` to `plainAt[skip[node]]`. */
  readonly plain: Int32Array;
  readonly plainAt: Int32Array;
  /** The tree without them; what it has at and below a node is from `restAt[node]` to `restAt[skip[node]]`. */
  readonly rest: TokenTrie;
  readonly restAt: Int32Array;
  /** Of `trie`. */
  readonly below: BelowNodes;
  /** What tokens are inside a JSON string, by the key of its rule. */
  readonly strings: { readonly key: string; readonly profile: CountedProfile };
}

/** Longer tokens do not count as plain: so many characters a state must take. */
export const PLAIN_LENGTH = 24;

export function prepareTokens(spelling: TokenSpelling): TokenSet {
  const { data, offsets } = spelling;
  const trie = trieOfSorted(spelling, sortedIds(spelling));
  const { byte, depth, skip, id, same } = trie;
  const nodes = byte.length;
  const plainAt = shared(nodes + 1);
  const restIds = new Int32Array(nodes + 1);
  const plain: number[] = [];
  const isPlain = new Uint8Array(nodes);
  for (let node = 0; node < nodes; node++) {
    const first = id[node]!;
    let rest = 0;
    if (first >= 0) {
      // Those of one node have the same bytes.
      const length = plainLength(data, offsets[first]!, offsets[first + 1]!);
      if (length < 0 || length > PLAIN_LENGTH) rest = 1;
      else isPlain[node] = 1;
      if (rest === 0) for (let one = first; one >= 0; one = same[one]!) plain.push(one);
    }
    plainAt[node + 1] = plain.length;
    restIds[node + 1] = restIds[node]! + rest;
  }
  const restAt = shared(nodes + 1);
  for (let node = 0; node < nodes; node++)
    restAt[node + 1] = restAt[node]! + (restIds[skip[node]!]! > restIds[node]! ? 1 : 0);
  const size = restAt[nodes]!;
  const rest = {
    byte: new Uint8Array(new SharedArrayBuffer(size)),
    depth: new Uint16Array(new SharedArrayBuffer(2 * size)),
    skip: shared(size),
    id: shared(size),
    same,
    longest: trie.longest,
  };
  for (let node = 0; node < nodes; node++) {
    const at = restAt[node]!;
    if (restAt[node + 1] === at) continue;
    rest.byte[at] = byte[node]!;
    rest.depth[at] = depth[node]!;
    rest.skip[at] = restAt[skip[node]!]!;
    rest.id[at] = restIds[node + 1]! > restIds[node]! ? id[node]! : -1;
  }
  const plainIds = shared(plain.length);
  plainIds.set(plain);
  const below = belowNodes(trie, (node) => isPlain[node] === 1);
  const strings = stringProfile(trie);
  return { trie, plain: plainIds, plainAt, rest, restAt, below, strings };
}

function stringProfile(trie: TokenTrie): TokenSet['strings'] {
  const tables = compileGrammar({ rules: new Map(anyRules()), root: ANY.STRING });
  return { key: tables.loopKeys[0]!, profile: profileOf(tables, 0, trie)! };
}

const shared = (length: number): Int32Array => new Int32Array(new SharedArrayBuffer(4 * length));
