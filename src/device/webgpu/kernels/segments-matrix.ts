/**
 * Attention of segments on subgroup matrices of halves. A first stage leaves q, scaled, k and v as halves, head by head, with heads
 * padded to whole matrices; the second walks a segment in tiles of its keys, from the first row of it on: what stands beside the segment
 * does not show. Rows of a workgroup that are of several segments pass one after the other.
 *
 * The softmax is that of attend-prefill.ts: the maximum in use lags behind the true one, so that the sums, which lie in
 * matrices, are shrunk seldom.
 *
 * Measured: docs/lab/2026-11-27-towers.md.
 */

import type { Binding, Capabilities, Kernel, MatrixConfig, Stage } from '../kernel.js';
import { declareBindings } from '../kernel.js';
import { rowCount, STEP_BINDING } from '../step-buffer.js';
import { count, dividedText, LOWEST } from './attend-words.js';
import { matrixOf } from './linear-choice.js';
import { fixedLanes } from './linear-fast.js';
import { type SegmentsShape, segmentHalvesStage, HALVES_UNIT as UNIT } from './segments-halves.js';

/** Sizes of a workgroup. */
interface SegmentsConfig {
  readonly matrix: MatrixConfig;
  readonly lanes: number;
  /** Query rows, and those of a subgroup in matrices. */
  readonly rows: number;
  readonly down: number;
}

/** Keys that are staged at once. */
const KEYS = 64;
/** Components between rows of a tile, so that they do not fall into the same banks. */
const PAD = 8;
const SCORES = KEYS + 4;

/**
 * Sizes, best first. Where a subgroup has two matrices of rows it reads what is staged once for both, and what it reads is what such
 * a kernel waits for.
 */
const SIZES: readonly (readonly [rows: number, down: number])[] = [
  [128, 2],
  [64, 1],
];

/** Null where the device has no matrices of halves, or too little room. */
export function segmentsMatrixKernel(capabilities: Capabilities, shape: SegmentsShape): Kernel | null {
  const matrix = matrixOf(capabilities);
  const lanes = fixedLanes(capabilities);
  if (matrix === null || matrix.component !== 'f16' || lanes === 0) return null;
  const width = paddedHead(shape.headDim, matrix);
  const config = SIZES.map(([rows, down]) => ({ matrix, lanes, rows, down })).find((c) =>
    configFits(capabilities, c, width),
  );
  if (config === undefined) return null;
  // Of the last tile of rows matrices are loaded whole.
  const scratch = (3 * shape.heads * shape.rows + config.rows) * width * 2;
  if (scratch > capabilities.bindingBytes) return null;
  const launches = launchesOf(shape);
  const stage = matrixStage(shape, config, width, launches.length > 1);
  return {
    stages: [
      segmentHalvesStage(shape, width),
      ...launches.map((launch) => ({
        ...stage,
        ...(launches.length > 1 && { params: Uint32Array.of(launch.row, launch.head, 0, 0) }),
        workgroups: workgroupsOf(shape, config, launch),
      })),
    ],
    scratch: { scratchSegments: scratch },
  };
}

/** Heads and rows of a launch. */
interface Launch {
  readonly head: number;
  readonly heads: number;
  readonly row: number;
  readonly rows: number;
}

/** Rows that see each other in a launch of all heads. */
const ROWS_AT_ONCE = 8192;

/**
 * Of many rows that see each other some heads are a launch, and of very many some rows of one: rows that decode beside a tower wait for a launch
 * at the least.
 */
function launchesOf({ heads, rows, most }: SegmentsShape): Launch[] {
  const parts = Math.max(1, Math.ceil((rows / ROWS_AT_ONCE) * (most / ROWS_AT_ONCE)));
  const together = Math.max(1, Math.floor(heads / parts));
  const down = Math.max(1, Math.ceil(parts / heads));
  const each = Math.ceil(rows / down);
  return count(Math.ceil(heads / together)).flatMap((h) =>
    count(down).map((d) => ({
      head: h * together,
      heads: Math.min(together, heads - h * together),
      row: d * each,
      rows: each,
    })),
  );
}

function workgroupsOf(
  { rowKind }: SegmentsShape,
  { rows }: SegmentsConfig,
  launch: Launch,
): Stage['workgroups'] {
  return (facts, out) => {
    const there = Math.max(0, Math.min(launch.rows, facts[rowKind] - launch.row));
    out[0] = Math.ceil(there / rows);
    out[1] = launch.heads;
    out[2] = 1;
  };
}

function threadsOf({ matrix, lanes, rows, down }: SegmentsConfig): number {
  return (rows / (matrix.m * down)) * lanes;
}

function configFits(
  { workgroupBytes, workgroupThreads }: Capabilities,
  config: SegmentsConfig,
  width: number,
): boolean {
  const { rows, matrix } = config;
  const threads = threadsOf(config);
  const bytes = KEYS * (width + PAD) * 2 + rows * SCORES * 4 + rows * 20 + 32;
  const own = (KEYS * rows) / threads;
  return (
    bytes <= workgroupBytes && threads <= workgroupThreads && threads % rows === 0 && own % matrix.k === 0
  );
}

function paddedHead(headDim: number, { n, k }: MatrixConfig): number {
  const unit = Math.max(n, k, UNIT);
  return Math.ceil(headDim / unit) * unit;
}

function matrixStage(
  { rowKind, heads, headDim }: SegmentsShape,
  config: SegmentsConfig,
  width: number,
  inParts: boolean,
): Omit<Stage, 'workgroups'> {
  const { matrix, rows, down } = config;
  const { m, n, k } = matrix;
  const vectors = width / UNIT;
  const stride = (width + PAD) / UNIT;
  const threads = threadsOf(config);
  const dims = count(width / n);
  const parts = count(down);
  /** Query rows of a subgroup. */
  const mine = m * down;
  /** Threads of a row, and keys of one of them. */
  const rowLanes = threads / rows;
  const own = KEYS / rowLanes;
  /** Elements of a row of scores: two of them each, or four weights. */
  const wide = SCORES / 2;
  const bindings: Binding[] = [
    STEP_BINDING,
    { name: 'scratchSegments', access: 'read', type: 'array<vec4<u32>>' },
    { name: 'bounds', access: 'read', type: 'array<vec4<f32>>' },
    { name: 'out', access: 'read_write', type: 'array<vec2<f32>>' },
  ];
  const [firstRow, firstHead] = inParts ? ['params.x', 'params.y'] : ['0u', '0u'];
  if (inParts) bindings.push({ name: 'params', access: 'uniform', type: 'vec4<u32>' });
  const all = KEYS * vectors;
  const units = count(Math.ceil(all / threads));
  const inside = (i: number, text: string): string =>
    (i + 1) * threads <= all ? text : `if (lid + ${i * threads}u < ${all}u) ${text}`;
  /** Fetches a tile of keys or values into registers, zeros from `end` on; and puts it where all see it. */
  const fetch = (part: string, from: string): string =>
    units
      .map((i) =>
        inside(
          i,
          `{ let u = lid + ${i * threads}u; let source = ${from} + u / ${vectors}u; next${i} = vec4<u32>(); if (source < end) { next${i} = scratchSegments[(${part} * count + source) * ${vectors}u + u % ${vectors}u]; } }`,
        ),
      )
      .join('\n      ');
  const put = units
    .map((i) =>
      inside(
        i,
        `{ let u = lid + ${i * threads}u; staged[u / ${vectors}u * ${stride}u + u % ${vectors}u] = next${i}; }`,
      ),
    )
    .join('\n      ');
  const scores = count(KEYS / n).map(
    (j) => `{
        ${parts.map((f) => `var s${f} = Sum();`).join(' ')}
        ${count(width / k)
          .map(
            (i) =>
              `{ let b = subgroupMatrixLoad<Right, col_major>(&staged, ${j * n * stride + (i * k) / UNIT}u, ${stride}u); ${parts.map((f) => `s${f} = subgroupMatrixMultiplyAccumulate(q${f}_${i}, b, s${f});`).join(' ')} }`,
          )
          .join('\n        ')}
        ${parts.map((f) => `subgroupMatrixStore<row_major>(&scores, (sub * ${mine}u + ${f * m}u) * ${wide}u + ${(j * n) / 2}u, s${f}, ${wide}u);`).join('\n        ')}
      }`,
  );
  const four = (j: number): string =>
    `let s = vec4<f32>(bitcast<vec2<f32>>(scores[start + ${2 * j}u]), bitcast<vec2<f32>>(scores[start + ${2 * j + 1}u]));`;
  const seenOf = (e: number, j: number): string => `mine && t0 + ${4 * j + e}u < end`;
  // Weights take the place of scores that have been read: each thread has a run of them for its own.
  const place = `let r = lid / ${rowLanes}u;
        let part = lid % ${rowLanes}u;
        let mine = base + r >= at && base + r < behind;
        let start = r * ${wide}u + part * ${own / 2}u;
        let t0 = t + part * ${own}u;`;
  const highest = `{
        ${place}
        var top = ${LOWEST};
        ${count(own / 4)
          .map(
            (j) =>
              `{ ${four(j)} ${count(4)
                .map((e) => `top = max(top, select(${LOWEST}, s[${e}], ${seenOf(e, j)}));`)
                .join(' ')} }`,
          )
          .join('\n        ')}
        ${lanesDown(rowLanes)
          .map((by) => `top = max(top, subgroupShuffleXor(top, ${by}u));`)
          .join('\n        ')}
        let before = tops[r];
        used = before;
        var factor = 1.0;
        if (top > before + 8.0) {
          used = top;
          factor = select(0.0, exp2(before - top), before > ${LOWEST});
          if (before > ${LOWEST}) { raised[0] = 1u; }
        }
        if (part == 0u) { shrink[r] = factor; }
      }`;
  const weigh = `{
        ${place}
        var sum = 0.0;
        ${count(own / 4)
          .map(
            (j) =>
              `{ ${four(j)} let w = vec4<f16>(${count(4)
                .map((e) => `f16(select(0.0, exp2(s[${e}] - used), ${seenOf(e, j)}))`)
                .join(', ')}); sum += dot(vec4<f32>(w), vec4<f32>(1.0)); scores[start + ${j}u] = w; }`,
          )
          .join('\n        ')}
        ${lanesDown(rowLanes)
          .map((by) => `sum += subgroupShuffleXor(sum, ${by}u);`)
          .join('\n        ')}
        if (part == 0u) { tops[r] = used; sums[r] = fma(sums[r], shrink[r], sum); }
      }`;
  /** Where the weights of a matrix of keys begin in a row. */
  const weightsAt = (i: number): number => Math.floor((i * k) / own) * (own / 2) + ((i * k) % own) / 4;
  const products = count(KEYS / k).map(
    (i) => `{
        ${parts.map((f) => `let w${f} = subgroupMatrixLoad<Left, row_major>(&scores, (sub * ${mine}u + ${f * m}u) * ${wide}u + ${weightsAt(i)}u, ${wide}u);`).join('\n        ')}
        ${dims
          .map(
            (d) =>
              `{ let v = subgroupMatrixLoad<Right, row_major>(&staged, ${i * k * stride + (d * n) / UNIT}u, ${stride}u); ${parts.map((f) => `o${f}_${d} = subgroupMatrixMultiplyAccumulate(w${f}, v, o${f}_${d});`).join(' ')} }`,
          )
          .join('\n        ')}
      }`,
  );
  /** Sums through workgroup memory, as many columns at once as it has, two at a time: `each` has r, c and at. */
  const through = (each: string, back: boolean): string => {
    const perRound = KEYS / n;
    return count(Math.ceil(dims.length / perRound))
      .map((round) => {
        const some = dims.slice(round * perRound, (round + 1) * perRound);
        const pairs = (some.length * n) / 2;
        const eachSum = (text: (f: number, d: number, place: string) => string): string =>
          parts
            .flatMap((f) =>
              some.map((d) =>
                text(f, d, `(sub * ${mine}u + ${f * m}u) * ${wide}u + ${((d - some[0]!) * n) / 2}u`),
              ),
            )
            .join('\n');
        return `${eachSum((f, d, place) => `subgroupMatrixStore<row_major>(&scores, ${place}, o${f}_${d}, ${wide}u);`)}
  workgroupBarrier();
  for (var i = lid; i < ${rows * pairs}u; i += ${threads}u) {
    let r = i / ${pairs}u;
    let c = ${some[0]! * n}u + i % ${pairs}u * 2u;
    let place = r * ${wide}u + i % ${pairs}u;
    ${each}
  }
  workgroupBarrier();
  ${
    back
      ? `${eachSum((f, d, place) => `o${f}_${d} = subgroupMatrixLoad<Sum, row_major>(&scores, ${place}, ${wide}u);`)}
  workgroupBarrier();`
      : ''
  }`;
      })
      .join('\n');
  };
  const pair = 'bitcast<vec2<f32>>(scores[place])';
  const wgsl = `enable subgroups;
enable f16;
enable chromium_experimental_subgroup_matrix;
diagnostic(off, chromium.subgroup_matrix_uniformity);
${declareBindings(bindings)}
alias Left = subgroup_matrix_left<f16, ${k}, ${m}>;
alias Right = subgroup_matrix_right<f16, ${n}, ${k}>;
alias Sum = subgroup_matrix_result<f32, ${n}, ${m}>;
var<workgroup> staged: array<vec4<u32>, ${KEYS * stride}>;
/** Scores, two to an element, and in their place weights, four to one. */
var<workgroup> scores: array<vec4<f16>, ${rows * wide}>;
var<workgroup> tops: array<f32, ${rows}>;
var<workgroup> sums: array<f32, ${rows}>;
var<workgroup> shrink: array<f32, ${rows}>;
var<workgroup> seen: array<vec2<u32>, ${rows}>;
var<workgroup> run: vec4<u32>;
var<workgroup> raised: array<u32, 4>;
@compute @workgroup_size(${threads})
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_index) lid: u32, @builtin(subgroup_id) sub: u32) {
  let count = ${rowCount(rowKind)};
  let base = ${firstRow} + wid.x * ${rows}u;
  let head = ${firstHead} + wid.y;
  if (base >= count) { return; }
  let last = min(base + ${rows}u, count);
  for (var r = lid; r < ${rows}u; r += ${threads}u) {
    tops[r] = ${LOWEST};
    sums[r] = 0.0;
    seen[r] = vec2<u32>(bounds[min(base + r, count - 1u)].xy);
  }
  ${parts
    .map((f) =>
      count(width / k)
        .map(
          (i) =>
            `let q${f}_${i} = subgroupMatrixLoad<Left, row_major>(&scratchSegments, (head * count + base + sub * ${mine}u + ${f * m}u) * ${vectors}u + ${(i * k) / UNIT}u, ${vectors}u);`,
        )
        .join('\n  '),
    )
    .join('\n  ')}
  ${parts.map((f) => dims.map((d) => `var o${f}_${d} = Sum();`).join('\n  ')).join('\n  ')}
  ${units.map((i) => `var next${i}: vec4<u32>;`).join('\n  ')}
  workgroupBarrier();
  var at = base;
  while (at < last) {
    // Rows that see the same.
    if (lid == 0u) {
      let both = seen[at - base];
      var next = at + 1u;
      while (next < last && all(seen[min(next - base, ${rows - 1}u)] == both)) { next++; }
      run = vec4<u32>(next, both, 0u);
    }
    let found = workgroupUniformLoad(&run);
    let behind = found.x;
    let end = min(found.z, count);
    let busy = base + sub * ${mine}u < behind && base + (sub + 1u) * ${mine}u > at;
    ${fetch(`(${heads}u + head)`, 'found.y')}
    for (var t = found.y; t < end; t += ${KEYS}u) {
      workgroupBarrier();
      ${put}
      if (lid == 0u) { raised[0] = 0u; }
      ${fetch(`(${2 * heads}u + head)`, 't')}
      workgroupBarrier();
      var used = 0.0;
      // Sums that are shrunk take the place of the scores: these are then computed once more.
      for (var turn = 0u; turn < 2u; turn++) {
        if (busy) {
        ${scores.join('\n        ')}
        }
        workgroupBarrier();
        if (turn == 1u) { break; }
        ${highest}
        if (workgroupUniformLoad(&raised[0]) == 0u) { break; }
        ${through(`scores[place] = bitcast<vec4<f16>>(${pair} * shrink[r]);`, true)}
      }
      ${put}
      ${weigh}
      ${fetch(`(${heads}u + head)`, `t + ${KEYS}u`)}
      workgroupBarrier();
      if (busy) {
      ${products.join('\n      ')}
      }
    }
    at = behind;
  }
  workgroupBarrier();
  ${through(
    `if (c < ${headDim}u && base + r < count) { let v = ${pair}; let all = sums[r]; out[(((base + r) * ${heads}u + head) * ${headDim}u + c) / 2u] = vec2<f32>(${dividedText('v.x', 'all', '0.0')}, ${dividedText('v.y', 'all', '0.0')}); }`,
    false,
  )}
}`;
  return {
    label: `attend-segments matrix ${heads} of ${headDim}, ${rows} rows`,
    wgsl,
    bindings,
  };
}

/** Half of the lanes, and so on down to one. */
function lanesDown(lanes: number): number[] {
  const out: number[] = [];
  for (let by = lanes / 2; by >= 1; by /= 2) out.push(by);
  return out;
}
