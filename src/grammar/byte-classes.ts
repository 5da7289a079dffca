/**
 * Kinds of bytes that patterns have together or not at all. Where a state goes round on all bytes of some kinds, what is below a node of the
 * tree of tokens and has none but those need not be walked.
 */

import type { TokenTrie } from './token-trie.js';

/** Of characters that stand for themselves in a JSON string. */
const CLASSES: readonly (readonly [low: number, high: number][])[] = [
  [[0x61, 0x66]],
  [[0x67, 0x7a]],
  [[0x41, 0x46]],
  [[0x47, 0x5a]],
  [[0x30, 0x39]],
  [[0x20, 0x20]],
  [[0x5f, 0x5f]],
  [[0x2d, 0x2d]],
  [[0x2e, 0x2e]],
  [[0x2f, 0x2f]],
  [[0x3a, 0x3a]],
  [
    [0x21, 0x21],
    [0x23, 0x2c],
    [0x3b, 0x40],
    [0x5b, 0x5b],
    [0x5d, 0x5e],
    [0x60, 0x60],
    [0x7b, 0x7e],
  ],
];
/** All other bytes: no state is said to go round on them. */
const OTHER = 1 << CLASSES.length;

const CLASS_OF = new Uint16Array(256).fill(OTHER);
CLASSES.forEach((ranges, at) => {
  for (const [low, high] of ranges) CLASS_OF.fill(1 << at, low, high + 1);
});

/** By node: a bit for each kind of bytes that is below it, and how many bytes the longest token has below it. */
export interface BelowNodes {
  readonly classes: Uint16Array;
  readonly bytes: Uint16Array;
}

export function belowNodes({ byte, skip }: TokenTrie): BelowNodes {
  const made = (): Uint16Array => new Uint16Array(new SharedArrayBuffer(2 * byte.length));
  const [classes, bytes] = [made(), made()];
  for (let node = byte.length - 1; node >= 0; node--)
    for (let child = node + 1; child < skip[node]!; child = skip[child]!) {
      classes[node]! |= CLASS_OF[byte[child]!]! | classes[child]!;
      bytes[node] = Math.max(bytes[node]!, 1 + bytes[child]!);
    }
  return { classes, bytes };
}

/** The kinds of which `goesRound` holds for every byte. */
export function classesWhere(goesRound: (byte: number) => boolean): number {
  let found = 0;
  CLASSES.forEach((ranges, at) => {
    for (const [low, high] of ranges) for (let byte = low; byte <= high; byte++) if (!goesRound(byte)) return;
    found |= 1 << at;
  });
  return found;
}
