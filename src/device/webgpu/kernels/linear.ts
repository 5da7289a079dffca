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
export const DETERMINISTIC_ROWS = 4;

const gemv: Variant<LinearShape> = {
  name: 'portable-gemv',
  supports: ({ deterministic, oneOrder = false }, shape) =>
    plain(shape) && (deterministic || (!oneOrder && shape.rows <= GEMV_ROWS)),
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

function plain(shape: LinearShape): boolean {
  return shape.norm === null && shape.glu === null;
}

/** What both kernels have in common: bindings, and WGSL for the sizes, for x and for the result. */
export interface Frame {
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

export function frameOf(shape: LinearShape): Frame {
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

export function kernelOf(
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
export const LANES = 16;
const GROUPS = 4;

/** WGSL of what a lane along K does. */
export interface LaneText {
  /** Declares its sums, and the rows of x, those beyond the last as the last. */
  readonly declare: string;
  /** Adds piece `p` to them. */
  readonly add: string;
  /** The sum of row r and feature j of its own. */
  sum(r: number, j: number): string;
}

/** A lane that has a sum for each of `rows` rows from `row_start` on, and for each of `own` features from `f` on. */
export function laneText({ weight }: LinearShape, rows: number, own: number): LaneText {
  const piece = pieceOf(weight);
  const vectors = piece.cols / 4;
  const list = (f: (v: number) => string): string[] => Array.from({ length: vectors }, (_, v) => f(v));
  const sum = (r: number, j: number): string => (j === 0 ? `acc${r}` : `acc${r}_${j}`);
  const loadX = (r: number): string[] => list((v) => `let x${v} = load_x(row${r}, p * ${vectors}u + ${v}u);`);
  const row = (r: number): string =>
    `{ ${[...loadX(r), pieceSums(weight), `acc${r} += ${pieceDot(weight)};`].join('\n')} }`;
  const features = Array.from({ length: own }, (_, j) => j);
  const each = (f: (r: number) => string): string => Array.from({ length: rows }, (_, r) => f(r)).join('\n');
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
  return {
    declare: each(
      (r) =>
        `${features.map((j) => `var ${sum(r, j)} = 0.0;`).join(' ')} let row${r} = min(row_start + ${r}u, rows - 1u);`,
    ),
    add: own === 1 ? ownFeature() : ownFeatures(),
    sum,
  };
}

/**
 * `groups` of `lanes` along K, with `own` features each. Sums of 16 lanes are added in order, those of more, which have one feature each,
 * two by two.
 */
export function buildGemv(
  shape: LinearShape,
  rowsAtOnce: number,
  { own = 1, lanes = LANES, groups = GROUPS }: { own?: number; lanes?: number; groups?: number } = {},
): Kernel {
  const FEATURES = groups * own;
  const threads = lanes * groups;
  const frame = frameOf(shape);
  const { declare, add, sum } = laneText(shape, rowsAtOnce, own);
  const ofLane = own === 1 ? 'lid' : `((lid / ${lanes}u * ${own}u + J) * ${lanes}u + lane)`;
  const all = (f: (r: number, j: number) => string): string =>
    Array.from({ length: rowsAtOnce * own }, (_, i) => f(Math.floor(i / own), i % own)).join('\n');
  const place = (r: number, j: number): string =>
    `part[${ofLane.replace('J', `${j}u`)} * ${rowsAtOnce}u + ${r}u]`;
  const halved = `for (var w = ${lanes / 2}u; w > 0u; w >>= 1u) {
    if (lane < w) { ${all((r) => `part[lid * ${rowsAtOnce}u + ${r}u] += part[(lid + w) * ${rowsAtOnce}u + ${r}u];`)} }
    workgroupBarrier();
  }`;
  const lane = (l: string): string => `part[(feature * ${lanes}u + ${l}) * ${rowsAtOnce}u + r]`;
  const wgsl = `${frame.head}
var<workgroup> part: array<f32, ${threads * own * rowsAtOnce}>;
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
  ${declare}
  if (f < n) {
    for (var p = lane; p < pieces; p += ${lanes}u) {
      ${add}
    }
  }
  ${all((r, j) => `${place(r, j)} = ${sum(r, j)};`)}
  workgroupBarrier();
  ${lanes === LANES ? '' : halved}
  // A thread has one (feature, row).
  for (var i = lid; i < ${FEATURES * rowsAtOnce}u; i += ${threads}u) {
    let r = i % ${rowsAtOnce}u;
    let feature = i / ${rowsAtOnce}u;
    let g = first + feature;
    let m = row_start + r;
    if (g < n && m < rows) {
      var sum = ${lane('0u')};
      ${lanes === LANES ? `for (var l = 1u; l < ${LANES}u; l++) { sum += ${lane('l')}; }` : ''}
      ${frame.store('sum')}
    }
  }
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
