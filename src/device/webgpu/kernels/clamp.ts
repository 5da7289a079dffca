/** The op `clamp` of graph.ts. */

import type { RowKind } from '../../graph.js';
import { type Binding, declareBindings, type Kernel } from '../kernel.js';
import { rowCount, STEP_BINDING } from '../step-buffer.js';
import { elementStage } from './elementwise.js';

const bindings: readonly Binding[] = [
  STEP_BINDING,
  { name: 'x', access: 'read', type: 'array<vec4<f32>>' },
  { name: 'bounds', access: 'read', type: 'array<f32>' },
  { name: 'out', access: 'read_write', type: 'array<vec4<f32>>' },
];

/** Four columns a thread; runs of several are multiples of so many. */
export function clampKernel(shape: {
  readonly rowKind: RowKind;
  readonly cols: number;
  readonly runs: number;
}): Kernel {
  const { rowKind, cols, runs } = shape;
  const vectors = Math.ceil(cols / 4);
  const run = runs === 1 ? '0u' : `c / ${cols / runs / 4}u`;
  const wgsl = `${declareBindings(bindings)}
@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
  let row = wid.y + wid.z * 65535u;
  let c = wid.x * 64u + lid;
  if (row >= ${rowCount(rowKind)} || c >= ${vectors}u) { return; }
  let at = row * ${vectors}u + c;
  let run = ${run};
  out[at] = min(max(x[at], vec4<f32>(bounds[2u * run])), vec4<f32>(bounds[2u * run + 1u]));
}`;
  return elementStage(`clamp [${cols}, ${runs}]`, wgsl, bindings, vectors, rowKind);
}
