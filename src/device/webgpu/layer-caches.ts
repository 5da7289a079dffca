/** How a layer's K and V are stored, as the kernels of a node need it: one kind of rows, or quantised and float-start ones. */

import { KvantError } from '../../errors.js';
import { type KvFormat, type KvLayerSizes, type KvPoolSpec, kvPoolOf, sameHeads } from '../kv.js';
import type { StateShape } from '../state.js';
import { allRows } from './kernels/kv-rows.js';
import type { GpuKvPool, LayerCache, SideCache } from './kv-pool.js';
import type { Resources } from './resources.js';
import type { KvHead, KvRows } from './shapes.js';

/** How rows of one kind are stored in a layer. */
export interface CacheKind {
  readonly key: KvFormat;
  readonly value: KvFormat;
  readonly rows: KvRows;
  readonly keys: GPUBuffer;
  readonly values: GPUBuffer;
}

/** One kind where all rows are stored alike, else the quantised and the float-start ones, or what is behind a float head and the head. */
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
  const all: CacheKind = {
    key,
    value,
    rows: { ...allRows(border), keyBlocks: keys.blocks, valueBlocks: values.blocks },
    keys: keys.buffer,
    values: values.buffer,
  };
  if (floatStart?.head && (keys.headFirst !== undefined || values.headFirst !== undefined))
    return { pool, kinds: behindHead(all, pool.spec, cache) };
  if (floatStart == null || (keys.floatStart === null && values.floatStart === null))
    return { pool, kinds: [all] };
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
      },
    ],
  };
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
