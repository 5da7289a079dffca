/** The paged KV store of the CPU device: per layer a range of K and one of V (assembly/kv.ts), and the block tables. */
import { KvantError } from '../../errors.js';
import { type KvFormat, type KvPool, type KvPoolSpec, kvTokenBytes, requireFloat } from '../kv.js';
import type { Allocation, DeviceMemory, MemorySet } from './memory.js';

export interface CpuKvLayer {
  readonly memory: DeviceMemory;
  readonly keys: number;
  readonly values: number;
}

export class CpuKvPool implements KvPool {
  readonly spec: KvPoolSpec;
  readonly layers: readonly CpuKvLayer[];
  /** `[slots]` in the first memory: the token each slot sampled last. */
  readonly lastTokens: Allocation;
  readonly #set: MemorySet;
  readonly #owned: Allocation[] = [];
  /** The block table `[slots, maxBlocksPerSlot]`, once in each memory that holds a layer. */
  readonly #tables = new Map<DeviceMemory, { at: number; words: Uint32Array<ArrayBufferLike> }>();
  #disposed = false;

  constructor(set: MemorySet, spec: KvPoolSpec) {
    check(spec);
    this.spec = spec;
    this.#set = set;
    try {
      this.layers = spec.layers.map((layer) => {
        const tokens = spec.blocks * spec.blockTokens;
        const keyBytes = roundUp(tokens * kvTokenBytes(layer.key, layer.headDim, layer.kvHeads));
        const valueBytes = tokens * kvTokenBytes(layer.value, layer.headDim, layer.kvHeads);
        const { memory, at } = this.#own(set.allocate(keyBytes + valueBytes, layer.group));
        return { memory, keys: at, values: at + keyBytes };
      });
      this.lastTokens = this.#own(set.allocateIn(set.memory(0), spec.slots * 4));
      const words = spec.slots * spec.maxBlocksPerSlot;
      for (const { memory } of this.layers) {
        if (this.#tables.has(memory)) continue;
        const { at } = this.#own(set.allocateIn(memory, words * 4));
        const view = memory.u32(at, words);
        view.fill(0);
        this.#tables.set(memory, { at, words: view });
      }
    } catch (error) {
      this.dispose();
      throw error;
    }
  }

  get bytes(): number {
    return this.#owned.reduce((sum, a) => sum + a.bytes, 0);
  }

  /** Address of the block tables in a memory that holds a layer. */
  tables(memory: DeviceMemory): number {
    return this.#tables.get(memory)!.at;
  }

  setBlocks(slot: number, first: number, blocks: Uint32Array): void {
    const { slots, maxBlocksPerSlot, blocks: count } = this.spec;
    if (!(slot >= 0 && slot < slots && first >= 0 && first + blocks.length <= maxBlocksPerSlot)) {
      throw badTable(`entries ${first} to ${first + blocks.length} of slot ${slot} lie outside the table`);
    }
    for (const block of blocks) {
      if (block >= count) throw badTable(`block ${block} of slot ${slot} is not one of ${count}`);
    }
    const at = slot * maxBlocksPerSlot + first;
    for (const { words } of this.#tables.values()) words.set(blocks, at);
  }

  async convert(from: Uint32Array): Promise<void> {
    if (from.length > 0) throw badSpec('young blocks');
  }

  dispose(): void {
    if (this.#disposed) return;
    this.#disposed = true;
    for (const allocation of this.#owned) this.#set.free(allocation);
  }

  #own(allocation: Allocation): Allocation {
    this.#owned.push(allocation);
    return allocation;
  }
}

export function isHalf(format: KvFormat): boolean {
  return requireFloat(format, 'CPU').dtype === 'f16';
}

function check({ layers, blocks, blockTokens, slots, maxBlocksPerSlot, young }: KvPoolSpec): void {
  const whole = (n: number, least: number): boolean => Number.isInteger(n) && n >= least;
  if (![16, 32, 64].includes(blockTokens)) throw badSpec(`blocks of ${blockTokens} tokens`);
  if (!whole(blocks, 1) || !whole(slots, 1) || !whole(maxBlocksPerSlot, 1)) {
    throw badSpec(`${blocks} blocks for ${slots} slots of ${maxBlocksPerSlot}`);
  }
  if (young) throw badSpec('young blocks');
  layers.forEach(({ headDim, kvHeads }, index) => {
    if (headDim % 4 !== 0 || headDim < 4 || headDim > 256 || !whole(kvHeads, 1)) {
      throw badSpec(`layer ${index} with ${kvHeads} KV heads of ${headDim}`);
    }
  });
}

function badSpec(what: string): KvantError {
  return new KvantError('kv-pool-unsupported', `The CPU device has no KV pool for ${what}.`, {
    kind: 'unsupported',
    fix: 'Head sizes are multiples of 4 up to 256; a block holds 16, 32 or 64 tokens.',
  });
}

function badTable(what: string): KvantError {
  return new KvantError('bad-block-table', `setBlocks: ${what}.`, {
    fix: 'Take blocks from the pool that the table belongs to.',
  });
}

function roundUp(bytes: number): number {
  return Math.ceil(bytes / 64) * 64;
}
