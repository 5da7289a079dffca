/**
 * The end of a split-K product, one whose K was cut into slices: a product of few features has few tiles, and a large GPU idles unless
 * several workgroups share one of them along K (linear-matrix.ts). Each leaves its sums in scratch; here they are added
 * up, in their order, and an output becomes what is wanted of it. Where a norm follows, and a product of halves behind that,
 * whoever has a row whole norms it at once: a launch less, with the same bits (linear-handed.ts).
 */

import type { Binding, LinearShape, Stage } from '../kernel.js';
import { declareBindings } from '../kernel.js';
import { HALVES, NORM_THREADS, normedRow, normedRowFits, rowByRow } from './linear-halves.js';
import { HALVES_TEXT } from './linear-spec.js';

/** The role of the sums, `[slice][row][feature]`. */
export const SPLIT_K_SUMS = 'scratchSplitK';

const THREADS = 128;

/** @param rows that a slice has room for */
export function splitKBytes(splitK: number, rows: number, n: number): number {
  return splitK * rows * n * 4;
}

/** Whether outputs are four to a thread, side by side. */
export function splitKFits({
  n,
  outStride,
  outOffset,
  glu,
}: Pick<LinearShape, 'n' | 'outStride' | 'outOffset'> & { readonly glu: unknown }): boolean {
  return glu === null && [n, outStride, outOffset].every((size) => size % 4 === 0);
}

const VECTORS = 'array<vec4<f32>>';

/** What is bound to make an output of its sums. */
function inputsOf({ bias, residual }: Pick<LinearShape, 'bias' | 'residual'>): Binding[] {
  return [
    { name: SPLIT_K_SUMS, access: 'read', type: VECTORS },
    ...(bias ? [{ name: 'bias', access: 'read', type: VECTORS } as const] : []),
    ...(residual ? [{ name: 'residual', access: 'read', type: VECTORS } as const] : []),
  ];
}

const OUT: Binding = { name: 'out', access: 'read_write', type: VECTORS };

/** The sums of all slices, in their order. */
function sumText(splitK: number, at: (slice: number) => string): string {
  return Array.from({ length: splitK }, (_, s) => `${SPLIT_K_SUMS}[${at(s)}]`).join(' + ');
}

/** Statements that add to `value`, four sums of slices in their order, what an output has besides. `to`: its place in `out`. */
function outputText(
  { rows, n, bias, residual }: LinearShape,
  splitK: number,
  { value, row, at, to }: Readonly<Record<'value' | 'row' | 'at' | 'to', string>>,
): string {
  return `${value} = ${sumText(splitK, (s) => `(${s * rows}u + ${row}) * ${n / 4}u + ${at}`)};
  ${bias ? `${value} += bias[${at}];` : ''}
  ${residual ? `${value} += residual[${to}];` : ''}`;
}

/** One thread for four outputs of a row. */
export function splitKStage(shape: LinearShape, splitK: number): Stage {
  const { n, outStride, outOffset, rowKind } = shape;
  const bindings = [...inputsOf(shape), OUT];
  return {
    label: `split-k ${splitK} [${n}]`,
    wgsl: `${declareBindings(bindings)}
@compute @workgroup_size(${THREADS})
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
  let at = wid.x * ${THREADS}u + lid;
  if (at >= ${n / 4}u) { return; }
  let to = wid.y * ${outStride / 4}u + ${outOffset / 4}u + at;
  var value: vec4<f32>;
  ${outputText(shape, splitK, { value: 'value', row: 'wid.y', at: 'at', to: 'to' })}
  out[to] = value;
}`,
    bindings,
    workgroups: (facts, out) => {
      out[0] = facts[rowKind] === 0 ? 0 : Math.ceil(n / 4 / THREADS);
      out[1] = facts[rowKind];
      out[2] = 1;
    },
  };
}

/** What a product that leaves its result in slices tells the kernel that reads it there. */
export interface SplitKSums {
  readonly splitK: number;
  /** That each slice has room for. */
  readonly rows: number;
  readonly bias: boolean;
}

/** Whether slices are of whole rows, as whoever reads them there takes them to be. */
export function leavesSplitK({ n, outStride, outOffset, residual }: LinearShape): boolean {
  return outOffset === 0 && outStride === n && !residual;
}

/**
 * `fn NAME(row, at)`: four outputs, put together as splitKStage would, and what it binds. `row`: the row's first vector in a slice;
 * `slice`: vectors from a slice to the next.
 */
export function splitKText(
  name: string,
  { splitK, bias }: SplitKSums,
  slice: string,
): { readonly bindings: readonly Binding[]; readonly wgsl: string } {
  return {
    bindings: inputsOf({ bias, residual: false }),
    wgsl: `fn ${name}(row: u32, at: u32) -> vec4<f32> {
  return ${sumText(splitK, (s) => `row + at + ${s}u * ${slice}`)}${bias ? ' + bias[at]' : ''};
}`,
  };
}

/** Whether a workgroup has a whole row of what the product makes, and keeps it. */
export function normsSplitK({ n, outStride, outOffset }: LinearShape): boolean {
  return outOffset === 0 && outStride === n && normedRowFits(n);
}

/**
 * One workgroup for a row, which leaves it in `out` and, normed by the weights `outNorm`, as halves where the product that reads them
 * would have a launch leave them. As many threads as there are vectors, if a workgroup may have them: all are on their way at once.
 *
 * @param lanes of a subgroup
 * @param most threads of a workgroup
 * @param summing see NormedRow
 */
export function normedSplitKStage(
  shape: LinearShape,
  splitK: number,
  eps: number,
  lanes: number,
  most: number,
  summing = NORM_THREADS,
): Stage {
  const { n, rowKind } = shape;
  const vectors = n / 4;
  const threads = summing * Math.min(Math.floor(most / summing), Math.ceil(vectors / summing));
  const bindings: Binding[] = [
    ...inputsOf(shape),
    OUT,
    { name: 'outNorm', access: 'read', type: VECTORS },
    { name: HALVES, access: 'read_write', type: 'array<vec4<f16>>' },
  ];
  const { arrays, lines } = normedRow({
    k: n,
    eps,
    lanes,
    threads,
    summing,
    gain: 'outNorm',
    fetch: (value, at) => outputText(shape, splitK, { value, row: 'wid.x', at, to: `start + ${at}` }),
    keep: (value, at) => `out[start + ${at}] = ${value};`,
  });
  return {
    label: `split-k ${splitK}, rms-norm to halves [${n}]`,
    wgsl: `enable f16;
enable subgroups;
${declareBindings(bindings)}
${arrays}
${HALVES_TEXT}
@compute @workgroup_size(${threads})
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
  let start = wid.x * ${vectors}u;
  ${lines.join('\n  ')}
}`,
    bindings,
    workgroups: rowByRow(rowKind),
  };
}
