/**
 * The selective state space (`selective-scan` of graph.ts), as a scan over the tokens of a sequence; scan.ts says what a workgroup and a
 * thread have. B, C, values and steps of a few tokens at a time are put into workgroup memory while those before are walked. No state
 * depends on a sum, so the sums of a part are left until these tokens are done. They go over the rows of a part, then over the parts: an
 * order that the shape alone decides, so that it does not show how a prompt was cut.
 */

import type { NodeOf } from '../../graph.js';
import { type Binding, declareBindings, type Kernel } from '../kernel.js';
import type { LayerState } from '../layer-caches.js';
import { STEP_BINDING, STEP_WGSL } from '../step-buffer.js';
import { f32Literal } from './f32-literal.js';
import { COLUMNS, lines, planScan, scanWrites } from './scan.js';

const F32X4 = 'array<vec4<f32>>';
const read = (name: string, type: string): Binding => ({ name, access: 'read', type });

export function selectiveScanKernel(
  {
    steps: { cols: stepCols },
    stepsFrom,
    groups,
    heads,
    rows,
    cols,
    limits: [least, most],
  }: Pick<NodeOf<'selective-scan'>, 'steps' | 'stepsFrom' | 'groups' | 'heads' | 'rows' | 'cols' | 'limits'>,
  state: Pick<LayerState, 'shape' | 'maxBlocksPerSlot'>,
): Kernel {
  const plan = planScan({ rows, cols }, state);
  const { parts, quads, own, columns, pair, across, threads, tiles, tokens } = plan;
  const { staged, values, each, of, where } = plan;
  const width = heads * cols + 2 * groups * rows;
  const stepsStride = Math.ceil(stepCols / 4) * 4;
  const bindings: readonly Binding[] = [
    STEP_BINDING,
    read('x', F32X4),
    read('steps', 'array<f32>'),
    read('decay', 'array<f32>'),
    read('tables', 'array<u32>'),
    ...scanWrites(pair),
  ];
  const fetch = (from: string): string => `{
      let first = ${from};
      ${lines(
        staged,
        (i) => `{
        let at = min(lid + ${i * threads}u, ${tokens * quads * 2 - 1}u);
        let place = at % ${quads * 2}u;
        ahead_${i} = x[(sequence.x + min(first + at / ${quads * 2}u, sequence.y - 1u)) * ${width / 4}u + inputs +
          select(place, place + ${(groups - 1) * quads}u, place >= ${quads}u)];
      }`,
      )}
      ${lines(
        values,
        (i) => `{
        let at = lid + ${i * threads}u;
        let x_at = (sequence.x + min(first + at / ${COLUMNS}u, sequence.y - 1u)) * ${width}u +
          head * ${cols}u + min(tile * ${COLUMNS}u + at % ${COLUMNS}u, ${cols - 1}u);
        let x4 = x[x_at / 4u];
        ahead_v${i} = x4[x_at % 4u];
      }`,
      )}
      ahead_step = steps[(sequence.x + min(first + lid % ${tokens}u, sequence.y - 1u)) * ${stepsStride}u + ${stepsFrom}u + head];
    }`;
  const floor = least > 0 ? `delta = max(delta, ${f32Literal(least)});` : '';
  const ceiling = Number.isFinite(Math.fround(most)) ? `delta = min(delta, ${f32Literal(most)});` : '';
  const wgsl = `${declareBindings(bindings)}
${STEP_WGSL}
/** Token after token: its B, then its C. */
var<workgroup> staged: array<vec4<f32>, ${tokens * quads * 2}>;
var<workgroup> values: array<${pair}, ${tokens * across}>;
/** Of each token what is kept of the state, and the step. */
var<workgroup> scales: array<vec2<f32>, ${tokens}>;
var<workgroup> sums: array<${pair}, ${tokens * threads}>;
@compute @workgroup_size(${threads})
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
  if (wid.y >= step[0].z) { return; }
  let sequence = step_sequence(wid.y);
  if (sequence.y == 0u) { return; }
  let head = wid.x / ${tiles}u;
  let tile = wid.x % ${tiles}u;
  let c = lid / ${parts}u;
  let part = lid % ${parts}u;
  ${plan.place}
  let inputs = ${(heads * cols) / 4}u + (head / ${heads / groups}u) * ${quads}u;
  ${lines(staged, (i) => `var ahead_${i}: vec4<f32>;`)}
  ${lines(values, (i) => `var ahead_v${i}: f32;`)}
  var ahead_step: f32;
  ${fetch('0u')}
  ${plan.load}
  let rate = decay[head];
  let shift = decay[${heads}u + head];
  let skip = decay[${2 * heads}u + head];
  for (var first = 0u; first < sequence.y; first += ${tokens}u) {
    workgroupBarrier();
    ${lines(staged, (i) => `${where(i, tokens * quads * 2)}{ staged[lid + ${i * threads}u] = ahead_${i}; }`)}
    ${lines(
      values,
      (i) =>
        `${where(i, tokens * COLUMNS)}{ let at = lid + ${i * threads}u; ${columns === 2 ? 'values[at / 2u][at % 2u]' : 'values[at]'} = ahead_v${i}; }`,
    )}
    if (lid < ${tokens}u) {
      let raw = ahead_step + shift;
      // ln(1 + e^raw), which loses no digits where e^raw is small.
      let e = exp(-abs(raw));
      var delta = max(raw, 0.0) + select(log(1.0 + e), e * (1.0 - 0.5 * e), e < 1e-3f);
      ${floor}
      ${ceiling}
      scales[lid] = vec2<f32>(exp(rate * delta), delta);
    }
    workgroupBarrier();
    if (first + ${tokens}u < sequence.y) ${fetch(`first + ${tokens}u`)}
    let count = min(${tokens}u, sequence.y - first);
    for (var t = 0u; t < count; t++) {
      let scale = scales[t];
      let d = scale.y * values[t * ${across}u + c];
      let at = t * ${quads * 2}u + part;
      ${own.map((o) => `var o${o} = vec4<f32>(0.0);`).join(' ')}
      ${each(
        (i) => `{
        let in = staged[at + ${i * parts}u];
        let answer = staged[at + ${quads + i * parts}u];
        ${own
          .map(
            (o) =>
              `s${i}_${o} = fma(vec4<f32>(${of('d', o)}), in, scale.x * s${i}_${o}); o${o} = fma(s${i}_${o}, answer, o${o});`,
          )
          .join('\n        ')}
      }`,
      )}
      sums[t * ${threads}u + lid] = ${pair}(${own.map((o) => `(o${o}.x + o${o}.y) + (o${o}.z + o${o}.w)`).join(', ')});
    }
    workgroupBarrier();
    for (var i = lid; i < count * ${across}u; i += ${threads}u) {
      let own_column = tile * ${COLUMNS}u + ${columns}u * (i % ${across}u);
      var sum = sums[i * ${parts}u];
      for (var other = 1u; other < ${parts}u; other++) { sum += sums[i * ${parts}u + other]; }
      if (own_column < ${cols}u) {
        out[((sequence.x + first + i / ${across}u) * ${heads * cols}u + head * ${cols}u + own_column) / ${columns}u] =
          sum + skip * values[i];
      }
    }
  }
  ${plan.store}
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
