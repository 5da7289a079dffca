/** dp4a products (linear-dp4a.ts): their sizes, for which shapes there is one, and what they do for their neighbours. */

import type { BytesLayout } from '../shapes.js';
import type { ShardLayout } from '../weights-layout.js';
import { groupCols } from './group-scales.js';
import { unitsOf, vectorsOf } from './linear-bytes.js';
import { inverseBytes } from './linear-dp4a-norm.js';
import { type LinearSpec, outCols } from './linear-spec.js';
import { TABLE_BYTES } from './table-numbers.js';

export interface Dp4aConfig {
  /** Lanes of a subgroup: must be the device's one and only size. */
  readonly subgroupSize: number;
  /** Lanes side by side along K: a power of two. */
  readonly across: number;
  /** Pieces of 32 columns that a lane takes of a weight row at a time; they share a scale of x. */
  readonly pieces: 1 | 2;
  /** Weight rows of a lane. */
  readonly each: number;
  readonly subgroups: number;
  /** Subgroups that share the rows along K. Divides `subgroups`. */
  readonly splits: number;
  /** Turns in which x is staged in workgroup memory; 0: read where it lies. */
  readonly chunks: number;
  /** Bytes that x is rounded to. */
  readonly planes: 1 | 2;
  readonly workgroupBytes: number;
}

export interface Dp4aPlan {
  /** What it wants x as. */
  readonly x: BytesLayout;
  /** Turns of a subgroup along K, and of a chunk. */
  readonly turns: number;
  readonly perChunk: number;
  /** Weight rows of a subgroup. */
  readonly ofSubgroup: number;
  /** Outputs of a row that a workgroup makes. */
  readonly ownFeatures: number;
  readonly bytes: number;
}

/** What a dp4a product does for its neighbours, beside its own work. */
export interface Dp4aEnds {
  /** What the next product wants the result as, or null where it is f32. */
  readonly left: BytesLayout | null;
  /** It is behind a norm: the result is left as f32 and, times the weights of the norm, as `left` says. */
  readonly leftNormed: boolean;
  /** x is such a result, with so many sums of squares a row; 0: it is not. */
  readonly xTiles: number;
}
export const NO_ENDS: Dp4aEnds = { left: null, leftNormed: false, xTiles: 0 };

/** Codes that are bytes after one `and`, with one scale and bias for 32 columns or more; and those of tables. */
function hasBytes(
  weight: ShardLayout,
): weight is Exclude<ShardLayout, { kind: 'float' }> & { readonly bits: 4 | 8 } {
  return weight.kind !== 'float' && (weight.bits === 4 || weight.bits === 8);
}

/** Null where sizes do not divide. */
export function planDp4a(spec: LinearSpec, c: Dp4aConfig, { left, xTiles }: Dp4aEnds): Dp4aPlan | null {
  const { weight, rows, k } = spec;
  if (!hasBytes(weight)) return null;
  const { across, pieces, planes, each, subgroups, splits, chunks, subgroupSize: lanes } = c;
  const steps = k / (32 * pieces * across);
  const turns = steps / splits;
  const perChunk = turns / Math.max(1, chunks);
  if (!Number.isInteger(perChunk)) return null;
  const chunkSteps = steps / Math.max(1, chunks);
  const ofSubgroup = (lanes / across) * each;
  const staged = chunks === 0 ? 0 : rows * chunkSteps * across * (vectorsOf(c) * 16 + 8);
  const sums = splits === 1 ? 0 : subgroups * ofSubgroup * rows * 4;
  const ownFeatures = ((subgroups / splits) * ofSubgroup) / (spec.glu === null ? 1 : 2);
  const made = left === null ? 0 : rows * ownFeatures * 4;
  return {
    x: { rows, k, bits: weight.bits, pieces, planes, across, chunkSteps },
    turns,
    perChunk,
    ofSubgroup,
    ownFeatures,
    bytes:
      staged +
      sums +
      made +
      (xTiles === 0 ? 0 : inverseBytes({ rows, subgroups })) +
      (weight.kind === 'lut4' ? TABLE_BYTES : 0),
  };
}

/** Rows for which sums stay in registers. */
const MOST_ROWS = 16;

/** Whether the kernel exists for this spec, and can leave the result as bytes where that is wanted. */
export function dp4aFits(spec: LinearSpec, c: Dp4aConfig, ends: Dp4aEnds = NO_ENDS): boolean {
  const { left, leftNormed } = ends;
  const { weight, rows, k } = spec;
  if (!hasBytes(weight) || (weight.kind === 'affine' && weight.meta === 'f32')) return false;
  if (spec.x !== 'f32' || spec.out !== 'f32' || spec.residual === 'f16') return false;
  if (spec.merge !== undefined || spec.append !== undefined) return false;
  if (spec.glu !== null && (spec.residual !== null || spec.n % 2 !== 0 || c.each % 2 !== 0)) return false;
  const powers = [c.across, c.subgroupSize].every((size) => size >= 1 && (size & (size - 1)) === 0);
  if (!powers || c.across > c.subgroupSize || c.subgroups % c.splits !== 0) return false;
  const group = groupCols(weight);
  if (Math.max(32, group) % (32 * c.pieces) !== 0 || k % group !== 0 || spec.xStride % 4 !== 0) return false;
  const plan = planDp4a(spec, c, ends);
  if (plan === null || rows < 1 || rows > MOST_ROWS || plan.bytes > c.workgroupBytes) return false;
  if (left === null) return true;
  if (left.rows !== rows || left.k !== outCols(spec) || spec.outOffset !== 0) return false;
  if (plan.ownFeatures % (32 * left.pieces) !== 0) return false;
  if (!leftNormed) return spec.residual === null;
  // Threads that have a workgroup's outputs of a row add up their squares by halving.
  const perRow = threadsOf(plan, left, c);
  return (
    spec.norm === null &&
    spec.glu === null &&
    left.k % plan.ownFeatures === 0 &&
    c.subgroupSize % perRow === 0
  );
}

/** What its sums depend on: which columns a lane has, in which turn, and to what x was rounded. */
export function dp4aOrder({ across, pieces, splits, planes }: Dp4aConfig): string {
  return `l${across} p${pieces} k${splits} q${planes}`;
}

/** The bytes that the product reads in place of x. */
export function dp4aLayout(spec: LinearSpec, c: Dp4aConfig): BytesLayout {
  return wholePlan(spec, c).x;
}

/** Sums of squares of a row that it leaves for a norm. */
export function dp4aTiles(spec: LinearSpec, c: Dp4aConfig): number {
  return Math.ceil(outCols(spec) / wholePlan(spec, c).ownFeatures);
}

function wholePlan(spec: LinearSpec, c: Dp4aConfig): Dp4aPlan {
  const plan = planDp4a(spec, c, NO_ENDS);
  if (plan === null) throw new RangeError(`no dp4a kernel for ${spec.n} × ${spec.k}`);
  return plan;
}

/** Threads that make bytes of a workgroup's outputs of a row. */
export function threadsOf(
  { ownFeatures }: Dp4aPlan,
  left: BytesLayout,
  { subgroupSize }: Dp4aConfig,
): number {
  return ownFeatures / 8 / unitsOf(left, subgroupSize).own;
}
