/**
 * x as halves, once for all workgroups of a GEMM: each would else read twice the bytes and convert them anew. Where the
 * linear has a norm folded in, x is normed on the way.
 */

import type { LinearShape, Stage } from '../kernel.js';
import { declareBindings } from '../kernel.js';
import { floatText, HALVES_TEXT } from './linear-spec.js';

/** The role of what this stage leaves, `[rows, k]`. */
export const HALVES = 'scratchHalves';

/** The role of what attention, or one product, hands to the next: halves, `[rows, k]`, or bytes (linear-bytes.ts). */
export const HANDED = 'scratchHanded';

const THREADS = 256;
/** Vectors of a row that a thread keeps in registers. */
const MOST_HELD = 8;

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
  const vectors = k / 4;
  const store = (i: string, value: string): string =>
    `${HALVES}[wid.x * ${vectors}u + ${i}] = halves_(${value});`;
  const sum = Array.from({ length: subgroups }, (_, s) => `squares[${s}]`).join(' + ');
  const inverse = (eps: number): string => `square = subgroupAdd(square);
  if (lid % ${lanes}u == 0u) { squares[lid / ${lanes}u] = square; }
  workgroupBarrier();
  let inverse = inverseSqrt((${sum}) / ${k}.0 + ${floatText(eps)});`;
  const each = Array.from({ length: Math.ceil(vectors / THREADS) }, (_, e) => e);
  const body = (): string[] => {
    const walk = (text: string): string => `for (var i = lid; i < ${vectors}u; i += ${THREADS}u) { ${text} }`;
    if (norm === null) return [walk(store('i', 'x[start + i]'))];
    if (each.length > MOST_HELD)
      return [
        'var square = 0.0;',
        walk('let v = x[start + i]; square += dot(v, v);'),
        inverse(norm.eps),
        walk(store('i', 'x[start + i] * inverse * norm[i]')),
      ];
    // What a thread has of the row stays in registers, and the weights are on their way before all wait for the sum.
    const inside = (e: number, text: string): string =>
      (e + 1) * THREADS <= vectors ? text : `if (i${e} < ${vectors}u) { ${text} }`;
    return [
      ...each.map((e) => `let i${e} = lid + ${e * THREADS}u; var v${e}: vec4<f32>; var gain${e}: vec4<f32>;`),
      ...each.map((e) => inside(e, `v${e} = x[start + i${e}];`)),
      ...each.map((e) => inside(e, `gain${e} = norm[i${e}];`)),
      'var square = 0.0;',
      ...each.map((e) => `square += dot(v${e}, v${e});`),
      inverse(norm.eps),
      ...each.map((e) => inside(e, store(`i${e}`, `v${e} * inverse * gain${e}`))),
    ];
  };
  return {
    label: `${norm === null ? 'halves' : 'rms-norm to halves'} [${k}]`,
    wgsl: `enable f16;
enable subgroups;
${declareBindings(bindings)}
${norm === null ? '' : `var<workgroup> squares: array<f32, ${subgroups}>;`}
${HALVES_TEXT}
@compute @workgroup_size(${THREADS})
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
  let start = wid.x * ${xStride / 4}u;
  ${body().join('\n  ')}
}`,
    bindings,
    workgroups: (facts, out) => {
      out[0] = facts[rowKind];
      out[1] = 1;
      out[2] = 1;
    },
  };
}
