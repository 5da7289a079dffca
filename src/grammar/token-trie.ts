/**
 * The tokens of a tokenizer as a tree of bytes, laid out in the order of a walk: the children of a node follow it, and `skip` tells
 * where what is below a node ends. One for a tokenizer, in shared memory.
 */

/** Bytes of tokens by id, as text/token-bytes.ts has them. */
export interface TokenSpelling {
  readonly data: Uint8Array;
  /** `[size + 1]` */
  readonly offsets: Uint32Array;
  /** `[size]`: whether an id may stand in a text. */
  readonly usable: (id: number) => boolean;
  readonly size: number;
}

export interface TokenTrie {
  /** By node: its byte, how deep it is (the first bytes of tokens are at 0), and the node behind all that is below it. */
  readonly byte: Uint8Array;
  readonly depth: Uint16Array;
  readonly skip: Int32Array;
  /** By node: an id that ends there, −1 for none; others with the same bytes follow by `same`. */
  readonly id: Int32Array;
  /** By id: the next one with the same bytes, −1 at the end. */
  readonly same: Int32Array;
  /** Bytes of the longest token. */
  readonly longest: number;
}

/** Longer ones stand for no text that anybody writes. */
const MAX_BYTES = 65_535;

export function buildTokenTrie(spelling: TokenSpelling): TokenTrie {
  return trieOfSorted(spelling, sortedIds(spelling));
}

/** Ids that may stand in a tree, by their bytes. */
export function sortedIds({ data, offsets, usable, size }: TokenSpelling): number[] {
  const ids: number[] = [];
  for (let id = 0; id < size; id++) {
    const length = offsets[id + 1]! - offsets[id]!;
    if (length > 0 && length <= MAX_BYTES && usable(id)) ids.push(id);
  }
  // Sorted by bytes: a key of the first four decides most comparisons.
  const keys = new Float64Array(size);
  for (const id of ids) {
    const from = offsets[id]!;
    const length = offsets[id + 1]! - from;
    let key = 0;
    for (let i = 0; i < KEY_BYTES; i++) key = key * 257 + (i < length ? data[from + i]! + 1 : 0);
    keys[id] = key;
  }
  return ids.sort((a, b) => keys[a]! - keys[b]! || compare(data, offsets, a, b));
}

/** `ids`: those of the tokens that it shall have, by their bytes. */
export function trieOfSorted({ data, offsets, size }: TokenSpelling, ids: readonly number[]): TokenTrie {
  let nodes = 0;
  let longest = 0;
  eachNode(ids, data, offsets, (_, shared, length) => {
    nodes += length - shared;
    longest = Math.max(longest, length);
  });
  const trie = {
    byte: new Uint8Array(new SharedArrayBuffer(nodes)),
    depth: new Uint16Array(new SharedArrayBuffer(2 * nodes)),
    skip: new Int32Array(new SharedArrayBuffer(4 * nodes)),
    id: new Int32Array(new SharedArrayBuffer(4 * nodes)).fill(-1),
    same: new Int32Array(new SharedArrayBuffer(4 * size)).fill(-1),
    longest,
  };
  let node = 0;
  const path: number[] = [];
  eachNode(ids, data, offsets, (id, shared, length) => {
    if (shared === length) {
      // The same bytes as the one before.
      const first = path[length - 1]!;
      trie.same[id] = trie.id[first]!;
      trie.id[first] = id;
      return;
    }
    while (path.length > shared) trie.skip[path.pop()!] = node;
    for (let i = shared; i < length; i++) {
      trie.byte[node] = data[offsets[id]! + i]!;
      trie.depth[node] = i;
      path.push(node++);
    }
    trie.id[node - 1] = id;
  });
  while (path.length > 0) trie.skip[path.pop()!] = node;
  return trie;
}

const KEY_BYTES = 6;

function compare(data: Uint8Array, offsets: Uint32Array, a: number, b: number): number {
  const [fromA, fromB] = [offsets[a]!, offsets[b]!];
  const lengthA = offsets[a + 1]! - fromA;
  const lengthB = offsets[b + 1]! - fromB;
  for (let i = 0; i < lengthA && i < lengthB; i++) {
    const difference = data[fromA + i]! - data[fromB + i]!;
    if (difference !== 0) return difference;
  }
  return lengthA - lengthB || a - b;
}

/** Of sorted ids: how many bytes each shares with the one before, and how many it has. */
function eachNode(
  ids: readonly number[],
  data: Uint8Array,
  offsets: Uint32Array,
  visit: (id: number, shared: number, length: number) => void,
): void {
  let before = -1;
  for (const id of ids) {
    const from = offsets[id]!;
    const length = offsets[id + 1]! - from;
    let shared = 0;
    if (before >= 0) {
      const last = offsets[before]!;
      const most = Math.min(length, offsets[before + 1]! - last);
      while (shared < most && data[from + shared] === data[last + shared]) shared++;
    }
    visit(id, shared, length);
    before = id;
  }
}
