/**
 * The gated delta rule (`gated-delta` of graph.ts), as a scan over the tokens of a sequence; scan.ts says what a workgroup and a thread have.
 * Keys, queries and values of a few tokens at a time are put into workgroup memory while those before are walked, with the lengths of keys
 * and queries, which no state enters. What is left of a token is one sum over a column, of its key and its query at once:
 * the answer `qᵀ(α S + k δ)` is `α qᵀS + (q·k) δ`. Sums go over the rows of a part, then over the parts: an order that the shape alone
 * decides, so that it does not show how a prompt was cut. Where subgroups have one size, the parts of a column are neighbouring lanes
 * and nobody waits for a workgroup within a token. docs/lab/2026-11-26-experts.md has what was measured.
 */

import type { NodeOf } from '../../graph.js';
import { type Binding, declareBindings, type Kernel } from '../kernel.js';
import type { LayerState } from '../layer-caches.js';
import { STEP_BINDING, STEP_WGSL } from '../step-buffer.js';
import { f32Literal } from './f32-literal.js';
import { COLUMNS, lines, planScan, scanWrites } from './scan.js';

const F32X4 = 'array<vec4<f32>>';
const read = (name: string, type: string): Binding => ({ name, access: 'read', type });

export function gatedDeltaKernel(
  {
    gates: { cols: gateCols },
    gatesFrom,
    keyHeads,
    heads,
    rows,
    cols,
  }: Pick<NodeOf<'gated-delta'>, 'gates' | 'gatesFrom' | 'keyHeads' | 'heads' | 'rows' | 'cols'>,
  state: Pick<LayerState, 'shape' | 'maxBlocksPerSlot'>,
  lanes = 0,
): Kernel {
  const plan = planScan({ rows, cols }, state);
  const { parts, quads, own, columns, pair, across, threads, tiles, tokens } = plan;
  const { all, staged, values, each, where } = plan;
  const together = lanes >= parts;
  const width = 2 * keyHeads * rows + heads * cols;
  const gatesStride = Math.ceil(gateCols / 4) * 4;
  /** Threads that measure one token's key and query. */
  const measurers = threads / tokens;
  const bindings: readonly Binding[] = [
    STEP_BINDING,
    read('qkv', F32X4),
    read('gates', 'array<f32>'),
    read('decay', 'array<f32>'),
    read('tables', 'array<u32>'),
    ...scanWrites(pair),
  ];
  const sums = Array.from({ length: columns * 2 }, (_, i) => i);
  const fetch = (from: string): string => `{
      let first = ${from};
      ${lines(
        staged,
        (i) => `{
        let at = min(lid + ${i * threads}u, ${tokens * quads * 2 - 1}u);
        let place = at % ${quads * 2}u;
        ahead_${i} = qkv[(sequence.x + min(first + at / ${quads * 2}u, sequence.y - 1u)) * ${width / 4}u + key_head * ${quads}u +
          select(place, place + ${(keyHeads - 1) * quads}u, place >= ${quads}u)];
      }`,
      )}
      ${lines(
        values,
        (i) => `{
        let at = lid + ${i * threads}u;
        let v_at = (sequence.x + min(first + at / ${COLUMNS}u, sequence.y - 1u)) * ${width}u + ${2 * keyHeads * rows}u +
          head * ${cols}u + min(tile * ${COLUMNS}u + at % ${COLUMNS}u, ${cols - 1}u);
        let v4 = qkv[v_at / 4u];
        ahead_v${i} = v4[v_at % 4u];
      }`,
      )}
      let gates_at = (sequence.x + min(first + lid % ${tokens}u, sequence.y - 1u)) * ${gatesStride}u + ${gatesFrom}u + head;
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
${together ? '' : `var<workgroup> sums: array<array<f32, ${columns * 2}>, ${threads}>;`}
@compute @workgroup_size(${threads})
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
  if (wid.y >= step[0].z) { return; }
  let sequence = step_sequence(wid.y);
  if (sequence.y == 0u) { return; }
  let head = wid.x / ${tiles}u;
  let tile = wid.x % ${tiles}u;
  let c = ${together ? `lid / ${parts}u` : `lid % ${across}u`};
  let part = ${together ? `lid % ${parts}u` : `lid / ${across}u`};
  ${plan.place}
  let key_head = head / ${heads / keyHeads}u;
  ${lines(staged, (i) => `var ahead_${i}: vec4<f32>;`)}
  ${lines(values, (i) => `var ahead_v${i}: f32;`)}
  var ahead_a: f32; var ahead_b: f32;
  ${fetch('0u')}
  ${plan.load}
  let rate = decay[head];
  let shift = decay[${heads}u + head];
  for (var first = 0u; first < sequence.y; first += ${tokens}u) {
    workgroupBarrier();
    ${lines(staged, (i) => `${where(i, tokens * quads * 2)}{ staged[lid + ${i * threads}u] = ahead_${i}; }`)}
    ${lines(values, (i) => `${where(i, tokens * COLUMNS)}{ values[lid + ${i * threads}u] = ahead_v${i}; }`)}
    let a = ahead_a + shift;
    let b = ahead_b;
    workgroupBarrier();
    if (first + ${tokens}u < sequence.y) ${fetch(`first + ${tokens}u`)}
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
    let count = min(${tokens}u, sequence.y - first);
    ${each((i) => `var next_q${i} = staged[part + ${i * parts}u]; var next_k${i} = staged[part + ${quads + i * parts}u];`)}
    for (var t = 0u; t < count; t++) {
      ${each((i) => `let q${i} = next_q${i}; let k${i} = next_k${i};`)}
      let at = min(t + 1u, ${tokens - 1}u) * ${quads * 2}u + part;
      ${each((i) => `next_q${i} = staged[at + ${i * parts}u]; next_k${i} = staged[at + ${quads + i * parts}u];`)}
      let scale = scales[t];
      ${own
        .map(
          (o) => `var by_key${o} = s0_${o} * k0; var by_query${o} = s0_${o} * q0;
      ${lines(all.slice(1), (i) => `by_key${o} = fma(s${i}_${o}, k${i}, by_key${o}); by_query${o} = fma(s${i}_${o}, q${i}, by_query${o});`)}
      var sum${2 * o} = (by_key${o}.x + by_key${o}.y) + (by_key${o}.z + by_key${o}.w);
      var sum${2 * o + 1} = (by_query${o}.x + by_query${o}.y) + (by_query${o}.z + by_query${o}.w);`,
        )
        .join('\n      ')}
      ${
        together
          ? [1, 2, 4]
              .filter((step) => step < parts)
              .map((step) => lines(sums, (i) => `sum${i} += subgroupShuffleXor(sum${i}, ${step}u);`))
              .join('\n      ')
          : `${lines(sums, (i) => `sums[lid][${i}] = sum${i};`)}
      workgroupBarrier();
      ${lines(sums, (i) => `sum${i} = sums[c][${i}];`)}
      for (var other = 1u; other < ${parts}u; other++) {
        ${lines(sums, (i) => `sum${i} += sums[other * ${across}u + c][${i}];`)}
      }
      workgroupBarrier();`
      }
      ${own
        .map(
          (
            o,
          ) => `let delta${o} = (values[t * ${COLUMNS}u + ${columns}u * c + ${o}u] - scale.y * sum${2 * o}) * scale.z;
      ${each((i) => `s${i}_${o} = fma(vec4<f32>(delta${o}), k${i}, scale.x * s${i}_${o});`)}`,
        )
        .join('\n      ')}
      if (part == 0u && valid) {
        out[((sequence.x + first + t) * ${heads * cols}u + head * ${cols}u + column) / ${columns}u] =
          ${pair}(${own.map((o) => `scale.w * (scale.x * sum${2 * o + 1} + delta${o} * key_query[t])`).join(', ')});
      }
    }
  }
  ${plan.store}
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
