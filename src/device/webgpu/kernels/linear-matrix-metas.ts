/**
 * Scales and biases of a GEMM's weights (linear-matrix.ts). A load for every step would fetch four bytes of each of many rows,
 * which takes a GPU as long as the codes themselves: so a thread fetches four groups of its row at once, where rows
 * allow it, and as many steps ahead as these last.
 */

import type { MatrixGemmConfig } from './linear-matrix-plan.js';
import type { LinearSpec } from './linear-spec.js';

/** What the kernel writes about them. A unit is what a thread unpacks of a row, `wu`i, of row `wf`i of the weight. */
export interface MetasText {
  readonly type: 'u32' | 'vec4<u32>';
  /** Where unit i has them. */
  readonly declare: (i: number) => string[];
  /** Variables of a slot of unit i. */
  readonly slot: (slot: number, i: number) => string[];
  /** Fetches those of step `s` into a slot. */
  readonly load: (slot: number, i: number) => string[];
  /** Before `step` is unpacked. */
  readonly next: (units: number, step: string) => string[];
  /** The word of a slot's unit, and the `let` lines that it wants. */
  readonly take: (
    slot: number,
    i: number,
    step: string,
  ) => { readonly lines: string[]; readonly word: string };
}

const VECTOR = 4;
const none = (): string[] => [];

export function metasOf(spec: LinearSpec, c: MatrixGemmConfig, cols: number): MetasText {
  const { weight, k } = spec;
  const { bk, slices = 1 } = c;
  if (weight.kind !== 'affine')
    return {
      type: 'u32',
      declare: none,
      slot: none,
      load: none,
      next: none,
      take: () => ({ lines: [], word: '' }),
    };
  const { groupSize } = weight;
  const perRow = k / groupSize;
  const across = bk / cols;
  const column = (i: number): string => `wu${i} % ${across}u * ${cols}u`;
  /** Steps that a vector lasts. */
  const lasts = (VECTOR * groupSize) / bk;
  const whole =
    perRow % VECTOR === 0 && lasts >= 2 && Number.isInteger(lasts) && (k / bk / slices) % lasts === 0;
  if (!whole)
    return {
      type: 'u32',
      declare: (i) => [`  let mb${i} = wf${i} * ${perRow}u;`],
      slot: (slot, i) => [`  var m${slot}_${i}: u32;`],
      load: (slot, i) => [`    m${slot}_${i} = metas[mb${i} + (s * ${bk}u + ${column(i)}) / ${groupSize}u];`],
      next: none,
      take: (slot, i) => ({ lines: [], word: `m${slot}_${i}` }),
    };
  const vectors = perRow / VECTOR;
  const first = slices === 1 ? '' : ` + wid.z * ${vectors / slices}u`;
  return {
    type: 'vec4<u32>',
    declare: (i) => [
      `  let mb${i} = wf${i} * ${vectors}u${first};`,
      `  var mn${i} = metas[mb${i}];`,
      `  var mv${i}: vec4<u32>;`,
    ],
    slot: none,
    load: none,
    next: (units, step) => [
      `  if (${step} % ${lasts}u == 0u) {`,
      ...Array.from({ length: units }, (_, i) => [
        `    mv${i} = mn${i};`,
        `    mn${i} = metas[mb${i} + min(${step} / ${lasts}u + 1u, ${vectors / slices - 1}u)];`,
      ]).flat(),
      '  }',
    ],
    take: (_, i, step) => ({
      lines: [
        `let pick = (${step} % ${lasts}u * ${bk}u + ${column(i)}) / ${groupSize}u;`,
        `let low = select(mv${i}.x, mv${i}.y, (pick & 1u) != 0u);`,
        `let high = select(mv${i}.z, mv${i}.w, (pick & 1u) != 0u);`,
      ],
      word: 'select(low, high, (pick & 2u) != 0u)',
    }),
  };
}
