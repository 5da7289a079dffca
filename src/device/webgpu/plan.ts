/** A Plan: the launches of a step of up to so many tokens and outputs, every pipeline and bind group resolved. */

import type { Stage, StepFacts, Workgroups } from './kernel.js';
import type { Pipelines } from './pipelines.js';
import type { Bound } from './resolve.js';

/** The buffer of row state as it is now, and the bind groups on it. */
export interface SamplerBinding {
  readonly buffer: GPUBuffer;
  readonly groups: Map<string, GPUBindGroup>;
}

interface Launch {
  readonly stage: Stage;
  group: GPUBindGroup;
  /** Makes the group anew on another buffer of row state; null where it is not bound. */
  readonly rebind: (() => GPUBindGroup) | null;
  /** Known once the plan has been prepared or first used. */
  pipeline: GPUComputePipeline | null;
}

export class Plan {
  readonly #launches: readonly Launch[];
  readonly #pipelines: Pipelines;
  readonly #workgroups: Workgroups = [0, 0, 0];

  constructor(
    pipelines: Pipelines,
    bound: readonly Bound[],
    scratch: ReadonlyMap<string, GPUBuffer>,
    paramsBuffer: (words: Uint32Array) => GPUBuffer,
    groups: Map<string, GPUBindGroup>,
    sampler: SamplerBinding,
  ) {
    this.#pipelines = pipelines;
    this.#launches = bound.flatMap(({ kernel, buffers }) =>
      kernel.stages.map((stage) => {
        const list = (): GPUBuffer[] =>
          stage.bindings.map(({ name }) => {
            if (name === 'sampler') return sampler.buffer;
            const own =
              name === 'params' && stage.params !== undefined ? paramsBuffer(stage.params) : undefined;
            const buffer = own ?? buffers[name] ?? scratch.get(name);
            if (buffer === undefined)
              throw new Error(`${stage.label} binds ${name}, which the op does not have`);
            return buffer;
          });
        const stateful = stage.bindings.some(({ name }) => name === 'sampler');
        const bind = () => pipelines.bindGroup(stage, list(), stateful ? sampler.groups : groups);
        return { stage, group: bind(), rebind: stateful ? bind : null, pipeline: null };
      }),
    );
  }

  get launches(): number {
    return this.#launches.length;
  }

  /** Labels in order, for people. */
  labels(): string[] {
    return this.#launches.map((l) => l.stage.label);
  }

  /** Compiles all kernels without blocking. */
  async prepare(): Promise<void> {
    const eager = this.#launches.filter((l) => l.stage.lazy !== true);
    await Promise.all(eager.map((l) => this.#pipelines.prepare(l.stage)));
    this.compile();
  }

  /** Compiles what is not compiled yet, here and now. */
  compile(): void {
    for (const launch of this.#launches) {
      if (launch.stage.lazy !== true) launch.pipeline ??= this.#pipelines.get(launch.stage);
    }
  }

  /** Between steps, after the buffer of row state has changed. */
  rebind(): void {
    for (const launch of this.#launches) if (launch.rebind !== null) launch.group = launch.rebind();
  }

  encode(pass: GPUComputePassEncoder, facts: StepFacts): void {
    const wg = this.#workgroups;
    let current: GPUComputePipeline | null = null;
    for (const launch of this.#launches) {
      launch.stage.workgroups(facts, wg);
      if (wg[0] === 0 || wg[1] === 0 || wg[2] === 0) continue;
      launch.pipeline ??= this.#pipelines.get(launch.stage);
      if (launch.pipeline !== current) {
        current = launch.pipeline;
        pass.setPipeline(current);
      }
      pass.setBindGroup(0, launch.group);
      pass.dispatchWorkgroups(wg[0], wg[1], wg[2]);
    }
  }
}
