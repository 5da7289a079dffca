/**
 * Products whose x is never rounded: of routers, and of heads each by itself without matrices. Whatever the rows, a result is added up in one
 * order. Rows of at least 64 pieces have 64 lanes along K, of which lane l adds pieces l, l + 64, … in order; lanes are then added two by two, the
 * lower half to the upper one. Shorter rows have 16, added in order.
 */

import type { Kernel, LinearShape } from '../kernel.js';
import { buildGemv, DETERMINISTIC_ROWS, frameOf, kernelOf, LANES, laneText } from './linear.js';
import { pieceOf } from './unpack.js';

/** Rows from which a lane takes so many rows and features: each is then read less often. */
const MANY_ROWS = 64;
const TILE = { rows: 8, features: 4 } as const;
/** Of weights that are unpacked 32 at a time: a lane keeps as many numbers of each row. */
const WIDE_TILE = { rows: 4, features: 4 } as const;
/** With few features and few rows, fewer lanes would wait for their weights. */
const MANY_LANES = 64;

export function exactLinear(shape: LinearShape): Kernel {
  const { heads, n } = shape;
  const piece = pieceOf(shape.weight);
  const tile = piece.cols <= 8 ? TILE : WIDE_TILE;
  const long = shape.k / piece.cols >= MANY_LANES;
  // A workgroup's features are one head's.
  const many = shape.rows >= MANY_ROWS && (!heads || heads.rows % 16 === 0);
  if (!long)
    return many ? buildGemv(shape, tile.rows, { own: tile.features }) : buildGemv(shape, DETERMINISTIC_ROWS);
  return many && n >= tile.features
    ? buildPasses(shape, tile.rows, tile.features)
    : buildGemv(shape, DETERMINISTIC_ROWS, { lanes: MANY_LANES, groups: 1 });
}

/**
 * The sums of 64 lanes by 16, in four passes: a lane l is lane l, l + 32, l + 16 and l + 48 in turn, and adds what the first two passes leave, what
 * the others leave, and both. Each of `groups` of lanes has `own` features.
 */
function buildPasses(shape: LinearShape, rowsAtOnce: number, own: number): Kernel {
  const THREADS = 64;
  const features = (THREADS / LANES) * own;
  const frame = frameOf(shape);
  const { declare, add, sum } = laneText(shape, rowsAtOnce, own);
  const sums = rowsAtOnce * own;
  const all = (f: (r: number, j: number) => string): string =>
    Array.from({ length: sums }, (_, i) => f(Math.floor(i / own), i % own)).join('\n');
  // A thread's place in a run of 64 depends on row and feature such that neither lanes that write nor threads that add share a bank.
  const place = (array: string, r: number, j: number): string =>
    `${array}[${(r * own + j) * THREADS}u + (own_place ^ ${(j % 4) + 8 * (r % 2)}u)]`;
  const lane = (l: number): string => `part[run + (turn ^ ${l}u)]`;
  const tree = (l: number, step: number): string =>
    step === LANES ? lane(l) : `(${tree(l, step * 2)} + ${tree(l + step, step * 2)})`;
  const wgsl = `${frame.head}
var<workgroup> part: array<f32, ${sums * THREADS}>;
var<workgroup> other: array<f32, ${sums * THREADS}>;
@compute @workgroup_size(${THREADS})
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>,
        @builtin(local_invocation_index) lid: u32) {
  ${frame.sizes}
  let first = (wid.x + wid.y * nwg.x) * ${features}u;
  let row_start = wid.z * ${rowsAtOnce}u;
  if (first >= n || row_start >= rows) { return; }
  ${frame.headOf}
  let lane = lid % ${LANES}u;
  let f = first + lid / ${LANES}u * ${own}u;
  let own_place = lid ^ (lid / 32u * 4u);
  for (var quarter = 0u; quarter < 4u; quarter++) {
    ${declare}
    if (f < n) {
      for (var p = lane + (quarter & 1u) * 32u + (quarter >> 1u) * 16u; p < pieces; p += ${MANY_LANES}u) {
        ${add}
      }
    }
    switch quarter {
      case 0u: { ${all((r, j) => `${place('part', r, j)} = ${sum(r, j)};`)} }
      case 1u: { ${all((r, j) => `${place('part', r, j)} += ${sum(r, j)};`)} }
      case 2u: { ${all((r, j) => `${place('other', r, j)} = ${sum(r, j)};`)} }
      default: { ${all((r, j) => `${place('part', r, j)} += ${place('other', r, j)} + ${sum(r, j)};`)} }
    }
  }
  workgroupBarrier();
  // A thread has one (feature, row).
  for (var i = lid; i < ${features * rowsAtOnce}u; i += ${THREADS}u) {
    let r = i / ${features}u;
    let feature = i % ${features}u;
    let g = first + feature;
    let m = row_start + r;
    if (g < n && m < rows) {
      let group = feature / ${own}u;
      let j = feature % ${own}u;
      let run = (r * ${own}u + j) * ${THREADS}u + group * ${LANES}u;
      let turn = (j % 4u) ^ (r % 2u * 8u) ^ (group / 2u * 4u);
      let sum = ${tree(0, 1)};
      ${frame.store('sum')}
    }
  }
}`;
  return kernelOf(shape, frame, `linear gemv ${rowsAtOnce}`, wgsl, features, rowsAtOnce);
}
