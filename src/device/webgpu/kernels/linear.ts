/**
 * Portable linear kernels: f32 arithmetic, no subgroups, any shape. Sizes are parameters, not text: matrices of one
 * format share their pipelines.
 */

import type { Binding, Kernel, LinearShape, Variant } from '../kernel.js';
import { declareBindings, Params, spread } from '../kernel.js';
import { STEP_BINDING } from '../step-buffer.js';
import { rowMetaWords, rowWords } from '../weights-layout.js';
import { pieceDot, pieceOf, pieceSums, pieceValue, readMeta, readPiece } from './unpack.js';

/** Rows the GEMV takes at once at most; more rows go to the tiles. */
const GEMV_ROWS = 8;
/** With `deterministic` one kernel serves all: its text, and so the order of its sums, knows nothing of the rows. */
const DETERMINISTIC_ROWS = 4;

const gemv: Variant<LinearShape> = {
  name: 'portable-gemv',
  supports: (capabilities, shape) => plain(shape) && (capabilities.deterministic || shape.rows <= GEMV_ROWS),
  build: (capabilities, shape) => {
    const rows = [1, 2, 4, 8].find((r) => r >= shape.rows) ?? GEMV_ROWS;
    return buildGemv(shape, capabilities.deterministic ? DETERMINISTIC_ROWS : rows);
  },
};

const tiles: Variant<LinearShape> = {
  name: 'portable-tiles',
  supports: (_, shape) => plain(shape),
  build: (_, shape) => buildTiles(shape),
};

export const portableLinear: readonly Variant<LinearShape>[] = [gemv, tiles];

/** Rows from which a lane of an exact product takes so many rows and features: each is then read less often. */
const EXACT_ROWS = 64;
const EXACT_TILE = { rows: 8, features: 4 } as const;
/** Of weights that are unpacked 32 at a time: a lane keeps as many numbers of each row. */
const EXACT_WIDE_TILE = { rows: 4, features: 4 } as const;
/** Lanes along K of an exact product whose rows have a piece for each: a router has few features, and would wait for its weights with fewer. */
const EXACT_LANES = 64;

/** For products whose x is never rounded: of routers, and of heads each by itself without matrices. Its order of sums knows nothing of the rows. */
export function exactLinear(shape: LinearShape): Kernel {
  // A workgroup's features are one head's.
  const { heads } = shape;
  const lanes = shape.k / pieceOf(shape.weight).cols >= EXACT_LANES ? EXACT_LANES : LANES;
  if (shape.rows < EXACT_ROWS || (heads && heads.rows % 16 !== 0))
    return buildGemv(shape, DETERMINISTIC_ROWS, { lanes, groups: 64 / lanes });
  const tile = pieceOf(shape.weight).cols <= 8 ? EXACT_TILE : EXACT_WIDE_TILE;
  return buildGemv(shape, tile.rows, { own: tile.features, lanes });
}

function plain(shape: LinearShape): boolean {
  return shape.norm === null && shape.glu === null;
}

/** What both kernels have in common: bindings, and WGSL for the sizes, for x and for the result. */
interface Frame {
  readonly bindings: readonly Binding[];
  readonly params: Uint32Array;
  /** Declarations before `main`. */
  readonly head: string;
  /** `let` lines of the sizes: `n`, `rows`, `pieces`, `words` and `meta_words` of a row. */
  readonly sizes: string;
  /** Statement for kernels whose features from `first` on are one head's. */
  readonly headOf: string;
  /** Statement that writes `value` for row `m` and feature `g`. */
  store(value: string): string;
}

function frameOf(shape: LinearShape): Frame {
  const { k, weight } = shape;
  const piece = pieceOf(weight);
  const p = new Params();
  const n = p.u32(shape.n);
  const pieces = p.u32(Math.ceil(k / piece.cols));
  const words = p.u32(rowWords(weight, k));
  const metaWords = p.u32(rowMetaWords(weight, k));
  const kind = p.u32(shape.rowKind === 'tokens' ? 0 : 1);
  const columns = p.u32(k);
  const xVectors = p.u32(shape.xStride / 4);
  const outStride = p.u32(shape.outStride);
  const outOffset = p.u32(shape.outOffset);

  const { heads } = shape;
  const headOf = heads
    ? `x_base = ${p.u32(heads.from / 4)} + (${p.u32(heads.first)} + first / ${p.u32(heads.rows)}) * ${p.u32(heads.step / 4)};`
    : '';

  const bindings: Binding[] = [
    p.binding,
    STEP_BINDING,
    { name: 'x', access: 'read', type: 'array<vec4<f32>>' },
    { name: 'codes', access: 'read', type: 'array<u32>' },
  ];
  if (weight.kind !== 'float') bindings.push({ name: 'metas', access: 'read', type: 'array<u32>' });
  if (shape.bias) bindings.push({ name: 'bias', access: 'read', type: 'array<f32>' });
  if (shape.residual) bindings.push({ name: 'residual', access: 'read', type: 'array<f32>' });
  bindings.push({ name: 'out', access: 'read_write', type: 'array<f32>' });

  // Columns beyond the last are zeros: what pads a row of x may be anything, NaN too.
  const at = `x[row * ${xVectors} + ${heads ? 'x_base + ' : ''}v]`;
  const masked = `select(vec4<f32>(0.0), ${at}, vec4<u32>(v * 4u) + vec4<u32>(0u, 1u, 2u, 3u) < vec4<u32>(${columns}))`;
  const whole = k % 4 === 0 ? at : masked;
  const beyond = k % 32 === 0 ? '' : `if (v * 4u >= ${columns}) { return vec4<f32>(0.0); }`;
  return {
    bindings,
    params: p.words,
    head: `${declareBindings(bindings)}${heads ? '\nvar<private> x_base: u32;' : ''}
fn load_x(row: u32, v: u32) -> vec4<f32> { ${beyond} return ${whole}; }`,
    sizes: `let n = ${n}; let rows = step[0][${kind}]; let pieces = ${pieces}; let words = ${words};
  ${weight.kind === 'float' ? '' : `let meta_words = ${metaWords};`}`,
    headOf,
    store: (value) => `{
      let at = m * ${outStride} + ${outOffset} + g;
      out[at] = ${value}${shape.bias ? ' + bias[g]' : ''}${shape.residual ? ' + residual[at]' : ''};
    }`,
  };
}

function kernelOf(
  shape: LinearShape,
  frame: Frame,
  label: string,
  wgsl: string,
  features: number,
  rows: number,
): Kernel {
  const { bindings, params } = frame;
  return {
    stages: [
      {
        label: `${label} [${shape.n}, ${shape.k}]`,
        wgsl,
        bindings,
        params,
        workgroups: (facts, out) => {
          const count = facts[shape.rowKind];
          spread(count === 0 ? 0 : Math.ceil(shape.n / features), out, Math.ceil(count / rows));
        },
      },
    ],
  };
}

/** Lanes along K, and groups of them, of a portable GEMV. */
const LANES = 16;
const GROUPS = 4;
/** Rows whose sums are put together at once by many lanes, where each lane has several features. */
const ROWS_OF_MANY = 2;

/**
 * `groups` of `lanes` along K, with `own` features each: every lane has a sum for each row and each of its own features. Those of 16 lanes are
 * added in order, those of more two by two.
 */
function buildGemv(
  shape: LinearShape,
  rowsAtOnce: number,
  { own = 1, lanes = LANES, groups = GROUPS }: { own?: number; lanes?: number; groups?: number } = {},
): Kernel {
  const FEATURES = groups * own;
  const threads = lanes * groups;
  const { weight } = shape;
  const frame = frameOf(shape);
  const piece = pieceOf(weight);
  const vectors = piece.cols / 4;
  const list = (f: (v: number) => string): string[] => Array.from({ length: vectors }, (_, v) => f(v));
  /** Sums of row r: one for each of the lane's features. */
  const sum = (r: number, j: number): string => (j === 0 ? `acc${r}` : `acc${r}_${j}`);
  const loadX = (r: number): string[] => list((v) => `let x${v} = load_x(row${r}, p * ${vectors}u + ${v}u);`);
  const row = (r: number): string =>
    `{ ${[...loadX(r), pieceSums(weight), `acc${r} += ${pieceDot(weight)};`].join('\n')} }`;
  const features = Array.from({ length: own }, (_, j) => j);
  const each = (f: (r: number) => string): string =>
    Array.from({ length: rowsAtOnce }, (_, r) => f(r)).join('\n');
  const meta = { piece: 'p', pieces: 'pieces', metaWords: 'meta_words' };
  const read = (row: string): string => `${readMeta(weight, { ...meta, row })}
      ${readPiece(weight, `${row} * words + p * ${piece.words}u`)}`;
  const ownFeature = (): string => `${read('f')}
      ${each(row)}`;
  /** Rows of x are read once for all features of the lane. */
  const ownFeatures = (): string => {
    const kept = each((r) =>
      list((v) => `let x${r}_${v} = load_x(row${r}, p * ${vectors}u + ${v}u);`).join(' '),
    );
    const feature = (j: number): string =>
      each(
        (r) =>
          `{ ${list((v) => `let x${v} = x${r}_${v};`).join(' ')} ${pieceSums(weight)} ${sum(r, j)} += ${pieceDot(weight)}; }`,
      );
    const blocks = features.map((j) => `{ let g = min(f + ${j}u, n - 1u);\n${read('g')}\n${feature(j)} }`);
    return [kept, ...blocks].join('\n');
  };
  // Sums of all lanes of some rows, in workgroup memory; then a thread has one (feature, row).
  const atOnce = lanes === LANES || own === 1 ? rowsAtOnce : ROWS_OF_MANY;
  const place = (feature: string, lane: string, r: string): string =>
    `part[(${feature} * ${lanes}u + ${lane}) * ${atOnce}u + ${r}]`;
  const ownPlace = (j: number, lane: string, r: number): string =>
    place(own === 1 ? `(lid / ${lanes}u)` : `(lid / ${lanes}u * ${own}u + ${j}u)`, lane, `${r}u`);
  const roundOf = (from: number): string => {
    const rows = Array.from({ length: atOnce }, (_, r) => r);
    const all = (f: (j: number, r: number) => string): string =>
      rows.flatMap((r) => features.map((j) => f(j, r))).join('\n');
    const halved = `for (var w = ${lanes / 2}u; w > 0u; w >>= 1u) {
    if (lane < w) { ${all((j, r) => `${ownPlace(j, 'lane', r)} += ${ownPlace(j, '(lane + w)', r)};`)} }
    workgroupBarrier();
  }`;
    const inOrder = `for (var l = 1u; l < ${lanes}u; l++) { sum += ${place('feature', 'l', 'r')}; }`;
    return `${all((j, r) => `${ownPlace(j, 'lane', r)} = ${sum(from + r, j)};`)}
  workgroupBarrier();
  ${lanes === LANES ? '' : halved}
  for (var i = lid; i < ${FEATURES * atOnce}u; i += ${threads}u) {
    let r = i % ${atOnce}u;
    let feature = i / ${atOnce}u;
    let g = first + feature;
    let m = row_start + ${from}u + r;
    if (g < n && m < rows) {
      var sum = ${place('feature', '0u', 'r')};
      ${lanes === LANES ? inOrder : ''}
      ${frame.store('sum')}
    }
  }`;
  };
  const rounds = Array.from({ length: rowsAtOnce / atOnce }, (_, i) => roundOf(i * atOnce));
  const wgsl = `${frame.head}
var<workgroup> part: array<f32, ${lanes * FEATURES * atOnce}>;
@compute @workgroup_size(${threads})
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>,
        @builtin(local_invocation_index) lid: u32) {
  ${frame.sizes}
  let first = (wid.x + wid.y * nwg.x) * ${FEATURES}u;
  let row_start = wid.z * ${rowsAtOnce}u;
  if (first >= n || row_start >= rows) { return; }
  ${frame.headOf}
  let lane = lid % ${lanes}u;
  let f = first + lid / ${lanes}u${own === 1 ? '' : ` * ${own}u`};
  ${each((r) => `${features.map((j) => `var ${sum(r, j)} = 0.0;`).join(' ')} let row${r} = min(row_start + ${r}u, rows - 1u);`)}
  if (f < n) {
    for (var p = lane; p < pieces; p += ${lanes}u) {
      ${own === 1 ? ownFeature() : ownFeatures()}
    }
  }
  ${rounds.join('\n  workgroupBarrier();\n  ')}
}`;
  return kernelOf(shape, frame, `linear gemv ${rowsAtOnce}`, wgsl, FEATURES, rowsAtOnce);
}

/**
 * Tiles of 32 rows × 64 features, K in steps of 32: both operands staged in workgroup memory, 4 × 4 sums in each of
 * 128 threads. Half of the threads unpack weights, one row each, while the others fetch x.
 */
function buildTiles(shape: LinearShape): Kernel {
  const ROWS = 32;
  const FEATURES = 64;
  /** vec4s from a staged row to the next: 8, and one more so that rows start in different banks. */
  const PITCH = 9;
  const { weight } = shape;
  const frame = frameOf(shape);
  const piece = pieceOf(weight);
  const perStep = 32 / piece.cols;
  const vectors = piece.cols / 4;
  const write = Array.from(
    { length: vectors },
    (_, v) => `b_tile[to + ${v}u] = ${pieceValue(weight, v)};`,
  ).join('\n');
  const meta = { piece: 'p', pieces: 'pieces', metaWords: 'meta_words' };
  const four = (f: (i: number) => string): string => [0, 1, 2, 3].map(f).join('\n');
  const wgsl = `${frame.head}
var<workgroup> a_tile: array<vec4<f32>, ${ROWS * PITCH}>;
var<workgroup> b_tile: array<vec4<f32>, ${FEATURES * PITCH}>;
@compute @workgroup_size(128)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>,
        @builtin(local_invocation_index) lid: u32) {
  ${frame.sizes}
  let first = (wid.x + wid.y * nwg.x) * ${FEATURES}u;
  let row_start = wid.z * ${ROWS}u;
  if (first >= n || row_start >= rows) { return; }
  let tx = lid % 16u;
  let ty = lid / 16u;
  ${four((i) => `var acc${i} = vec4<f32>(0.0);`)}
  let steps = (pieces + ${perStep - 1}u) / ${perStep}u;
  for (var s = 0u; s < steps; s++) {
    if (lid < 64u) {
      // Features beyond the last repeat it; nobody stores their sums.
      let g = min(first + lid, n - 1u);
      for (var i = 0u; i < ${perStep}u; i++) {
        let p = s * ${perStep}u + i;
        let to = lid * ${PITCH}u + i * ${vectors}u;
        if (p < pieces) {
          ${readMeta(weight, { ...meta, row: 'g' })}
          ${readPiece(weight, `g * words + p * ${piece.words}u`)}
          ${write}
        } else {
          for (var v = 0u; v < ${vectors}u; v++) { b_tile[to + v] = vec4<f32>(0.0); }
        }
      }
    } else {
      for (var i = lid - 64u; i < ${ROWS * 8}u; i += 64u) {
        let m = min(row_start + i / 8u, rows - 1u);
        a_tile[(i / 8u) * ${PITCH}u + i % 8u] = load_x(m, s * 8u + i % 8u);
      }
    }
    workgroupBarrier();
    for (var v = 0u; v < 8u; v++) {
      ${four((j) => `let b${j} = b_tile[(tx + ${16 * j}u) * ${PITCH}u + v];`)}
      ${four(
        (i) => `{
        let a = a_tile[(ty + ${8 * i}u) * ${PITCH}u + v];
        acc${i} += vec4<f32>(dot(a, b0), dot(a, b1), dot(a, b2), dot(a, b3));
      }`,
      )}
    }
    workgroupBarrier();
  }
  var sums = array<vec4<f32>, 4>(acc0, acc1, acc2, acc3);
  for (var i = 0u; i < 4u; i++) {
    for (var j = 0u; j < 4u; j++) {
      let m = row_start + ty + 8u * i;
      let g = first + tx + 16u * j;
      if (m < rows && g < n) ${frame.store('sums[i][j]')}
    }
  }
}`;
  return kernelOf(shape, frame, 'linear tiles', wgsl, FEATURES, ROWS);
}
