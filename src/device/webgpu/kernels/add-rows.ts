/** What pictures add to rows: rows of the feature slab, weighed rows of a table; and means of runs of columns. */

import { FEATURE_TOKEN } from '../../feature-slab.js';
import type { RowKind } from '../../graph.js';
import { type Binding, declareBindings, type Kernel } from '../kernel.js';
import { rowCount, STEP_BINDING, STEP_WGSL } from '../step-buffer.js';
import { f32Literal } from './f32-literal.js';

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
  return stage(`add-features [${cols}]`, wgsl, bindings, vectors, 'tokens');
}

/** A thread a number. */
export function addGatheredKernel(shape: {
  readonly rowKind: RowKind;
  readonly cols: number;
  readonly taps: number;
  readonly tableRows: number;
}): Kernel {
  const { rowKind, cols, taps, tableRows } = shape;
  const bindings = [
    STEP_BINDING,
    read('x', FLOATS),
    read('table', FLOATS),
    read('taps', FLOATS),
    written(FLOATS),
  ];
  const wgsl = `${declareBindings(bindings)}
@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
  let row = wid.y + wid.z * 65535u;
  let c = wid.x * 64u + lid;
  if (row >= ${rowCount(rowKind)} || c >= ${cols}u) { return; }
  var sum = 0.0;
  for (var j = 0u; j < ${taps}u; j += 1u) {
    let tap = row * ${strideOf(2 * taps)}u + j;
    let index = min(u32(taps[tap]), ${tableRows - 1}u);
    sum += taps[tap + ${taps}u] * table[index * ${cols}u + c];
  }
  let at = row * ${strideOf(cols)}u + c;
  out[at] = x[at] + sum;
}`;
  return stage(`add-gathered [${cols}]`, wgsl, bindings, cols, rowKind);
}

/** `cols`: of the result. A thread a number. */
export function meanRunsKernel(shape: {
  readonly rowKind: RowKind;
  readonly cols: number;
  readonly runs: number;
}): Kernel {
  const { rowKind, cols, runs } = shape;
  const bindings = [STEP_BINDING, read('x', FLOATS), written(FLOATS)];
  const wgsl = `${declareBindings(bindings)}
@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
  let row = wid.y + wid.z * 65535u;
  let c = wid.x * 64u + lid;
  if (row >= ${rowCount(rowKind)} || c >= ${cols}u) { return; }
  let first = row * ${strideOf(runs * cols)}u + c;
  var sum = x[first];
  for (var j = 1u; j < ${runs}u; j += 1u) { sum += x[first + j * ${cols}u]; }
  out[row * ${strideOf(cols)}u + c] = sum * ${f32Literal(1 / runs)};
}`;
  return stage(`mean-runs [${cols}]`, wgsl, bindings, cols, rowKind);
}

function stage(
  label: string,
  wgsl: string,
  bindings: readonly Binding[],
  width: number,
  rowKind: RowKind,
): Kernel {
  return {
    stages: [
      {
        label,
        wgsl,
        bindings,
        workgroups: (facts, out) => {
          out[0] = Math.ceil(width / 64);
          out[1] = Math.min(facts[rowKind], 65535);
          out[2] = Math.ceil(facts[rowKind] / 65535);
        },
      },
    ],
  };
}
