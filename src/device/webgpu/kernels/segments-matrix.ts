/**
 * Attention of segments on subgroup matrices of halves. A first stage leaves q, scaled, k and v as halves, head by head, with heads
 * padded to whole matrices; the second walks a segment in tiles of its keys, from the first row of it on: what stands beside the segment
 * does not show. Rows of a workgroup that are of several segments pass one after the other.
 *
 * The softmax is that of attend-prefill.ts: the maximum in use lags behind the true one, so that the sums, which lie in
 * matrices, are shrunk seldom.
 */

import type { RowKind } from '../../graph.js';
import type { Binding, Capabilities, Kernel, MatrixConfig, Stage } from '../kernel.js';
import { declareBindings } from '../kernel.js';
import { rowCount, STEP_BINDING } from '../step-buffer.js';
import { count, dividedText, isUnseen, LOWEST } from './attend-words.js';
import { f32Literal } from './f32-literal.js';
import { matrixOf } from './linear-choice.js';
import { fixedLanes } from './linear-fast.js';

export interface SegmentsShape {
  readonly rowKind: RowKind;
  readonly heads: number;
  readonly headDim: number;
  readonly scale: number;
  /** Most rows of a step. */
  readonly rows: number;
}

interface SegmentsConfig {
  readonly matrix: MatrixConfig;
  readonly lanes: number;
}

const THREADS = 64;
/** Halves of a vector. */
const UNIT = 8;
/** Query rows of a workgroup, and keys that are staged at once. */
const ROWS = 64;
const KEYS = 64;
/** Components between rows of a tile, so that they do not fall into the same banks. */
const PAD = 8;
const SCORES = KEYS + 4;
const WEIGHTS = KEYS + PAD;

/** Null where the device has no matrices of halves, or too little room. */
export function segmentsMatrixKernel(capabilities: Capabilities, shape: SegmentsShape): Kernel | null {
  const matrix = matrixOf(capabilities);
  const lanes = fixedLanes(capabilities);
  if (matrix === null || matrix.component !== 'f16' || lanes === 0) return null;
  const width = paddedHead(shape.headDim, matrix);
  const threads = (ROWS / matrix.m) * lanes;
  const bytes = (ROWS * (width + PAD) + ROWS * WEIGHTS) * 2 + ROWS * SCORES * 4 + ROWS * 20 + 32;
  if (bytes > capabilities.workgroupBytes || threads > capabilities.workgroupThreads) return null;
  const scratch = 3 * shape.heads * shape.rows * width * 2;
  if (threads % ROWS !== 0 || scratch > capabilities.bindingBytes) return null;
  return {
    stages: [halvesStage(shape, width), matrixStage(shape, { matrix, lanes }, width)],
    scratch: { scratchSegments: scratch },
  };
}

function paddedHead(headDim: number, { n, k }: MatrixConfig): number {
  const unit = Math.max(n, k, UNIT);
  return Math.ceil(headDim / unit) * unit;
}

/** `[3 · heads, rows, width]` as halves: q times the scale, in powers of two. */
function halvesStage({ rowKind, heads, headDim, scale }: SegmentsShape, width: number): Stage {
  const vectors = width / UNIT;
  const own = headDim / 4;
  const pieces = 3 * heads * vectors;
  const bindings: Binding[] = [
    STEP_BINDING,
    { name: 'qkv', access: 'read', type: 'array<vec4<f32>>' },
    { name: 'scratchSegments', access: 'read_write', type: 'array<vec4<u32>>' },
  ];
  const half = (h: number): string =>
    `if (at + ${h}u < ${own}u) { v${h} = qkv[(row * ${3 * heads}u + head) * ${own}u + at + ${h}u]; }`;
  return {
    label: `segments to halves ${heads} of ${headDim}`,
    wgsl: `enable f16;
${declareBindings(bindings)}
@compute @workgroup_size(${THREADS})
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
  let count = ${rowCount(rowKind)};
  let row = wid.y + wid.z * 65535u;
  let i = wid.x * ${THREADS}u + lid;
  if (row >= count || i >= ${pieces}u) { return; }
  let head = i / ${vectors}u;
  let at = i % ${vectors}u * 2u;
  var v0 = vec4<f32>(0.0);
  var v1 = vec4<f32>(0.0);
  ${half(0)}
  ${half(1)}
  let by = select(1.0, ${f32Literal(scale * Math.LOG2E)}, head < ${heads}u);
  // What is not finite becomes so: zero times it would reach rows of other segments.
  let h0 = vec4<f16>(clamp(v0 * by, vec4<f32>(-65504.0), vec4<f32>(65504.0)));
  let h1 = vec4<f16>(clamp(v1 * by, vec4<f32>(-65504.0), vec4<f32>(65504.0)));
  scratchSegments[(head * count + row) * ${vectors}u + i % ${vectors}u] = vec4<u32>(bitcast<vec2<u32>>(h0), bitcast<vec2<u32>>(h1));
}`,
    bindings,
    workgroups: (facts, out) => {
      out[0] = Math.ceil(pieces / THREADS);
      out[1] = Math.min(facts[rowKind], 65535);
      out[2] = Math.ceil(facts[rowKind] / 65535);
    },
  };
}

function matrixStage(
  { rowKind, heads, headDim }: SegmentsShape,
  { matrix, lanes }: SegmentsConfig,
  width: number,
): Stage {
  const { m, n, k } = matrix;
  const vectors = width / UNIT;
  const stride = (width + PAD) / UNIT;
  const threads = (ROWS / m) * lanes;
  const dims = count(width / n);
  /** Threads of a row, and keys of one of them. */
  const rowLanes = threads / ROWS;
  const own = KEYS / rowLanes;
  const bindings: Binding[] = [
    STEP_BINDING,
    { name: 'scratchSegments', access: 'read', type: 'array<vec4<u32>>' },
    { name: 'bounds', access: 'read', type: 'array<vec4<f32>>' },
    { name: 'out', access: 'read_write', type: 'array<f32>' },
  ];
  /** Rows `[from, from + tile)` of a part, zeros from `end` on. */
  const stage = (part: string, tile: number, from: string, end: string): string => {
    const all = tile * vectors;
    return count(Math.ceil(all / threads))
      .map((i) => {
        const text = `{ let u = lid + ${i * threads}u; let source = ${from} + u / ${vectors}u; var v = vec4<u32>();
      if (source < ${end}) { v = scratchSegments[(${part} * count + source) * ${vectors}u + u % ${vectors}u]; }
      staged[u / ${vectors}u * ${stride}u + u % ${vectors}u] = v; }`;
        return (i + 1) * threads <= all ? text : `if (lid + ${i * threads}u < ${all}u) ${text}`;
      })
      .join('\n      ');
  };
  const scores = count(KEYS / n).map(
    (j) => `{
        var s = Sum();
        ${count(width / k)
          .map(
            (i) =>
              `s = subgroupMatrixMultiplyAccumulate(q${i}, subgroupMatrixLoad<Right, col_major>(&staged, ${j * n * stride + (i * k) / UNIT}u, ${stride}u), s);`,
          )
          .join('\n        ')}
        subgroupMatrixStore<row_major>(&scores, sub * ${m * SCORES}u + ${j * n}u, s, ${SCORES}u);
      }`,
  );
  const softmax = `{
        let r = lid / ${rowLanes}u;
        let part = lid % ${rowLanes}u;
        let mine = base + r >= at && base + r < behind;
        let source = r * ${SCORES}u + part * ${own}u;
        let t0 = t + part * ${own}u;
        var top = ${LOWEST};
        ${count(own)
          .map(
            (j) =>
              `let s${j} = select(${LOWEST}, scores[source + ${j}u], mine && t0 + ${j}u < end); top = max(top, s${j});`,
          )
          .join('\n        ')}
        ${lanesDown(rowLanes)
          .map((by) => `top = max(top, subgroupShuffleXor(top, ${by}u));`)
          .join('\n        ')}
        let before = tops[r];
        var used = before;
        var factor = 1.0;
        if (top > before + 8.0) {
          used = top;
          factor = select(0.0, exp2(before - top), before > ${LOWEST});
          if (before > ${LOWEST}) { raised[0] = 1u; }
        }
        var sum = 0.0;
        ${count(own / 4)
          .map((j) => {
            const four = count(4).map(
              (e) => `f16(select(exp2(s${4 * j + e} - used), 0.0, ${isUnseen(`s${4 * j + e}`)}))`,
            );
            return `{ let w = vec4<f16>(${four.join(', ')}); sum += dot(vec4<f32>(w), vec4<f32>(1.0)); weights[(r * ${WEIGHTS}u + part * ${own}u) / 4u + ${j}u] = w; }`;
          })
          .join('\n        ')}
        ${lanesDown(rowLanes)
          .map((by) => `sum += subgroupShuffleXor(sum, ${by}u);`)
          .join('\n        ')}
        if (part == 0u) { tops[r] = used; shrink[r] = factor; sums[r] = fma(sums[r], factor, sum); }
      }`;
  const products = count(KEYS / k).map(
    (i) => `{
        let w = subgroupMatrixLoad<Left, row_major>(&weights, sub * ${(m * WEIGHTS) / 4}u + ${(i * k) / 4}u, ${WEIGHTS / 4}u);
        ${dims
          .map(
            (d) =>
              `o${d} = subgroupMatrixMultiplyAccumulate(w, subgroupMatrixLoad<Right, row_major>(&staged, ${i * k * stride + (d * n) / UNIT}u, ${stride}u), o${d});`,
          )
          .join('\n        ')}
      }`,
  );
  /** Sums through workgroup memory, as many columns at once as it has: `each` has r, c and at. */
  const through = (each: string, back: boolean): string => {
    const perRound = KEYS / n;
    return count(Math.ceil(dims.length / perRound))
      .map((round) => {
        const some = dims.slice(round * perRound, (round + 1) * perRound);
        const cols = some.length * n;
        const place = (d: number): string => `sub * ${m * SCORES}u + ${(d - some[0]!) * n}u`;
        return `${some.map((d) => `subgroupMatrixStore<row_major>(&scores, ${place(d)}, o${d}, ${SCORES}u);`).join('\n')}
  workgroupBarrier();
  for (var i = lid; i < ${ROWS * cols}u; i += ${threads}u) {
    let r = i / ${cols}u;
    let c = ${some[0]! * n}u + i % ${cols}u;
    let place = r * ${SCORES}u + i % ${cols}u;
    ${each}
  }
  workgroupBarrier();
  ${
    back
      ? `${some.map((d) => `o${d} = subgroupMatrixLoad<Sum, row_major>(&scores, ${place(d)}, ${SCORES}u);`).join('\n')}
  workgroupBarrier();`
      : ''
  }`;
      })
      .join('\n');
  };
  const wgsl = `enable subgroups;
enable f16;
enable chromium_experimental_subgroup_matrix;
diagnostic(off, chromium.subgroup_matrix_uniformity);
${declareBindings(bindings)}
alias Left = subgroup_matrix_left<f16, ${k}, ${m}>;
alias Right = subgroup_matrix_right<f16, ${n}, ${k}>;
alias Sum = subgroup_matrix_result<f32, ${n}, ${m}>;
var<workgroup> staged: array<vec4<u32>, ${Math.max(KEYS, ROWS) * stride}>;
var<workgroup> weights: array<vec4<f16>, ${(ROWS * WEIGHTS) / 4}>;
var<workgroup> scores: array<f32, ${ROWS * SCORES}>;
var<workgroup> tops: array<f32, ${ROWS}>;
var<workgroup> sums: array<f32, ${ROWS}>;
var<workgroup> shrink: array<f32, ${ROWS}>;
var<workgroup> seen: array<vec2<u32>, ${ROWS}>;
var<workgroup> run: vec4<u32>;
var<workgroup> raised: array<u32, 4>;
@compute @workgroup_size(${threads})
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_index) lid: u32, @builtin(subgroup_id) sub: u32) {
  let count = ${rowCount(rowKind)};
  let base = wid.x * ${ROWS}u;
  let head = wid.y;
  if (base >= count) { return; }
  let last = min(base + ${ROWS}u, count);
  ${stage('head', ROWS, 'base', 'last')}
  for (var r = lid; r < ${ROWS}u; r += ${threads}u) {
    tops[r] = ${LOWEST};
    sums[r] = 0.0;
    seen[r] = vec2<u32>(bounds[min(base + r, count - 1u)].xy);
  }
  workgroupBarrier();
  ${count(width / k)
    .map(
      (i) =>
        `let q${i} = subgroupMatrixLoad<Left, row_major>(&staged, sub * ${m * stride}u + ${(i * k) / UNIT}u, ${stride}u);`,
    )
    .join('\n  ')}
  ${dims.map((d) => `var o${d} = Sum();`).join('\n  ')}
  var at = base;
  while (at < last) {
    // Rows that see the same.
    if (lid == 0u) {
      let both = seen[at - base];
      var next = at + 1u;
      while (next < last && all(seen[min(next - base, ${ROWS - 1}u)] == both)) { next++; }
      run = vec4<u32>(next, both, 0u);
    }
    let found = workgroupUniformLoad(&run);
    let behind = found.x;
    let end = min(found.z, count);
    for (var t = found.y; t < end; t += ${KEYS}u) {
      workgroupBarrier();
      ${stage(`(${heads}u + head)`, KEYS, 't', 'end')}
      if (lid == 0u) { raised[0] = 0u; }
      workgroupBarrier();
      ${scores.join('\n      ')}
      workgroupBarrier();
      ${stage(`(${2 * heads}u + head)`, KEYS, 't', 'end')}
      ${softmax}
      if (workgroupUniformLoad(&raised[0]) != 0u) {
        ${through('scores[place] *= shrink[r];', true)}
      }
      ${products.join('\n      ')}
    }
    at = behind;
  }
  workgroupBarrier();
  ${through(
    `if (c < ${headDim}u && base + r < count) { out[((base + r) * ${heads}u + head) * ${headDim}u + c] = ${dividedText('scores[place]', 'sums[r]', '0.0')}; }`,
    false,
  )}
}`;
  return {
    label: `attend-segments matrix ${heads} of ${headDim}`,
    wgsl,
    bindings,
    workgroups: (facts, out) => {
      out[0] = Math.ceil(facts[rowKind] / ROWS);
      out[1] = heads;
      out[2] = 1;
    },
  };
}

/** Half of the lanes, and so on down to one. */
function lanesDown(lanes: number): number[] {
  const out: number[] = [];
  for (let by = lanes / 2; by >= 1; by /= 2) out.push(by);
  return out;
}
