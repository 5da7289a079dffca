/**
 * Conversion of young blocks: a program of the threads like any other, that takes its turn among the steps. The lists of
 * blocks come where a step's inputs do.
 */
import type { KvPoolSpec } from '../kv.js';
import { type Command, commandWords, writeCommands } from './command.js';
import { encodeDescriptor, type Segment } from './descriptor.js';
import type { CpuKvLayer } from './kv-pool.js';
import type { Allocation, DeviceMemory, MemorySet } from './memory.js';
import { CONVERT_COUNT, CONVERT_LISTS, OP_CONVERT } from './opcodes.js';
import type { ThreadPool } from './pool.js';

export class Converter {
  readonly #set: MemorySet;
  readonly #threads: ThreadPool;
  readonly #listed: number;
  readonly #words: number;
  readonly #descriptor: number;
  readonly #allocate: (memory: DeviceMemory, bytes: number) => Allocation;
  /** Lists that no conversion under way reads. There are as many as were ever under way at once. */
  readonly #idle: Allocation[] = [];

  /** `allocate`: what it gives lives as long as the pool. */
  constructor(
    set: MemorySet,
    threads: ThreadPool,
    spec: KvPoolSpec,
    layers: readonly CpuKvLayer[],
    last: Allocation,
    allocate: (memory: DeviceMemory, bytes: number) => Allocation,
  ) {
    this.#allocate = allocate;
    this.#set = set;
    this.#threads = threads;
    this.#listed = spec.maxBlocksPerSlot;
    this.#words = CONVERT_LISTS + 2 * this.#listed;
    const first = set.memory(0);
    const step = this.#allocate(first, this.#words * 4).at;
    const mirrors: { memory: number; at: number }[] = [];
    const segments: Segment[] = [];
    for (const memory of new Set(layers.map((layer) => layer.memory))) {
      const here = memory === first ? step : this.#allocate(memory, this.#words * 4).at;
      if (memory !== first) mirrors.push({ memory: memory.index, at: here });
      const widest = Math.max(...spec.layers.map(({ headDim }) => headDim));
      const stride = Math.ceil(widest / 4) * 64;
      const scratch = this.#allocate(memory, threads.threads * stride).at;
      const commands = spec.layers.flatMap(({ kvHeads, headDim }, index): Command[] => {
        const layer = layers[index]!;
        if (layer.memory !== memory) return [];
        const shift = Math.log2(spec.blockTokens);
        const words = [layer.store, here, this.#listed, kvHeads, headDim, shift, scratch, stride];
        return [{ opcode: OP_CONVERT, words }];
      });
      const size = commandWords(commands);
      const at = this.#allocate(memory, size * 4).at;
      writeCommands(memory.u32(at, size) as Uint32Array, commands);
      segments.push({ memory: memory.index, commands: at, count: commands.length, carries: [] });
    }
    const words = encodeDescriptor({
      step,
      stepBytes: this.#words * 4,
      tokens: CONVERT_LISTS,
      last: last.at,
      slots: spec.slots,
      outputSlots: CONVERT_LISTS,
      ids: null,
      idsHere: 0,
      mirrors,
      segments,
    });
    this.#descriptor = this.#allocate(first, words.byteLength).at;
    first.u32(this.#descriptor, words.length).set(words);
  }

  /** Queues the conversion of `from[i]` to `to[i]`; resolves when all are done. */
  async run(from: Uint32Array, to: Uint32Array): Promise<void> {
    const parts: Promise<void>[] = [];
    for (let at = 0; at < from.length; at += this.#listed) {
      const end = Math.min(from.length, at + this.#listed);
      parts.push(this.#submit(from.subarray(at, end), to.subarray(at, end)));
    }
    await Promise.all(parts);
  }

  #submit(from: Uint32Array, to: Uint32Array): Promise<void> {
    const first = this.#set.memory(0);
    const inbox = this.#idle.pop() ?? this.#allocate(first, this.#words * 4);
    const words = first.u32(inbox.at, this.#words);
    words.fill(0, 0, CONVERT_LISTS);
    words[CONVERT_COUNT] = from.length;
    words.set(from, CONVERT_LISTS);
    words.set(to, CONVERT_LISTS + this.#listed);
    return new Promise((resolve, reject) => {
      this.#threads.submit(this.#descriptor, inbox.at, 0, {
        retired: () => {
          this.#idle.push(inbox);
          resolve();
        },
        failed: reject,
      });
    });
  }
}
