/**
 * x as halves, once for all workgroups of a GEMM: each would else read twice the bytes and convert them anew. Where the
 * linear has a norm folded in, x is normed on the way.
 */

import type { RowKind } from '../../graph.js';
import type { LinearShape, Stage } from '../kernel.js';
import { declareBindings } from '../kernel.js';
import { floatText, HALVES_TEXT } from './linear-spec.js';

/** The role of what this stage leaves, `[rows, k]`. */
export const HALVES = 'scratchHalves';

/** The role of what attention, or one product, hands to the next: halves, `[rows, k]`, or bytes (linear-bytes.ts). */
export const HANDED = 'scratchHanded';

/** Threads of the launch, and of any that norms a row: how squares are shared out among them is the order of their sum. */
export const NORM_THREADS = 256;
/** Vectors of a row that a thread keeps in registers. */
const MOST_HELD = 8;

/** Workgroups of a dimension; and rows of a bucket that a launch of a workgroup for each reaches. */
const MOST_WORKGROUPS = 65535;
export const MOST_ROWS = 2 ** 16;

export function halvesBytes(rows: number, k: number): number {
  return rows * k * 2;
}

/** A row of `k` numbers, a workgroup's own, that is normed and left as halves. */
export interface NormedRow {
  readonly k: number;
  readonly eps: number;
  /** Of a subgroup. */
  readonly lanes: number;
  /** Threads of the workgroup: NORM_THREADS times a whole number. */
  readonly threads: number;
  /** NORM_THREADS, where a test has no room for as many. */
  readonly summing?: number;
  /** The role of the weights. */
  readonly gain: string;
  /** The row's number. Default: that of the workgroup. */
  readonly place?: string;
  /** Statements that fetch vector `i` of the row into `v`; and that leave it elsewhere too. */
  readonly fetch: (v: string, i: string) => string;
  readonly keep?: (v: string, i: string) => string;
}

/** Whether threads can keep a row of k numbers. */
export function normedRowFits(k: number): boolean {
  return k % 4 === 0 && k / 4 <= MOST_HELD * NORM_THREADS;
}

/**
 * The text that norms a row: arrays of the workgroup, and statements of `main`, which has `lid` and `wid`. What a thread has of the row
 * stays in registers, and the weights are on their way before all wait for the sum. More threads than NORM_THREADS give the
 * same bits: each leaves the squares of its vectors, and those that would have had them add them up.
 */
export function normedRow(row: NormedRow): { readonly arrays: string; readonly lines: readonly string[] } {
  const { k, eps, lanes, threads, summing = NORM_THREADS, gain, place = 'wid.x', fetch, keep } = row;
  const vectors = k / 4;
  const count = (all: number): number[] => Array.from({ length: Math.ceil(vectors / all) }, (_, e) => e);
  const each = count(threads);
  const inside = (e: number, text: string): string =>
    (e + 1) * threads <= vectors ? text : `if (i${e} < ${vectors}u) { ${text} }`;
  const shared = threads > summing;
  const squares = shared
    ? [
        ...each.map((e) => `dots[lid + ${e * threads}u] = dot(v${e}, v${e});`),
        'workgroupBarrier();',
        'var square = 0.0;',
        ...count(summing).map((e) => `square += dots[lid % ${summing}u + ${e * summing}u];`),
      ]
    : ['var square = 0.0;', ...each.map((e) => `square += dot(v${e}, v${e});`)];
  return {
    arrays: `${squaresArray(summing, lanes)}
${shared ? `var<workgroup> dots: array<f32, ${each.length * threads}>;` : ''}`,
    lines: [
      ...each.map((e) => `let i${e} = lid + ${e * threads}u; var v${e}: vec4<f32>; var gain${e}: vec4<f32>;`),
      ...each.map((e) => inside(e, fetch(`v${e}`, `i${e}`))),
      ...each.map((e) => inside(e, `gain${e} = ${gain}[i${e}];`)),
      ...(keep === undefined ? [] : each.map((e) => inside(e, keep(`v${e}`, `i${e}`)))),
      ...squares,
      inverseText(k, eps, summing, lanes, shared ? `lid < ${summing}u && ` : ''),
      ...each.map((e) => inside(e, storeText(k, `i${e}`, `v${e} * inverse * gain${e}`, place))),
    ],
  };
}

function squaresArray(threads: number, lanes: number): string {
  return `var<workgroup> squares: array<f32, ${threads / lanes}>;`;
}

/** From each thread's `square` to `inverse`, what a row is multiplied by. */
function inverseText(k: number, eps: number, threads: number, lanes: number, of = ''): string {
  const sum = Array.from({ length: threads / lanes }, (_, s) => `squares[${s}]`).join(' + ');
  return `square = subgroupAdd(square);
  if (${of}lid % ${lanes}u == 0u) { squares[lid / ${lanes}u] = square; }
  workgroupBarrier();
  let inverse = inverseSqrt((${sum}) / ${k}.0 + ${floatText(eps)});`;
}

function storeText(k: number, i: string, value: string, row: string): string {
  return `${HALVES}[${row} * ${k / 4}u + ${i}] = halves_(${value});`;
}

/** One workgroup a row. k is a multiple of 8. */
export function halvesStage(shape: LinearShape, lanes: number): Stage {
  const { k, xStride, norm, rowKind, rows } = shape;
  const place = rows > MOST_WORKGROUPS ? '(wid.x * 2u + wid.y)' : 'wid.x';
  const bindings = [
    { name: 'x', access: 'read', type: 'array<vec4<f32>>' },
    ...(norm === null ? [] : [{ name: 'norm', access: 'read', type: 'array<vec4<f32>>' } as const]),
    { name: HALVES, access: 'read_write', type: 'array<vec4<f16>>' },
  ] as const;
  const walk = (text: string): string =>
    `for (var i = lid; i < ${k / 4}u; i += ${NORM_THREADS}u) { ${text} }`;
  const made = (): ReturnType<typeof normedRow> => {
    if (norm === null) return { arrays: '', lines: [walk(storeText(k, 'i', 'x[start + i]', place))] };
    const { eps } = norm;
    if (normedRowFits(k)) {
      const fetch = (v: string, i: string): string => `${v} = x[start + ${i}];`;
      return normedRow({ k, eps, lanes, threads: NORM_THREADS, gain: 'norm', place, fetch });
    }
    const lines = [
      'var square = 0.0;',
      walk('let v = x[start + i]; square += dot(v, v);'),
      inverseText(k, eps, NORM_THREADS, lanes),
      walk(storeText(k, 'i', 'x[start + i] * inverse * norm[i]', place)),
    ];
    return { arrays: squaresArray(NORM_THREADS, lanes), lines };
  };
  const { arrays, lines } = made();
  return {
    label: `${norm === null ? 'halves' : 'rms-norm to halves'} [${k}]`,
    wgsl: `enable f16;
enable subgroups;
${declareBindings(bindings)}
${arrays}
${HALVES_TEXT}
@compute @workgroup_size(${NORM_THREADS})
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
  let start = ${place} * ${xStride / 4}u;
  ${lines.join('\n  ')}
}`,
    bindings,
    workgroups: rowByRow(rowKind, rows),
  };
}

/** A workgroup for each row there is, of a bucket of `rows`; of one beyond a dimension in pairs: an odd number makes one more, which the bucket has room for. */
export function rowByRow(kind: RowKind, rows = 0): Stage['workgroups'] {
  const across = rows > MOST_WORKGROUPS ? 2 : 1;
  return (facts, out) => {
    out[0] = Math.ceil(facts[kind] / across);
    out[1] = across;
    out[2] = 1;
  };
}
