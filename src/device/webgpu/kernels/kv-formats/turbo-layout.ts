/** Where TurboQuant's codes and tables lie (kv-layout.ts). */

import type { TurboKv } from '../../../kv.js';
import { computesSixteen } from '../../../turboquant/codebooks.js';
import { turboRotation } from '../../../turboquant/rotation.js';

/** First word of each table, from `tablesAt` on. */
export function tableOffsets(
  bits: number,
  headDim: number,
): {
  readonly signs: number;
  readonly matrix: number;
  readonly centroids: number;
  readonly midpoints: number;
} {
  const { matrix } = turboRotation(headDim, 'key');
  const centroids = headDim + matrix.length;
  return { signs: 0, matrix: headDim, centroids, midpoints: centroids + 2 ** bits };
}

/** Positions that words of transposed values share out: so many vectors, side by side. */
export const TRANSPOSED_TOKENS = 16;

/** Of the positions of a word of transposed values, by its bytes from the lowest on: how far behind the first. */
export const TRANSPOSED_POSITIONS = [0, 4, 8, 12] as const;

/** Whether words of these values have four positions of a pair of dims. */
export function turboIsTransposed(format: TurboKv, name: string, headDim: number): boolean {
  return name === 'values' && computesSixteen(headDim, format.bits, 'value');
}

/** WGSL: of position `t`, as text, u32, the bits below its byte in a word of transposed values. */
export const transposedShift = (t: string): string => `((${t} & 12u) * 2u)`;

/** Codes are numbers, laid in runs of 32 if they do not lie transposed. */
export function turboInRuns({ bits }: Pick<TurboKv, 'bits'>): boolean {
  return bits <= 4;
}
