/** Ops that touch each number once: rms-norm, glu, act, add, scale, select-outputs. Rows are as wide as `stride`, see tensors. */

import type { Activation, RowKind, UngatedActivation } from '../../graph.js';
import { type Binding, declareBindings, type Kernel, spread } from '../kernel.js';
import { rowCount, STEP_BINDING, STEP_WGSL } from '../step-buffer.js';
import { f32Literal } from './f32-literal.js';

const read = (name: string, type = 'array<vec4<f32>>'): Binding => ({ name, access: 'read', type });
const OUT: Binding = { name: 'out', access: 'read_write', type: 'array<vec4<f32>>' };

/** One workgroup a row, whatever the rows: the order of the sum is the row's own. `residual`: it is added to what is normed. */
export function rmsNormKernel(shape: {
  readonly rowKind: RowKind;
  readonly cols: number;
  readonly eps: number;
  readonly residual?: boolean;
}): Kernel {
  const THREADS = 128;
  const { cols, rowKind, residual = false } = shape;
  const vectors = Math.ceil(cols / 4);
  const bindings = [STEP_BINDING, read('x'), read('weight'), ...(residual ? [read('residual')] : []), OUT];
  const mask =
    cols % 4 === 0
      ? ''
      : `v = select(vec4<f32>(0.0), v, vec4<u32>(i * 4u) + vec4<u32>(0u, 1u, 2u, 3u) < vec4<u32>(${cols}u));`;
  const wgsl = `${declareBindings(bindings)}
var<workgroup> part: array<f32, ${THREADS}>;
@compute @workgroup_size(${THREADS})
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>,
        @builtin(local_invocation_index) lid: u32) {
  let row = wid.x + wid.y * nwg.x;
  if (row >= ${rowCount(rowKind)}) { return; }
  var sum = 0.0;
  for (var i = lid; i < ${vectors}u; i += ${THREADS}u) {
    var v = x[row * ${vectors}u + i];
    ${mask}
    sum += dot(v, v);
  }
  part[lid] = sum;
  workgroupBarrier();
  for (var half = ${THREADS / 2}u; half > 0u; half >>= 1u) {
    if (lid < half) { part[lid] += part[lid + half]; }
    workgroupBarrier();
  }
  let scale = 1.0 / sqrt(part[0] / ${f32Literal(cols)} + ${f32Literal(shape.eps)});
  for (var i = lid; i < ${vectors}u; i += ${THREADS}u) {
    out[row * ${vectors}u + i] = x[row * ${vectors}u + i] * scale * weight[i]${residual ? ` + residual[row * ${vectors}u + i]` : ''};
  }
}`;
  return {
    stages: [
      {
        label: `rms-norm${residual ? ' and sum' : ''} [${cols}]`,
        wgsl,
        bindings,
        workgroups: (facts, out) => spread(facts[rowKind], out),
      },
    ],
  };
}

/** WGSL of `act(v: f32) -> f32`. No argument of exp overflows: WGSL need not know infinity. */
export function activationWgsl(activation: Activation): string {
  switch (activation) {
    case 'silu':
      return 'fn act(v: f32) -> f32 { return v / (1.0 + exp(min(-v, 87.0))); }';
    case 'relu':
      return 'fn act(v: f32) -> f32 { return max(v, 0.0); }';
    case 'relu2':
      return 'fn act(v: f32) -> f32 { let p = max(v, 0.0); return p * p; }';
    case 'gelu-tanh':
      // (1 + tanh u) / 2 is 1 / (1 + exp(-2u)), which loses no digits for small u as tanh may.
      return `fn act(v: f32) -> f32 {
  let u = 0.7978845608028654f * (v + 0.044715f * v * v * v);
  return v / (1.0 + exp(clamp(-2.0 * u, -87.0, 87.0)));
}`;
    case 'gelu':
      // erf by Abramowitz and Stegun, Handbook of Mathematical Functions, 7.1.26: error below 1.5e-7.
      return `fn act(v: f32) -> f32 {
  let a = min(abs(v) * 0.7071067811865476f, 9.0);
  let t = 1.0 / (1.0 + 0.3275911f * a);
  let p = t * (0.254829592f + t * (-0.284496736f + t * (1.421413741f + t * (-1.453152027f + t * 1.061405429f))));
  let q = 0.5 * p * exp(-a * a);
  return v * select(q, 1.0 - q, v >= 0.0);
}`;
  }
}

/** `half`: columns of the result. */
export function gluKernel(shape: {
  readonly rowKind: RowKind;
  readonly half: number;
  readonly activation: Activation;
}): Kernel {
  const { half, rowKind, activation } = shape;
  const bindings = [STEP_BINDING, read('x', 'array<f32>'), { ...OUT, type: 'array<f32>' }];
  const inStride = Math.ceil(half / 2) * 4;
  const outStride = Math.ceil(half / 4) * 4;
  const wgsl = `${declareBindings(bindings)}
${activationWgsl(activation)}
@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
  let row = wid.y + wid.z * 65535u;
  let c = wid.x * 64u + lid;
  if (row >= ${rowCount(rowKind)} || c >= ${half}u) { return; }
  let at = row * ${inStride}u + c;
  out[row * ${outStride}u + c] = act(x[at]) * x[at + ${half}u];
}`;
  return elementStage(`glu ${activation} [${half}]`, wgsl, bindings, half, rowKind);
}

/**
 * `xielu` by `parameters`: see UNGATED_ACTIVATIONS. Near 0 `e^m − 1 − m` is summed as a series, of which nothing
 * cancels.
 */
const XIELU_WGSL = `fn act(x: f32) -> f32 {
  if (x > 0.0) { return parameters[0] * x * x + parameters[2] * x; }
  let m = min(x, parameters[3]);
  let series = m * m * (0.5 + m * (0.16666667 + m * (0.041666667 + m * (0.0083333333 + m * (0.0013888889
    + m * (0.00019841270 + m * 0.000024801587))))));
  let curve = select(exp(max(m, -87.0)) - 1.0 - m, series, m > -0.5);
  return (curve + (m - x)) * parameters[1] + parameters[2] * x;
}`;

const QUICK_GELU_WGSL = 'fn act(v: f32) -> f32 { return v / (1.0 + exp(min(-1.702f * v, 87.0))); }';

function ungatedWgsl(activation: UngatedActivation): string {
  if (activation === 'xielu') return XIELU_WGSL;
  return activation === 'quick-gelu' ? QUICK_GELU_WGSL : activationWgsl(activation);
}

export function actKernel(shape: {
  readonly rowKind: RowKind;
  readonly cols: number;
  readonly activation: UngatedActivation;
}): Kernel {
  const { cols, rowKind, activation } = shape;
  const numbers = activation === 'xielu' ? [read('parameters', 'array<f32>')] : [];
  const bindings = [STEP_BINDING, read('x'), ...numbers, OUT];
  const vectors = Math.ceil(cols / 4);
  const wgsl = `${declareBindings(bindings)}
${ungatedWgsl(activation)}
@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
  let row = wid.y + wid.z * 65535u;
  let c = wid.x * 64u + lid;
  if (row >= ${rowCount(rowKind)} || c >= ${vectors}u) { return; }
  let at = row * ${vectors}u + c;
  let v = x[at];
  out[at] = vec4<f32>(act(v.x), act(v.y), act(v.z), act(v.w));
}`;
  return elementStage(`act ${activation} [${cols}]`, wgsl, bindings, vectors, rowKind);
}

export function addKernel(shape: { readonly rowKind: RowKind; readonly cols: number }): Kernel {
  const bindings = [STEP_BINDING, read('a'), read('b'), OUT];
  const vectors = Math.ceil(shape.cols / 4);
  const wgsl = `${declareBindings(bindings)}
@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
  let row = wid.y + wid.z * 65535u;
  let c = wid.x * 64u + lid;
  if (row >= ${rowCount(shape.rowKind)} || c >= ${vectors}u) { return; }
  let at = row * ${vectors}u + c;
  out[at] = a[at] + b[at];
}`;
  return elementStage(`add [${shape.cols}]`, wgsl, bindings, vectors, shape.rowKind);
}

/** `cap`: null for none. */
export function scaleKernel(shape: {
  readonly rowKind: RowKind;
  readonly cols: number;
  readonly factor: number;
  readonly softcap: number | null;
}): Kernel {
  const { rowKind, factor, softcap } = shape;
  const bindings = [STEP_BINDING, read('x'), OUT];
  const vectors = Math.ceil(shape.cols / 4);
  const cap = softcap === null ? '' : f32Literal(softcap);
  // The argument is kept where tanh does not overflow in any driver; it is 1 there.
  const capped =
    softcap === null ? 'y' : `${cap} * tanh(clamp(y / ${cap}, vec4<f32>(-15.0), vec4<f32>(15.0)))`;
  const wgsl = `${declareBindings(bindings)}
@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
  let row = wid.y + wid.z * 65535u;
  let c = wid.x * 64u + lid;
  if (row >= ${rowCount(rowKind)} || c >= ${vectors}u) { return; }
  let at = row * ${vectors}u + c;
  let y = x[at] * ${f32Literal(factor)};
  out[at] = ${capped};
}`;
  return elementStage(`scale [${shape.cols}]`, wgsl, bindings, vectors, rowKind);
}

/** `mean`: rows that an output is the mean of. */
export function selectOutputsKernel(shape: { readonly cols: number; readonly mean?: number }): Kernel {
  const { mean = 1 } = shape;
  const bindings = [STEP_BINDING, read('x'), OUT];
  const vectors = Math.ceil(shape.cols / 4);
  const wgsl = `${declareBindings(bindings)}
${STEP_WGSL}
@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
  let row = wid.y + wid.z * 65535u;
  let c = wid.x * 64u + lid;
  if (row >= step[0].y || c >= ${vectors}u) { return; }
  let first = step_output(row, 0u).x * ${mean * vectors}u + c;
  ${
    mean === 1
      ? 'let value = x[first];'
      : `var value = x[first];
  for (var i = 1u; i < ${mean}u; i++) { value += x[first + i * ${vectors}u]; }
  value *= ${f32Literal(1 / mean)};`
  }
  out[row * ${vectors}u + c] = value;
}`;
  return elementStage(
    `select-outputs [${shape.cols}]${mean === 1 ? '' : ` mean of ${mean}`}`,
    wgsl,
    bindings,
    vectors,
    'outputs',
  );
}

/** A launch of 64 threads a workgroup over `width` elements of each row. */
export function elementStage(
  label: string,
  wgsl: string,
  bindings: readonly Binding[],
  width: number,
  rowKind: RowKind,
): Kernel {
  const x = Math.ceil(width / 64);
  return {
    stages: [
      {
        label,
        wgsl,
        bindings,
        workgroups: (facts, out) => {
          const rows = facts[rowKind];
          out[0] = x;
          out[1] = Math.min(rows, 65535);
          out[2] = Math.ceil(rows / 65535);
        },
      },
    ],
  };
}
