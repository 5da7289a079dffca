/** Attention of prompt tiles on subgroup matrices: what can be chosen of its kernel, and what follows from that. */

import { isFloatKv } from '../../kv.js';
import type { MatrixConfig } from '../kernel.js';
import { ATTENTION_TILE } from '../step-buffer.js';
import type { AttendShape } from './attend.js';
import { codecOf } from './kv-formats/list.js';

export interface PrefillConfig {
  readonly matrix: MatrixConfig;
  readonly subgroupSize: number;
  /** Positions staged at once: a multiple of the matrix. */
  readonly keys: number;
  /** Most query rows of a workgroup. */
  readonly rows: number;
  /** Subgroups that share rows, each with a part of the dims: sums of wide heads are more than the registers of one hold. 1 if omitted. */
  readonly split?: number;
  readonly workgroupBytes: number;
}

export interface PrefillPlan {
  readonly component: 'f16' | 'f32';
  readonly group: number;
  readonly rows: number;
  /** Workgroups that the rows of a tile take, for one KV head. */
  readonly rowBlocks: number;
  readonly subs: number;
  readonly stride: number;
  readonly scoreStride: number;
  readonly weightStride: number;
  readonly bytes: number;
}

/** How a tile of K or V is staged in workgroup memory. */
export interface TileSizes {
  readonly component: 'f16' | 'f32';
  readonly threads: number;
  /** Positions, and elements from one to the next. */
  readonly keys: number;
  readonly stride: number;
}

export function tileSizes(shape: AttendShape, c: PrefillConfig): TileSizes {
  const { component, subs, stride } = planPrefill(shape, c);
  return { component, threads: subs * c.subgroupSize, keys: c.keys, stride };
}

export function planPrefill(shape: AttendShape, c: PrefillConfig): PrefillPlan {
  const group = shape.heads / shape.kvHeads;
  const component = c.matrix.component === 'f32' ? 'f32' : 'f16';
  const size = component === 'f16' ? 2 : 4;
  const rows = Math.min(c.rows, group * ATTENTION_TILE);
  const { split = 1 } = c;
  const pad = 16 / size;
  const stride = shape.headDim + pad;
  const scoreStride = c.keys + 4;
  const weightStride = c.keys + pad;
  const books = [shape.key, shape.value].reduce((sum, f) => sum + codecOf(f).readerBytes(f), 0);
  const bytes =
    (Math.max(c.keys, rows) * stride + rows * weightStride) * size +
    split * rows * scoreStride * 4 +
    rows * 12 +
    16 +
    books;
  const rowBlocks = (group * ATTENTION_TILE) / rows;
  return {
    component,
    group,
    rows,
    rowBlocks,
    subs: (split * rows) / c.matrix.m,
    stride,
    scoreStride,
    weightStride,
    bytes,
  };
}

/** Dims of a row whose sums a subgroup's registers hold. */
const WIDEST_PART = 256;

export function prefillFits(shape: AttendShape, c: PrefillConfig): boolean {
  const { key, value, headDim, valueDim } = shape;
  const { matrix, keys, subgroupSize, split = 1 } = c;
  const { rows, subs, bytes, group } = planPrefill(shape, c);
  const dims = headDim / split;
  const threads = subs * subgroupSize;
  return (
    valueDim === undefined &&
    [key, value].every((f) => !isFloatKv(f) || f.dtype === 'f16') &&
    matrix.result === 'f32' &&
    (matrix.component === 'f16' || matrix.component === 'f32') &&
    dims <= WIDEST_PART &&
    dims % 8 === 0 &&
    (matrix.component === 'f32' || (matrix.n % 8 === 0 && matrix.k % 8 === 0)) &&
    dims % matrix.k === 0 &&
    dims % keys === 0 &&
    dims % matrix.n === 0 &&
    keys % matrix.n === 0 &&
    keys % matrix.k === 0 &&
    rows % matrix.m === 0 &&
    (group * ATTENTION_TILE) % rows === 0 &&
    threads <= 1024 &&
    (threads <= rows ? rows % threads === 0 : threads % rows === 0 && keys % (threads / rows) === 0) &&
    bytes <= c.workgroupBytes
  );
}
