/** How a layer's K and V are stored, as the kernels of a node need it: one kind of rows, or quantised and float-start ones. */

import { KvantError } from '../../errors.js';
import {
  isFloatKv,
  type KvFormat,
  type KvLayerSizes,
  type KvPoolSpec,
  kvPoolOf,
  kvTailOf,
  sameHeads,
} from '../kv.js';
import type { StateShape } from '../state.js';
import { MOST_TAIL } from './kernels/attend-tail.js';
import { allRows } from './kernels/kv-rows.js';
import type { GpuKvPool, LayerCache, SideCache } from './kv-pool.js';
import type { Resources } from './resources.js';
import type { KvHead, KvRows, KvTail } from './shapes.js';

/** How rows of one kind are stored in a layer. */
export interface CacheKind {
  readonly key: KvFormat;
  readonly value: KvFormat;
  readonly rows: KvRows;
  readonly keys: GPUBuffer;
  readonly values: GPUBuffer;
  readonly tables: GPUBuffer;
}

/**
 * One kind where all rows are stored alike, else the quantised and the float-start ones, or what is behind a float head and the head; and
 * the float tail, if there is one, last.
 */
export function cacheOf(
  r: Pick<Resources, 'caches'>,
  index: number,
  shape: KvLayerSizes,
): { readonly pool: GpuKvPool; readonly kinds: readonly CacheKind[] } {
  const place = kvPoolOf(r.caches, index);
  const layer = place?.pool.spec.layers[place.index];
  const cache = place?.pool.layers[place.index];
  if (place === null || layer === undefined || cache === undefined) {
    throw mismatch(`layer ${index} has no cache in the pool`);
  }
  if (!sameHeads(layer, shape)) {
    throw mismatch(
      `layer ${index} attends with ${shape.kvHeads}×${shape.headDim}, its cache is ${layer.kvHeads}×${layer.headDim}`,
    );
  }
  const { pool } = place;
  const { key, value } = layer;
  const { keys, values } = cache;
  const { blocks: border, floatStart } = pool.spec;
  const newest = tailOf(r, index, shape);
  const ofTail = newest === null ? [] : [newest];
  const tail = newest?.rows.tail;
  const before = tail && { tail };
  const all: CacheKind = {
    key,
    value,
    rows: { ...allRows(border), keyBlocks: keys.blocks, valueBlocks: values.blocks, ...before },
    keys: keys.buffer,
    values: values.buffer,
    tables: pool.tables,
  };
  if (floatStart?.head && (keys.headFirst !== undefined || values.headFirst !== undefined))
    return { pool, kinds: [...behindHead(all, pool.spec, cache), ...ofTail] };
  if (floatStart == null || (keys.floatStart === null && values.floatStart === null))
    return { pool, kinds: [all, ...ofTail] };
  const float: KvFormat = { kind: 'float', dtype: floatStart.dtype };
  const own = (side: SideCache): { readonly blocks: number; readonly base: number } =>
    side.floatStart === null ? { blocks: side.blocks, base: 0 } : { blocks: floatStart.blocks, base: border };
  const [ofKeys, ofValues] = [own(keys), own(values)];
  return {
    pool,
    kinds: [
      { ...all, rows: { ...all.rows, only: 'quantised' } },
      {
        key: float,
        value: float,
        rows: {
          only: 'floatStart',
          border,
          keyBlocks: ofKeys.blocks,
          keyBase: ofKeys.base,
          valueBlocks: ofValues.blocks,
          valueBase: ofValues.base,
        },
        keys: keys.floatStart ?? keys.buffer,
        values: values.floatStart ?? values.buffer,
        tables: pool.tables,
      },
      ...ofTail,
    ],
  };
}

/** The float tail of a layer, null where it has none. */
function tailOf(r: Pick<Resources, 'caches'>, index: number, shape: KvLayerSizes): CacheKind | null {
  const place = kvTailOf(r.caches, index);
  if (place === null) return null;
  const { pool, tokens } = place;
  const layer = pool.spec.layers[place.index];
  const cache = pool.layers[place.index];
  if (layer === undefined || cache === undefined || !sameHeads(layer, shape) || !isFloatKv(layer.key))
    throw mismatch(`layer ${index} has no float tail of its heads in the pool`);
  if (tokens > MOST_TAIL)
    throw tailUnsupported(`A float tail of ${tokens} tokens`, `Give one of up to ${MOST_TAIL}.`);
  const { key, value } = layer;
  const tail: KvTail = { tokens, dtype: layer.key.dtype };
  const { keys, values } = cache;
  return {
    key,
    value,
    rows: { ...allRows(pool.spec.blocks), only: 'tail', tail },
    keys: keys.buffer,
    values: values.buffer,
    tables: pool.tables,
  };
}

/** Errors: `kv-tail-unsupported`. */
export function tailUnsupported(what: string, fix: string): KvantError {
  return new KvantError('kv-tail-unsupported', `${what}: WebGPU keeps no such.`, {
    kind: 'unsupported',
    where: 'kvFloatTail',
    fix,
  });
}

/** What is behind a float head, and the head: the same rows, and the same buffers. */
function behindHead(
  all: CacheKind,
  { blocks: border, floatStart }: KvPoolSpec,
  { keys, values }: LayerCache,
): readonly CacheKind[] {
  const { head: tokens = 0, dtype, blocks } = floatStart!;
  const head: KvHead = {
    tokens,
    dtype,
    keyFirst: keys.headFirst ?? null,
    valueFirst: values.headFirst ?? null,
  };
  const float: KvFormat = { kind: 'float', dtype };
  const own = (first: number | null): { readonly blocks: number; readonly base: number } =>
    first === null ? { blocks: border + blocks, base: 0 } : { blocks: first + blocks, base: border - first };
  const [ofKeys, ofValues] = [own(head.keyFirst), own(head.valueFirst)];
  return [
    { ...all, rows: { ...all.rows, only: 'behind', head } },
    {
      ...all,
      key: float,
      value: float,
      rows: {
        only: 'head',
        head,
        ...(all.rows.tail && { tail: all.rows.tail }),
        border,
        keyBlocks: ofKeys.blocks,
        keyBase: ofKeys.base,
        valueBlocks: ofValues.blocks,
        valueBase: ofValues.base,
      },
    },
  ];
}

/** The state of a layer: its buffer, `[slots of state, bytes of one]`, and the tables that say which is a sequence's. */
export interface LayerState {
  readonly shape: StateShape;
  readonly buffer: GPUBuffer;
  readonly tables: GPUBuffer;
  readonly maxBlocksPerSlot: number;
}

export function stateOf(r: Pick<Resources, 'caches'>, { layer }: { readonly layer: number }): LayerState {
  const place = kvPoolOf(r.caches, layer);
  const shape = place?.pool.spec.layers[place.index]?.state;
  if (place === null || shape === undefined) throw mismatch(`layer ${layer} has no state in the pools`);
  const { pool, index } = place;
  const { maxBlocksPerSlot } = pool.spec;
  return { shape, buffer: pool.layers[index]!.keys.buffer, tables: pool.tables, maxBlocksPerSlot };
}

function mismatch(message: string): KvantError {
  return new KvantError('shape-mismatch', `compile: ${message}.`, {
    where: 'compile',
    fix: 'Make the pool from the same model as the graph.',
  });
}
