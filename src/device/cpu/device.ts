import type { KvantError } from '../../errors.js';
import { HELD_ADAPTERS } from '../adapters.js';
import type {
  Device,
  DeviceInfo,
  DeviceStats,
  Matrix,
  MatrixOptions,
  PlacementGroup,
  Precision,
  Program,
  ProgramLimits,
  Vector,
} from '../device.js';
import type { FeatureSlab, FeatureSlabSpec } from '../feature-slab.js';
import type { Graph } from '../graph.js';
import { type KvCaches, type KvPool, type KvPoolSpec, kvCaches } from '../kv.js';
import { Staging } from '../staging.js';
import type { MatrixSource, VectorSource } from '../weights.js';
import { ATTENTION_SPLIT } from './attend-commands.js';
import { compile } from './compile.js';
import { CpuFeatureSlab } from './feature-slab.js';
import type { Kernels } from './kernels.js';
import { CpuKvPool } from './kv-pool.js';
import { tableWords } from './linear-commands.js';
import { machineBytes } from './machine-bytes.js';
import { MemorySet } from './memory.js';
import { packedBytes, packMatrix, stackedBytes } from './pack.js';
import { PackScratch } from './pack-scratch.js';
import { ThreadPool } from './pool.js';
import { CpuProgram } from './program.js';
import { CpuMatrix, CpuVector, foreign } from './resident.js';

export interface CpuDeviceSettings {
  readonly kernels: Kernels;
  readonly threads: number;
  /** Threads the machine runs at once. */
  readonly cores: number;
  readonly precision: Precision;
  readonly memoryLimitBytes: number;
  readonly besideGpu: boolean;
}

/**
 * Turns of a spinning thread. Enough of them (some 100 µs) outlast the waking of a thread (35 µs): were they fewer, a
 * thread that has slept would come too late for the next barrier as well, and all of them would sleep by turns.
 * Hardly any where there are more threads than cores. A millisecond and more beside a GPU, whose layers take some tenths of one: its
 * threads are not woken for every layer.
 */
const SIMD_NAMES = {
  dot: 'relaxed SIMD with int8 dots',
  relaxed: 'relaxed SIMD',
  simd128: 'SIMD128',
} as const;
const SIMD_FEATURES = {
  dot: ['simd128', 'relaxed-simd', 'int8-dot'],
  relaxed: ['simd128', 'relaxed-simd'],
  simd128: ['simd128'],
} as const;
const SPIN = { enough: 100_000, long: 1_000_000, scarce: 64 };

export class CpuDevice implements Device {
  readonly info: DeviceInfo;
  readonly #kernels: Kernels;
  readonly #precision: Precision;
  readonly #set: MemorySet;
  readonly #threads: ThreadPool;
  readonly #programs = new Set<CpuProgram>();
  readonly #staging = new Staging();
  readonly #scratch: PackScratch;
  #plans = 0;

  /** The threads start meanwhile: a program is compiled when they run, or not at all. */
  constructor(settings: CpuDeviceSettings) {
    const { kernels, threads, cores, precision, memoryLimitBytes, besideGpu } = settings;
    const memoryBytes = machineBytes();
    this.#kernels = kernels;
    this.#precision = precision;
    const early: { pool: ThreadPool | null } = { pool: null };
    this.#set = new MemorySet({
      memoryLimitBytes,
      totalBytes: memoryBytes,
      spinTurns: spinTurns(threads, cores, besideGpu),
      onMemory: (memory) => early.pool?.addMemory(memory),
    });
    this.#scratch = new PackScratch(this.#set);
    this.#threads = new ThreadPool({ kernels, threads, memories: this.#set.all });
    early.pool = this.#threads;
    this.info = {
      kind: 'cpu',
      name: `${threads} ${threads === 1 ? 'thread' : 'threads'}, ${SIMD_NAMES[kernels.file]}`,
      features: SIMD_FEATURES[kernels.file],
      precision,
      deterministic: true,
      memoryBytes,
      attentionSplit: ATTENTION_SPLIT,
      adapters: HELD_ADAPTERS,
      keyCentres: 'turning',
      floatHeads: true,
      floatTails: Number.POSITIVE_INFINITY,
    };
  }

  get lost(): Promise<KvantError> {
    return this.#threads.lost;
  }

  place(groups: readonly PlacementGroup[]): void {
    this.#set.place(
      groups.map(({ matrices, kvBytes }) =>
        matrices.reduce((sum, m) => sum + packedBytes(m.rows, m.cols, m.format) + 64, kvBytes),
      ),
    );
  }

  async loadMatrix(parts: readonly MatrixSource[], options: MatrixOptions): Promise<Matrix> {
    this.#threads.check();
    const set = this.#set;
    const place = set.allocate(stackedBytes(parts), options.group);
    const { memory, at } = place;
    this.#scratch.begin();
    try {
      const packed = await packMatrix(memory.memory, at, parts, {
        build: this.#kernels.relaxed ? 'relaxed' : 'simd',
        staging: this.#staging,
        scratch: (bytes) => this.#scratch.at(memory, bytes),
        ...(options.bias === undefined ? {} : { bias: options.bias }),
        ...(options.onBytes === undefined ? {} : { onBytes: options.onBytes }),
      });
      let table = 0;
      if (options.use !== 'linear') {
        const words = tableWords(packed);
        table = set.allocateIn(memory, words.length * 4).at;
        memory.u32(table, words.length).set(words);
      }
      return new CpuMatrix(set, memory, packed, table);
    } catch (error) {
      set.free(place);
      throw error;
    } finally {
      this.#scratch.end();
    }
  }

  async loadVector(source: VectorSource, group = 0): Promise<Vector> {
    this.#threads.check();
    return new CpuVector(this.#set, await source.read(), group);
  }

  createKvPool(spec: KvPoolSpec): KvPool {
    this.#threads.check();
    return new CpuKvPool(this.#set, this.#threads, spec);
  }

  createFeatureSlab(spec: FeatureSlabSpec): FeatureSlab {
    this.#threads.check();
    return new CpuFeatureSlab(this.#set, spec);
  }

  async compile(graph: Graph, limits: ProgramLimits, caches: KvPool | KvCaches | null): Promise<Program> {
    this.#staging.clear();
    await this.#threads.ready();
    const own = kvCaches(caches);
    if (!isOurs(own)) throw foreign('KV pool');
    const compiled = compile({
      set: this.#set,
      graph,
      limits,
      caches: own,
      threads: this.#threads.threads,
      precision: this.#precision,
    });
    this.#plans++;
    const program = new CpuProgram(this.#set, this.#threads, compiled, limits, own, () =>
      this.#programs.delete(program),
    );
    this.#programs.add(program);
    return program;
  }

  stats(): DeviceStats {
    let samplerBytes = 0;
    for (const { sampler } of this.#programs) samplerBytes += sampler?.bytes ?? 0;
    const { buffers, bytes, peakBytes } = this.#set;
    return { buffers, bytes, peakBytes, samplerBytes, plans: this.#plans };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#threads.dispose();
  }
}

function spinTurns(threads: number, cores: number, besideGpu: boolean): number {
  if (threads > cores || cores === 1) return SPIN.scarce;
  return besideGpu && threads < cores ? SPIN.long : SPIN.enough;
}

function isOurs(caches: KvCaches | null): caches is KvCaches<CpuKvPool> | null {
  return caches === null || caches.pools.every((pool) => pool instanceof CpuKvPool);
}
