/** The paged KV store of the CPU device: per layer a range of K and one of V (assembly/kv.ts), and the block tables. */
import { KvantError } from '../../errors.js';
import { badHeads, type KvPool, type KvPoolSpec, MAX_HEAD_DIM } from '../kv.js';
import { checkBlocks, checkCopy, checkWrite } from '../kv-block.js';
import { BlockProgram, type BlockProgramHost } from './block-program.js';
import { BlockBytes } from './kv-bytes.js';
import type { Tables } from './kv-formats/codec.js';
import { STORE_BYTES } from './kv-layout.js';
import { checkLayer, layerBytes, writeStore } from './kv-store.js';
import type { Allocation, DeviceMemory, MemorySet } from './memory.js';
import type { ThreadPool } from './pool.js';

export interface CpuKvLayer {
  readonly memory: DeviceMemory;
  /** Address of what describes it to the kernels (kv-layout.ts). */
  readonly store: number;
}

export class CpuKvPool implements KvPool {
  readonly storage = 'cpu-3';
  readonly spec: KvPoolSpec;
  readonly layers: readonly CpuKvLayer[];
  /** `[slots]` in the first memory: the token each slot sampled last. */
  readonly lastTokens: Allocation;
  readonly #set: MemorySet;
  readonly #threads: ThreadPool;
  readonly #owned: Allocation[] = [];
  /** The block table `[slots, maxBlocksPerSlot]`, once in each memory that holds a layer. */
  readonly #tables = new Map<DeviceMemory, { at: number; words: Uint32Array<ArrayBufferLike> }>();
  readonly #shared = new Map<DeviceMemory, Map<string, number>>();
  #converter: BlockProgram | null = null;
  #copier: BlockProgram | null = null;
  #bytes: BlockBytes | null = null;
  #disposed = false;

  constructor(set: MemorySet, threads: ThreadPool, spec: KvPoolSpec) {
    check(spec);
    this.spec = spec;
    this.#set = set;
    this.#threads = threads;
    try {
      this.layers = spec.layers.map((layer) => {
        const { memory, at } = this.#own(set.allocate(layerBytes(layer, spec), layer.group));
        const store = this.#own(set.allocateIn(memory, STORE_BYTES)).at;
        const view = new DataView(memory.memory.buffer, store, STORE_BYTES);
        for (let i = 0; i < STORE_BYTES; i += 4) view.setUint32(i, 0, true);
        writeStore(view, at, layer, spec, this.#tablesOf(memory));
        return { memory, store };
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
      if (spec.floatStart) this.#converter = BlockProgram.conversion(this.#programHost());
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
    const { slots, maxBlocksPerSlot, floatStart } = this.spec;
    const count = this.spec.blocks + (floatStart?.blocks ?? 0);
    if (!(slot >= 0 && slot < slots && first >= 0 && first + blocks.length <= maxBlocksPerSlot)) {
      throw badTable(`entries ${first} to ${first + blocks.length} of slot ${slot} lie outside the table`);
    }
    for (const block of blocks) {
      if (block >= count) throw badTable(`block ${block} of slot ${slot} is not one of ${count}`);
    }
    const at = slot * maxBlocksPerSlot + first;
    for (const { words } of this.#tables.values()) words.set(blocks, at);
  }

  async convert(from: Uint32Array, to: Uint32Array): Promise<void> {
    if (from.length === 0 && to.length === 0) return;
    const { blocks, floatStart } = this.spec;
    const most = blocks + (floatStart?.blocks ?? 0);
    if (from.length !== to.length) throw badConversion(`${from.length} blocks to ${to.length}`);
    for (const block of from) {
      if (!(block >= blocks && block < most)) throw badConversion(`block ${block}, which is not floatStart`);
    }
    for (const block of to) {
      if (!(block < blocks)) throw badConversion(`a block to ${block}, which is none of the layers' own`);
    }
    await this.#converter?.run(from, to);
  }

  async copy(from: Uint32Array, to: Uint32Array): Promise<void> {
    checkCopy(this.spec, from, to);
    this.#alive();
    if (from.length > 0) await this.#copies().run(from, to);
  }

  async read(blocks: Uint32Array): Promise<Uint8Array[]> {
    checkBlocks(this.spec, 'read', blocks);
    const out: Uint8Array[] = [];
    await this.#eachBlock(blocks, (bytes, block) => out.push(bytes.read(block)));
    return out;
  }

  async write(blocks: Uint32Array, bytes: readonly Uint8Array[]): Promise<void> {
    checkWrite(this.spec, blocks, bytes);
    await this.#eachBlock(blocks, (to, block, i) => to.write(block, bytes[i]!));
  }

  async prepare(use: 'copy' | 'transfer'): Promise<void> {
    this.#alive();
    if (use === 'copy') this.#copies();
  }

  dispose(): void {
    if (this.#disposed) return;
    this.#disposed = true;
    for (const allocation of this.#owned) this.#set.free(allocation);
  }

  /** Does something for each block when the steps before have retired; others may use this thread in between. */
  async #eachBlock(
    blocks: Uint32Array,
    use: (bytes: BlockBytes, block: number, index: number) => void,
  ): Promise<void> {
    this.#alive();
    if (blocks.length === 0) return;
    const ids = blocks.slice();
    if (this.#threads.pending > 0) await this.#threads.ready();
    for (const [i, block] of ids.entries()) {
      if (i > 0) await new Promise(setImmediate);
      this.#alive();
      this.#bytes ??= new BlockBytes(this.spec, this.layers);
      use(this.#bytes, block, i);
    }
  }

  #copies(): BlockProgram {
    this.#copier ??= BlockProgram.copy(this.#programHost());
    return this.#copier;
  }

  #programHost(): BlockProgramHost {
    return {
      set: this.#set,
      threads: this.#threads,
      spec: this.spec,
      layers: this.layers,
      lastTokens: this.lastTokens,
      allocate: (memory, bytes) => this.#own(this.#set.allocateIn(memory, bytes)),
    };
  }

  #alive(): void {
    this.#threads.check();
    if (!this.#disposed) return;
    throw new KvantError('disposed', 'The KV pool has been disposed of.', { fix: 'Create it again.' });
  }

  /** Tables that layers share, once in each memory. */
  #tablesOf(memory: DeviceMemory): Tables {
    const known = this.#shared.get(memory) ?? new Map<string, number>();
    this.#shared.set(memory, known);
    return (name, bytes, fill) => {
      let at = known.get(name);
      if (at === undefined) {
        at = this.#own(this.#set.allocateIn(memory, bytes)).at;
        memory.u8(at, bytes).fill(0);
        fill(new DataView(memory.memory.buffer, at, bytes));
        known.set(name, at);
      }
      return at;
    };
  }

  #own(allocation: Allocation): Allocation {
    this.#owned.push(allocation);
    return allocation;
  }
}

function check({ layers, blocks, blockTokens, slots, maxBlocksPerSlot, floatStart }: KvPoolSpec): void {
  const whole = (n: number, least: number): boolean => Number.isInteger(n) && n >= least;
  if (![16, 32, 64].includes(blockTokens)) throw badSpec(`blocks of ${blockTokens} tokens`);
  if (!whole(blocks, 1) || !whole(slots, 1) || !whole(maxBlocksPerSlot, 1)) {
    throw badSpec(`${blocks} blocks for ${slots} slots of ${maxBlocksPerSlot}`);
  }
  if (floatStart && !whole(floatStart.blocks, 1)) throw badSpec(`${floatStart.blocks} floatStart blocks`);
  layers.forEach((layer, index) => {
    if (layer.state !== undefined) return;
    const bad = badHeads(layer);
    if (bad !== undefined) throw badSpec(`layer ${index} with ${bad}`);
    checkLayer(layer, index);
  });
}

function badSpec(what: string): KvantError {
  return new KvantError('kv-pool-unsupported', `The CPU device has no KV pool for ${what}.`, {
    kind: 'unsupported',
    fix: `Head sizes are multiples of 4 up to ${MAX_HEAD_DIM}; a block holds 16, 32 or 64 tokens.`,
  });
}

function badConversion(what: string): KvantError {
  return new KvantError('bad-block-table', `convert: cannot convert ${what}.`, {
    fix: "Convert floatStart blocks, from the pool's block count on, to as many others.",
  });
}

function badTable(what: string): KvantError {
  return new KvantError('bad-block-table', `setBlocks: ${what}.`, {
    fix: 'Take blocks from the pool that the table belongs to.',
  });
}
