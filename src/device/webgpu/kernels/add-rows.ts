/** What pictures add to rows: rows of the feature slab, and weighed rows of a table. */

import { FEATURE_TOKEN } from '../../feature-slab.js';
import type { RowKind } from '../../graph.js';
import { type Binding, declareBindings, type Kernel } from '../kernel.js';
import { rowCount, STEP_BINDING, STEP_WGSL } from '../step-buffer.js';
import { elementStage } from './elementwise.js';

const read = (name: string, type: string): Binding => ({ name, access: 'read', type });
const written = (type: string): Binding => ({ name: 'out', access: 'read_write', type });
const FLOATS = 'array<f32>';
const VECTORS = 'array<vec4<f32>>';

function strideOf(cols: number): number {
  return Math.ceil(cols / 4) * 4;
}

/** `features`: rows of the slab, and numbers from one to the next. */
export function addFeaturesKernel(shape: {
  readonly cols: number;
  readonly column: number;
  readonly features: { readonly rows: number; readonly cols: number };
}): Kernel {
  const { cols, column, features } = shape;
  const vectors = Math.ceil(cols / 4);
  const bindings = [STEP_BINDING, read('x', VECTORS), read('features', VECTORS), written(VECTORS)];
  const wgsl = `${declareBindings(bindings)}
${STEP_WGSL}
@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
  let token = wid.y + wid.z * 65535u;
  let c = wid.x * 64u + lid;
  if (token >= step[0].x || c >= ${vectors}u) { return; }
  let given = bitcast<i32>(step_token(token).x);
  var value = x[token * ${vectors}u + c];
  if (given >= ${FEATURE_TOKEN}) {
    let row = bitcast<u32>(given) - ${FEATURE_TOKEN}u;
    if (row < ${features.rows}u) { value += features[row * ${features.cols / 4}u + ${column / 4}u + c]; }
  }
  out[token * ${vectors}u + c] = value;
}`;
  return elementStage(`add-features [${cols}]`, wgsl, bindings, vectors, 'tokens');
}

/** A thread a number. */
export function addGatheredKernel(shape: {
  readonly rowKind: RowKind;
  readonly cols: number;
  /** `position`: the index is the position of the token, and the weight 1. */
  readonly taps: number | 'position';
  readonly tableRows: number;
}): Kernel {
  const { rowKind, cols, taps, tableRows } = shape;
  const bindings = [
    STEP_BINDING,
    read('x', FLOATS),
    read('table', FLOATS),
    ...(taps === 'position' ? [] : [read('taps', FLOATS)]),
    written(FLOATS),
  ];
  const gathered =
    taps === 'position'
      ? `let sum = table[min(step_token(row).z, ${tableRows - 1}u) * ${cols}u + c];`
      : `var sum = 0.0;
  for (var j = 0u; j < ${taps}u; j += 1u) {
    let tap = row * ${strideOf(2 * taps)}u + j;
    let index = min(u32(taps[tap]), ${tableRows - 1}u);
    sum += taps[tap + ${taps}u] * table[index * ${cols}u + c];
  }`;
  const wgsl = `${declareBindings(bindings)}
${taps === 'position' ? STEP_WGSL : ''}
@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
  let row = wid.y + wid.z * 65535u;
  let c = wid.x * 64u + lid;
  if (row >= ${rowCount(rowKind)} || c >= ${cols}u) { return; }
  ${gathered}
  let at = row * ${strideOf(cols)}u + c;
  out[at] = x[at] + sum;
}`;
  return elementStage(`add-gathered [${cols}]`, wgsl, bindings, cols, rowKind);
}
