/**
 * The end of a product whose K was cut into slices: a product of few features has few tiles, and a large GPU idles unless
 * several workgroups share one of them along K (linear-matrix.ts). Each leaves its sums in scratch; here they are added
 * up, in their order, and an output becomes what is wanted of it.
 */

import type { LinearShape, Stage } from '../kernel.js';
import { declareBindings } from '../kernel.js';

/** The role of the sums, `[slice][row][feature]`. */
export const SLICES = 'scratchSlices';

const THREADS = 128;

/** @param rows that a slice has room for */
export function slicesBytes(slices: number, rows: number, n: number): number {
  return slices * rows * n * 4;
}

/** Whether outputs are four to a thread, side by side. */
export function slicesFit({
  n,
  outStride,
  outOffset,
  glu,
}: Pick<LinearShape, 'n' | 'outStride' | 'outOffset' | 'glu'>): boolean {
  return glu === null && [n, outStride, outOffset].every((size) => size % 4 === 0);
}

/** One thread for four outputs of a row. */
export function slicesStage(shape: LinearShape, slices: number): Stage {
  const { rows, n, outStride, outOffset, bias, residual, rowKind } = shape;
  const type = 'array<vec4<f32>>';
  const bindings = [
    { name: SLICES, access: 'read', type },
    ...(bias ? [{ name: 'bias', access: 'read', type } as const] : []),
    ...(residual ? [{ name: 'residual', access: 'read', type } as const] : []),
    { name: 'out', access: 'read_write', type },
  ] as const;
  const sums = Array.from({ length: slices }, (_, s) => `${SLICES}[(${s * rows}u + wid.y) * ${n / 4}u + at]`);
  return {
    label: `slices ${slices} [${n}]`,
    wgsl: `${declareBindings(bindings)}
@compute @workgroup_size(${THREADS})
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
  let at = wid.x * ${THREADS}u + lid;
  if (at >= ${n / 4}u) { return; }
  let to = wid.y * ${outStride / 4}u + ${outOffset / 4}u + at;
  var value = ${sums.join(' + ')};
  ${bias ? 'value += bias[at];' : ''}
  ${residual ? 'value += residual[to];' : ''}
  out[to] = value;
}`,
    bindings,
    workgroups: (facts, out) => {
      out[0] = facts[rowKind] === 0 ? 0 : Math.ceil(n / 4 / THREADS);
      out[1] = facts[rowKind];
      out[2] = 1;
    },
  };
}
