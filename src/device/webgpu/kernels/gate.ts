/** `norm(x) · act(gate)` (`gate` of graph.ts): a workgroup for each run of columns that is normed by itself, or for some of those that are not. */

import type { GateActivation, NodeOf } from '../../graph.js';
import { type Binding, declareBindings, type Kernel, spread } from '../kernel.js';
import { rowCount, STEP_BINDING } from '../step-buffer.js';
import { f32Literal } from './f32-literal.js';
import { activationText } from './linear-spec.js';

const THREADS = 64;
/** Columns of a workgroup where nothing is normed. */
const COLUMNS = 256;

const read = (name: string): Binding => ({ name, access: 'read', type: 'array<f32>' });

const SIGMOID = '1.0 / (1.0 + exp(min(-g, 87.0)))';
/** The activations of `g`. */
const OPEN: Readonly<Record<GateActivation, string>> = {
  sigmoid: SIGMOID,
  silu: `g * (${SIGMOID})`,
  'gelu-tanh': activationText('gelu-tanh', 'g'),
};

export function gateKernel({
  x,
  from,
  gate,
  gateFrom,
  activation,
  norm,
  out: { rows, cols },
}: Pick<NodeOf<'gate'>, 'x' | 'from' | 'gate' | 'gateFrom' | 'activation' | 'norm' | 'out'>): Kernel {
  const width = norm?.weight.length ?? Math.min(cols, COLUMNS);
  const runs = Math.ceil(cols / width);
  const stride = Math.ceil(cols / 4) * 4;
  const bindings: Binding[] = [
    STEP_BINDING,
    read('x'),
    read('gate'),
    ...(norm === null ? [] : [read('weight')]),
    { name: 'out', access: 'read_write', type: 'array<f32>' },
  ];
  const xStride = Math.ceil(x.cols / 4) * 4;
  const gateStride = Math.ceil(gate.cols / 4) * 4;
  const sums =
    norm === null
      ? 'let scale = 1.0;'
      : `var sum = 0.0;
  for (var i = lid; i < ${width}u; i += ${THREADS}u) { let v = x[source + i]; sum += v * v; }
  part[lid] = sum;
  workgroupBarrier();
  for (var half = ${THREADS / 2}u; half > 0u; half >>= 1u) {
    if (lid < half) { part[lid] += part[lid + half]; }
    workgroupBarrier();
  }
  let scale = 1.0 / sqrt(part[0] / ${f32Literal(width)} + ${f32Literal(norm.eps)});`;
  const wgsl = `${declareBindings(bindings)}
${norm === null ? '' : `var<workgroup> part: array<f32, ${THREADS}>;`}
@compute @workgroup_size(${THREADS})
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>,
        @builtin(local_invocation_index) lid: u32) {
  let run = wid.x + wid.y * nwg.x;
  let row = run / ${runs}u;
  if (row >= ${rowCount(rows)}) { return; }
  let start = (run % ${runs}u) * ${width}u;
  let base = row * ${stride}u + start;
  let source = row * ${xStride}u + ${from}u + start;
  let by = row * ${gateStride}u + ${gateFrom}u + start;
  ${sums}
  for (var i = lid; i < ${cols % width === 0 ? `${width}u` : `min(${width}u, ${cols}u - start)`}; i += ${THREADS}u) {
    let g = gate[by + i];
    let open = ${OPEN[activation]};
    out[base + i] = x[source + i] * scale${norm === null ? '' : ' * weight[i]'} * open;
  }
}`;
  return {
    stages: [
      {
        label: `gate ${activation} [${runs} × ${width}]`,
        wgsl,
        bindings,
        workgroups: (facts, out) => spread(facts[rows] * runs, out),
      },
    ],
  };
}
