/**
 * Products with stacks of experts, portable: f32 arithmetic, no subgroups. Every pair (row, expert) is a product of one row, whatever
 * the rows beside it: its sums have one order, and of an expert that no row was given to nothing is read.
 *
 * Two stages for each shard: gate and up with their activation, `[pairs, inner]` in `scratchExperts`; then down, weighed and
 * added up over the experts of a row in the order of their ids. Eight lanes share a feature along K, and their sums are added in
 * order; a later shard holds later ids, and adds to what is there. Many rows have tiles of matrices (experts-tiles.ts).
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
import { ERF_TEXT, gatedText, weightName } from './linear-spec.js';
import { codesOf } from './linear-unpack.js';
import { declareTable, fillTable, TABLE_BYTES } from './table-numbers.js';
import { metaRuns, pieceDot, pieceOf, readMeta, readPiece } from './unpack.js';

/** Lanes along K of a feature: 8 pieces of 16 bytes are a line of memory. */
const LANES = 8;
/** Features of a workgroup that makes gate and up. */
const FEATURES = 16;
/** Features of a lane of down, and lanes of a workgroup of it at most. */
const DOWN_FEATURES = 2;
const DOWN_THREADS = 256;
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
  /** Columns of a piece of down's rows, by which what gate and up make lies in `scratchExperts`; 4 where its shards differ. */
  readonly pieceCols: number;
  /** Bytes of workgroup memory. */
  readonly workgroupBytes: number;
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
  const pieces = piecesOf(layout, cols);
  const threads = LANES * FEATURES;
  const bias = (row: string): string => (shard.bias ? ` + bias[${row}]` : '');
  // A vector more, so that the vectors of a piece lie in different banks.
  const apart = pieces + 1;
  const { table, fill, bytes } = tableText(layout, threads);
  const staged =
    (vectors * apart * 4 + 2 * metaRuns(layout) * pieces + 2 * threads) * 4 + bytes <= shape.workgroupBytes;
  const xOf = (v: number): string =>
    staged ? `xs[p + ${v * apart}u]` : `x[row * ${cols / 4}u + p * ${vectors}u + ${v}u]`;
  const readX = eachText(vectors, (v) => `let x${v} = ${xOf(v)};`);
  const wgsl = `${declareBindings(bindings)}
${activation === 'gelu' ? ERF_TEXT : ''}
${staged ? `var<workgroup> xs: array<vec4<f32>, ${vectors * apart}>;\nvar<workgroup> x_sums: array<${sumsType(layout)}, ${pieces}>;` : ''}${table}
var<workgroup> part: array<vec2<f32>, ${threads}>;
@compute @workgroup_size(${threads})
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
  let row = wid.z;
  if (row >= ${rowCount(rowKind)}) { return; }
  let expert = u32(route[row * ${routeStride(k)}u + wid.y]);
  ${outsideShard(shard, 'return;')}${fill}
  ${
    staged
      ? `for (var j = lid; j < ${cols / 4}u; j += ${threads}u) {
    xs[j % ${vectors}u * ${apart}u + j / ${vectors}u] = x[row * ${cols / 4}u + j];
  }
  workgroupBarrier();
  for (var p = lid; p < ${pieces}u; p += ${threads}u) {
    ${readX}
    x_sums[p] = ${sumsOf(layout)};
  }
  workgroupBarrier();`
      : ''
  }
  let lane = lid % ${LANES}u;
  let f = min(wid.x * ${FEATURES}u + lid / ${LANES}u, ${inner - 1}u);
  let gate_row = (expert - ${shard.first}u) * ${2 * inner}u + f;
  let up_row = gate_row + ${inner}u;
  var sums = vec2<f32>(0.0);
  ${eachPiece(pieces, (p) => {
    const own = `let p = ${p};
    ${readX}
    let x_sum = ${staged ? 'x_sums[p]' : sumsOf(layout)};`;
    return `${own}
    ${dotText(layout, cols, 'gate_row', 'g', 'sums.x')}
    ${dotText(layout, cols, 'up_row', 'u', 'sums.y')}`;
  })}
  part[lid] = sums;
  workgroupBarrier();
  if (lane == 0u && wid.x * ${FEATURES}u + lid / ${LANES}u < ${inner}u) {
    var total = vec2<f32>(0.0);
    for (var l = 0u; l < ${LANES}u; l++) { total += part[lid + l]; }
    let gate = total.x${bias('gate_row')};
    let up = total.y${bias('up_row')};
    scratchExperts[${innerPlace(shape, `(row * ${k}u + wid.y)`, 'f / 4u')} * 4u + f % 4u] = ${gatedText(activation, 'gate', 'up')};
  }
}`;
  const workgroups = (rows: number, out: Workgroups): void => {
    out[0] = rows === 0 ? 0 : Math.ceil(inner / FEATURES);
    out[1] = k;
    out[2] = rows;
  };
  return kernelOf(shape, shard, `experts up [${2 * inner}, ${cols}]`, wgsl, bindings, (facts, out) =>
    workgroups(facts[rowKind], out),
  );
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
  /** Slots side by side, and groups of lanes for each. */
  const slots = Math.min(k, DOWN_THREADS / LANES);
  const groups = Math.floor(DOWN_THREADS / LANES / slots);
  const threads = slots * groups * LANES;
  const features = groups * DOWN_FEATURES;
  const own = Array.from({ length: DOWN_FEATURES }, (_, r) => r);
  const sumType = `vec${DOWN_FEATURES}<f32>`;
  const { table, fill } = tableText(layout, threads);
  const wgsl = `${declareBindings(bindings)}
var<workgroup> part: array<${sumType}, ${threads}>;
var<workgroup> of_slot: array<${sumType}, ${k * groups}>;${table}
@compute @workgroup_size(${threads})
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>,
        @builtin(local_invocation_index) lid: u32) {
  let row = wid.z;
  let first = (wid.x + wid.y * nwg.x) * ${features}u;
  if (row >= ${rowCount(rowKind)} || first >= ${outCols}u) { return; }${fill}
  let lane = lid % ${LANES}u;
  let group = lid / ${LANES}u % ${groups}u;
  let chosen = row * ${routeStride(k)}u;
  ${own.map((r) => `let f${r} = min(first + group * ${DOWN_FEATURES}u + ${r}u, ${outCols - 1}u);`).join('\n  ')}
  for (var s = 0u; s < ${Math.ceil(k / slots)}u; s++) {
    let slot = s * ${slots}u + lid / ${LANES * groups}u;
    var sums = ${sumType}(0.0);
    let expert = u32(route[chosen + min(slot, ${k - 1}u)]);
    if (slot < ${k}u${insideShard(shard)}) {
      ${own.map((r) => `let row${r} = (expert - ${shard.first}u) * ${outCols}u + f${r};`).join('\n      ')}
      let pair = row * ${k}u + slot;
      ${eachPiece(
        pieces,
        (p) => `let p = ${p};
    ${eachText(vectors, (v) => `let x${v} = scratchExperts[${innerPlace(shape, 'pair', `(p * ${vectors}u + ${v}u)`)}];`)}
    let x_sum = ${sumsOf(layout)};
    ${own.map((r) => dotText(layout, inner, `row${r}`, `r${r}`, `sums[${r}]`)).join('\n    ')}`,
      )}
    }
    part[lid] = sums;
    workgroupBarrier();
    if (lane == 0u && slot < ${k}u) {
      var total = ${sumType}(0.0);
      for (var l = 0u; l < ${LANES}u; l++) { total += part[lid + l]; }
      of_slot[slot * ${groups}u + group] = total;
    }
    workgroupBarrier();
  }
  let f = first + lid;
  if (lid < ${features}u && f < ${outCols}u) {
    var total = 0.0;
    for (var slot = 0u; slot < ${k}u; slot++) {
      let expert = u32(route[chosen + slot]);
      ${outsideShard(shard, 'continue;')}
      let sum = of_slot[slot * ${groups}u + lid / ${DOWN_FEATURES}u][lid % ${DOWN_FEATURES}u];
      total = fma(route[chosen + ${k}u + slot], sum, total);
    }
    ${shard.bias ? biasText(shard, k, outCols) : ''}
    let at = row * ${outCols}u + f;
    out[at] = total${residual ? ' + residual[at]' : ''}${adds ? ' + out[at]' : ''};
  }
}`;
  return kernelOf(shape, shard, `experts down [${outCols}, ${inner}]`, wgsl, bindings, (facts, out) => {
    const rows = facts[rowKind];
    spread(rows === 0 ? 0 : Math.ceil(outCols / features), out, rows);
  });
}

/**
 * Vector of four `quad` of what gate and up made of a pair, in \`scratchExperts\`: the same vector of all pieces of a row lies side by
 * side, for those are what neighbouring lanes read at once.
 */
function innerPlace({ inner, pieceCols }: ExpertsShape, pair: string, quad: string): string {
  const vectors = pieceCols / 4;
  if (vectors === 1) return `(${pair} * ${inner / 4}u + ${quad})`;
  return `((${pair} * ${vectors}u + ${quad} % ${vectors}u) * ${inner / pieceCols}u + ${quad} / ${vectors}u)`;
}

/** A loop over the pieces of a lane; `body` is given the piece. */
function eachPiece(pieces: number, body: (p: string) => string): string {
  const turns = Math.ceil(pieces / LANES);
  const guard = pieces % LANES === 0 ? '' : `if (i * ${LANES}u + lane >= ${pieces}u) { break; }`;
  return `for (var i = 0u; i < ${turns}u; i++) {
    ${guard}
    ${body(`i * ${LANES}u + lane`)}
  }`;
}

/** Codes are read in vectors where pieces are whole ones. */
function wordsTogether(layout: ShardLayout): 1 | 2 | 4 {
  if (layout.kind === 'float') return 1;
  return layout.bits % 4 === 0 ? 4 : layout.bits % 2 === 0 ? 2 : 1;
}

function codesType(layout: ShardLayout): string {
  const together = wordsTogether(layout);
  return together === 1 ? 'u32' : `vec${together}<u32>`;
}

/** What a table of numbers is declared by, and filled before anybody reads it. */
function tableText(
  layout: ShardLayout,
  threads: number,
): { readonly table: string; readonly fill: string; readonly bytes: number } {
  if (layout.kind !== 'lut4') return { table: '', fill: '', bytes: 0 };
  return {
    table: `\n${declareTable(layout.table, 'floats')}`,
    fill: `\n  ${fillTable(threads)}\n  workgroupBarrier();`,
    bytes: TABLE_BYTES,
  };
}

/** The type of what {@link sumsOf} gives. */
function sumsType(layout: ShardLayout): string {
  return metaRuns(layout) === 1 ? 'vec2<f32>' : 'vec4<f32>';
}

/**
 * What a piece of x adds to its products with codes whatever these are, of x0, x1, …: its products with the offsets under which the codes are read
 * (linear-unpack.ts) and its sum, for each run of columns that has a scale of its own.
 */
function sumsOf(layout: ShardLayout): string {
  if (layout.kind === 'float' || layout.kind === 'lut4') return `${sumsType(layout)}(0.0)`;
  const { codes } = codesOf(layout, namedWords(layout, ''), '');
  const sums = runsOf(layout).flatMap((vectors) => [
    vectors
      .map(
        (v) =>
          `dot(x${v}, vec4<f32>(${[0, 1, 2, 3].map((e) => `${codes[4 * v + e]!.offset}.0`).join(', ')}))`,
      )
      .join(' + '),
    `dot(${vectors.map((v) => `x${v}`).join(' + ')}, vec4<f32>(1.0))`,
  ]);
  return `${sumsType(layout)}(${sums.join(', ')})`;
}

/** The vectors of a piece, by runs. */
function runsOf(layout: ShardLayout): number[][] {
  const [runs, vectors] = [metaRuns(layout), pieceOf(layout).cols / 4];
  return Array.from({ length: runs }, (_, run) =>
    Array.from({ length: vectors / runs }, (_, v) => (run * vectors) / runs + v),
  );
}

function namedWords(layout: ShardLayout, name: string): string[] {
  const together = wordsTogether(layout);
  return Array.from({ length: pieceOf(layout).words }, (_, w) =>
    together === 1 ? `${name}w${w}` : `${name}w${Math.floor(w / together)}.${'xyzw'[w % together]}`,
  );
}

/** Adds the product of piece p of a weight row with x0, x1, …, whose `x_sum` is known. `name`: of its variables. */
function dotText(layout: ShardLayout, cols: number, row: string, name: string, into: string): string {
  const piece = pieceOf(layout);
  const pieces = piecesOf(layout, cols);
  const from = `${row} * ${rowWords(layout, cols)}u + p * ${piece.words}u`;
  if (layout.kind === 'float')
    return `{
      ${readPiece(layout, from)}
      ${into} += ${pieceDot(layout)};
    }`;
  const place = { row, piece: 'p', pieces: `${pieces}u`, metaWords: `${rowMetaWords(layout, cols)}u` };
  const together = wordsTogether(layout);
  const loads = piece.words / together;
  const unpacked = codesOf(layout, namedWords(layout, name), `${name}t`);
  const runs = runsOf(layout);
  const products = runs.map((_, g) => `dot(d${g}, vec4<f32>(1.0))`);
  const total = runs.map((_, g) =>
    layout.kind === 'lut4'
      ? `sb${g}.x * ${products[g]}`
      : `fma(sb${g}.x, ${products[g]} - x_sum[${2 * g}], sb${g}.y * x_sum[${2 * g + 1}])`,
  );
  return `{
      ${readMeta(layout, place)}
      ${eachText(loads, (l) => `let ${name}w${l} = codes[${together === 1 ? from : `${row} * ${rowWords(layout, cols) / together}u + p * ${loads}u`} + ${l}u];`)}
      ${unpacked.lines.join('\n      ')}
      ${runs
        .map((vectors, g) => {
          const lines = vectors.map((v) => {
            const four = [0, 1, 2, 3].map((e) => unpacked.codes[4 * v + e]!.text);
            return `d${g} = fma(vec4<f32>(${four.join(', ')}), x${v}, d${g});`;
          });
          return [`var d${g} = vec4<f32>(0.0);`, ...lines].join('\n      ');
        })
        .join('\n      ')}
      ${into} += ${total.join(' + ')};
    }`;
}

function bindingsOf(shard: ExpertShard, more: readonly Binding[]): Binding[] {
  return [
    STEP_BINDING,
    { name: 'route', access: 'read', type: 'array<f32>' },
    {
      name: 'codes',
      access: 'read',
      type: `array<${codesType(shard.layout)}>`,
    },
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

function insideShard({ first, end }: ExpertShard): string {
  return `${first === 0 ? '' : ` && expert >= ${first}u`} && expert < ${end}u`;
}

function biasText(shard: ExpertShard, k: number, outCols: number): string {
  return `for (var slot = 0u; slot < ${k}u; slot++) {
      let expert = u32(route[chosen + slot]);
      ${outsideShard(shard, 'continue;')}
      total = fma(route[chosen + ${k}u + slot], bias[(expert - ${shard.first}u) * ${outCols}u + f], total);
    }`;
}

/** Numbers from a row of `route` to the next. */
export function routeStride(k: number): number {
  return Math.ceil((2 * k) / 4) * 4;
}

function piecesOf(layout: ShardLayout, cols: number): number {
  return cols / pieceOf(layout).cols;
}

function eachText(count: number, f: (i: number) => string): string {
  return Array.from({ length: count }, (_, i) => f(i)).join('\n    ');
}
