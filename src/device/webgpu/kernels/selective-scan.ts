/**
 * The selective state space (`selective-scan` of graph.ts), as a scan. A workgroup has 16 columns of a head's state in registers and
 * takes them through all tokens of a sequence; each column is cut into parts of rows, a thread each. A sum goes over the rows of a part,
 * then over the parts: an order that the shape alone decides, so that it does not show how a prompt was cut. Where subgroups have one
 * size, the parts of a column are neighbouring lanes, and nobody waits for a workgroup.
 */

import type { NodeOf } from '../../graph.js';
import { stateBytes, stateMatrixAt } from '../../state.js';
import { type Binding, declareBindings, type Kernel } from '../kernel.js';
import type { LayerState } from '../layer-caches.js';
import { STEP_BINDING, STEP_WGSL } from '../step-buffer.js';
import { f32Literal } from './f32-literal.js';

const COLUMNS = 16;

const F32X4 = 'array<vec4<f32>>';
const read = (name: string, type: string): Binding => ({ name, access: 'read', type });

export function selectiveScanKernel(
  {
    groups,
    heads,
    rows,
    cols,
    limits: [least, most],
  }: Pick<NodeOf<'selective-scan'>, 'groups' | 'heads' | 'rows' | 'cols' | 'limits'>,
  { shape, maxBlocksPerSlot }: Pick<LayerState, 'shape' | 'maxBlocksPerSlot'>,
  lanes = 0,
): Kernel {
  const parts = [4, 2, 1].find((n) => rows % (4 * n) === 0)!;
  const together = lanes >= COLUMNS;
  const vectors = rows / 4 / parts;
  const all = Array.from({ length: vectors }, (_, i) => i);
  const threads = COLUMNS * parts;
  const tiles = Math.ceil(cols / COLUMNS);
  const width = heads * cols + 2 * groups * rows;
  const stepsStride = Math.ceil(heads / 4) * 4;
  const bindings: readonly Binding[] = [
    STEP_BINDING,
    read('x', F32X4),
    read('steps', 'array<f32>'),
    read('decay', 'array<f32>'),
    read('tables', 'array<u32>'),
    { name: 'state', access: 'read_write', type: 'array<f32>' },
    { name: 'out', access: 'read_write', type: 'array<f32>' },
  ];
  const each = (text: (i: number) => string): string => all.map(text).join('\n    ');
  const cell = (i: number, e: number): string => `base + ${(4 * i + e) * cols}u`;
  // No two writes of a token's sums meet reads of the one before: outs has room for two tokens.
  const summed = together
    ? [1, 2]
        .filter((step) => step < parts)
        .map((step) => `o += subgroupShuffleXor(o, ${step}u);`)
        .join('\n    ')
    : `let turn = (t & 1u) * ${threads}u;
    outs[turn + lid] = o;
    workgroupBarrier();
    o = outs[turn + c];
    for (var other = 1u; other < ${parts}u; other++) { o += outs[turn + other * ${COLUMNS}u + c]; }`;
  const floor = least > 0 ? `delta = max(delta, ${f32Literal(least)});` : '';
  const ceiling = Number.isFinite(Math.fround(most)) ? `delta = min(delta, ${f32Literal(most)});` : '';
  const wgsl = `${together ? 'enable subgroups;\n' : ''}${declareBindings(bindings)}
${STEP_WGSL}
${together ? '' : `var<workgroup> outs: array<f32, ${2 * threads}>;`}
@compute @workgroup_size(${threads})
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
  if (wid.y >= step[0].z) { return; }
  let own = step_sequence(wid.y);
  let head = wid.x / ${tiles}u;
  let c = ${together ? `lid / ${parts}u` : `lid % ${COLUMNS}u`};
  let part = ${together ? `lid % ${parts}u` : `lid / ${COLUMNS}u`};
  let column = (wid.x % ${tiles}u) * ${COLUMNS}u + c;
  // Threads of no column go along and store nothing.
  let valid = column < ${cols}u;
  let base = tables[own.w * ${maxBlocksPerSlot}u] * ${stateBytes(shape) / 4}u + ${stateMatrixAt(shape)}u +
    (head * ${rows}u + part * ${vectors * 4}u) * ${cols}u + min(column, ${cols - 1}u);
  ${each((i) => `var s${i} = vec4<f32>(0.0);`)}
  if (own.z > 0u) {
    ${each((i) => `s${i} = vec4<f32>(${[0, 1, 2, 3].map((e) => `state[${cell(i, e)}]`).join(', ')});`)}
  }
  let rate = decay[head];
  let shift = decay[${heads}u + head];
  let skip = decay[${2 * heads}u + head];
  let inputs = ${(heads * cols) / 4}u + (head / ${heads / groups}u) * ${rows / 4}u + part * ${vectors}u;
  for (var t = 0u; t < own.y; t++) {
    let token = own.x + t;
    let at = token * ${width / 4}u;
    let x_at = head * ${cols}u + min(column, ${cols - 1}u);
    let x4 = x[at + x_at / 4u];
    let value = x4[x_at % 4u];
    let raw = steps[token * ${stepsStride}u + head] + shift;
    // ln(1 + e^raw), which loses no digits where e^raw is small.
    let e = exp(-abs(raw));
    var delta = max(raw, 0.0) + select(log(1.0 + e), e * (1.0 - 0.5 * e), e < 1e-3f);
    ${floor}
    ${ceiling}
    let alpha = exp(rate * delta);
    let d = delta * value;
    var o = 0.0;
    ${each(
      (i) => `s${i} = alpha * s${i} + d * x[at + inputs + ${i}u];
    o += dot(s${i}, x[at + inputs + ${(groups * rows) / 4 + i}u]);`,
    )}
    ${summed}
    if (part == 0u && valid) { out[token * ${heads * cols}u + head * ${cols}u + column] = o + skip * value; }
  }
  if (valid) {
    ${each((i) => [0, 1, 2, 3].map((e) => `state[${cell(i, e)}] = s${i}.${'xyzw'[e]};`).join('\n    '))}
  }
}`;
  return {
    stages: [
      {
        label: `selective-scan ${heads} × ${rows} × ${cols}`,
        wgsl,
        bindings,
        workgroups: ({ sequences }, to) => {
          to[0] = tiles * heads;
          to[1] = sequences;
          to[2] = 1;
        },
      },
    ],
  };
}
