/** A Plan: the launches of a step of up to so many tokens and outputs, every pipeline and bind group resolved. */

import type { Stage, StepFacts, Workgroups } from './kernel.js';
import type { Pipelines } from './pipelines.js';
import type { Bound } from './resolve.js';

interface Launch {
  readonly stage: Stage;
  readonly group: GPUBindGroup;
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
  ) {
    this.#pipelines = pipelines;
    this.#launches = bound.flatMap(({ kernel, buffers }) =>
      kernel.stages.map((stage) => {
        const list = stage.bindings.map(({ name }) => {
          const own =
            name === 'params' && stage.params !== undefined ? paramsBuffer(stage.params) : undefined;
          const buffer = own ?? buffers[name] ?? scratch.get(name);
          if (buffer === undefined)
            throw new Error(`${stage.label} binds ${name}, which the op does not have`);
          return buffer;
        });
        return { stage, group: pipelines.bindGroup(stage, list, groups), pipeline: null };
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
    await Promise.all(this.#launches.map((l) => this.#pipelines.prepare(l.stage)));
    this.compile();
  }

  /** Compiles what is not compiled yet, here and now. */
  compile(): void {
    for (const launch of this.#launches) launch.pipeline ??= this.#pipelines.get(launch.stage);
  }

  encode(pass: GPUComputePassEncoder, facts: StepFacts): void {
    const wg = this.#workgroups;
    let current: GPUComputePipeline | null = null;
    for (const launch of this.#launches) {
      launch.stage.workgroups(facts, wg);
      if (wg[0] === 0 || wg[1] === 0 || wg[2] === 0) continue;
      if (launch.pipeline !== current) {
        current = launch.pipeline!;
        pass.setPipeline(current);
      }
      pass.setBindGroup(0, launch.group);
      pass.dispatchWorkgroups(wg[0], wg[1], wg[2]);
    }
  }
}
