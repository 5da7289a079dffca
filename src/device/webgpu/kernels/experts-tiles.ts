/**
 * Products of many rows with stacks of experts, on subgroup matrices. A launch sorts the pairs (row, expert) by expert into tiles of
 * `bm` places, padded with row 0; the GEMM of linear-matrix.ts then makes a tile with the weights of its expert, gate and up first
 * and down behind; and a last launch weighs what the experts of a row made and adds it up in the order of their ids.
 *
 * `scratchTiles` has, as u32: how many tiles there are; the expert of each; the row of each place; and the place of each pair.
 */

import {
  type Binding,
  type Capabilities,
  declareBindings,
  type Kernel,
  type Stage,
  spread,
} from '../kernel.js';
import { rowCount, STEP_BINDING } from '../step-buffer.js';
import { type ExpertShard, type ExpertsShape, routeStride } from './experts.js';
import { matrixOf } from './linear-choice.js';
import { fixedLanes } from './linear-fast.js';
import { HALVES, halvesBytes, halvesStage } from './linear-halves.js';
import { matrixGemmKernel } from './linear-matrix.js';
import { type MatrixGemmConfig, matrixGemmFits, matrixGemmThreads } from './linear-matrix-plan.js';
import { type LinearSpec, outCols, STACK_TILES } from './linear-spec.js';

/** Pairs of an expert, on average, from which tiles are worth it. */
const LEAST_PAIRS = 2;
const HIDDEN = 'scratchExperts';
const MADE = 'scratchPairs';
const THREADS = 64;

export interface ExpertTiles {
  /** Places of a tile, and how its products are made. */
  readonly bm: number;
  readonly up: MatrixGemmConfig;
  readonly down: MatrixGemmConfig;
  /** Experts of a stack, and the tiles that the pairs of a bucket fill at most. */
  readonly count: number;
  readonly most: number;
}

type Sizes = Pick<MatrixGemmConfig, 'bn' | 'bk' | 'sm' | 'sn'> &
  Partial<Pick<MatrixGemmConfig, 'depth' | 'loaders'>>;

/**
 * Sizes by pairs of an expert, on average, measured on an H100 with the shapes of gpt-oss-20b, Qwen3.5-35B-A3B and Gemma 4 26B-A4B. All have
 * one share along K, so that a row's sums have one order in all of them. The largest are worth it late, for an expert's last tile is
 * half empty.
 */
const SIZES: readonly { readonly above: number; readonly bm: number; readonly sizes: readonly Sizes[] }[] = [
  { above: 96, bm: 128, sizes: steps({ bn: 128, sm: 2, sn: 4 }) },
  { above: 8, bm: 32, sizes: [...steps({ bn: 128, sm: 2, sn: 4 }), ...steps({ bn: 64, sm: 2, sn: 2 })] },
  { above: 0, bm: 16, sizes: steps({ bn: 64, sm: 1, sn: 2, depth: 4, loaders: 2 }) },
];
/** Matrices of 8 × 8. */
const SMALL_MATRICES: typeof SIZES = [{ above: 0, bm: 32, sizes: [{ bn: 64, bk: 32, sm: 2, sn: 2 }] }];

/** With steps along K that divide most of them, then all. */
function steps(sizes: Omit<Sizes, 'bk'>): Sizes[] {
  return [64, 32].map((bk) => ({ ...sizes, bk }));
}

/** The tiles for a shape whose stacks have these shards; null where the kernels of pairs are taken. */
export function chooseExpertTiles(
  capabilities: Capabilities,
  shape: ExpertsShape,
  count: number,
  ups: readonly ExpertShard[],
  downs: readonly ExpertShard[],
): ExpertTiles | null {
  const lanes = fixedLanes(capabilities);
  const matrix = matrixOf(capabilities);
  const pairs = shape.rows * shape.k;
  if (lanes === 0 || matrix?.component !== 'f16' || pairs < LEAST_PAIRS * count) return null;
  const { workgroupBytes, workgroupThreads } = capabilities;
  for (const { above, bm, sizes } of matrix.m === 16 ? SIZES : SMALL_MATRICES) {
    const most = tilesAtMost(pairs, count, bm);
    if (pairs <= above * count || most > 65_535) continue;
    const base = { matrix, subgroupSize: lanes, workgroupBytes, bm, sk: 1, buffers: 1, depth: 1 } as const;
    const configs = sizes
      .map((own): MatrixGemmConfig => ({ ...base, ...own }))
      .filter((config) => matrixGemmThreads(config) <= workgroupThreads);
    const fitting = (specs: readonly LinearSpec[]): MatrixGemmConfig | undefined =>
      configs.find((config) => specs.every((spec) => matrixGemmFits(spec, config)));
    const places = { bm, most };
    const up = fitting(ups.map((shard) => upSpec(shape, shard, places)));
    const down = fitting(downs.map((shard) => downSpec(shape, shard, places)));
    if (up !== undefined && down !== undefined) return { ...places, up, down, count };
  }
  return null;
}

function tilesAtMost(pairs: number, count: number, bm: number): number {
  return Math.floor((pairs + Math.min(count, pairs) * (bm - 1)) / bm);
}

type Places = Pick<ExpertTiles, 'bm' | 'most'>;

function upSpec(shape: ExpertsShape, shard: ExpertShard, { bm, most }: Places): LinearSpec {
  const { cols, inner, activation } = shape;
  return {
    n: 2 * inner,
    k: cols,
    weight: shard.layout,
    rows: most * bm,
    xStride: cols,
    outStride: inner,
    outOffset: 0,
    x: 'f16',
    out: 'f16',
    bias: shard.bias,
    residual: null,
    norm: null,
    glu: activation,
    stack: { first: shard.first, end: shard.end, rowsAt: 1 + most },
  };
}

function downSpec(shape: ExpertsShape, shard: ExpertShard, { bm, most }: Places): LinearSpec {
  const { inner, outCols } = shape;
  return {
    n: outCols,
    k: inner,
    weight: shard.layout,
    rows: most * bm,
    xStride: inner,
    outStride: outCols,
    outOffset: 0,
    x: 'f16',
    out: 'f16',
    bias: shard.bias,
    residual: null,
    norm: null,
    glu: null,
    stack: { first: shard.first, end: shard.end, rowsAt: null },
  };
}

/** What makes halves of x and sorts the pairs. Roles: `x`, `route`. */
export function expertTilesStart(
  capabilities: Capabilities,
  shape: ExpertsShape,
  tiles: ExpertTiles,
): Kernel {
  const { rowKind, rows, k, cols } = shape;
  const { most, bm, up } = tiles;
  const halves = halvesStage(
    {
      rowKind,
      rows,
      n: 0,
      k: cols,
      weight: { kind: 'float', dtype: 'f32' },
      xStride: Math.ceil(cols / 4) * 4,
      outStride: 0,
      outOffset: 0,
      bias: false,
      residual: false,
      norm: null,
      glu: null,
    },
    up.subgroupSize,
  );
  return {
    stages: [halves, sortStage(shape, tiles, Math.min(1024, capabilities.workgroupThreads))],
    scratch: {
      [HALVES]: halvesBytes(rows, cols),
      [STACK_TILES]: (1 + most + most * bm + rows * k) * 4,
    },
  };
}

function sortStage({ rowKind, k }: ExpertsShape, { count, most, bm }: ExpertTiles, threads: number): Stage {
  const rowsAt = 1 + most;
  const placesAt = rowsAt + most * bm;
  const bindings: readonly Binding[] = [
    STEP_BINDING,
    { name: 'route', access: 'read', type: 'array<f32>' },
    { name: STACK_TILES, access: 'read_write', type: 'array<u32>' },
  ];
  const eachPair = (body: string): string =>
    `for (var p = lid; p < pairs; p += ${threads}u) {
    let row = p / ${k}u;
    let expert = min(u32(route[row * ${routeStride(k)}u + p % ${k}u]), ${count - 1}u);
    ${body}
  }`;
  const wgsl = `${declareBindings(bindings)}
var<workgroup> counts: array<atomic<u32>, ${count}>;
var<workgroup> starts: array<u32, ${count}>;
var<workgroup> total: u32;
@compute @workgroup_size(${threads})
fn main(@builtin(local_invocation_index) lid: u32) {
  let pairs = ${rowCount(rowKind)} * ${k}u;
  for (var e = lid; e < ${count}u; e += ${threads}u) { atomicStore(&counts[e], 0u); }
  workgroupBarrier();
  ${eachPair('atomicAdd(&counts[expert], 1u);')}
  workgroupBarrier();
  for (var e = lid; e < ${count}u; e += ${threads}u) {
    var start = 0u;
    for (var before = 0u; before < e; before++) { start += (atomicLoad(&counts[before]) + ${bm - 1}u) / ${bm}u; }
    let end = start + (atomicLoad(&counts[e]) + ${bm - 1}u) / ${bm}u;
    starts[e] = start * ${bm}u;
    for (var t = start; t < end; t++) { ${STACK_TILES}[1u + t] = e; }
    if (e == ${count - 1}u) {
      total = end;
      ${STACK_TILES}[0] = end;
    }
  }
  workgroupBarrier();
  for (var e = lid; e < ${count}u; e += ${threads}u) { atomicStore(&counts[e], 0u); }
  for (var i = lid; i < total * ${bm}u; i += ${threads}u) { ${STACK_TILES}[${rowsAt}u + i] = 0u; }
  workgroupBarrier();
  storageBarrier();
  ${eachPair(`let place = starts[expert] + atomicAdd(&counts[expert], 1u);
    ${STACK_TILES}[${rowsAt}u + place] = row;
    ${STACK_TILES}[${placesAt}u + p] = place;`)}
}`;
  return {
    label: `experts sort, tiles of ${bm}`,
    wgsl,
    bindings,
    workgroups: (facts, out) => {
      out[0] = facts[rowKind] === 0 ? 0 : 1;
      out[1] = 1;
      out[2] = 1;
    },
  };
}

/** Roles: `codes`, `metas`, `bias`. */
export function expertTilesUp(shape: ExpertsShape, shard: ExpertShard, tiles: ExpertTiles): Kernel {
  const roles = { x: HALVES, out: HIDDEN };
  return {
    stages: [gemmStage(shape, upSpec(shape, shard, tiles), tiles, tiles.up, roles)],
    scratch: { [HIDDEN]: tiles.most * tiles.bm * shape.inner * 2 },
  };
}

/** Roles: `codes`, `metas`, `bias`. */
export function expertTilesDown(shape: ExpertsShape, shard: ExpertShard, tiles: ExpertTiles): Kernel {
  const roles = { x: HIDDEN, out: MADE };
  return {
    stages: [gemmStage(shape, downSpec(shape, shard, tiles), tiles, tiles.down, roles)],
    scratch: { [MADE]: tiles.most * tiles.bm * shape.outCols * 2 },
  };
}

function gemmStage(
  { rowKind, k }: ExpertsShape,
  spec: LinearSpec,
  { count }: ExpertTiles,
  config: MatrixGemmConfig,
  roles: Readonly<Record<string, string>>,
): Stage {
  const made = matrixGemmKernel(spec, config);
  const across = Math.ceil(outCols(spec) / (spec.glu === null ? config.bn : config.bn / 2));
  return {
    label: `experts ${made.label}`,
    wgsl: made.wgsl,
    bindings: made.bindings.map((name) => ({
      name: roles[name] ?? name,
      access: made.writes.includes(name) ? 'read_write' : 'read',
      type: `array<${made.types[name] ?? 'f32'}>`,
    })),
    workgroups: (facts, out) => {
      out[0] = facts[rowKind] === 0 ? 0 : across;
      out[1] = tilesAtMost(facts[rowKind] * k, count, config.bm);
      out[2] = 1;
    },
  };
}

/** Roles: `route`, `out`, and `residual` if there is one. */
export function expertTilesEnd(shape: ExpertsShape, tiles: ExpertTiles, residual: boolean): Kernel {
  const { rowKind, k, outCols } = shape;
  const placesAt = 1 + tiles.most + tiles.most * tiles.bm;
  const bindings: readonly Binding[] = [
    STEP_BINDING,
    { name: 'route', access: 'read', type: 'array<f32>' },
    { name: STACK_TILES, access: 'read', type: 'array<u32>' },
    { name: MADE, access: 'read', type: 'array<vec4<f16>>' },
    ...(residual ? [{ name: 'residual', access: 'read', type: 'array<vec4<f32>>' } as const] : []),
    { name: 'out', access: 'read_write', type: 'array<vec4<f32>>' },
  ];
  const vectors = outCols / 4;
  const across = Math.ceil(vectors / THREADS);
  const wgsl = `enable f16;
${declareBindings(bindings)}
@compute @workgroup_size(${THREADS})
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>,
        @builtin(local_invocation_index) lid: u32) {
  let at = wid.x + wid.y * nwg.x;
  let row = at / ${across}u;
  let v = at % ${across}u * ${THREADS}u + lid;
  if (row >= ${rowCount(rowKind)} || v >= ${vectors}u) { return; }
  let chosen = row * ${routeStride(k)}u;
  var total = vec4<f32>(0.0);
  for (var slot = 0u; slot < ${k}u; slot++) {
    let place = ${STACK_TILES}[${placesAt}u + row * ${k}u + slot];
    total = fma(vec4<f32>(route[chosen + ${k}u + slot]), vec4<f32>(${MADE}[place * ${vectors}u + v]), total);
  }
  out[row * ${vectors}u + v] = total${residual ? ` + residual[row * ${vectors}u + v]` : ''};
}`;
  return {
    stages: [
      {
        label: `experts sum ${k} × [${outCols}]`,
        wgsl,
        bindings,
        workgroups: (facts, out) => spread(facts[rowKind] * across, out),
      },
    ],
  };
}
