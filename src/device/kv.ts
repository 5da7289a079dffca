/**
 * The paged KV store, as a device sees it: for each layer a pool of blocks of K and one of V; for each state slot
 * a block table. A block holds `blockTokens` consecutive positions of one sequence, in every layer under the same
 * index. Who owns which block is the business of `kv/`; the device reads tables and writes vectors.
 */

/**
 * How one K or V vector of `head_dim` values is stored. More kinds (affine, turboquant) join this union; a device
 * answers for each with an append kernel and the snippets attention is made from.
 */
export type KvFormat = { readonly kind: 'float'; readonly dtype: 'f32' | 'f16' };

/** Bytes of one stored vector, metadata and padding included. */
export function kvVectorBytes(format: KvFormat, headDim: number): number {
  return headDim * (format.dtype === 'f32' ? 4 : 2);
}

/** The format as people write it: `f16`. */
export function kvFormatName(format: KvFormat): string {
  return format.dtype;
}

export interface KvLayerSpec {
  readonly kvHeads: number;
  readonly headDim: number;
  readonly key: KvFormat;
  readonly value: KvFormat;
  /** Placement group of the layer (see Device.place). */
  readonly group: number;
}

export interface KvPoolSpec {
  readonly layers: readonly KvLayerSpec[];
  /** Blocks in the pool, in every layer. */
  readonly blocks: number;
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
  dispose(): void;
}

/** Bytes of one block over all layers. */
export function kvBlockBytes(layers: readonly KvLayerSpec[], blockTokens: number): number {
  let bytes = 0;
  for (const layer of layers) bytes += kvLayerBlockBytes(layer, blockTokens);
  return bytes;
}

export function kvLayerBlockBytes(layer: KvLayerSpec, blockTokens: number): number {
  const vector = kvVectorBytes(layer.key, layer.headDim) + kvVectorBytes(layer.value, layer.headDim);
  return vector * layer.kvHeads * blockTokens;
}
