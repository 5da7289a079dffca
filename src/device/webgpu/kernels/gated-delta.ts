/**
 * The gated delta rule (`gated-delta` of graph.ts), as a scan. A workgroup has some columns of a head's state in registers and takes them
 * through all tokens of a sequence; each column is cut into parts of rows, a thread each. Keys, queries and values of a few
 * tokens at a time are put into workgroup memory while those before are walked, with the lengths of keys and queries, which
 * no state enters. What is left of a token is one sum over a column, of its key and its query at once:
 * the answer `qᵀ(α S + k δ)` is `α qᵀS + (q·k) δ`. Sums go over the rows of a part, then over the parts: an order that the shape alone
 * decides, so that it does not show how a prompt was cut. Where subgroups have one size, the parts of a column are neighbouring lanes
 * and nobody waits for a workgroup within a token. docs/lab/2026-11-26-experts.md has what was measured.
 */

import type { NodeOf } from '../../graph.js';
import { stateBytes, stateMatrixAt } from '../../state.js';
import { type Binding, declareBindings, type Kernel } from '../kernel.js';
import type { LayerState } from '../layer-caches.js';
import { STEP_BINDING, STEP_WGSL } from '../step-buffer.js';
import { f32Literal } from './f32-literal.js';

const COLUMNS = 32;
/** Keys and queries of the tokens in workgroup memory take no more. */
const STAGED_BYTES = 8192;

const F32X4 = 'array<vec4<f32>>';
const read = (name: string, type: string): Binding => ({ name, access: 'read', type });

export function gatedDeltaKernel(
  { keyHeads, heads, rows, cols }: Pick<NodeOf<'gated-delta'>, 'keyHeads' | 'heads' | 'rows' | 'cols'>,
  { shape, maxBlocksPerSlot }: Pick<LayerState, 'shape' | 'maxBlocksPerSlot'>,
  lanes = 0,
): Kernel {
  const parts = [4, 2, 1].find((n) => rows % (4 * n) === 0)!;
  const together = lanes >= parts;
  const quads = rows / 4;
  const all = Array.from({ length: quads / parts }, (_, i) => i);
  const threads = COLUMNS * parts;
  const tiles = Math.ceil(cols / COLUMNS);
  const width = 2 * keyHeads * rows + heads * cols;
  const gatesStride = Math.ceil((2 * heads) / 4) * 4;
  const tokens = [8, 4, 2, 1].find((n) => n * rows * 8 <= STAGED_BYTES) ?? 1;
  /** Threads that measure one token's key and query. */
  const measurers = threads / tokens;
  const staged = Array.from({ length: Math.ceil((tokens * quads * 2) / threads) }, (_, i) => i);
  const values = Array.from({ length: Math.ceil((tokens * COLUMNS) / threads) }, (_, i) => i);
  const bindings: readonly Binding[] = [
    STEP_BINDING,
    read('qkv', F32X4),
    read('gates', 'array<f32>'),
    read('decay', 'array<f32>'),
    read('tables', 'array<u32>'),
    { name: 'state', access: 'read_write', type: 'array<f32>' },
    { name: 'out', access: 'read_write', type: 'array<f32>' },
  ];
  const lines = (of: readonly number[], text: (i: number) => string): string => of.map(text).join('\n      ');
  const each = (text: (i: number) => string): string => lines(all, text);
  const cell = (i: number, e: number): string => `base + ${(4 * parts * i + e) * cols}u`;
  /** Whether a piece of `count` reaches `limit` with all threads. */
  const where = (i: number, limit: number): string =>
    (i + 1) * threads > limit ? `if (lid + ${i * threads}u < ${limit}u) ` : '';
  const fetch = (from: string): string => `{
      let first = ${from};
      ${lines(
        staged,
        (i) => `{
        let at = min(lid + ${i * threads}u, ${tokens * quads * 2 - 1}u);
        let place = at % ${quads * 2}u;
        ahead_${i} = qkv[(own.x + min(first + at / ${quads * 2}u, own.y - 1u)) * ${width / 4}u + key_head * ${quads}u +
          select(place, place + ${(keyHeads - 1) * quads}u, place >= ${quads}u)];
      }`,
      )}
      ${lines(
        values,
        (i) => `{
        let at = lid + ${i * threads}u;
        let v_at = (own.x + min(first + at / ${COLUMNS}u, own.y - 1u)) * ${width}u + ${2 * keyHeads * rows}u +
          head * ${cols}u + min(tile * ${COLUMNS}u + at % ${COLUMNS}u, ${cols - 1}u);
        let v4 = qkv[v_at / 4u];
        ahead_v${i} = v4[v_at % 4u];
      }`,
      )}
      let gates_at = (own.x + min(first + lid % ${tokens}u, own.y - 1u)) * ${gatesStride}u + head;
      ahead_b = gates[gates_at];
      ahead_a = gates[gates_at + ${heads}u];
    }`;
  const wgsl = `${together ? 'enable subgroups;\n' : ''}${declareBindings(bindings)}
${STEP_WGSL}
/** Token after token: its query, then its key. */
var<workgroup> staged: array<vec4<f32>, ${tokens * quads * 2}>;
var<workgroup> values: array<f32, ${tokens * COLUMNS}>;
var<workgroup> lengths: array<vec3<f32>, ${threads}>;
/** Of each token α, α / |k|, β / |k|, the query's scale; and q · k. */
var<workgroup> scales: array<vec4<f32>, ${tokens}>;
var<workgroup> key_query: array<f32, ${tokens}>;
${together ? '' : `var<workgroup> sums: array<vec2<f32>, ${threads}>;`}
@compute @workgroup_size(${threads})
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
  if (wid.y >= step[0].z) { return; }
  let own = step_sequence(wid.y);
  if (own.y == 0u) { return; }
  let head = wid.x / ${tiles}u;
  let tile = wid.x % ${tiles}u;
  let c = ${together ? `lid / ${parts}u` : `lid % ${COLUMNS}u`};
  let part = ${together ? `lid % ${parts}u` : `lid / ${COLUMNS}u`};
  let column = tile * ${COLUMNS}u + c;
  // Threads of no column go along and store nothing.
  let valid = column < ${cols}u;
  let base = tables[own.w * ${maxBlocksPerSlot}u] * ${stateBytes(shape) / 4}u + ${stateMatrixAt(shape)}u +
    (head * ${rows}u + part * 4u) * ${cols}u + min(column, ${cols - 1}u);
  let key_head = head / ${heads / keyHeads}u;
  ${lines(staged, (i) => `var ahead_${i}: vec4<f32>;`)}
  ${lines(values, (i) => `var ahead_v${i}: f32;`)}
  var ahead_a: f32; var ahead_b: f32;
  ${fetch('0u')}
  ${each((i) => `var s${i} = vec4<f32>(0.0);`)}
  if (own.z > 0u) {
    ${each((i) => `s${i} = vec4<f32>(${[0, 1, 2, 3].map((e) => `state[${cell(i, e)}]`).join(', ')});`)}
  }
  let rate = decay[head];
  let shift = decay[${heads}u + head];
  for (var first = 0u; first < own.y; first += ${tokens}u) {
    workgroupBarrier();
    ${lines(staged, (i) => `${where(i, tokens * quads * 2)}{ staged[lid + ${i * threads}u] = ahead_${i}; }`)}
    ${lines(values, (i) => `${where(i, tokens * COLUMNS)}{ values[lid + ${i * threads}u] = ahead_v${i}; }`)}
    let a = ahead_a + shift;
    let b = ahead_b;
    workgroupBarrier();
    if (first + ${tokens}u < own.y) ${fetch(`first + ${tokens}u`)}
    {
      let at = lid / ${measurers}u * ${quads * 2}u;
      var length = vec3<f32>(0.0);
      for (var i = lid % ${measurers}u; i < ${quads}u; i += ${measurers}u) {
        let q = staged[at + i];
        let k = staged[at + ${quads}u + i];
        length += vec3<f32>(dot(k, k), dot(q, q), dot(q, k));
      }
      lengths[lid] = length;
    }
    workgroupBarrier();
    if (lid < ${tokens}u) {
      var length = lengths[lid * ${measurers}u];
      for (var i = 1u; i < ${measurers}u; i++) { length += lengths[lid * ${measurers}u + i]; }
      let k_scale = 1.0 / sqrt(length.x + 1e-6f);
      let q_scale = ${f32Literal(1 / Math.sqrt(rows))} / sqrt(length.y + 1e-6f);
      let beta = 1.0 / (1.0 + exp(min(-b, 87.0)));
      // ln(1 + e^a), which loses no digits where e^a is small.
      let e = exp(-abs(a));
      let alpha = exp(rate * (max(a, 0.0) + select(log(1.0 + e), e * (1.0 - 0.5 * e), e < 1e-3f)));
      scales[lid] = vec4<f32>(alpha, alpha * k_scale, beta * k_scale, q_scale);
      key_query[lid] = length.z;
    }
    workgroupBarrier();
    let count = min(${tokens}u, own.y - first);
    for (var t = 0u; t < count; t++) {
      let at = t * ${quads * 2}u + part;
      ${each((i) => `let q${i} = staged[at + ${i * parts}u]; let k${i} = staged[at + ${quads + i * parts}u];`)}
      let scale = scales[t];
      var by_key = s0 * k0;
      var by_query = s0 * q0;
      ${lines(all.slice(1), (i) => `by_key = fma(s${i}, k${i}, by_key); by_query = fma(s${i}, q${i}, by_query);`)}
      var sum = vec2<f32>((by_key.x + by_key.y) + (by_key.z + by_key.w), (by_query.x + by_query.y) + (by_query.z + by_query.w));
      ${
        together
          ? [1, 2]
              .filter((step) => step < parts)
              .map((step) => `sum += subgroupShuffleXor(sum, ${step}u);`)
              .join('\n      ')
          : `sums[lid] = sum;
      workgroupBarrier();
      sum = sums[c];
      for (var other = 1u; other < ${parts}u; other++) { sum += sums[other * ${COLUMNS}u + c]; }
      workgroupBarrier();`
      }
      let delta = (values[t * ${COLUMNS}u + c] - scale.y * sum.x) * scale.z;
      ${each((i) => `s${i} = fma(vec4<f32>(delta), k${i}, scale.x * s${i});`)}
      if (part == 0u && valid) {
        out[(own.x + first + t) * ${heads * cols}u + head * ${cols}u + column] = scale.w * (scale.x * sum.y + delta * key_query[t]);
      }
    }
  }
  if (valid) {
    ${each((i) => [0, 1, 2, 3].map((e) => `state[${cell(i, e)}] = s${i}.${'xyzw'[e]};`).join('\n    '))}
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
