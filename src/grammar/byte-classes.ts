/**
 * Kinds of characters that patterns have together or not at all. Where a state goes round on all characters of some kinds, plain tokens
 * below a node of the tree of tokens that have none but those need not be walked.
 */

import { type CodePointRange, invertRanges, utf8Ranges } from './code-points.js';
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
/** Characters of several bytes, but for white space and ends of lines, which patterns leave out. */
const LONG_KIND = 1 << CLASSES.length;
/** All others: no state is said to go round on them. */
const OTHER = LONG_KIND << 1;

const LONG: readonly CodePointRange[] = invertRanges([
  [0, 0x7f],
  [0xa0, 0xa0],
  [0x1680, 0x1680],
  [0x2000, 0x200a],
  [0x2028, 0x2029],
  [0x202f, 0x202f],
  [0x205f, 0x205f],
  [0x3000, 0x3000],
  [0xfeff, 0xfeff],
]);

const CLASS_OF = new Uint16Array(128).fill(OTHER);
CLASSES.forEach((ranges, at) => {
  for (const [low, high] of ranges) CLASS_OF.fill(1 << at, low, high + 1);
});

const kindOf = (point: number): number =>
  point < 0x80
    ? CLASS_OF[point]!
    : LONG.some(([low, high]) => low <= point && point <= high)
      ? LONG_KIND
      : OTHER;

/**
 * By node: a bit for each kind of characters that plain tokens have behind it (those at or below a node within a character: that one
 * too), and how many bytes the longest of all tokens has below it.
 */
export interface BelowNodes {
  readonly classes: Uint16Array;
  readonly bytes: Uint16Array;
}

/** `isPlain`: whether the token of a node is of nothing but plain characters. */
export function belowNodes(
  { byte, depth, skip, longest }: TokenTrie,
  isPlain: (node: number) => boolean,
): BelowNodes {
  const made = (): Uint16Array => new Uint16Array(new SharedArrayBuffer(2 * byte.length));
  const [classes, bytes] = [made(), made()];
  for (let node = byte.length - 1; node >= 0; node--)
    for (let child = node + 1; child < skip[node]!; child = skip[child]!)
      bytes[node] = Math.max(bytes[node]!, 1 + bytes[child]!);
  const path = new Int32Array(longest);
  for (let node = 0; node < byte.length; node++) {
    path[depth[node]!] = node;
    if (!isPlain(node)) continue;
    // From its end on: the kinds of the characters behind each byte, within a character of that one as well.
    let kinds = 0;
    for (let end = depth[node]!; end >= 0; ) {
      let from = end;
      let point = 0;
      for (let shift = 0; ; shift += 6, from--) {
        const value = byte[path[from]!]!;
        if ((value & 0xc0) !== 0x80) {
          point |= (shift === 0 ? value : value & (0x3f >> (shift / 6))) << shift;
          break;
        }
        point |= (value & 0x3f) << shift;
      }
      classes[path[end]!]! |= kinds;
      kinds |= kindOf(point);
      for (let d = from; d < end; d++) classes[path[d]!]! |= kinds;
      end = from - 1;
    }
  }
  return { classes, bytes };
}

/** The kinds of which a state goes round on every character. `next`: where a byte leads from a state, −1 for nowhere. */
export function kindsAround(state: number, next: (state: number, byte: number) => number): number {
  let found = 0;
  CLASSES.forEach((ranges, at) => {
    for (const [low, high] of ranges)
      for (let byte = low; byte <= high; byte++) if (next(state, byte) !== state) return;
    found |= 1 << at;
  });
  // One of them tells of most states that it is not so.
  const begun = next(state, 0xc3);
  if (begun < 0 || next(begun, 0xa9) !== state) return found;
  const known = new Map<number, boolean>();
  const leads = (from: number, chain: Chain | null): boolean => {
    if (chain === null) return from === state;
    const key = from * CHAINS + chain.number;
    let all = known.get(key);
    if (all === undefined) {
      all = true;
      for (let byte = chain.low; all && byte <= chain.high; byte++) {
        const to = next(from, byte);
        all = to >= 0 && leads(to, chain.rest);
      }
      known.set(key, all);
    }
    return all;
  };
  return LONG_CHAINS.every((chain) => leads(state, chain)) ? found | LONG_KIND : found;
}

/** Bytes of characters. Chains of the same bytes have the same number. */
interface Chain {
  readonly low: number;
  readonly high: number;
  readonly rest: Chain | null;
  readonly number: number;
}

const numbers = new Map<string, number>();
function chainOf(bytes: readonly (readonly [low: number, high: number])[]): Chain | null {
  const [first, ...others] = bytes;
  if (first === undefined) return null;
  const key = bytes.join(';');
  const number = numbers.get(key) ?? numbers.size;
  numbers.set(key, number);
  return { low: first[0], high: first[1], rest: chainOf(others), number };
}
const LONG_CHAINS = LONG.flatMap((range) => utf8Ranges(range).map(chainOf));
const CHAINS = numbers.size;
