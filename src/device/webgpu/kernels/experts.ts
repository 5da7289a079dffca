/**
 * Products with stacks of experts, portable: f32 arithmetic, no subgroups. Every pair (row, expert) is a product of one row, whatever
 * the rows beside it: its sums have one order, and of an expert that no row was given to nothing is read.
 *
 * Two stages for each shard: gate and up with their activation, `[pairs, inner]` in `scratchExperts`; then down, weighed and
 * added up over the experts of a row. Lanes take pieces of K of one expert after the other, in the order of ids; a later shard
 * holds later ids, and adds to what is there.
 */

import type { ExpertActivation, RowKind } from '../../graph.js';
import {
  type Binding,
  declareBindings,
  type Kernel,
  type Stage,
  spread,
  type Workgroups,
} from '../kernel.js';
import { rowCount, STEP_BINDING } from '../step-buffer.js';
import { rowMetaWords, rowWords, type ShardLayout } from '../weights-layout.js';
import { f32Literal } from './f32-literal.js';
import { activationText, ERF_TEXT, weightName } from './linear-spec.js';
import { pieceDot, pieceOf, pieceSums, readMeta, readPiece } from './unpack.js';

/** Lanes along K of a feature, and features of a workgroup. */
const LANES = 16;
const FEATURES = 4;
const THREADS = LANES * FEATURES;

/** A part of a stack: the experts from `first` to before `end`. */
export interface ExpertShard {
  readonly first: number;
  readonly end: number;
  readonly layout: ShardLayout;
  readonly bias: boolean;
}

export interface ExpertsShape {
  readonly rowKind: RowKind;
  /** Rows of the bucket. */
  readonly rows: number;
  /** Experts of a row. */
  readonly k: number;
  /** Columns of x, between gate-up and down, and of the result: multiples of 8. */
  readonly cols: number;
  readonly inner: number;
  readonly outCols: number;
  readonly activation: ExpertActivation;
}

/** Roles: `x`, `route`, `codes`, `metas`, `bias`, `step`. */
export function expertsUpKernel(shape: ExpertsShape, shard: ExpertShard): Kernel {
  const { rowKind, k, cols, inner, activation } = shape;
  const { layout } = shard;
  const bindings = bindingsOf(shard, [
    { name: 'x', access: 'read', type: 'array<vec4<f32>>' },
    { name: 'scratchExperts', access: 'read_write', type: 'array<f32>' },
  ]);
  const vectors = pieceOf(layout).cols / 4;
  const bias = (row: string): string => (shard.bias ? ` + bias[${row}]` : '');
  const wgsl = `${declareBindings(bindings)}
${activation === 'gelu' ? ERF_TEXT : ''}
var<workgroup> part: array<vec2<f32>, ${THREADS}>;
@compute @workgroup_size(${THREADS})
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
  let row = wid.z;
  if (row >= ${rowCount(rowKind)}) { return; }
  let expert = u32(route[row * ${routeStride(k)}u + wid.y]);
  ${outsideShard(shard, 'return;')}
  let lane = lid % ${LANES}u;
  let f = wid.x * ${FEATURES}u + lid / ${LANES}u;
  let gate_row = (expert - ${shard.first}u) * ${2 * inner}u + f;
  var sums = vec2<f32>(0.0);
  for (var p = lane; p < ${piecesOf(layout, cols)}u; p += ${LANES}u) {
    ${eachText(vectors, (v) => `let x${v} = x[row * ${cols / 4}u + p * ${vectors}u + ${v}u];`)}
    ${pieceSums(layout)}
    { ${readText(layout, cols, 'gate_row')} sums.x += ${pieceDot(layout)}; }
    { ${readText(layout, cols, `(gate_row + ${inner}u)`)} sums.y += ${pieceDot(layout)}; }
  }
  part[lid] = sums;
  workgroupBarrier();
  if (lane == 0u) {
    var total = vec2<f32>(0.0);
    for (var l = 0u; l < ${LANES}u; l++) { total += part[lid + l]; }
    let gate = total.x${bias('gate_row')};
    let up = total.y${bias(`gate_row + ${inner}u`)};
    scratchExperts[(row * ${k}u + wid.y) * ${inner}u + f] = ${gatedText(activation)};
  }
}`;
  const workgroups = (rows: number, out: Workgroups): void => {
    out[0] = rows === 0 ? 0 : inner / FEATURES;
    out[1] = k;
    out[2] = rows;
  };
  return kernelOf(shape, shard, `experts up [${2 * inner}, ${cols}]`, wgsl, bindings, (facts, out) =>
    workgroups(facts[rowKind], out),
  );
}

/** Of `gate` and `up`. */
function gatedText(activation: ExpertActivation): string {
  if (typeof activation === 'string') return `${activationText(activation, 'gate')} * up`;
  const [alpha, limit] = [f32Literal(activation.alpha), f32Literal(activation.limit)];
  const g = `min(gate, ${limit})`;
  return `(clamp(up, -${limit}, ${limit}) + 1.0) * ${g} / (1.0 + exp(min(-${alpha} * ${g}, 87.0)))`;
}

/** Roles: as before, `out`, and `residual` if there is one. `adds`: to what `out` holds. */
export function expertsDownKernel(
  shape: ExpertsShape,
  shard: ExpertShard,
  residual: boolean,
  adds: boolean,
): Kernel {
  const { rowKind, k, inner, outCols } = shape;
  const { layout } = shard;
  const bindings = bindingsOf(shard, [
    { name: 'scratchExperts', access: 'read', type: 'array<vec4<f32>>' },
    ...(residual ? [{ name: 'residual', access: 'read', type: 'array<f32>' } as const] : []),
    { name: 'out', access: 'read_write', type: 'array<f32>' },
  ]);
  const vectors = pieceOf(layout).cols / 4;
  const pieces = piecesOf(layout, inner);
  const wgsl = `${declareBindings(bindings)}
var<workgroup> part: array<f32, ${THREADS}>;
@compute @workgroup_size(${THREADS})
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>,
        @builtin(local_invocation_index) lid: u32) {
  let row = wid.z;
  let first = (wid.x + wid.y * nwg.x) * ${FEATURES}u;
  if (row >= ${rowCount(rowKind)} || first >= ${outCols}u) { return; }
  let lane = lid % ${LANES}u;
  let f = first + lid / ${LANES}u;
  let chosen = row * ${routeStride(k)}u;
  var sum = 0.0;
  for (var t = lane; t < ${k * pieces}u; t += ${LANES}u) {
    let slot = t / ${pieces}u;
    let p = t % ${pieces}u;
    let expert = u32(route[chosen + slot]);
    ${outsideShard(shard, 'continue;')}
    let weight_row = (expert - ${shard.first}u) * ${outCols}u + f;
    ${eachText(vectors, (v) => `let x${v} = scratchExperts[(row * ${k}u + slot) * ${inner / 4}u + p * ${vectors}u + ${v}u];`)}
    ${pieceSums(layout)}
    ${readText(layout, inner, 'weight_row')}
    sum = fma(route[chosen + ${k}u + slot], ${pieceDot(layout)}, sum);
  }
  part[lid] = sum;
  workgroupBarrier();
  if (lane == 0u) {
    var total = 0.0;
    for (var l = 0u; l < ${LANES}u; l++) { total += part[lid + l]; }
    ${shard.bias ? biasText(shard, k, outCols) : ''}
    let at = row * ${outCols}u + f;
    out[at] = total${residual ? ' + residual[at]' : ''}${adds ? ' + out[at]' : ''};
  }
}`;
  return kernelOf(shape, shard, `experts down [${outCols}, ${inner}]`, wgsl, bindings, (facts, out) => {
    const rows = facts[rowKind];
    spread(rows === 0 ? 0 : outCols / FEATURES, out, rows);
  });
}

function bindingsOf(shard: ExpertShard, more: readonly Binding[]): Binding[] {
  return [
    STEP_BINDING,
    { name: 'route', access: 'read', type: 'array<f32>' },
    { name: 'codes', access: 'read', type: 'array<u32>' },
    ...(shard.layout.kind === 'float'
      ? []
      : [{ name: 'metas', access: 'read', type: 'array<u32>' } as const]),
    ...(shard.bias ? [{ name: 'bias', access: 'read', type: 'array<f32>' } as const] : []),
    ...more,
  ];
}

function kernelOf(
  { rows, k, inner }: ExpertsShape,
  { first, end, layout }: ExpertShard,
  label: string,
  wgsl: string,
  bindings: readonly Binding[],
  workgroups: Stage['workgroups'],
): Kernel {
  const format = weightName(layout);
  return {
    stages: [{ label: `${label} ${format} ${first} to ${end}`, wgsl, bindings, workgroups }],
    scratch: { scratchExperts: rows * k * inner * 4 },
  };
}

function outsideShard({ first, end }: ExpertShard, leave: string): string {
  return `if (${first === 0 ? '' : `expert < ${first}u || `}expert >= ${end}u) { ${leave} }`;
}

function biasText(shard: ExpertShard, k: number, outCols: number): string {
  return `for (var slot = 0u; slot < ${k}u; slot++) {
      let expert = u32(route[chosen + slot]);
      ${outsideShard(shard, 'continue;')}
      total = fma(route[chosen + ${k}u + slot], bias[(expert - ${shard.first}u) * ${outCols}u + f], total);
    }`;
}

function routeStride(k: number): number {
  return Math.ceil((2 * k) / 4) * 4;
}

function piecesOf(layout: ShardLayout, cols: number): number {
  return cols / pieceOf(layout).cols;
}

function eachText(count: number, f: (i: number) => string): string {
  return Array.from({ length: count }, (_, i) => f(i)).join('\n    ');
}

/** Reads piece p of a weight row. */
function readText(layout: ShardLayout, cols: number, row: string): string {
  const piece = pieceOf(layout);
  const place = {
    row,
    piece: 'p',
    pieces: `${piecesOf(layout, cols)}u`,
    metaWords: `${rowMetaWords(layout, cols)}u`,
  };
  return `${readMeta(layout, place)}
      ${readPiece(layout, `${row} * ${rowWords(layout, cols)}u + p * ${piece.words}u`)}`;
}
