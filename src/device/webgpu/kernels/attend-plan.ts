/** What follows from a shape of attention: the scratch of its kernels, and the sizes of the portable one. */

import type { AttentionShape } from '../../graph.js';
import { ATTENTION_TILE } from '../record-texts.js';
import type { KvRows } from '../shapes.js';
import { partialNames, tileNames } from './kv-head.js';

/** Of a shape of attention (attend.ts) what scratch depends on. */
interface PlannedShape extends AttentionShape {
  readonly rows: KvRows;
  readonly maxItems: number;
  readonly most?: { readonly tokens: number; readonly rows: number };
}

/** Items, or tiles (attend.ts). */
export type AttendMode = 'items' | 'tiles';

/** Bytes of scratch for one item, over all heads. */
export function itemScratchBytes({ heads, headDim, valueDim = headDim }: AttentionShape): number {
  return heads * (valueDim + 2) * 4;
}

/** Roles: step, q, keys, values, tables, out (or scratchHanded), params; scratchSums, scratchTops, or those of a float head. */
export function attendScratch(shape: PlannedShape): Readonly<Record<string, number>> {
  if (shape.maxItems === 0) return {};
  const { sums, tops } = partialNames(shape.rows);
  // Of a head there is one for each row, and a row has at least one item besides.
  const items = shape.maxItems + (shape.rows.only === 'tail' ? shape.most!.rows : 0);
  return {
    [sums]: items * shape.heads * (shape.valueDim ?? shape.headDim) * 4,
    [tops]: items * shape.heads * 8,
  };
}

/** Bytes of what tiles leave. */
export function tileScratch({
  rows,
  heads,
  headDim,
  valueDim = headDim,
  most,
}: PlannedShape): Readonly<Record<string, number>> {
  if (rows.tail === undefined || most === undefined) return {};
  const { sums, tops } = tileNames(rows);
  const cells = most.tokens * heads;
  return { [tops]: cells * 8, ...(rows.only === 'tail' ? { [sums]: cells * valueDim * 4 } : {}) };
}

/** Positions staged at once, and rows of a workgroup; chunks divide a split. */
export function portableSizes(
  shape: PlannedShape,
  workgroupBytes: number,
  mode: AttendMode,
): { chunk: number; rows: number } {
  const headBytes = shape.headDim * 4;
  const chunk = shape.headDim > 256 ? 4 : shape.headDim > 128 ? 8 : shape.headDim > 64 ? 16 : 32;
  const group = shape.heads / shape.kvHeads;
  const wanted = mode === 'items' ? group : group * ATTENTION_TILE;
  const rowBytes = headBytes + chunk * 4 + 24;
  const room = Math.floor((Math.min(workgroupBytes, 32768) - chunk * headBytes) / rowBytes);
  let rows = 1;
  while (rows * 2 <= room && rows < wanted && rows < 32) rows *= 2;
  return { chunk, rows };
}
