/**
 * Whole blocks moved as they are stored: within the pool, to the host and back. One pass with a dispatch for each
 * layer; a pass goes through the queue behind the steps before it. What the host reads and writes passes through buffers
 * of STAGE_BYTES or one block, so that a step never waits longer than such a pass takes.
 */

import type { KvantError } from '../../errors.js';
import type { KvPoolSpec } from '../kv.js';
import { isFloatStartBlock, kvPlanes, kvStoredBytes } from '../kv-block.js';
import { MAP_MODE_READ, USAGE } from './constants.js';
import { deviceLost, type FaultSink } from './faults.js';
import type { Stage } from './kernel.js';
import { kvLayout } from './kernels/kv-layout.js';
import { type Move, type MoveSide, moveStage } from './kernels/kv-move.js';
import type { KvPoolHost, LayerCache, SideCache } from './kv-pool.js';

/** Pairs of one pass. */
const PAIRS = 1024;
const STAGE_BYTES = 4 * 2 ** 20;
/** Passes under way that read, and passes that write. */
const IN_FLIGHT = 2;

interface Launch {
  readonly stage: Stage & { readonly units: number };
  readonly group: GPUBindGroup;
}

/** Launches for blocks of the pool, and for float-start ones. */
type Launches = readonly [own: readonly Launch[], floatStart: readonly Launch[]];

export class KvMover {
  readonly #host: KvPoolHost;
  readonly #spec: KvPoolSpec;
  readonly #layers: readonly LayerCache[];
  readonly #own: GPUBuffer[] = [];
  readonly #params = new Map<string, GPUBuffer>();
  readonly #groups = new Map<string, GPUBindGroup>();
  readonly #pairs: GPUBuffer;
  readonly #words = new Uint32Array(PAIRS * 2);
  readonly #blockBytes: readonly [own: number, floatStart: number];
  #copies: Launches | null = null;
  #transfers: Transfers | null = null;

  constructor(host: KvPoolHost, spec: KvPoolSpec, layers: readonly LayerCache[]) {
    this.#host = host;
    this.#spec = spec;
    this.#layers = layers;
    this.#blockBytes = [kvStoredBytes(spec, false), kvStoredBytes(spec, true)];
    this.#pairs = this.#create('pairs of blocks to move', PAIRS * 8, USAGE.STORAGE | USAGE.COPY_DST);
  }

  get bytes(): number {
    return this.#own.reduce((sum, { size }) => sum + size, 0);
  }

  async prepare(use: 'copy' | 'transfer'): Promise<void> {
    const { pipelines, allocator } = this.#host;
    const used =
      use === 'copy' ? [this.#copying()] : [this.#transferring().gather, this.#transferring().scatter];
    await allocator.settle();
    const stages = new Map(used.flat(2).map(({ stage }) => [stage.wgsl, stage]));
    await Promise.all([...stages.values()].map((stage) => pipelines.prepare(stage)));
  }

  async copy(from: Uint32Array, to: Uint32Array): Promise<void> {
    const { device, faults } = this.#host;
    faults.check();
    const launches = this.#copying();
    for (const { first, count, kind } of this.#runs(from, PAIRS)) {
      for (let i = 0; i < count; i++) {
        this.#words[2 * i] = from[first + i]!;
        this.#words[2 * i + 1] = to[first + i]!;
      }
      this.#submit(launches[kind], count);
    }
    await device.queue.onSubmittedWorkDone();
    faults.check();
  }

  async read(blocks: Uint32Array): Promise<Uint8Array[]> {
    const ids = blocks.slice();
    const out = new Array<Uint8Array>(ids.length);
    const { batch, readers, gather, stage } = this.#transferring();
    await Promise.all(
      this.#runs(ids, batch).map(({ first, count, kind }) =>
        readers.use(async (reader) => {
          this.#host.faults.check();
          const bytes = this.#blockBytes[kind];
          for (let i = 0; i < count; i++) this.#words[2 * i] = ids[first + i]!;
          this.#submit(gather[kind], count, (encoder) =>
            encoder.copyBufferToBuffer(stage, 0, reader.buffer, 0, count * bytes),
          );
          const mapped = await this.#map(reader, count * bytes);
          for (let i = 0; i < count; i++) out[first + i] = mapped.slice(i * bytes, (i + 1) * bytes);
          reader.buffer.unmap();
          if (reader.error !== null) throw reader.error;
        }),
      ),
    );
    return out;
  }

  async write(blocks: Uint32Array, data: readonly Uint8Array[]): Promise<void> {
    const ids = blocks.slice();
    const { queue } = this.#host.device;
    const { batch, writers, scatter, stage } = this.#transferring();
    await Promise.all(
      this.#runs(ids, batch).map(({ first, count, kind }) =>
        writers.use(async () => {
          this.#host.faults.check();
          for (let i = 0; i < count; i++) {
            this.#words[2 * i] = ids[first + i]!;
            const bytes = data[first + i]! as Uint8Array<ArrayBuffer>;
            queue.writeBuffer(stage, i * this.#blockBytes[kind], bytes);
          }
          this.#submit(scatter[kind], count);
          await queue.onSubmittedWorkDone();
          this.#host.faults.check();
        }),
      ),
    );
  }

  dispose(): void {
    for (const buffer of this.#own) this.#host.allocator.destroy(buffer);
  }

  /** Runs of blocks of one kind, at most so many each. */
  #runs(blocks: Uint32Array, most: number): { first: number; count: number; kind: 0 | 1 }[] {
    const runs: { first: number; count: number; kind: 0 | 1 }[] = [];
    blocks.forEach((block, i) => {
      const kind = isFloatStartBlock(this.#spec, block) ? 1 : 0;
      const run = runs.at(-1);
      if (run !== undefined && run.kind === kind && run.count < most) run.count++;
      else runs.push({ first: i, count: 1, kind });
    });
    return runs;
  }

  /** A pass over the first `count` pairs of `#words`. */
  #submit(launches: readonly Launch[], count: number, then?: (encoder: GPUCommandEncoder) => void): void {
    const { device, pipelines } = this.#host;
    device.queue.writeBuffer(this.#pairs, 0, this.#words, 0, count * 2);
    const encoder = device.createCommandEncoder();
    const pass = encoder.beginComputePass();
    for (const { stage, group } of launches) {
      pass.setPipeline(pipelines.get(stage));
      pass.setBindGroup(0, group);
      pass.dispatchWorkgroups(stage.units, count);
    }
    pass.end();
    then?.(encoder);
    device.queue.submit([encoder.finish()]);
  }

  async #map(reader: Reader, bytes: number): Promise<Uint8Array> {
    const { faults } = this.#host;
    reader.error = null;
    faults.add(reader);
    try {
      await reader.buffer.mapAsync(MAP_MODE_READ, 0, bytes);
      return new Uint8Array(reader.buffer.getMappedRange(0, bytes));
    } catch (error) {
      throw reader.error ?? faults.lost ?? deviceLost('map failed', String(error));
    } finally {
      faults.remove(reader);
    }
  }

  #copying(): Launches {
    this.#copies ??= this.#launches('copy', null);
    return this.#copies;
  }

  #transferring(): Transfers {
    if (this.#transfers === null) {
      const most = this.#spec.floatStart ? Math.max(...this.#blockBytes) : this.#blockBytes[0];
      const batch = Math.min(PAIRS, Math.max(1, Math.floor(STAGE_BYTES / most)));
      const usage = USAGE.STORAGE | USAGE.COPY_SRC | USAGE.COPY_DST;
      const stage = this.#create('blocks on their way', batch * most, usage);
      this.#transfers = {
        batch,
        stage,
        gather: this.#launches('gather', stage),
        scatter: this.#launches('scatter', stage),
        readers: new Turns(
          Array.from(
            { length: IN_FLIGHT },
            (_, i) =>
              new Reader(this.#create(`blocks readback ${i}`, batch * most, USAGE.MAP_READ | USAGE.COPY_DST)),
          ),
        ),
        writers: new Turns(Array.from({ length: IN_FLIGHT }, () => null)),
      };
    }
    return this.#transfers;
  }

  #launches(move: Move, stage: GPUBuffer | null): Launches {
    return [
      this.#launchesOf(move, stage, false),
      this.#spec.floatStart ? this.#launchesOf(move, stage, true) : [],
    ];
  }

  #launchesOf(move: Move, bytes: GPUBuffer | null, floatStart: boolean): Launch[] {
    const { device, pipelines } = this.#host;
    const planes = kvPlanes(this.#spec, floatStart);
    const block = kvStoredBytes(this.#spec, floatStart) / 16;
    return this.#layers.map((layer, index) => {
      const { buffer: keys, ...ofKeys } = this.#side(layer, index, 'key', floatStart);
      const { buffer: values, ...ofValues } = this.#side(layer, index, 'value', floatStart);
      const at = planes.find((plane) => plane.layer === index)!.at / 16;
      const launch = moveStage(move, { keys: ofKeys, values: ofValues, at, block });
      const words = launch.params!;
      let params = this.#params.get(words.join());
      if (params === undefined) {
        params = this.#create('params', words.byteLength, USAGE.UNIFORM | USAGE.COPY_DST);
        device.queue.writeBuffer(params, 0, words as Uint32Array<ArrayBuffer>);
        this.#params.set(words.join(), params);
      }
      const roles: Record<string, GPUBuffer | null> = { pairs: this.#pairs, keys, values, bytes, params };
      const buffers = launch.bindings.map(({ name }) => roles[name]!);
      return { stage: launch, group: pipelines.bindGroup(launch, buffers, this.#groups) };
    });
  }

  #side(
    layer: LayerCache,
    index: number,
    which: 'key' | 'value',
    floatStart: boolean,
  ): MoveSide & { readonly buffer: GPUBuffer } {
    const side: SideCache = which === 'key' ? layer.keys : layer.values;
    const { headDim, kvHeads, state } = this.#spec.layers[index]!;
    if (state !== undefined)
      return {
        buffer: side.buffer,
        codes: side.layout.words / 4,
        meta: 0,
        metaAt: side.layout.metaAt / 4,
        first: 0,
      };
    const { headFirst } = side;
    const apart = floatStart && (side.floatStart !== null || headFirst !== undefined);
    const layout = apart
      ? kvLayout(
          { kind: 'float', dtype: this.#spec.floatStart!.dtype },
          { headDim, kvHeads, blockTokens: this.#spec.blockTokens, blocks: this.#spec.floatStart!.blocks },
        )
      : side.layout;
    const tokens = this.#spec.blockTokens;
    return {
      buffer: apart ? (side.floatStart ?? side.buffer) : side.buffer,
      codes: (layout.words * kvHeads * tokens) / 4,
      meta: (layout.groups * layout.metaHeads * tokens) / 4,
      metaAt: layout.metaAt / 4,
      // Of a head's blocks, it may be below zero: modulo 2³² it is right all the same.
      first: apart ? (this.#spec.blocks - (headFirst ?? 0)) >>> 0 : 0,
    };
  }

  #create(label: string, bytes: number, usage: number): GPUBuffer {
    const buffer = this.#host.allocator.create(label, bytes, usage);
    this.#own.push(buffer);
    return buffer;
  }
}

interface Transfers {
  /** Blocks of one pass. */
  readonly batch: number;
  readonly stage: GPUBuffer;
  readonly gather: Launches;
  readonly scatter: Launches;
  readonly readers: Turns<Reader>;
  readonly writers: Turns<null>;
}

class Reader implements FaultSink {
  readonly buffer: GPUBuffer;
  error: KvantError | null = null;

  constructor(buffer: GPUBuffer) {
    this.buffer = buffer;
  }

  fail(error: KvantError): void {
    this.error ??= error;
  }
}

/** A few of a thing, used in the order in which they are asked for. Begins at once where one is free. */
class Turns<T> {
  readonly #idle: T[];
  readonly #waiting: ((one: T) => void)[] = [];

  constructor(all: readonly T[]) {
    this.#idle = [...all];
  }

  async use(task: (one: T) => Promise<void>): Promise<void> {
    const one =
      this.#idle.length > 0
        ? this.#idle.pop()!
        : await new Promise<T>((resolve) => this.#waiting.push(resolve));
    try {
      await task(one);
    } finally {
      const next = this.#waiting.shift();
      if (next === undefined) this.#idle.push(one);
      else next(one);
    }
  }
}
