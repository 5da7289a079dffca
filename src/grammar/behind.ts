/** The ends of tokens as a tree of their own: many tokens end alike, and are looked at once. */

import { buildTokenTrie, type TokenTrie } from './token-trie.js';

export interface Behind {
  readonly trie: TokenTrie;
  /** By id in that tree: the token. */
  readonly tokens: Int32Array;
  /** By id in that tree: how many items of a rule that counts stand before the end. */
  readonly counts: Uint16Array;
}

/** A node at which a rule may be over, with `count` items before. */
export interface End {
  readonly trie: TokenTrie;
  readonly node: number;
  readonly count: number;
}

const NONE = (): boolean => false;

/** What tokens have below these nodes; null where there is nothing. `taken`: those that may come anyway are left out. */
export function behindEnds(ends: readonly End[], taken: (token: number) => boolean = NONE): Behind | null {
  const data: number[] = [];
  const offsets = [0];
  const tokens: number[] = [];
  const counts: number[] = [];
  const path: number[] = [];
  for (const { trie: from, node: end, count } of ends) {
    const { byte, depth, skip, id, same } = from;
    const base = depth[end]! + 1;
    for (let node = end + 1; node < skip[end]!; node++) {
      const length = depth[node]! - base + 1;
      path[length - 1] = byte[node]!;
      for (let one = id[node]!; one >= 0; one = same[one]!) {
        if (taken(one)) continue;
        for (let i = 0; i < length; i++) data.push(path[i]!);
        offsets.push(data.length);
        tokens.push(one);
        counts.push(count);
      }
    }
  }
  if (tokens.length === 0) return null;
  const spelling = {
    data: Uint8Array.from(data),
    offsets: Uint32Array.from(offsets),
    usable: () => true,
    size: tokens.length,
  };
  const shared = new Int32Array(new SharedArrayBuffer(4 * tokens.length));
  shared.set(tokens);
  const sharedCounts = new Uint16Array(new SharedArrayBuffer(2 * tokens.length));
  sharedCounts.set(counts);
  return { trie: buildTokenTrie(spelling), tokens: shared, counts: sharedCounts };
}
