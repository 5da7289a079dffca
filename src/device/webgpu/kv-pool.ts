/**
 * KV blocks on the GPU: for each layer one buffer of keys and one of values, `[blocks, kvHeads, blockTokens]`
 * vectors, so that what one head reads of a block lies together; beside them the block tables
 * `[slots, maxBlocksPerSlot]` and the last sampled token of each slot.
 */

import { KvantError } from '../../errors.js';
import { type KvPool, type KvPoolSpec, kvTokenBytes } from '../kv.js';
import type { Allocator } from './allocator.js';
import { USAGE } from './constants.js';

export interface LayerCache {
  readonly keys: GPUBuffer;
  readonly values: GPUBuffer;
}

export class GpuKvPool implements KvPool {
  readonly spec: KvPoolSpec;
  readonly bytes: number;
  readonly layers: readonly LayerCache[];
  /** u32 `[slots, maxBlocksPerSlot]`. */
  readonly tables: GPUBuffer;
  /** u32 `[slots]`. */
  readonly lastToken: GPUBuffer;
  readonly #queue: GPUQueue;
  readonly #allocator: Allocator;

  /** Whether there was room is known when a program is compiled on the pool. */
  constructor(device: GPUDevice, allocator: Allocator, spec: KvPoolSpec, bindingBytes: number) {
    this.spec = spec;
    this.#queue = device.queue;
    this.#allocator = allocator;
    checkSpec(spec);
    const made: GPUBuffer[] = [];
    const create = (label: string, bytes: number): GPUBuffer => {
      if (bytes > bindingBytes) {
        throw new KvantError(
          'device-out-of-memory',
          `The KV pool needs ${bytes} bytes for ${label}, a binding of this GPU holds ${bindingBytes}.`,
          { kind: 'device', where: label, fix: 'Use fewer KV blocks, or store the cache in f16.' },
        );
      }
      const buffer = allocator.create(label, bytes, USAGE.STORAGE | USAGE.COPY_DST | USAGE.COPY_SRC);
      made.push(buffer);
      return buffer;
    };
    try {
      this.layers = spec.layers.map((layer, i) => {
        const tokens = spec.blocks * spec.blockTokens;
        return {
          keys: create(`keys of layer ${i}`, tokens * kvTokenBytes(layer.key, layer.headDim, layer.kvHeads)),
          values: create(
            `values of layer ${i}`,
            tokens * kvTokenBytes(layer.value, layer.headDim, layer.kvHeads),
          ),
        };
      });
      this.tables = create('block tables', spec.slots * spec.maxBlocksPerSlot * 4);
      this.lastToken = create('last tokens', spec.slots * 4);
    } catch (error) {
      for (const buffer of made) allocator.destroy(buffer);
      throw error;
    }
    this.bytes = made.reduce((sum, b) => sum + b.size, 0);
  }

  setBlocks(slot: number, first: number, blocks: Uint32Array): void {
    const { slots, maxBlocksPerSlot, blocks: count } = this.spec;
    if (slot < 0 || slot >= slots || first < 0 || first + blocks.length > maxBlocksPerSlot) {
      throw misuse(
        `entries [${first}, ${first + blocks.length}) of slot ${slot} are outside the block table`,
      );
    }
    for (const block of blocks) if (block >= count) throw misuse(`block ${block} of ${count}`);
    if (blocks.length === 0) return;
    const offset = (slot * maxBlocksPerSlot + first) * 4;
    this.#queue.writeBuffer(this.tables, offset, blocks as Uint32Array<ArrayBuffer>);
  }

  async convert(from: Uint32Array): Promise<void> {
    if (from.length > 0) throw misuse('there are no young blocks');
  }

  dispose(): void {
    for (const { keys, values } of this.layers) {
      this.#allocator.destroy(keys);
      this.#allocator.destroy(values);
    }
    this.#allocator.destroy(this.tables);
    this.#allocator.destroy(this.lastToken);
  }
}

function checkSpec(spec: KvPoolSpec): void {
  const { blockTokens } = spec;
  if (spec.young) throw misuse('young blocks are not supported');
  if (blockTokens < 16 || blockTokens > 64 || (blockTokens & (blockTokens - 1)) !== 0) {
    throw misuse(`blocks of ${blockTokens} tokens: 16, 32 or 64 are possible`);
  }
  for (const { headDim } of spec.layers) {
    if (headDim % 4 !== 0 || headDim < 4 || headDim > 256) {
      throw misuse(`a head_dim of ${headDim}: multiples of 4 up to 256 are possible`);
    }
  }
}

function misuse(message: string): KvantError {
  return new KvantError('kv-misuse', `KV pool: ${message}.`, {
    fix: 'Check the plan of the cache that the model made.',
  });
}
