/**
 * A Plan: the launches of a step of up to so many tokens and outputs, every pipeline and bind group resolved.
 *
 * A launch costs the host some two microseconds in three calls, and a step has hundreds: what a step does beside those
 * calls must be nothing. So a plan keeps the launches that the last step made as flat arrays, and while the counts of a step stay as they
 * were (they do for hundreds of steps in a row while rows decode) the next one goes through them again. There is such a list for the
 * whole step and for each of its halves.
 */

import type { StepSlice } from '../device.js';
import { cutOf } from '../slices.js';
import type { Stage, StepFacts, Workgroups } from './kernel.js';
import type { Pipelines } from './pipelines.js';
import type { Bound } from './resources.js';

/** The buffer of row state as it is now, and the bind groups on it. */
export interface SamplerBinding {
  readonly buffer: GPUBuffer;
  readonly groups: Map<string, GPUBindGroup>;
}

/** Buffers that kernels bind by name besides those of their node. */
export interface PlanBuffers {
  readonly scratch: ReadonlyMap<string, GPUBuffer>;
  params(words: Uint32Array): GPUBuffer;
}

/** What of a step is run: all, all but the draw, or the draw. */
export type StepPart = 'whole' | 'forward' | 'sample';

interface Launch {
  readonly stage: Stage;
  readonly half: 'forward' | 'sample';
  group: GPUBindGroup;
  /** Makes the group anew on another buffer of row state; null where it is not bound. */
  readonly rebind: (() => GPUBindGroup) | null;
}

/** The names of all counts: what workgroups may depend on. */
const COUNTS = Object.keys({
  tokens: 0,
  outputs: 0,
  sequences: 0,
  items: 0,
  itemRows: 0,
  itemSplits: 0,
  tiles: 0,
  tileParts: 0,
  ahead: 0,
  features: 0,
  dryWindow: 0,
  maxTopK: 0,
  filteredRows: 0,
} satisfies Record<keyof StepFacts, 0>) as readonly (keyof StepFacts)[];

/** The launches that the last step made of a part. */
class Replay {
  /** The counts that the arrays below are for; NaN: for none. */
  readonly counts = new Float64Array(COUNTS.length).fill(Number.NaN);
  readonly launches: { pipeline: GPUComputePipeline; group: GPUBindGroup }[] = [];
  readonly sizes: Uint32Array;
  /** Launches before each cut, and all of them. */
  readonly stretches: number[] = [];

  constructor(most: number) {
    this.sizes = new Uint32Array(3 * most);
  }

  isOf(facts: StepFacts): boolean {
    for (let i = 0; i < COUNTS.length; i++) if (facts[COUNTS[i]!] !== this.counts[i]) return false;
    return true;
  }
}

const WHOLE: StepSlice = { from: 0, to: 1, of: 1 };

export class Plan {
  readonly #launches: readonly Launch[];
  readonly #pipelines: Pipelines;
  readonly #workgroups: Workgroups = [0, 0, 0];
  #compiled = false;
  readonly #replays: Readonly<Record<StepPart, Replay>>;
  /** Launches of the first half before each cut. */
  readonly #cuts: readonly number[];

  /** `bound`: what each half of a step launches. `cuts`: how many of the first half's stand before each cut. */
  constructor(
    pipelines: Pipelines,
    bound: Readonly<Record<'forward' | 'sample', readonly Bound[]>>,
    cuts: readonly number[],
    buffers: PlanBuffers,
    groups: Map<string, GPUBindGroup>,
    sampler: SamplerBinding,
  ) {
    this.#pipelines = pipelines;
    const stagesOf = (many: readonly Bound[]): number =>
      many.reduce((sum, { kernel }) => sum + kernel.stages.length, 0);
    this.#cuts = cuts.map((at) => stagesOf(bound.forward.slice(0, at)));
    const launchesOf = (half: 'forward' | 'sample', { kernel, buffers: own }: Bound): Launch[] =>
      kernel.stages.map((stage) => {
        const list = (): GPUBuffer[] =>
          stage.bindings.map(({ name }) => {
            if (name === 'sampler') return sampler.buffer;
            const params =
              name === 'params' && stage.params !== undefined ? buffers.params(stage.params) : undefined;
            const buffer = params ?? own[name] ?? buffers.scratch.get(name);
            if (buffer === undefined)
              throw new Error(`${stage.label} binds ${name}, which the op does not have`);
            return buffer;
          });
        const stateful = stage.bindings.some(({ name }) => name === 'sampler');
        const bind = () => pipelines.bindGroup(stage, list(), stateful ? sampler.groups : groups);
        return { stage, half, group: bind(), rebind: stateful ? bind : null };
      });
    const forward = bound.forward.flatMap((each) => launchesOf('forward', each));
    const sample = bound.sample.flatMap((each) => launchesOf('sample', each));
    this.#launches = [...forward, ...sample];
    this.#replays = {
      whole: new Replay(this.#launches.length),
      forward: new Replay(forward.length),
      sample: new Replay(sample.length),
    };
  }

  /** Labels in order, for people. */
  labels(): string[] {
    return this.#launches.map((l) => l.stage.label);
  }

  /** Compiles all kernels without blocking. */
  async prepare(): Promise<void> {
    const eager = this.#launches.filter((l) => l.stage.lazy !== true);
    await Promise.all(eager.map((l) => this.#pipelines.prepare(l.stage)));
    this.#compiled = true;
  }

  /** Compiles what is not compiled yet, here and now. */
  compile(): void {
    if (this.#compiled) return;
    for (const { stage } of this.#launches) if (stage.lazy !== true) this.#pipelines.get(stage);
    this.#compiled = true;
  }

  /** Between steps, after the buffer of row state has changed. */
  rebind(): void {
    for (const launch of this.#launches) if (launch.rebind !== null) launch.group = launch.rebind();
    for (const replay of Object.values(this.#replays)) replay.counts.fill(Number.NaN);
  }

  encode(
    pass: GPUComputePassEncoder,
    facts: StepFacts,
    part: StepPart = 'whole',
    slice: StepSlice = WHOLE,
  ): void {
    const { launches } = this.#replay(facts, part);
    const { length } = launches;
    this.#run(pass, part, cutOf(length, slice.from, slice.of), cutOf(length, slice.to, slice.of));
  }

  /** What is launched between two cuts: before the first one, and so on. */
  encodeStretch(pass: GPUComputePassEncoder, facts: StepFacts, part: StepPart, stretch: number): void {
    const { stretches } = this.#replay(facts, part);
    this.#run(pass, part, stretch === 0 ? 0 : stretches[stretch - 1]!, stretches[stretch]!);
  }

  #replay(facts: StepFacts, part: StepPart): Replay {
    const replay = this.#replays[part];
    if (!replay.isOf(facts)) this.#resolve(facts, part);
    return replay;
  }

  #run(pass: GPUComputePassEncoder, part: StepPart, from: number, end: number): void {
    const { sizes, launches } = this.#replays[part];
    let current: GPUComputePipeline | null = null;
    for (let i = from; i < end; i++) {
      const { pipeline, group } = launches[i]!;
      if (pipeline !== current) {
        current = pipeline;
        pass.setPipeline(pipeline);
      }
      pass.setBindGroup(0, group);
      const x = sizes[3 * i]!;
      const y = sizes[3 * i + 1]!;
      const z = sizes[3 * i + 2]!;
      // The binding takes each argument apart: what is left out costs nothing.
      if (z !== 1) pass.dispatchWorkgroups(x, y, z);
      else if (y !== 1) pass.dispatchWorkgroups(x, y);
      else pass.dispatchWorkgroups(x);
    }
  }

  /** Some pipeline of it is not in `warm`. */
  isCold(warm: ReadonlySet<GPUComputePipeline>): boolean {
    return this.#launches.some(({ stage }) => stage.lazy !== true && !warm.has(this.#pipelines.get(stage)));
  }

  /**
   * Like `encode`, but only what runs on pipelines that are not in `warm`, where they are entered. `one`: a workgroup of each,
   * whatever the counts say.
   */
  encodeCold(
    pass: GPUComputePassEncoder,
    facts: StepFacts,
    warm: Set<GPUComputePipeline>,
    one: boolean,
  ): void {
    this.#resolve(facts, 'whole');
    const { sizes, launches } = this.#replays.whole;
    launches.forEach(({ pipeline, group }, i) => {
      if (warm.has(pipeline)) return;
      warm.add(pipeline);
      pass.setPipeline(pipeline);
      pass.setBindGroup(0, group);
      if (one) pass.dispatchWorkgroups(1);
      else pass.dispatchWorkgroups(sizes[3 * i]!, sizes[3 * i + 1], sizes[3 * i + 2]);
    });
  }

  #resolve(facts: StepFacts, part: StepPart): void {
    const size = this.#workgroups;
    const { counts, launches, sizes, stretches } = this.#replays[part];
    const cuts = part === 'sample' ? [] : this.#cuts;
    // Should something throw, no counts stand for half a list.
    counts.fill(Number.NaN);
    launches.length = 0;
    stretches.length = 0;
    for (const [i, { stage, half, group }] of this.#launches.entries()) {
      if (part !== 'whole' && part !== half) continue;
      while (cuts[stretches.length] === i) stretches.push(launches.length);
      stage.workgroups(facts, size);
      if (size[0] === 0 || size[1] === 0 || size[2] === 0) continue;
      sizes.set(size, 3 * launches.length);
      launches.push({ pipeline: this.#pipelines.get(stage), group });
    }
    while (stretches.length <= cuts.length) stretches.push(launches.length);
    COUNTS.forEach((name, i) => {
      counts[i] = facts[name];
    });
  }
}
