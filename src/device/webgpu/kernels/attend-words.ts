/** Words of a side's buffer where it is bound one, two or four words at a time, as WGSL. */

export type WordWidth = 1 | 2 | 4;

export const count = (length: number): number[] => Array.from({ length }, (_, i) => i);

export const wordType = (width: WordWidth): string => (width === 1 ? 'u32' : `vec${width}<u32>`);

/** The most words at once of which every one of these numbers is a multiple. */
export const wordWidth = (...words: readonly number[]): WordWidth =>
  words.every((w) => w % 4 === 0) ? 4 : words.every((w) => w % 2 === 0) ? 2 : 1;

/** A word of the buffer by its index. */
export const wordAt = (name: string, width: WordWidth, at: string): string =>
  width === 1 ? `${name}[${at}]` : `${name}[(${at}) >> ${width / 2}u][(${at}) & ${width - 1}u]`;

/** Word i of what lies in variables `PREFIX_0`, `PREFIX_1`, …, each of `width` words. */
export const wordOf = (prefix: string, width: WordWidth, i: number): string =>
  width === 1 ? `${prefix}_${i}` : `${prefix}_${Math.floor(i / width)}.${'xyzw'[i % width]}`;
