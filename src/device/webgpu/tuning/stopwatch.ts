/**
 * Times launches on the GPU, those that are compared in turns.
 *
 * With timestamp queries, one command buffer holds a pass of every rival, and the GPU itself says when each began and
 * ended. Without them, each pass is submitted alone and waited for. Either way a pass repeats its work until it lasts
 * long enough for the clock, and rivals change places from one sample to the next.
 */

import type { Allocator } from '../allocator.js';
import { MAP_MODE_READ, USAGE } from '../constants.js';
import { watchClosely } from '../dawn-ticks.js';

/** A dispatch with all that it needs. */
export interface TimedLaunch {
  readonly pipeline: GPUComputePipeline;
  readonly group: GPUBindGroup;
  readonly workgroups: readonly [number, number, number];
}

/** What one rival does: the same work on several data, so that no cache holds them all. */
export interface Rival {
  readonly launches: readonly TimedLaunch[];
  /** How often the work is done by one round of `launches`. */
  readonly works: number;
}

const QUERY_RESOLVE = 512;
/** What a pass should last: by timestamps, and where the host waits for it. */
const PASS_US = { timestamps: 1500, host: 6000 } as const;
/** Steps of the clock that a pass should last, where the clock is coarse. */
const CLOCK_STEPS = 40n;
const MOST_ROUNDS = 256;
/** Most rivals in one command buffer: what runs too long at once, a driver may take for hung. */
const AT_ONCE = 16;

export class Stopwatch {
  readonly #device: GPUDevice;
  readonly #allocator: Allocator;
  readonly #queries: GPUQuerySet | null;
  readonly #resolved: GPUBuffer | null;
  readonly #staging: GPUBuffer | null;
  /** Nanoseconds between two readings of the GPU's clock: what all readings so far are multiples of. */
  #clockStep = 0n;

  constructor(device: GPUDevice, allocator: Allocator) {
    this.#device = device;
    this.#allocator = allocator;
    const timestamps = device.features.has('timestamp-query');
    const bytes = AT_ONCE * 16;
    this.#queries = timestamps ? device.createQuerySet({ type: 'timestamp', count: AT_ONCE * 2 }) : null;
    this.#resolved = timestamps
      ? allocator.create('timestamps', bytes, QUERY_RESOLVE | USAGE.COPY_SRC)
      : null;
    this.#staging = timestamps
      ? allocator.create('timestamps read', bytes, USAGE.MAP_READ | USAGE.COPY_DST)
      : null;
  }

  /** µs of one work of each rival, `samples` of each. */
  async time(rivals: readonly Rival[], samples: number): Promise<number[][]> {
    const rounds: number[] = [];
    // One round tells how many make a pass that is long enough; the first use of a kernel is not it.
    for (let pass = 0; pass < 2; pass++) {
      const once = await this.#turn(
        rivals,
        rivals.map(() => 1),
        0,
      );
      once.forEach((us, i) => {
        rounds[i] = Math.max(1, Math.min(MOST_ROUNDS, Math.ceil(this.#passUs() / Math.max(0.5, us))));
      });
    }
    const out: number[][] = rivals.map(() => []);
    for (let s = 0; s < samples; s++) {
      const times = await this.#turn(rivals, rounds, s);
      times.forEach((us, i) => {
        out[i]!.push(us / rounds[i]! / rivals[i]!.works);
      });
    }
    return out;
  }

  destroy(): void {
    this.#queries?.destroy();
    for (const buffer of [this.#resolved, this.#staging])
      if (buffer !== null) this.#allocator.destroy(buffer);
  }

  #passUs(): number {
    if (this.#queries === null) return PASS_US.host;
    return Math.max(PASS_US.timestamps, Number(this.#clockStep * CLOCK_STEPS) / 1000);
  }

  /** µs of a pass of each rival, beginning with another one each time. */
  async #turn(rivals: readonly Rival[], rounds: readonly number[], from: number): Promise<number[]> {
    const order = rivals.map((_, i) => (i + from) % rivals.length);
    const out: number[] = [];
    for (let at = 0; at < order.length; at += AT_ONCE) {
      const some = order.slice(at, at + AT_ONCE);
      const times =
        this.#queries === null
          ? await this.#byHost(some, rivals, rounds)
          : await this.#byGpu(this.#queries, some, rivals, rounds);
      some.forEach((index, i) => {
        out[index] = times[i]!;
      });
    }
    return out;
  }

  async #byGpu(
    querySet: GPUQuerySet,
    some: readonly number[],
    rivals: readonly Rival[],
    rounds: readonly number[],
  ): Promise<number[]> {
    const resolved = this.#resolved!;
    const staging = this.#staging!;
    const encoder = this.#device.createCommandEncoder();
    some.forEach((index, i) => {
      const pass = encoder.beginComputePass({
        timestampWrites: { querySet, beginningOfPassWriteIndex: 2 * i, endOfPassWriteIndex: 2 * i + 1 },
      });
      encode(pass, rivals[index]!, rounds[index]!);
      pass.end();
    });
    const bytes = some.length * 16;
    encoder.resolveQuerySet(querySet, 0, some.length * 2, resolved, 0);
    encoder.copyBufferToBuffer(resolved, 0, staging, 0, bytes);
    this.#device.queue.submit([encoder.finish()]);
    await staging.mapAsync(MAP_MODE_READ, 0, bytes);
    const stamps = new BigUint64Array(staging.getMappedRange(0, bytes)).slice();
    staging.unmap();
    for (const stamp of stamps) this.#clockStep = gcd(this.#clockStep, stamp);
    return some.map((_, i) => {
      // A pass may be stamped as begun while the one before it still runs: it has to wait for that.
      const end = stamps[2 * i + 1]!;
      const before = i === 0 ? 0n : stamps[2 * i - 1]!;
      const begin = stamps[2 * i]! > before ? stamps[2 * i]! : before;
      return Math.max(0, Number(end - begin)) / 1000;
    });
  }

  async #byHost(
    some: readonly number[],
    rivals: readonly Rival[],
    rounds: readonly number[],
  ): Promise<number[]> {
    const times: number[] = [];
    for (const index of some) {
      const encoder = this.#device.createCommandEncoder();
      const pass = encoder.beginComputePass();
      encode(pass, rivals[index]!, rounds[index]!);
      pass.end();
      const commands = encoder.finish();
      const start = performance.now();
      this.#device.queue.submit([commands]);
      await watchClosely(this.#device.queue.onSubmittedWorkDone());
      times.push((performance.now() - start) * 1000);
    }
    return times;
  }
}

function encode(pass: GPUComputePassEncoder, { launches }: Rival, rounds: number): void {
  let current: GPUComputePipeline | null = null;
  for (let r = 0; r < rounds; r++) {
    for (const { pipeline, group, workgroups } of launches) {
      if (pipeline !== current) pass.setPipeline(pipeline);
      current = pipeline;
      pass.setBindGroup(0, group);
      pass.dispatchWorkgroups(...workgroups);
    }
  }
}

function gcd(a: bigint, b: bigint): bigint {
  let [x, y] = [a, b];
  while (y !== 0n) [x, y] = [y, x % y];
  return x;
}
