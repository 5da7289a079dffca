/**
 * x as halves, once for all workgroups of a GEMM: each would else read twice the bytes and convert them anew. Where the
 * linear has a norm folded in, x is normed on the way.
 */

import type { LinearShape, Stage } from '../kernel.js';
import { declareBindings } from '../kernel.js';
import { floatText, HALVES_TEXT } from './linear-spec.js';

/** The role of what this stage leaves, `[rows, k]`. */
export const HALVES = 'scratchHalves';

/** The role of what attention, or one GEMM, hands to the next GEMM as halves, `[rows, k]`. */
export const HANDED = 'scratchHanded';

const THREADS = 256;

export function halvesBytes(rows: number, k: number): number {
  return rows * k * 2;
}

/** One workgroup a row. k is a multiple of 8. */
export function halvesStage(shape: LinearShape, lanes: number): Stage {
  const { k, xStride, norm, rowKind } = shape;
  const subgroups = THREADS / lanes;
  const bindings = [
    { name: 'x', access: 'read', type: 'array<vec4<f32>>' },
    ...(norm === null ? [] : [{ name: 'norm', access: 'read', type: 'array<vec4<f32>>' } as const]),
    { name: HALVES, access: 'read_write', type: 'array<vec4<f16>>' },
  ] as const;
  const sum = Array.from({ length: subgroups }, (_, s) => `squares[${s}]`).join(' + ');
  const scale =
    norm === null
      ? ''
      : `
  var square = 0.0;
  for (var i = lid; i < ${k / 4}u; i += ${THREADS}u) { let v = x[start + i]; square += dot(v, v); }
  square = subgroupAdd(square);
  if (lid % ${lanes}u == 0u) { squares[lid / ${lanes}u] = square; }
  workgroupBarrier();
  let inverse = inverseSqrt((${sum}) / ${k}.0 + ${floatText(norm.eps)});`;
  return {
    label: `${norm === null ? 'halves' : 'rms-norm to halves'} [${k}]`,
    wgsl: `enable f16;
enable subgroups;
${declareBindings(bindings)}
${norm === null ? '' : `var<workgroup> squares: array<f32, ${subgroups}>;`}
${HALVES_TEXT}
@compute @workgroup_size(${THREADS})
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
  let start = wid.x * ${xStride / 4}u;${scale}
  for (var i = lid; i < ${k / 4}u; i += ${THREADS}u) {
    ${HALVES}[wid.x * ${k / 4}u + i] = halves_(x[start + i]${norm === null ? '' : ' * inverse * norm[i]'});
  }
}`,
    bindings,
    workgroups: (facts, out) => {
      out[0] = facts[rowKind];
      out[1] = 1;
      out[2] = 1;
    },
  };
}
