/** Sets of code points as ranges, and the bytes that UTF-8 makes of them. */

/** Both ends belong to it. */
export type CodePointRange = readonly [low: number, high: number];

export const LAST_CODE_POINT = 0x10ffff;
const SURROGATES: CodePointRange = [0xd800, 0xdfff];

/** Every code point that a text may hold. */
export const ANY_CODE_POINT: readonly CodePointRange[] = [
  [0, SURROGATES[0] - 1],
  [SURROGATES[1] + 1, LAST_CODE_POINT],
];

/** Sorted, without overlaps, neighbours joined. */
export function joinRanges(ranges: readonly CodePointRange[]): CodePointRange[] {
  const sorted = ranges.filter(([low, high]) => low <= high).sort((a, b) => a[0] - b[0]);
  const joined: [number, number][] = [];
  for (const [low, high] of sorted) {
    const last = joined.at(-1);
    if (last !== undefined && low <= last[1] + 1) last[1] = Math.max(last[1], high);
    else joined.push([low, high]);
  }
  return joined;
}

export function intersectRanges(
  a: readonly CodePointRange[],
  b: readonly CodePointRange[],
): CodePointRange[] {
  const both: CodePointRange[] = [];
  for (let i = 0, j = 0; i < a.length && j < b.length; ) {
    const low = Math.max(a[i]![0], b[j]![0]);
    const high = Math.min(a[i]![1], b[j]![1]);
    if (low <= high) both.push([low, high]);
    if (a[i]![1] < b[j]![1]) i++;
    else j++;
  }
  return both;
}

/** All other code points that a text may hold. */
export function invertRanges(ranges: readonly CodePointRange[]): CodePointRange[] {
  const others: CodePointRange[] = [];
  let from = 0;
  for (const [low, high] of joinRanges(ranges)) {
    if (low > from) others.push([from, low - 1]);
    from = high + 1;
  }
  if (from <= LAST_CODE_POINT) others.push([from, LAST_CODE_POINT]);
  return intersectRanges(others, ANY_CODE_POINT);
}

/** One byte after another, each within its range. */
export type ByteRanges = readonly (readonly [low: number, high: number])[];

/** Last code points of one, two, three and four bytes. */
const LAST_OF_LENGTH = [0x7f, 0x7ff, 0xffff, LAST_CODE_POINT];

/** The UTF-8 of a range, as sequences of byte ranges that no other text has. */
export function utf8Ranges([low, high]: CodePointRange): ByteRanges[] {
  const found: ByteRanges[] = [];
  for (const part of intersectRanges([[low, high]], ANY_CODE_POINT)) split(part[0], part[1], found);
  return found;
}

function split(low: number, high: number, found: ByteRanges[]): void {
  for (const last of LAST_OF_LENGTH)
    if (low <= last && last < high) {
      split(low, last, found);
      split(last + 1, high, found);
      return;
    }
  // Whole blocks of continuation bytes, the lowest first.
  for (let bits = 6; bits <= 18 && high > 0x7f; bits += 6) {
    const block = (1 << bits) - 1;
    if (low >> bits === high >> bits) break;
    if ((low & block) !== 0) {
      split(low, low | block, found);
      split((low | block) + 1, high, found);
      return;
    }
    if ((high & block) !== block) {
      split(low, (high & ~block) - 1, found);
      split(high & ~block, high, found);
      return;
    }
  }
  const from = utf8Bytes(low);
  const to = utf8Bytes(high);
  found.push(from.map((byte, i) => [byte, to[i]!] as const));
}

export function utf8Bytes(codePoint: number): number[] {
  if (codePoint <= 0x7f) return [codePoint];
  if (codePoint <= 0x7ff) return [0xc0 | (codePoint >> 6), tail(codePoint)];
  if (codePoint <= 0xffff) return [0xe0 | (codePoint >> 12), tail(codePoint >> 6), tail(codePoint)];
  return [0xf0 | (codePoint >> 18), tail(codePoint >> 12), tail(codePoint >> 6), tail(codePoint)];
}

const tail = (bits: number): number => 0x80 | (bits & 0x3f);
