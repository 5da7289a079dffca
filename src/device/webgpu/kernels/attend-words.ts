/**
 * What kernels of attention write alike, as WGSL: words of a side's buffer where it is bound one, two or four at a time;
 * scores of what is not seen.
 */

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

/** No sum of scores comes near it, and it stays finite when subtracted from. */
export const LOWEST = '-3.0e38';
const LOWEST_BITS = new Int32Array(Float32Array.of(Number(LOWEST)).buffer)[0]!;

/**
 * Whether a score is LOWEST, that of a position that is not seen. By its bits: drivers may take NaN for a number where
 * they compare, and a row that went wrong would look like one that sees nothing.
 */
export function isUnseen(score: string): string {
  return `bitcast<i32>(${score}) == ${LOWEST_BITS}`;
}

/**
 * Sums of weighted values over the sum of their weights; `zero` where nothing was seen. Told by bits, as above.
 * @param sink weight of a score without a value, `''` for none
 */
export function dividedText(total: string, sum: string, zero: string, sink = ''): string {
  const whole = sink === '' ? sum : `(${sum} + ${sink})`;
  return `select(${zero}, ${total} / ${whole}, (bitcast<i32>(${sum}) & 0x7fffffff) != 0)`;
}

/** The scores without values of a layer: what kernels that divide bind, and the weight of one beside a maximum. */
export const SINKS_BINDING = { name: 'sinks', access: 'read', type: 'array<f32>' } as const;

/** `powers`: the maximum is in powers of two. */
export function sinkText(sinks: boolean | undefined, head: string, top: string, powers = false): string {
  if (sinks !== true) return '';
  return powers ? `exp2(fma(sinks[${head}], ${Math.LOG2E}, -(${top})))` : `exp(sinks[${head}] - ${top})`;
}

/** Takes the tile of this workgroup, a run of a prompt's tokens, as `tile`; ends where there is none. `groups`: the builtin num_workgroups. */
export const tileText = (groups: string): string =>
  `let tile_at = wid.x + wid.y * ${groups}.x;
  if (tile_at >= step[1].y) { return; }
  let tile = step[step[2].z + tile_at];`;

/** The same, and of the tile the token of this workgroup, where `across` workgroups share one. */
export const tileTokenText = (across: number): string => `${tileText('groups')}
  let token = wid.z / ${across}u;
  if (token >= tile.y) { return; }`;
