/**
 * The paged KV store, as a device sees it: for each layer a pool of blocks of K and one of V; for each state slot
 * a block table. A block holds `blockTokens` consecutive positions of one sequence, in every layer under the same
 * index. Who owns which block is the business of `kv/`; the device reads tables and writes vectors.
 */

import { KvantError } from '../errors.js';

/**
 * How one K or V vector of `head_dim` values is stored. K and V of a layer choose apart. A device answers for each
 * with an append kernel and the snippets attention is made from.
 *
 * Before it is quantised a vector is made finite: NaN counts as 0, values are clamped to ±65504. What is stored
 * depends on the vector alone, so its bytes are the same whether it came by prefill, by decode or by conversion.
 */
export type KvFormat = FloatKv | AffineKv | TurboKv;

export interface FloatKv {
  readonly kind: 'float';
  readonly dtype: 'f32' | 'f16';
}

/**
 * `x ≈ code · scale + bias` for each group of `groupSize` values along head_dim (the last group may be narrower).
 * `bias = f16(min)`, `scale = f16((max − min) / (2^bits − 1))`, `code = round((x − bias) / scale)` by the stored
 * scale and bias, clamped to what the bits hold; a scale of 0 gives codes of 0. Scale and bias share a u32.
 */
export interface AffineKv {
  readonly kind: 'affine';
  readonly bits: 2 | 3 | 4 | 5 | 6 | 8;
  readonly groupSize: 32 | 64 | 128;
}

/**
 * `x ≈ norm · Rᵀ codebook[code]`: the unit vector is rotated by R (turboquant/rotation.ts) and each coordinate
 * stored as the nearest centroid of the Lloyd–Max codebook (turboquant/codebooks.ts), beside one f16 norm. Keys store
 * `n / ⟨u, û⟩` in place of the norm n, which undoes the shrinkage of the scores; values store n. A vector of norm 0
 * stores the norm 0; norms saturate at 65504. The norms of two KV heads of a token share a u32.
 */
export interface TurboKv {
  readonly kind: 'turboquant';
  readonly bits: 2 | 3 | 4 | 8;
  /** Keys store the norm n as values do: for measuring what the correction is worth, and for nothing else. */
  readonly plainKeys?: true;
}

export const AFFINE_BITS = [2, 3, 4, 5, 6, 8] as const;
export const AFFINE_GROUPS = [32, 64, 128] as const;
export const TURBO_BITS = [2, 3, 4, 8] as const;

/** Bytes of the values or codes of one vector: whole 32-bit words. */
export function kvCodeBytes(format: KvFormat, headDim: number): number {
  if (format.kind === 'float') return headDim * (format.dtype === 'f32' ? 4 : 2);
  return Math.ceil((headDim * format.bits) / 32) * 4;
}

/** Groups of a vector that have their own scale and bias. */
export function affineGroups(format: AffineKv, headDim: number): number {
  return Math.ceil(headDim / format.groupSize);
}

/** Bytes of scales, biases and norms of one token over all KV heads of a layer, padding included. */
export function kvMetaBytes(format: KvFormat, headDim: number, kvHeads: number): number {
  if (format.kind === 'float') return 0;
  if (format.kind === 'affine') return affineGroups(format, headDim) * 4 * kvHeads;
  return Math.ceil(kvHeads / 2) * 4;
}

/** Bytes of one token's K, or of its V, over all KV heads of a layer. */
export function kvTokenBytes(format: KvFormat, headDim: number, kvHeads: number): number {
  return kvCodeBytes(format, headDim) * kvHeads + kvMetaBytes(format, headDim, kvHeads);
}

/** Errors: `kv-format-unsupported`, where a device has no kernels for a format. */
export function requireFloat(format: KvFormat, device: string): FloatKv {
  if (format.kind === 'float') return format;
  throw new KvantError(
    'kv-format-unsupported',
    `The ${device} device has no kernels for ${kvFormatName(format)}.`,
    {
      kind: 'unsupported',
      fix: 'Use f16 or f32.',
    },
  );
}

/** The format as people write it: `f16`, `affine8` (groups of 64), `affine4-g32`, `turbo3`. */
export function kvFormatName(format: KvFormat): string {
  if (format.kind === 'float') return format.dtype;
  if (format.kind === 'turboquant') return `turbo${format.bits}${format.plainKeys ? '-plain' : ''}`;
  return `affine${format.bits}${format.groupSize === 64 ? '' : `-g${format.groupSize}`}`;
}

export interface KvLayerSpec {
  readonly kvHeads: number;
  readonly headDim: number;
  readonly key: KvFormat;
  readonly value: KvFormat;
  /** Placement group of the layer (see Device.place). */
  readonly group: number;
}

/**
 * Blocks that keep K and V as floats in every layer, for sequences that are not quantised yet. Their ids follow those
 * of the others: `[blocks, blocks + young.blocks)`. A sequence's table names blocks of one kind, and the kind is what
 * says how the step's tokens are stored and read; `KvPool.convert` turns one into the other.
 */
export interface KvYoungSpec {
  readonly blocks: number;
  readonly dtype: 'f32' | 'f16';
}

export interface KvPoolSpec {
  readonly layers: readonly KvLayerSpec[];
  /** Blocks in the pool, in every layer. */
  readonly blocks: number;
  /** Null or absent: every sequence is kept in its layers' formats from its first token on. */
  readonly young?: KvYoungSpec | null;
  /** Positions a block holds: a power of two, 16 to 64. */
  readonly blockTokens: number;
  /** State slots: rows of the block table, and of every other state that belongs to a sequence. */
  readonly slots: number;
  /** Length of a slot's block table. */
  readonly maxBlocksPerSlot: number;
}

export interface KvPool {
  readonly spec: KvPoolSpec;
  readonly bytes: number;
  /** Writes entries `[first, first + blocks.length)` of a slot's table. Never for an entry a step under way reads. */
  setBlocks(slot: number, first: number, blocks: Uint32Array): void;
  /**
   * Stores what young block `from[i]` holds into block `to[i]`, in every layer: quantised where the layer's format
   * is, copied where it is the young one. It runs after the steps submitted before and ahead of those submitted later;
   * resolves when it is done.
   */
  convert(from: Uint32Array, to: Uint32Array): Promise<void>;
  /**
   * Copies what block `from[i]` holds to block `to[i]`, in every layer as it is stored: young blocks to young ones,
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
  /** One entry for each layer of the model: its pool, by index, and its place among that pool's layers. */
  readonly layers: readonly { readonly group: number; readonly index: number }[];
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

/** Positions that a slot's tables reach. */
export function kvReach({ pools }: KvCaches): number {
  const { maxBlocksPerSlot, blockTokens } = pools[0]!.spec;
  return maxBlocksPerSlot * blockTokens;
}

/** Bytes of one block over all layers. */
export function kvBlockBytes(layers: readonly KvLayerSpec[], blockTokens: number): number {
  let bytes = 0;
  for (const layer of layers) bytes += kvLayerBlockBytes(layer, blockTokens);
  return bytes;
}

export function kvLayerBlockBytes(
  { key, value, headDim, kvHeads }: KvLayerSpec,
  blockTokens: number,
): number {
  return (kvTokenBytes(key, headDim, kvHeads) + kvTokenBytes(value, headDim, kvHeads)) * blockTokens;
}
