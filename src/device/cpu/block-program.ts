/**
 * Work on blocks of the KV store between steps, conversion and copying: a program of the threads like any other, that
 * takes its turn among the steps. The lists of blocks come where a step's inputs do.
 */
import type { KvPoolSpec } from '../kv.js';
import { kvPlanes } from '../kv-block.js';
import { type Command, commandWords, writeCommands } from './command.js';
import { encodeDescriptor, type Segment } from './descriptor.js';
import type { CpuKvLayer } from './kv-pool.js';
import type { Allocation, DeviceMemory, MemorySet } from './memory.js';
import { BLOCKS_COUNT, BLOCKS_LISTS, OP_CONVERT, OP_COPY_BLOCKS } from './opcodes.js';
import type { ThreadPool } from './pool.js';

export interface BlockProgramHost {
  readonly set: MemorySet;
  readonly threads: ThreadPool;
  readonly spec: KvPoolSpec;
  readonly layers: readonly CpuKvLayer[];
  readonly lastTokens: Allocation;
  /** What it gives lives as long as the pool. */
  readonly allocate: (memory: DeviceMemory, bytes: number) => Allocation;
}

export class BlockProgram {
  readonly #host: BlockProgramHost;
  readonly #listed: number;
  readonly #words: number;
  readonly #descriptor: number;
  /** Lists that nothing under way reads. There are as many as were ever under way at once. */
  readonly #idle: Allocation[] = [];

  /** Stores float-start blocks into blocks of the layers' own formats. */
  static conversion(host: BlockProgramHost): BlockProgram {
    const { spec, threads, layers, allocate } = host;
    const widest = Math.max(...spec.layers.map(({ headDim }) => headDim));
    const stride = Math.ceil(widest / 4) * 64;
    const scratches = new Map<DeviceMemory, number>();
    for (const { memory } of layers)
      if (!scratches.has(memory)) scratches.set(memory, allocate(memory, threads.threads * stride).at);
    const shift = Math.log2(spec.blockTokens);
    return new BlockProgram(host, (index, step, listed) => {
      const { kvHeads, headDim } = spec.layers[index]!;
      const { memory, store } = layers[index]!;
      const words = [store, step, listed, kvHeads, headDim, shift, scratches.get(memory)!, stride];
      return { opcode: OP_CONVERT, words };
    });
  }

  /** Copies blocks as they are stored. */
  static copy(host: BlockProgramHost): BlockProgram {
    const { spec, layers } = host;
    const planes = [kvPlanes(spec, false), kvPlanes(spec, true)];
    return new BlockProgram(host, (index, step, listed) => {
      const sizes = planes.flatMap((all) =>
        (['key', 'value'] as const).flatMap((side) =>
          (['codes', 'meta'] as const).map(
            (part) => all.find((p) => p.layer === index && p.side === side && p.part === part)?.bytes ?? 0,
          ),
        ),
      );
      return { opcode: OP_COPY_BLOCKS, words: [layers[index]!.store, step, listed, ...sizes] };
    });
  }

  private constructor(
    host: BlockProgramHost,
    command: (layer: number, step: number, listed: number) => Command,
  ) {
    const { set, spec, layers, lastTokens, allocate } = host;
    this.#host = host;
    this.#listed = spec.maxBlocksPerSlot;
    this.#words = BLOCKS_LISTS + 2 * this.#listed;
    const first = set.memory(0);
    const step = allocate(first, this.#words * 4).at;
    const mirrors: { memory: number; at: number }[] = [];
    const segments: Segment[] = [];
    for (const memory of new Set(layers.map((layer) => layer.memory))) {
      const here = memory === first ? step : allocate(memory, this.#words * 4).at;
      if (memory !== first) mirrors.push({ memory: memory.index, at: here });
      const commands = layers.flatMap((layer, index) =>
        layer.memory === memory ? [command(index, here, this.#listed)] : [],
      );
      const size = commandWords(commands);
      const at = allocate(memory, size * 4).at;
      writeCommands(memory.u32(at, size) as Uint32Array, commands);
      segments.push({ memory: memory.index, commands: at, count: commands.length, copies: [] });
    }
    const words = encodeDescriptor({
      step,
      stepBytes: this.#words * 4,
      tokens: BLOCKS_LISTS,
      last: lastTokens.at,
      slots: spec.slots,
      outputSlots: BLOCKS_LISTS,
      ids: null,
      idsHere: 0,
      mirrors,
      segments,
    });
    this.#descriptor = allocate(first, words.byteLength).at;
    first.u32(this.#descriptor, words.length).set(words);
  }

  /** Queues the work on `from[i]` and `to[i]`; resolves when all is done. */
  async run(from: Uint32Array, to: Uint32Array): Promise<void> {
    const parts: Promise<void>[] = [];
    for (let at = 0; at < from.length; at += this.#listed) {
      const end = Math.min(from.length, at + this.#listed);
      parts.push(this.#submit(from.subarray(at, end), to.subarray(at, end)));
    }
    await Promise.all(parts);
  }

  #submit(from: Uint32Array, to: Uint32Array): Promise<void> {
    const { set, threads, allocate } = this.#host;
    const first = set.memory(0);
    const inbox = this.#idle.pop() ?? allocate(first, this.#words * 4);
    const words = first.u32(inbox.at, this.#words);
    words.fill(0, 0, BLOCKS_LISTS);
    words[BLOCKS_COUNT] = from.length;
    words.set(from, BLOCKS_LISTS);
    words.set(to, BLOCKS_LISTS + this.#listed);
    return new Promise((resolve, reject) => {
      threads.submit(this.#descriptor, inbox.at, 0, {
        retired: () => {
          this.#idle.push(inbox);
          resolve();
        },
        failed: reject,
      });
    });
  }
}
