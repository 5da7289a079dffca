/** Attention over latents on subgroup matrices: what can be chosen of its kernel, and what follows from that. */

import { isFloatKv } from '../../kv.js';
import type { MatrixConfig } from '../kernel.js';
import { ATTENTION_SPLIT, ATTENTION_TILE } from '../step-buffer.js';
import type { AttendShape } from './attend.js';
import type { TileSizes } from './attend-prefill-plan.js';
import { unpacksWords } from './kv-formats/list.js';

export interface LatentConfig {
  readonly matrix: MatrixConfig;
  readonly subgroupSize: number;
  readonly subgroups: number;
  /** Positions staged at once. */
  readonly keys: number;
  /** Query rows of a workgroup: heads of one token, or of several. */
  readonly rows: number;
  readonly workgroupBytes: number;
}

export interface LatentPlan extends TileSizes {
  readonly unit: 4 | 8;
  /** Matrices of rows, and of positions of a tile. */
  readonly down: number;
  readonly across: number;
  /** Subgroups that share a matrix of scores along the numbers of a key, and matrices of a key that each has of it. */
  readonly parts: number;
  readonly steps: number;
  /** Matrices of values that a subgroup sums. */
  readonly own: number;
  readonly weightStride: number;
  readonly bytes: number;
}

export function planLatent({ headDim, valueDim = headDim }: AttendShape, c: LatentConfig): LatentPlan {
  const { matrix, subgroups, keys, rows } = c;
  const component = matrix.component === 'f32' ? 'f32' : 'f16';
  const size = component === 'f16' ? 2 : 4;
  const unit = component === 'f16' ? 8 : 4;
  const stride = headDim + unit;
  const weightStride = keys + unit;
  const down = rows / matrix.m;
  const across = keys / matrix.n;
  const parts = subgroups / (down * across);
  const bytes =
    (Math.max(keys, rows) * stride + rows * weightStride) * size +
    subgroups * matrix.m * matrix.n * 4 +
    rows * 28 +
    16;
  return {
    component,
    unit,
    threads: subgroups * c.subgroupSize,
    keys,
    stride,
    down,
    across,
    parts,
    steps: Math.ceil(headDim / matrix.k / parts),
    own: Math.ceil(valueDim / matrix.n / subgroups),
    weightStride,
    bytes,
  };
}

/** Most of a subgroup's sums: matrices of values times matrices of rows. */
const MOST_SUMS = 8;

export function latentFits(shape: AttendShape, c: LatentConfig): boolean {
  const { key, headDim, valueDim, kvHeads, window, rows: kinds, blockTokens } = shape;
  const { matrix, keys, rows } = c;
  const { unit, parts, down, own, threads, bytes } = planLatent(shape, c);
  // A float head, and a float tail, are left to the portable kernel.
  if (valueDim === undefined || kvHeads !== 1 || window !== null) return false;
  if (kinds.head !== undefined || kinds.tail !== undefined) return false;
  if (isFloatKv(key) ? key.dtype !== 'f16' : !unpacksWords(key)) return false;
  const before = headDim - valueDim;
  return (
    matrix.result === 'f32' &&
    (matrix.component === 'f16' || matrix.component === 'f32') &&
    headDim % 8 === 0 &&
    // Codes are staged in an order of their own, within 32.
    before % (isFloatKv(key) ? unit : 32) === 0 &&
    matrix.n % unit === 0 &&
    matrix.k % unit === 0 &&
    headDim % matrix.k === 0 &&
    valueDim % matrix.n === 0 &&
    keys % matrix.n === 0 &&
    keys % matrix.k === 0 &&
    rows % matrix.m === 0 &&
    ATTENTION_SPLIT % keys === 0 &&
    ATTENTION_SPLIT % blockTokens === 0 &&
    parts >= 1 &&
    Number.isInteger(parts) &&
    own * down <= MOST_SUMS &&
    threads >= rows &&
    threads % rows === 0 &&
    bytes <= c.workgroupBytes
  );
}

/** Workgroups of an item, or of a tile of prompts. */
export function latentBlocks({ heads }: AttendShape, { rows }: LatentConfig, of: 'items' | 'tiles'): number {
  return Math.ceil((heads * (of === 'items' ? 1 : ATTENTION_TILE)) / rows);
}
