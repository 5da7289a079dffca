/** Portable linear kernels: f32 arithmetic, no subgroups, any shape. */

import type { Binding, Kernel, LinearShape, Variant } from '../kernel.js';
import { declareBindings, spread } from '../kernel.js';
import { rowCount, STEP_BINDING } from '../step-buffer.js';
import { rowMetaWords, rowWords } from '../weights-layout.js';
import { pieceOf, readMeta, readPiece } from './unpack.js';

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

function plain(shape: LinearShape): boolean {
  return shape.norm === null && shape.glu === null;
}

function bindingsOf(shape: LinearShape): Binding[] {
  const list: Binding[] = [
    STEP_BINDING,
    { name: 'x', access: 'read', type: 'array<vec4<f32>>' },
    { name: 'codes', access: 'read', type: 'array<u32>' },
  ];
  if (shape.weight.kind === 'affine') list.push({ name: 'metas', access: 'read', type: 'array<u32>' });
  if (shape.bias) list.push({ name: 'bias', access: 'read', type: 'array<f32>' });
  if (shape.residual) list.push({ name: 'residual', access: 'read', type: 'array<f32>' });
  list.push({ name: 'out', access: 'read_write', type: 'array<f32>' });
  return list;
}

/** `load_x(row, v)`: columns 4 v … 4 v + 3, zeros beyond the last: what pads a row may be anything. */
function loadX(shape: LinearShape): string {
  const { k, xStride } = shape;
  const at = `x[row * ${xStride / 4}u + v]`;
  const vectors = Math.ceil(k / 4);
  const whole = `if (v >= ${vectors}u) { return vec4<f32>(0.0); }`;
  if (k % 4 === 0) return `fn load_x(row: u32, v: u32) -> vec4<f32> { ${whole} return ${at}; }`;
  return `fn load_x(row: u32, v: u32) -> vec4<f32> {
  ${whole}
  let column = vec4<u32>(v * 4u) + vec4<u32>(0u, 1u, 2u, 3u);
  return select(vec4<f32>(0.0), ${at}, column < vec4<u32>(${k}u));
}`;
}

function store(shape: LinearShape, row: string, f: string, value: string): string {
  const at = `${row} * ${shape.outStride}u + ${shape.outOffset}u + ${f}`;
  const bias = shape.bias ? ` + bias[${f}]` : '';
  const residual = shape.residual ? ` + residual[${at}]` : '';
  return `out[${at}] = ${value}${bias}${residual};`;
}

/** 64 threads: 4 features, 16 lanes along K for each, every lane a sum for each row. */
function buildGemv(shape: LinearShape, rowsAtOnce: number): Kernel {
  const LANES = 16;
  const FEATURES = 4;
  const { n, k, weight } = shape;
  const piece = pieceOf(weight);
  const vectors = piece.cols / 4;
  const pieces = Math.ceil(k / piece.cols);
  const bindings = bindingsOf(shape);
  const row = (r: number): string => {
    const lines: string[] = [];
    for (let v = 0; v < vectors; v++) lines.push(`let x${v} = load_x(row${r}, p * ${vectors}u + ${v}u);`);
    const dots = Array.from({ length: vectors }, (_, v) => `dot(q${v}, x${v})`).join(' + ');
    if (weight.kind === 'float') lines.push(`acc${r} += ${dots};`);
    else {
      const sum = Array.from({ length: vectors }, (_, v) => `x${v}`).join(' + ');
      lines.push(`acc${r} += fma(sb.x, ${dots}, sb.y * dot(${sum}, vec4<f32>(1.0)));`);
    }
    return `{ ${lines.join('\n')} }`;
  };
  const each = (f: (r: number) => string): string =>
    Array.from({ length: rowsAtOnce }, (_, r) => f(r)).join('\n');
  const group = weight.kind === 'affine' ? weight.groupSize : 1;
  const wgsl = `${declareBindings(bindings)}
${loadX(shape)}
var<workgroup> part: array<f32, ${LANES * FEATURES * rowsAtOnce}>;
@compute @workgroup_size(${LANES * FEATURES})
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>,
        @builtin(local_invocation_index) lid: u32) {
  let first = (wid.x + wid.y * nwg.x) * ${FEATURES}u;
  let rows = ${rowCount(shape.rowKind)};
  let row_start = wid.z * ${rowsAtOnce}u;
  if (first >= ${n}u || row_start >= rows) { return; }
  let lane = lid % ${LANES}u;
  let f = first + lid / ${LANES}u;
  ${each((r) => `var acc${r} = 0.0; let row${r} = min(row_start + ${r}u, rows - 1u);`)}
  if (f < ${n}u) {
    for (var p = lane; p < ${pieces}u; p += ${LANES}u) {
      ${readMeta(weight, `f * ${k / group}u + p * ${piece.cols}u / ${group}u`)}
      ${readPiece(weight, `f * ${rowWords(weight, k)}u + p * ${piece.words}u`)}
      ${each(row)}
    }
  }
  ${each((r) => `part[lid * ${rowsAtOnce}u + ${r}u] = acc${r};`)}
  workgroupBarrier();
  // A thread adds the lanes of one (feature, row), in order.
  for (var i = lid; i < ${FEATURES * rowsAtOnce}u; i += ${LANES * FEATURES}u) {
    let r = i % ${rowsAtOnce}u;
    let feature = i / ${rowsAtOnce}u;
    let g = first + feature;
    let m = row_start + r;
    if (g < ${n}u && m < rows) {
      var sum = 0.0;
      for (var l = 0u; l < ${LANES}u; l++) { sum += part[(feature * ${LANES}u + l) * ${rowsAtOnce}u + r]; }
      ${store(shape, 'm', 'g', 'sum')}
    }
  }
}`;
  return {
    stages: [
      {
        label: `linear gemv ${rowsAtOnce} [${n}, ${k}]`,
        wgsl,
        bindings,
        workgroups: (facts, out) =>
          spread(
            facts[shape.rowKind] === 0 ? 0 : Math.ceil(n / FEATURES),
            out,
            Math.ceil(facts[shape.rowKind] / rowsAtOnce),
          ),
      },
    ],
  };
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
  const { n, k, weight } = shape;
  const piece = pieceOf(weight);
  const bindings = bindingsOf(shape);
  const steps = Math.ceil(k / 32);
  const perStep = 32 / piece.cols;
  const vectors = piece.cols / 4;
  const words = rowWords(weight, k);
  const unpack = Array.from({ length: perStep }, (_, i) => {
    const write = Array.from({ length: vectors }, (__, v) => {
      const value = weight.kind === 'affine' ? `fma(q${v}, vec4<f32>(sb.x), vec4<f32>(sb.y))` : `q${v}`;
      return `b_tile[lid * ${PITCH}u + ${i * vectors + v}u] = ${value};`;
    }).join('\n');
    const at = `g * ${words}u + (s * ${perStep}u + ${i}u) * ${piece.words}u`;
    const zero = Array.from(
      { length: vectors },
      (__, v) => `b_tile[lid * ${PITCH}u + ${i * vectors + v}u] = vec4<f32>(0.0);`,
    ).join(' ');
    const inside = `(s * ${perStep}u + ${i}u) * ${piece.words}u < ${words}u`;
    return `if (g < ${n}u && ${inside}) {
      ${weight.kind === 'affine' ? readMeta(weight, `g * ${rowGroups(shape)}u + s * 32u / ${weight.groupSize}u`) : ''}
      ${readPiece(weight, at)}
      ${write}
    } else { ${zero} }`;
  }).join('\n');
  const four = (f: (i: number) => string): string => [0, 1, 2, 3].map(f).join('\n');
  const wgsl = `${declareBindings(bindings)}
${loadX(shape)}
var<workgroup> a_tile: array<vec4<f32>, ${ROWS * PITCH}>;
var<workgroup> b_tile: array<vec4<f32>, ${FEATURES * PITCH}>;
@compute @workgroup_size(128)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>,
        @builtin(local_invocation_index) lid: u32) {
  let first = (wid.x + wid.y * nwg.x) * ${FEATURES}u;
  let rows = ${rowCount(shape.rowKind)};
  let row_start = wid.z * ${ROWS}u;
  if (first >= ${n}u || row_start >= rows) { return; }
  let tx = lid % 16u;
  let ty = lid / 16u;
  ${four((i) => `var acc${i} = vec4<f32>(0.0);`)}
  for (var s = 0u; s < ${steps}u; s++) {
    if (lid < 64u) {
      let g = first + lid;
      ${unpack}
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
  ${four((i) =>
    four(
      (j) => `{
      let m = row_start + ty + ${8 * i}u;
      let g = first + tx + ${16 * j}u;
      if (m < rows && g < ${n}u) { ${store(shape, 'm', 'g', `acc${i}[${j}]`)} }
    }`,
    ),
  )}
}`;
  return {
    stages: [
      {
        label: `linear tiles [${n}, ${k}]`,
        wgsl,
        bindings,
        workgroups: (facts, out) =>
          spread(
            facts[shape.rowKind] === 0 ? 0 : Math.ceil(n / FEATURES),
            out,
            Math.ceil(facts[shape.rowKind] / ROWS),
          ),
      },
    ],
  };
}

function rowGroups(shape: LinearShape): number {
  const { weight, k } = shape;
  return weight.kind === 'affine' ? rowMetaWords(weight, k) / (weight.meta === 'f32' ? 2 : 1) : 0;
}
