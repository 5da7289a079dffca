/** Which rows of a step a kernel serves, where a pool has float-start blocks. */

import type { AttentionShape } from '../../graph.js';
import type { KvFormat } from '../../kv.js';
import type { KvRows } from '../shapes.js';
import type { KvSideSpec } from './kv-formats/side.js';
import { kvLayout } from './kv-layout.js';

/** A pool without float-start blocks. */
export function allRows(blocks: number): KvRows {
  return { only: null, border: blocks, keyBlocks: blocks, keyBase: 0, valueBlocks: blocks, valueBase: 0 };
}

/** Statement that leaves the kernel for a slot of the other kind. */
export function rowsSkipped(rows: KvRows, maxBlocks: string, slot: string): string {
  if (rows.only === null || rows.only === 'tail' || rows.head !== undefined) return '';
  const sign = rows.only === 'floatStart' ? '<' : '>=';
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

/** What a label says of a kernel's rows. */
export function rowsName({ only, tail }: KvRows): string {
  const names = {
    quantised: '',
    floatStart: ' float start',
    head: ' float head',
    behind: ' behind a head',
    tail: ' float tail',
  };
  return `${only === null ? '' : names[only]}${tail === undefined || only === 'tail' ? '' : ' before a tail'}`;
}
