/** Which rows of a step a kernel serves, where a pool has young blocks. */

import type { AttentionShape } from '../../graph.js';
import type { KvFormat } from '../../kv.js';
import type { KvSideSpec } from './kv-format.js';
import { kvLayout } from './kv-layout.js';

export interface KvRows {
  /** Null: all of them. The kind of a row is that of its sequence's first block. */
  readonly only: 'old' | 'young' | null;
  /** Ids from here on are of young blocks. */
  readonly border: number;
  /** Blocks in the buffer that is bound as keys, and the id of the first of them; as values likewise. */
  readonly keyBlocks: number;
  readonly keyBase: number;
  readonly valueBlocks: number;
  readonly valueBase: number;
}

/** A pool without young blocks. */
export function allRows(blocks: number): KvRows {
  return { only: null, border: blocks, keyBlocks: blocks, keyBase: 0, valueBlocks: blocks, valueBase: 0 };
}

/** Statement that leaves the kernel for a slot of the other kind. */
export function rowsSkipped(rows: KvRows, maxBlocks: string, slot: string): string {
  if (rows.only === null) return '';
  const sign = rows.only === 'young' ? '<' : '>=';
  return `if (tables[${slot} * ${maxBlocks}] ${sign} ${rows.border}u) { return; }`;
}

export function sideOf<Name extends 'keys' | 'values'>(
  name: Name,
  shape: AttentionShape & {
    readonly key: KvFormat;
    readonly value: KvFormat;
    readonly rows: KvRows;
    readonly blockTokens: number;
  },
): KvSideSpec<Name> {
  const { headDim, kvHeads, blockTokens, rows } = shape;
  const format = name === 'keys' ? shape.key : shape.value;
  const blocks = name === 'keys' ? rows.keyBlocks : rows.valueBlocks;
  return { name, format, headDim, layout: kvLayout(format, { headDim, kvHeads, blockTokens, blocks }) };
}
