/**
 * The caches of a model as a device sees them. Layers of equal kind form a cache group, and each group has a KvPool: its
 * blocks, and a block table for each slot.
 *
 * A block holds `blockTokens` consecutive positions of one sequence, and has the same index in all layers of its group. A
 * layer keeps K and V, latents (V is a view of K), or the state of a recurrence; of a recurrent group a block is one state.
 * The device stores vectors and reads tables. Which sequence owns which block is decided in `kv/`, on the host.
 *
 * How one vector is stored is its KvFormat (kv-formats/list.ts). KvPlace says in which pool each layer of the model is.
 */

import type { AffineKv } from './kv-formats/affine.js';
import type { FloatKv } from './kv-formats/float.js';
import { type KvFormat, kvFormatKind } from './kv-formats/list.js';
import type { TurboKv } from './kv-formats/turbo.js';
import { type StateShape, stateBytes } from './state.js';

export type { AffineKv, FloatKv, KvFormat, TurboKv };

/** Bytes of the values or codes of one vector: whole 32-bit words. */
export function kvCodeBytes(format: KvFormat, headDim: number): number {
  return kvFormatKind(format).codeBytes(format, headDim);
}

/** Bytes of scales, biases and norms of one token over all KV heads of a layer, padding included. */
export function kvMetaBytes(format: KvFormat, headDim: number, kvHeads: number): number {
  return kvFormatKind(format).metaBytes(format, headDim, kvHeads);
}

/**
 * Bytes of one token's K, or of its V, over all KV heads of a layer.
 * @example kvTokenBytes({ kind: 'affine', bits: 4, groupSize: 64 }, 128, 8) // 576: 8 heads of 64 bytes of codes, 64 of scales and biases
 */
export function kvTokenBytes(format: KvFormat, headDim: number, kvHeads: number): number {
  return kvCodeBytes(format, headDim) * kvHeads + kvMetaBytes(format, headDim, kvHeads);
}

/** The format as people write it: `f16`, `affine8` (groups of 64), `affine4-g32`, `turbo3`. */
export function kvFormatName(format: KvFormat): string {
  return kvFormatKind(format).name(format);
}

/** Whether vectors are kept as floats, not as codes. */
export function isFloatKv(format: KvFormat): format is FloatKv {
  return kvFormatKind(format).float;
}

/** What one layer of a pool keeps of each token, and how. */
export interface KvLayerSpec {
  /** Absent: the layer keeps K and V. Else it keeps a state of this shape, as f32: `kvHeads` is 0 then, and formats mean nothing. */
  readonly state?: StateShape;
  readonly kvHeads: number;
  readonly headDim: number;
  /**
   * The layer keeps latents: V is a view of K, its last `valueDim` numbers, so nothing is stored of it and `value` is the format of the
   * keys. One KV head. Absent: V is as wide as K, and stored.
   */
  readonly valueDim?: number;
  readonly key: KvFormat;
  readonly value: KvFormat;
  /** Placement group of the layer (see Device.place). */
  readonly group: number;
}

/**
 * Blocks that keep K and V as floats in every layer, for sequences that are not quantised yet. Their ids follow those
 * of the pool's other blocks: `[blocks, blocks + floatStart.blocks)`. A sequence's table names blocks of one kind, and the kind is what
 * says how the step's tokens are stored and read; `KvPool.convert` turns one into the other.
 */
export interface KvFloatStartSpec {
  readonly blocks: number;
  readonly dtype: 'f32' | 'f16';
  /**
   * Tokens of a float head, a multiple of 32 and of blockTokens: the first of every sequence lie in these blocks for good, and later
   * ones in the others. Default, and 0: a table names blocks of one kind.
   */
  readonly head?: number;
}

/** What a pool is made from: its layers, and how much room they have. */
export interface KvPoolSpec {
  readonly layers: readonly KvLayerSpec[];
  /** Blocks in the pool, in every layer. */
  readonly blocks: number;
  /** Null or absent: every sequence is kept in its layers' formats from its first token on. */
  readonly floatStart?: KvFloatStartSpec | null;
  /** Positions a block holds: a power of two, 16 to 64. */
  readonly blockTokens: number;
  /** State slots: rows of the block table, and of every other state that belongs to a sequence. */
  readonly slots: number;
  /** Length of a slot's block table. */
  readonly maxBlocksPerSlot: number;
}

/**
 * The memory of one cache group. Calls that move blocks take their turn with the steps: they see what the steps submitted before have
 * written, and steps submitted later see what they wrote.
 */
export interface KvPool {
  readonly spec: KvPoolSpec;
  readonly bytes: number;
  /** Writes entries `[first, first + blocks.length)` of a slot's table. Never for an entry a step under way reads. */
  setBlocks(slot: number, first: number, blocks: Uint32Array): void;
  /**
   * Stores what float-start block `from[i]` holds into block `to[i]`, in every layer: quantised where the layer's format
   * is, copied where it is the float-start one. It runs after the steps submitted before and ahead of those submitted later;
   * resolves when it is done.
   */
  convert(from: Uint32Array, to: Uint32Array): Promise<void>;
  /**
   * Copies what block `from[i]` holds to block `to[i]`, in every layer as it is stored: float-start blocks to float-start ones,
   * others to others. In device order as `convert` is. No block is written twice, none both read and written.
   *
   * Errors: `kv-block-invalid`.
   */
  copy(from: Uint32Array, to: Uint32Array): Promise<void>;
  /**
   * The bytes of whole blocks as they are stored, in the order of kv-block.ts. They are those that the steps submitted
   * before left; the blocks must not be written until the promise settles, while steps go on. Few at a time are under
   * way: room for them is made once.
   *
   * Errors: `kv-block-invalid`.
   */
  read(blocks: Uint32Array): Promise<Uint8Array[]>;
  /**
   * Fills blocks with what `read` gave: of this pool or of another one with the same `storage`, block size and formats.
   * Behind the steps submitted before; no step may name the blocks until the promise settles. `bytes` must stay as they
   * are so long.
   *
   * Errors: `kv-block-invalid`, for bytes of another length too.
   */
  write(blocks: Uint32Array, bytes: readonly Uint8Array[]): Promise<void>;
  /**
   * Makes and compiles what `copy` needs, or what `read` and `write` do. For use at load; a call that does not find it
   * makes it.
   */
  prepare(use: 'copy' | 'transfer'): Promise<void>;
  /** Names how vectors lie within a block: `cpu-3`. What is read under one name means nothing under another. */
  readonly storage: string;
  dispose(): void;
}

/**
 * The caches of a model: one pool for each cache group, and where each layer's K and V are. Layers of a group share a
 * block table; groups have tables, blocks and free lists of their own, and blocks of one size in tokens.
 */
export interface KvCaches<P extends KvPool = KvPool> {
  /** At least one; all with the same `slots`, `blockTokens` and `maxBlocksPerSlot`. */
  readonly pools: readonly P[];
  /** One entry for each layer of the model. */
  readonly layers: readonly KvPlace[];
}

/** Where a layer's K and V are, or its state. */
export interface KvPlace {
  /** Index of the pool. */
  readonly group: number;
  /** Place among that pool's layers. */
  readonly index: number;
  /**
   * The layer has a float tail (DeviceInfo.floatTails): another pool, of floats, is given the same vectors, and has blocks for the newest
   * positions of a sequence. A token at position p reads (p − tokens, p] there, and what is before in its own pool. So what it
   * reads depends on p alone. Where the layer has a float head too, both have floats of one type. Default: none.
   */
  readonly tail?: { readonly group: number; readonly index: number; readonly tokens: number };
}

/** A pool alone holds all layers, in order. */
export function kvCaches<P extends KvPool>(of: P | KvCaches<P> | null): KvCaches<P> | null {
  if (of === null || 'pools' in of) return of;
  return { pools: [of], layers: of.spec.layers.map((_, index) => ({ group: 0, index })) };
}

/** The pool that holds a layer, and the layer's place in it; null where there is none. */
export function kvPoolOf<P extends KvPool>(
  caches: KvCaches<P> | null,
  layer: number,
): { readonly pool: P; readonly index: number } | null {
  const place = caches?.layers[layer];
  const pool = place === undefined ? undefined : caches?.pools[place.group];
  return pool === undefined || place === undefined ? null : { pool, index: place.index };
}

/** The pool of a layer's float tail, the layer's place in it, and how many tokens it has; null where there is none. */
export function kvTailOf<P extends KvPool>(
  caches: KvCaches<P> | null,
  layer: number,
): { readonly pool: P; readonly index: number; readonly tokens: number } | null {
  const tail = caches?.layers[layer]?.tail;
  const pool = tail === undefined ? undefined : caches?.pools[tail.group];
  return pool === undefined || tail === undefined ? null : { ...tail, pool };
}

/** Whether some layer is recurrent: what a state has taken in cannot be taken back. */
export function keepsState(caches: KvCaches | null): boolean {
  return caches?.pools.some(({ spec }) => spec.layers.some(({ state }) => state !== undefined)) ?? false;
}

/** Positions that a slot's tables reach. */
export function kvReach({ pools }: KvCaches): number {
  const { maxBlocksPerSlot, blockTokens } = pools[0]!.spec;
  return maxBlocksPerSlot * blockTokens;
}

/** The layers with floats in place of their formats. */
export function kvFloatLayers(layers: readonly KvLayerSpec[], dtype: FloatKv['dtype']): KvLayerSpec[] {
  const float: FloatKv = { kind: 'float', dtype };
  return layers.map((layer) => ({ ...layer, key: float, value: float }));
}

/** Elements of the widest head that a pool takes, and of the widest latent. */
export const MAX_HEAD_DIM = 512;
const MAX_LATENT_DIM = 1024;

/** Why a pool cannot keep heads of these sizes; undefined where it can. */
export function badHeads({
  kvHeads,
  headDim,
  valueDim,
}: Pick<KvLayerSpec, 'kvHeads' | 'headDim' | 'valueDim'>): string | undefined {
  const most = valueDim === undefined ? MAX_HEAD_DIM : MAX_LATENT_DIM;
  const fits = (dim: number, unit: number): boolean => dim % unit === 0 && dim >= unit && dim <= most;
  if (!fits(headDim, 4) || !Number.isInteger(kvHeads) || kvHeads < 1)
    return `${kvHeads} KV heads of ${headDim}`;
  if (valueDim === undefined) return undefined;
  const view = valueDim <= headDim && fits(valueDim, 16) && (headDim - valueDim) % 4 === 0;
  return view && kvHeads === 1 ? undefined : `${kvHeads} latents of ${headDim} with values of ${valueDim}`;
}

/** Whether two caches keep as many heads of the same sizes. */
export function sameHeads(a: KvLayerSizes, b: KvLayerSizes): boolean {
  return a.kvHeads === b.kvHeads && a.headDim === b.headDim && a.valueDim === b.valueDim;
}

/** Why a layer cannot have a format, worded to follow "it stays float: "; undefined where it can. */
export function kvUnusable(format: KvFormat, { headDim, valueDim }: KvLayerSizes): string | undefined {
  const kind = kvFormatKind(format);
  if (valueDim === undefined) return kind.unusable(format, headDim);
  if (kind.unusableLatent === undefined) return `latents are not kept as ${kind.name(format)}`;
  return kind.unusableLatent(format, headDim);
}

/** What of a layer says how many bytes it takes. */
export type KvLayerSizes = Pick<KvLayerSpec, 'kvHeads' | 'headDim' | 'valueDim'>;

/** Bytes of one side of a layer for one token, over all KV heads: none where V is a view of K. */
export function kvSideBytes(layer: KvLayerSizes, side: 'key' | 'value', format: KvFormat): number {
  return side === 'value' && layer.valueDim !== undefined
    ? 0
    : kvTokenBytes(format, layer.headDim, layer.kvHeads);
}

/** Bytes of one token in a layer that keeps K, and V where that is stored. */
export function kvVectorBytes(layer: KvLayerSizes & Pick<KvLayerSpec, 'key' | 'value'>): number {
  return kvSideBytes(layer, 'key', layer.key) + kvSideBytes(layer, 'value', layer.value);
}

/** The sides that a layer stores. */
export function kvSides({ valueDim }: KvLayerSizes): readonly ('key' | 'value')[] {
  return valueDim === undefined ? ['key', 'value'] : ['key'];
}

/** Bytes of one block over all layers. */
export function kvBlockBytes(layers: readonly KvLayerSpec[], blockTokens: number): number {
  let bytes = 0;
  for (const layer of layers) bytes += kvLayerBlockBytes(layer, blockTokens);
  return bytes;
}

/** Bytes of one block in one layer; of a recurrent layer, whose blocks are states, those of its state. */
export function kvLayerBlockBytes(layer: KvLayerSpec, blockTokens: number): number {
  return layer.state === undefined ? kvVectorBytes(layer) * blockTokens : stateBytes(layer.state);
}
