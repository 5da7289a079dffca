/**
 * q, k and v of a tower as halves, head by head, for its attention on matrices: each of its workgroups would else convert them anew. Rotation goes with it,
 * for nobody else reads what it makes.
 */

import type { RowKind } from '../../graph.js';
import { type Binding, declareBindings, type Stage } from '../kernel.js';
import { rowCount, STEP_BINDING } from '../step-buffer.js';
import { f32Literal } from './f32-literal.js';

export interface SegmentsShape {
  readonly rowKind: RowKind;
  readonly heads: number;
  readonly headDim: number;
  readonly scale: number;
  /** Leading dims of heads of q and k that turn by `angles` of their row, halves with each other: a multiple of 8, or 0. */
  readonly rotated: number;
  /** Most rows of a step, and that one of them sees. */
  readonly rows: number;
  readonly most: number;
}

const THREADS = 64;
/** Halves of a vector. */
export const HALVES_UNIT = 8;

/** `[3 · heads, rows, width]` as halves: q and k rotated, q times the scale, in powers of two. */
export function segmentHalvesStage(
  { rowKind, heads, headDim, scale, rotated }: SegmentsShape,
  width: number,
): Stage {
  const vectors = width / HALVES_UNIT;
  const own = headDim / 4;
  const pieces = 3 * heads * vectors;
  const bindings: Binding[] = [
    STEP_BINDING,
    { name: 'qkv', access: 'read', type: 'array<vec4<f32>>' },
    ...(rotated === 0 ? [] : [{ name: 'angles', access: 'read', type: 'array<vec4<f32>>' } as const]),
    { name: 'scratchSegments', access: 'read_write', type: 'array<vec4<u32>>' },
  ];
  const half = (h: number): string =>
    `if (at + ${h}u < ${own}u) { v${h} = ${rotated === 0 ? `qkv[start + at + ${h}u]` : `rotated_(row, head, start, at + ${h}u)`}; }`;
  const across = rotated / 8;
  const turn = `fn rotated_(row: u32, head: u32, start: u32, i: u32) -> vec4<f32> {
  let v = qkv[start + i];
  if (head >= ${2 * heads}u || i >= ${2 * across}u) { return v; }
  let upper = i >= ${across}u;
  let other = qkv[start + select(i + ${across}u, i - ${across}u, upper)];
  let angle = row * ${2 * across}u + select(i, i - ${across}u, upper);
  let sine = angles[angle + ${across}u];
  return v * angles[angle] + other * select(-sine, sine, upper);
}`;
  return {
    label: `segments${rotated === 0 ? '' : ', rotated,'} to halves ${heads} of ${headDim}`,
    wgsl: `enable f16;
${declareBindings(bindings)}
${rotated === 0 ? '' : turn}
@compute @workgroup_size(${THREADS})
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
  let count = ${rowCount(rowKind)};
  let row = wid.y + wid.z * 65535u;
  let i = wid.x * ${THREADS}u + lid;
  if (row >= count || i >= ${pieces}u) { return; }
  let head = i / ${vectors}u;
  let start = (row * ${3 * heads}u + head) * ${own}u;
  let at = i % ${vectors}u * 2u;
  var v0 = vec4<f32>(0.0);
  var v1 = vec4<f32>(0.0);
  ${half(0)}
  ${half(1)}
  let by = select(1.0, ${f32Literal(scale * Math.LOG2E)}, head < ${heads}u);
  // What is not finite becomes so: zero times it would reach rows of other segments.
  let h0 = vec4<f16>(clamp(v0 * by, vec4<f32>(-65504.0), vec4<f32>(65504.0)));
  let h1 = vec4<f16>(clamp(v1 * by, vec4<f32>(-65504.0), vec4<f32>(65504.0)));
  scratchSegments[(head * count + row) * ${vectors}u + i % ${vectors}u] = vec4<u32>(bitcast<vec2<u32>>(h0), bitcast<vec2<u32>>(h1));
}`,
    bindings,
    workgroups: (facts, out) => {
      out[0] = Math.ceil(pieces / THREADS);
      out[1] = Math.min(facts[rowKind], 65535);
      out[2] = Math.ceil(facts[rowKind] / 65535);
    },
  };
}
