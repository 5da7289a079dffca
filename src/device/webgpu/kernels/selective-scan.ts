/**
 * The selective state space (`selective-scan` of graph.ts), as a scan. A workgroup has some columns of a head's state in registers and
 * takes them through all tokens of a sequence. A thread has a part of the rows of two neighbouring columns (of one, where their
 * number is odd), so that what it reads of B and C serves twice. B, C, values and steps of a few tokens at a time are put into workgroup
 * memory while those before are walked. No state depends on a sum, so the sums of a part are left until these tokens are done. They go
 * over the rows of a part, then over the parts: an order that the shape alone decides, so that it does not show how a prompt was cut.
 */

import type { NodeOf } from '../../graph.js';
import { stateBytes, stateMatrixAt } from '../../state.js';
import { type Binding, declareBindings, type Kernel } from '../kernel.js';
import type { LayerState } from '../layer-caches.js';
import { STEP_BINDING, STEP_WGSL } from '../step-buffer.js';
import { f32Literal } from './f32-literal.js';

const COLUMNS = 32;
/** B and C of the tokens in workgroup memory take no more. */
const STAGED_BYTES = 8192;

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
  { shape, maxBlocksPerSlot }: Pick<LayerState, 'shape' | 'maxBlocksPerSlot'>,
): Kernel {
  const parts = [8, 4, 2, 1].find((n) => rows % (4 * n) === 0)!;
  const quads = rows / 4;
  const all = Array.from({ length: quads / parts }, (_, i) => i);
  const at = stateMatrixAt(shape);
  const stride = stateBytes(shape) / 4;
  /** Columns of a thread. */
  const own = (cols | at | stride) % 2 === 0 ? [0, 1] : [0];
  const columns = own.length;
  const pair = columns === 2 ? 'vec2<f32>' : 'f32';
  const across = COLUMNS / columns;
  const threads = across * parts;
  const tiles = Math.ceil(cols / COLUMNS);
  const width = heads * cols + 2 * groups * rows;
  const stepsStride = Math.ceil(stepCols / 4) * 4;
  const tokens = [8, 4, 2, 1].find((n) => n * rows * 8 <= STAGED_BYTES) ?? 1;
  const staged = Array.from({ length: Math.ceil((tokens * quads * 2) / threads) }, (_, i) => i);
  const values = Array.from({ length: Math.ceil((tokens * COLUMNS) / threads) }, (_, i) => i);
  const bindings: readonly Binding[] = [
    STEP_BINDING,
    read('x', F32X4),
    read('steps', 'array<f32>'),
    read('decay', 'array<f32>'),
    read('tables', 'array<u32>'),
    { name: 'state', access: 'read_write', type: `array<${pair}>` },
    { name: 'out', access: 'read_write', type: `array<${pair}>` },
  ];
  const lines = (of: readonly number[], text: (i: number) => string): string => of.map(text).join('\n      ');
  const each = (text: (i: number) => string): string => lines(all, text);
  const cell = (i: number, e: number): string => `state[base + ${((4 * parts * i + e) * cols) / columns}u]`;
  /** One of the numbers that a thread has of each of its columns. */
  const of = (name: string, o: number): string => (columns === 2 ? `${name}.${'xy'[o]}` : name);
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
  let column = tile * ${COLUMNS}u + ${columns}u * c;
  // Threads of no column go along and store nothing.
  let valid = column < ${cols}u;
  let base = tables[sequence.w * ${maxBlocksPerSlot}u] * ${stride / columns}u + ${at / columns}u +
    (head * ${rows}u + part * 4u) * ${cols / columns}u + min(column, ${cols - columns}u) / ${columns}u;
  let inputs = ${(heads * cols) / 4}u + (head / ${heads / groups}u) * ${quads}u;
  ${lines(staged, (i) => `var ahead_${i}: vec4<f32>;`)}
  ${lines(values, (i) => `var ahead_v${i}: f32;`)}
  var ahead_step: f32;
  ${fetch('0u')}
  ${each((i) => own.map((o) => `var s${i}_${o} = vec4<f32>(0.0);`).join(' '))}
  if (sequence.z > 0u) {
    ${each(
      (i) => `{
      ${[0, 1, 2, 3].map((e) => `let e${e} = ${cell(i, e)};`).join(' ')}
      ${own.map((o) => `s${i}_${o} = vec4<f32>(${[0, 1, 2, 3].map((e) => of(`e${e}`, o)).join(', ')});`).join(' ')}
    }`,
    )}
  }
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
  if (valid) {
    ${each((i) => [0, 1, 2, 3].map((e) => `${cell(i, e)} = ${pair}(${own.map((o) => `s${i}_${o}.${'xyzw'[e]}`).join(', ')});`).join('\n    '))}
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
