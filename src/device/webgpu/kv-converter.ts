/** The conversion of float-start blocks: one pass, a dispatch for each layer, over pairs of blocks in one small buffer. */

import type { KvFloatStartSpec, KvPoolSpec } from '../kv.js';
import type { Allocator } from './allocator.js';
import { USAGE } from './constants.js';
import type { Faults } from './faults.js';
import type { Stage } from './kernel.js';
import { convertStage } from './kernels/kv-convert.js';
import type { KvPoolHost, LayerCache } from './kv-pool.js';
import type { Pipelines } from './pipelines.js';

/** Pairs of one pass. */
const PAIRS = 4096;

interface Launch {
  readonly stage: Stage;
  readonly units: number;
  readonly group: GPUBindGroup;
}

export class KvConverter {
  readonly #device: GPUDevice;
  readonly #allocator: Allocator;
  readonly #pipelines: Pipelines;
  readonly #faults: Faults;
  readonly #blockTokens: number;
  readonly #pairs: GPUBuffer;
  readonly #words = new Uint32Array(PAIRS * 2);
  readonly #own: GPUBuffer[] = [];
  readonly #launches: readonly Launch[];
  /** Settles when the kernels are there, or one is at fault. */
  readonly compiled: Promise<unknown>;

  constructor(
    host: KvPoolHost,
    spec: KvPoolSpec & { readonly floatStart: KvFloatStartSpec },
    layers: readonly LayerCache[],
    create: (label: string, bytes: number, usage: number) => GPUBuffer,
  ) {
    const { device, allocator, pipelines, faults } = host;
    this.#device = device;
    this.#allocator = allocator;
    this.#pipelines = pipelines;
    this.#faults = faults;
    this.#blockTokens = spec.blockTokens;
    const own = (label: string, bytes: number, usage: number): GPUBuffer => {
      const buffer = create(label, bytes, usage);
      this.#own.push(buffer);
      return buffer;
    };
    this.#pairs = own('pairs of blocks', PAIRS * 8, USAGE.STORAGE | USAGE.COPY_DST);
    const params = new Map<string, GPUBuffer>();
    const groups = new Map<string, GPUBindGroup>();
    this.#launches = spec.layers.map(({ kvHeads, headDim, valueDim, key, value }, i) => {
      const { keys, values } = layers[i]!;
      const stage = convertStage({
        kvHeads,
        headDim,
        ...(valueDim === undefined ? {} : { valueDim }),
        blockTokens: spec.blockTokens,
        key,
        value,
        floatStart: { kind: 'float', dtype: spec.floatStart.dtype },
        keyBlocks: keys.blocks,
        valueBlocks: values.blocks,
        floatStartKeys: keys.floatStart === null ? null : spec.blocks,
        floatStartValues: values.floatStart === null ? null : spec.blocks,
      });
      const words = stage.params!;
      let uniform = params.get(words.join());
      if (uniform === undefined) {
        uniform = own('params', words.byteLength, USAGE.UNIFORM | USAGE.COPY_DST);
        device.queue.writeBuffer(uniform, 0, words as Uint32Array<ArrayBuffer>);
        params.set(words.join(), uniform);
      }
      const roles: Record<string, GPUBuffer | null> = {
        params: uniform,
        pairs: this.#pairs,
        keys: keys.buffer,
        values: values.buffer,
        floatStartKeys: keys.floatStart,
        floatStartValues: values.floatStart,
      };
      const group = pipelines.bindGroup(
        stage,
        stage.bindings.map(({ name }) => roles[name]!),
        groups,
      );
      return { stage, units: stage.units, group };
    });
    this.compiled = Promise.all(this.#launches.map(({ stage }) => pipelines.prepare(stage)));
    // Whoever waits for it is told of a fault.
    this.compiled.catch(() => {});
  }

  /** Submits at once; resolves when it is done. */
  async run(from: Uint32Array, to: Uint32Array): Promise<void> {
    this.#faults.check();
    const { queue } = this.#device;
    for (let first = 0; first < from.length; first += PAIRS) {
      const count = Math.min(PAIRS, from.length - first);
      for (let i = 0; i < count; i++) {
        this.#words[2 * i] = from[first + i]!;
        this.#words[2 * i + 1] = to[first + i]!;
      }
      queue.writeBuffer(this.#pairs, 0, this.#words, 0, count * 2);
      const encoder = this.#device.createCommandEncoder();
      const pass = encoder.beginComputePass();
      for (const { stage, units, group } of this.#launches) {
        pass.setPipeline(this.#pipelines.get(stage));
        pass.setBindGroup(0, group);
        pass.dispatchWorkgroups(units, this.#blockTokens, count);
      }
      pass.end();
      queue.submit([encoder.finish()]);
    }
    await queue.onSubmittedWorkDone();
    this.#faults.check();
  }

  dispose(): void {
    for (const buffer of this.#own) this.#allocator.destroy(buffer);
  }
}
