/**
 * What contests of one tuning stand on: pipelines of their own, buffers that are filled on the device and freed in the
 * end, one stopwatch. Nothing of it outlives `close`.
 */

import type { Allocator } from '../allocator.js';
import { MAP_MODE_READ, USAGE } from '../constants.js';
import { type Binding, declareBindings, type Kernel, type StepFacts, type Workgroups } from '../kernel.js';
import { Pipelines } from '../pipelines.js';
import { emptyFacts } from '../step-buffer.js';
import { Stopwatch, type TimedLaunch } from './stopwatch.js';

/** Most bytes of a result that are read back, of its start and of its end. */
const PART_BYTES = 1024 * 1024;

export class TuningBench {
  readonly device: GPUDevice;
  readonly stopwatch: Stopwatch;
  readonly #allocator: Allocator;
  readonly #pipelines: Pipelines;
  readonly #buffers = new Set<GPUBuffer>();

  constructor(device: GPUDevice, allocator: Allocator) {
    this.device = device;
    this.#allocator = allocator;
    this.#pipelines = new Pipelines(device);
    this.stopwatch = new Stopwatch(device, allocator);
  }

  /**
   * A buffer; `seed` fills it: with floats between −½ and ½, or as a cache of keys or values, where every half is a number
   * between ⅟₁₆ and ⅛ of either sign, and codes are what they are.
   */
  buffer(label: string, bytes: number, seed?: number, as: 'floats' | 'cache' = 'floats'): GPUBuffer {
    const usage = USAGE.STORAGE | USAGE.COPY_SRC | USAGE.COPY_DST;
    const buffer = this.#allocator.create(`tuning ${label}`, bytes, usage);
    this.#buffers.add(buffer);
    if (seed !== undefined) this.#fill(buffer, seed, as);
    return buffer;
  }

  /** Throws if an allocation failed. */
  settle(): Promise<void> {
    return this.#allocator.settle();
  }

  free(buffer: GPUBuffer): void {
    this.#buffers.delete(buffer);
    this.#allocator.destroy(buffer);
  }

  /** Compiles all stages of a kernel; false if one does not. */
  async compiles(kernel: Kernel): Promise<boolean> {
    const stages = kernel.stages.map((stage) => this.#pipelines.prepare(stage));
    return (await Promise.allSettled(stages)).every(({ status }) => status === 'fulfilled');
  }

  /** The dispatches of a compiled kernel. Stages that these facts leave nothing to do are left out. */
  launches(
    kernel: Kernel,
    buffers: Readonly<Record<string, GPUBuffer>>,
    facts: StepFacts,
    groups: Map<string, GPUBindGroup>,
  ): TimedLaunch[] {
    return kernel.stages.flatMap((stage) => {
      const workgroups: Workgroups = [0, 0, 0];
      stage.workgroups(facts, workgroups);
      if (workgroups.includes(0)) return [];
      const bound = stage.bindings.map(({ name }) => {
        const buffer = buffers[name];
        if (buffer === undefined) throw new Error(`${stage.label} binds ${name}, which tuning does not have`);
        return buffer;
      });
      const group = this.#pipelines.bindGroup(stage, bound, groups);
      return [{ pipeline: this.#pipelines.get(stage), group, workgroups }];
    });
  }

  /** The first and the last words of a buffer after the launches have run. */
  async results(launches: readonly TimedLaunch[], buffer: GPUBuffer): Promise<Uint32Array> {
    const part = Math.min(PART_BYTES, buffer.size);
    const staging = this.#allocator.create('tuning read', 2 * part, USAGE.MAP_READ | USAGE.COPY_DST);
    try {
      // Should there be no room, it is this that there was none for.
      await this.#allocator.settle();
      const encoder = this.device.createCommandEncoder();
      encoder.clearBuffer(buffer);
      const pass = encoder.beginComputePass();
      for (const { pipeline, group, workgroups } of launches) {
        pass.setPipeline(pipeline);
        pass.setBindGroup(0, group);
        pass.dispatchWorkgroups(...workgroups);
      }
      pass.end();
      encoder.copyBufferToBuffer(buffer, 0, staging, 0, part);
      encoder.copyBufferToBuffer(buffer, buffer.size - part, staging, part, part);
      this.device.queue.submit([encoder.finish()]);
      await staging.mapAsync(MAP_MODE_READ, 0, 2 * part);
      return new Uint32Array(staging.getMappedRange(0, 2 * part)).slice();
    } finally {
      this.#allocator.destroy(staging);
    }
  }

  close(): void {
    for (const buffer of this.#buffers) this.#allocator.destroy(buffer);
    this.#buffers.clear();
    this.stopwatch.destroy();
  }

  /** By a hash of the index (Wellons' lowbias32). */
  #fill(buffer: GPUBuffer, seed: number, as: 'floats' | 'cache'): void {
    const words = buffer.size / 4;
    const across = Math.min(32768, Math.ceil(words / 256));
    const bindings: Binding[] = [{ name: 'data', access: 'read_write', type: 'array<u32>' }];
    const wgsl = `${declareBindings(bindings)}
@compute @workgroup_size(256)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  let i = id.y * groups.x * 256u + id.x;
  if (i >= arrayLength(&data)) { return; }
  var h = i ^ ${seed}u;
  h = (h ^ (h >> 16u)) * 0x7feb352du;
  h = (h ^ (h >> 15u)) * 0x846ca68bu;
  h = h ^ (h >> 16u);
  data[i] = ${as === 'floats' ? 'bitcast<u32>(bitcast<f32>((h >> 9u) | 0x3f800000u) - 1.5)' : '(h & 0x83ff83ffu) | 0x2c002c00u'};
}`;
    const stage = {
      label: `fill with ${as}, ${seed}`,
      wgsl,
      bindings,
      workgroups: (_: StepFacts, out: Workgroups) => {
        [out[0], out[1], out[2]] = [across, Math.ceil(words / 256 / across), 1];
      },
    };
    const launches = this.launches({ stages: [stage] }, { data: buffer }, factsOf(0), new Map());
    const encoder = this.device.createCommandEncoder();
    const pass = encoder.beginComputePass();
    for (const { pipeline, group, workgroups } of launches) {
      pass.setPipeline(pipeline);
      pass.setBindGroup(0, group);
      pass.dispatchWorkgroups(...workgroups);
    }
    pass.end();
    this.device.queue.submit([encoder.finish()]);
  }
}

/** Facts of a step of so many rows, prompts or outputs, and no attention. */
export function factsOf(rows: number): StepFacts {
  return { ...emptyFacts(), tokens: rows, outputs: rows, sequences: 1 };
}

/** Results may lie so far apart, in the norm, where sums are taken in another order or of halves. */
const CLOSE = 1e-2;

/** Two results of f32 numbers, bit by bit and then by the norm of their difference. */
export function compareResults(a: Uint32Array, b: Uint32Array): 'same' | 'close' | 'differs' {
  if (a.every((word, i) => word === b[i])) return 'same';
  const [x, y] = [a, b].map((words) => new Float32Array(words.buffer, words.byteOffset, words.length));
  let difference = 0;
  let norm = 0;
  for (let i = 0; i < a.length; i++) {
    difference += (x![i]! - y![i]!) ** 2;
    norm += x![i]! ** 2;
  }
  // NaN is not close to anything.
  return difference <= CLOSE * CLOSE * norm ? 'close' : 'differs';
}
