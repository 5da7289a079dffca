/**
 * The gated delta rule (`gated-delta` of graph.ts), as a scan. A workgroup has 16 columns of a head's state in registers and takes them
 * through all tokens of a sequence; each column is cut into parts of rows, a thread each. Sums go over the rows of a part, then over
 * the parts: an order that the shape alone decides, so that it does not show how a prompt was cut. Where subgroups have one size, the
 * parts of a column are neighbouring lanes, nobody waits for a workgroup, and a token's numbers are fetched during the one before.
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
  lanes = 0,
): Kernel {
  const parts = [4, 2, 1].find((n) => rows % (4 * n) === 0)!;
  const together = lanes >= COLUMNS;
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
  /** Puts what the threads of a column have together, as `name`. */
  const summed = (name: string, type: string, of: string): string => {
    if (together)
      return [1, 2]
        .filter((step) => step < parts)
        .reduce(
          (lines, step) => `${lines}\n    ${name} += subgroupShuffleXor(${name}, ${step}u);`,
          `var ${name} = ${of};`,
        );
    return `${of === 'partial' ? 'sums' : 'outs'}[lid] = ${of};
    workgroupBarrier();
    var ${name}: ${type} = ${of === 'partial' ? 'sums' : 'outs'}[c];
    for (var other = 1u; other < ${parts}u; other++) { ${name} += ${of === 'partial' ? 'sums' : 'outs'}[other * ${COLUMNS}u + c]; }`;
  };
  const fetch = (token: string, to: (name: string) => string): string => `{
      let q_at = (${token}) * ${width / 4}u + key_head * ${rows / 4}u + part * ${vectors}u;
      let k_at = q_at + ${(keyHeads * rows) / 4}u;
      ${each((i) => `${to(`k${i}`)} = qkv[k_at + ${i}u]; ${to(`q${i}`)} = qkv[q_at + ${i}u];`)}
      ${to('b')} = gates[(${token}) * ${gatesStride}u + head];
      ${to('a')} = gates[(${token}) * ${gatesStride}u + ${heads}u + head];
      let v_at = (${token}) * ${width}u + ${2 * keyHeads * rows}u + head * ${cols}u + min(column, ${cols - 1}u);
      let v4 = qkv[v_at / 4u];
      ${to('v')} = v4[v_at % 4u];
    }`;
  const ahead = (name: string): string => `next_${name}`;
  const variables = (name: (of: string) => string): string =>
    `${each((i) => `var ${name(`k${i}`)}: vec4<f32>; var ${name(`q${i}`)}: vec4<f32>;`)}
    var ${name('a')}: f32; var ${name('b')}: f32; var ${name('v')}: f32;`;
  const wgsl = `${together ? 'enable subgroups;\n' : ''}${declareBindings(bindings)}
${STEP_WGSL}
${together ? '' : `var<workgroup> sums: array<vec4<f32>, ${threads}>;\nvar<workgroup> outs: array<f32, ${threads}>;`}
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
  let key_head = head / ${heads / keyHeads}u;
  ${together ? `${variables(ahead)}\n  if (own.y > 0u) ${fetch('own.x', ahead)}` : ''}
  for (var t = 0u; t < own.y; t++) {
    let token = own.x + t;
    ${variables((name) => name)}
    ${
      together
        ? `${each((i) => `k${i} = next_k${i}; q${i} = next_q${i};`)}
    a = next_a; b = next_b; v = next_v;
    ${fetch('own.x + min(t + 1u, own.y - 1u)', ahead)}`
        : fetch('token', (name) => name)
    }
    var partial = vec4<f32>(0.0);
    ${each((i) => `partial += vec4<f32>(dot(k${i}, k${i}), dot(q${i}, q${i}), dot(s${i}, k${i}), 0.0);`)}
    ${summed('sum', 'vec4<f32>', 'partial')}
    let k_scale = 1.0 / sqrt(sum.x + 1e-6f);
    let q_scale = ${f32Literal(1 / Math.sqrt(rows))} / sqrt(sum.y + 1e-6f);
    a += shift;
    let beta = 1.0 / (1.0 + exp(min(-b, 87.0)));
    // ln(1 + e^a), which loses no digits where e^a is small.
    let e = exp(-abs(a));
    let alpha = exp(rate * (max(a, 0.0) + select(log(1.0 + e), e * (1.0 - 0.5 * e), e < 1e-3f)));
    let delta = (v - alpha * k_scale * sum.z) * beta * k_scale;
    var o = 0.0;
    ${each((i) => `s${i} = alpha * s${i} + delta * k${i};\n    o += dot(s${i}, q${i});`)}
    ${summed('all', 'f32', 'o')}
    if (part == 0u && valid) { out[token * ${heads * cols}u + head * ${cols}u + column] = all * q_scale; }
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
