/**
 * The gated delta rule (`gated-delta` of graph.ts), as a scan. A workgroup has 16 columns of a head's state in registers and takes them
 * through all tokens of a sequence; each column is cut into parts of rows, a thread each. Sums go over the rows of a part, then over
 * the parts in order: an order that the shape alone decides, so that it does not show how a prompt was cut.
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

export function gatedDeltaKernel(
  { keyHeads, heads, rows, cols }: Pick<NodeOf<'gated-delta'>, 'keyHeads' | 'heads' | 'rows' | 'cols'>,
  { shape, maxBlocksPerSlot }: Pick<LayerState, 'shape' | 'maxBlocksPerSlot'>,
): Kernel {
  const parts = [4, 2, 1].find((n) => rows % (4 * n) === 0)!;
  const vectors = rows / 4 / parts;
  const all = Array.from({ length: vectors }, (_, i) => i);
  const threads = COLUMNS * parts;
  const tiles = Math.ceil(cols / COLUMNS);
  const width = 2 * keyHeads * rows + heads * cols;
  const gatesStride = Math.ceil((2 * heads) / 4) * 4;
  const bindings: readonly Binding[] = [
    STEP_BINDING,
    read('qkv', F32X4),
    read('gates', 'array<f32>'),
    read('decay', 'array<f32>'),
    read('tables', 'array<u32>'),
    { name: 'state', access: 'read_write', type: 'array<f32>' },
    { name: 'out', access: 'read_write', type: 'array<f32>' },
  ];
  const place = (i: number): string => `${'xyzw'[i & 3]}`;
  const each = (text: (i: number) => string): string => all.map(text).join('\n    ');
  const cell = (i: number, e: number): string => `base + ${(4 * i + e) * cols}u`;
  const wgsl = `${declareBindings(bindings)}
${STEP_WGSL}
var<workgroup> sums: array<vec4<f32>, ${threads}>;
var<workgroup> outs: array<f32, ${threads}>;
@compute @workgroup_size(${threads})
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
  if (wid.y >= step[0].z) { return; }
  let own = step_sequence(wid.y);
  let head = wid.x / ${tiles}u;
  let c = lid % ${COLUMNS}u;
  let part = lid / ${COLUMNS}u;
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
  let key_head = head / ${heads / keyHeads}u;
  for (var t = 0u; t < own.y; t++) {
    let token = own.x + t;
    let q_at = token * ${width / 4}u + key_head * ${rows / 4}u + part * ${vectors}u;
    let k_at = q_at + ${(keyHeads * rows) / 4}u;
    var partial = vec4<f32>(0.0);
    ${each(
      (i) => `let k${i} = qkv[k_at + ${i}u];
    let q${i} = qkv[q_at + ${i}u];
    partial += vec4<f32>(dot(k${i}, k${i}), dot(q${i}, q${i}), dot(s${i}, k${i}), 0.0);`,
    )}
    sums[lid] = partial;
    workgroupBarrier();
    var sum = sums[c];
    for (var other = 1u; other < ${parts}u; other++) { sum += sums[other * ${COLUMNS}u + c]; }
    let k_scale = 1.0 / sqrt(sum.x + 1e-6f);
    let q_scale = ${f32Literal(1 / Math.sqrt(rows))} / sqrt(sum.y + 1e-6f);
    let b = gates[token * ${gatesStride}u + head];
    let a = gates[token * ${gatesStride}u + ${heads}u + head] + shift;
    let beta = 1.0 / (1.0 + exp(min(-b, 87.0)));
    // ln(1 + e^a), which loses no digits where e^a is small.
    let e = exp(-abs(a));
    let alpha = exp(rate * (max(a, 0.0) + select(log(1.0 + e), e * (1.0 - 0.5 * e), e < 1e-3f)));
    let v_at = token * ${width}u + ${2 * keyHeads * rows}u + head * ${cols}u + min(column, ${cols - 1}u);
    let v4 = qkv[v_at / 4u];
    let v = v4[v_at % 4u];
    let delta = (v - alpha * k_scale * sum.z) * beta * k_scale;
    var o = 0.0;
    ${each((i) => `s${i} = alpha * s${i} + delta * k${i};\n    o += dot(s${i}, q${i});`)}
    outs[lid] = o;
    workgroupBarrier();
    if (part == 0u && valid) {
      var all = outs[c];
      for (var other = 1u; other < ${parts}u; other++) { all += outs[other * ${COLUMNS}u + c]; }
      out[token * ${heads * cols}u + head * ${cols}u + column] = all * q_scale;
    }
  }
  if (valid) {
    ${each((i) => [0, 1, 2, 3].map((e) => `state[${cell(i, e)}] = s${i}.${place(e)};`).join('\n    '))}
  }
}`;
  return {
    stages: [
      {
        label: `gated-delta ${heads} × ${rows} × ${cols}`,
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
