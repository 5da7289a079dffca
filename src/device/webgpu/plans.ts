/**
 * The plans of a program: one for each bucket of (tokens, outputs), powers of two and the limits themselves. Kernels of a
 * node depend on the rows of its kind at most, so that plans share them.
 */

import type { ProgramLimits } from '../device.js';
import type { Graph } from '../graph.js';
import { isHostNode } from './host-experts.js';
import type { Pipelines } from './pipelines.js';
import { Plan, type PlanBuffers, type SamplerBinding } from './plan.js';
import { resolveNode, variationOf } from './resolve.js';
import type { Bound, Bucket, Resources } from './resources.js';

export interface PlansHost {
  readonly pipelines: Pipelines;
  /** Called for every plan made. */
  readonly onPlan: () => void;
}

export class Plans {
  readonly #host: PlansHost;
  readonly #graph: Graph;
  readonly #limits: ProgramLimits;
  readonly #resources: Resources;
  readonly #sampler: SamplerBinding;
  readonly #groups = new Map<string, GPUBindGroup>();
  readonly #plans = new Map<number, Plan>();
  readonly #bounds = new Map<string, Bound[]>();

  constructor(
    host: PlansHost,
    graph: Graph,
    limits: ProgramLimits,
    resources: Resources,
    sampler: SamplerBinding,
  ) {
    this.#host = host;
    this.#graph = graph;
    this.#limits = limits;
    this.#resources = resources;
    this.#sampler = sampler;
  }

  /** The plan for so many tokens and outputs, made if it is not there yet. */
  get(tokens: number, outputs: number, buffers: PlanBuffers): Plan {
    const { maxTokens, maxOutputs, oneOrder } = this.#limits;
    const least = leastRows(oneOrder);
    // Without outputs the launches of one have no workgroups, and are left out.
    const bucket: Bucket = {
      tokens: tokens === 0 ? 0 : bucketOf(Math.max(tokens, least), maxTokens),
      outputs: outputs === 0 ? 1 : bucketOf(Math.max(outputs, least), maxOutputs),
    };
    const key = bucket.tokens * (maxOutputs + 1) + bucket.outputs;
    let plan = this.#plans.get(key);
    if (plan === undefined) {
      const { pipelines, onPlan } = this.#host;
      const { nodes } = this.#graph;
      const bound = { forward: [] as Bound[], sample: [] as Bound[] };
      const cuts: number[] = [];
      for (const [i, node] of nodes.entries()) {
        if (isHostNode(node)) cuts.push(bound.forward.length);
        bound[node.op === 'sample' ? 'sample' : 'forward'].push(...this.#resolved(i, bucket));
      }
      plan = new Plan(pipelines, bound, cuts, buffers, this.#groups, this.#sampler);
      this.#plans.set(key, plan);
      onPlan();
    }
    return plan;
  }

  /** Resolves every node for every bucket: faults show here. Answers the bytes of each scratch role. */
  resolveAll(params: PlanBuffers['params']): Map<string, number> {
    const sizes = new Map<string, number>();
    const { maxTokens, maxOutputs, oneOrder } = this.#limits;
    const least = leastRows(oneOrder);
    const tokens = buckets(maxTokens, least);
    const outputs = buckets(maxOutputs, least);
    for (let i = 0; i < Math.max(tokens.length, outputs.length); i++) {
      const bucket = {
        tokens: tokens[Math.min(i, tokens.length - 1)]!,
        outputs: outputs[Math.min(i, outputs.length - 1)]!,
      };
      for (const n of this.#graph.nodes.keys()) {
        for (const { kernel } of this.#resolved(n, bucket)) {
          for (const stage of kernel.stages) if (stage.params !== undefined) params(stage.params);
          for (const [name, bytes] of Object.entries(kernel.scratch ?? {})) {
            sizes.set(name, Math.max(sizes.get(name) ?? 0, bytes));
          }
        }
      }
    }
    return sizes;
  }

  /** Compiles what steps with features need and others do not. The kernels of the sampler are those of every plan. */
  async prepareFeatures(): Promise<void> {
    const lazy = [...this.#bounds.values()].flatMap((bound) =>
      bound.flatMap(({ kernel }) => kernel.stages.filter((stage) => stage.lazy === true)),
    );
    await Promise.all(lazy.map((stage) => this.#host.pipelines.prepare(stage)));
  }

  /** After the buffer of row state has changed. */
  rebind(): void {
    for (const plan of this.#plans.values()) plan.rebind();
  }

  clear(): void {
    this.#plans.clear();
    this.#groups.clear();
    this.#bounds.clear();
  }

  #resolved(index: number, bucket: Bucket): Bound[] {
    const node = this.#graph.nodes[index]!;
    const key = `${index}:${variationOf(node, bucket, this.#resources)}`;
    let bound = this.#bounds.get(key);
    if (bound === undefined) {
      bound = resolveNode(node, bucket, this.#resources);
      this.#bounds.set(key, bound);
    }
    return bound;
  }
}

/** Where a matrix of results is not stored whole, what is added to a sum comes in another place. */
const WHOLE_ROWS = 16;

function leastRows(oneOrder = false): number {
  return oneOrder ? WHOLE_ROWS : 1;
}

/** With room for whole matrices of rows where products have one order. */
export function roundedLimits(limits: ProgramLimits): ProgramLimits {
  if (limits.oneOrder !== true) return limits;
  const whole = (rows: number): number => Math.ceil(rows / WHOLE_ROWS) * WHOLE_ROWS;
  return { ...limits, maxTokens: whole(limits.maxTokens), maxOutputs: whole(limits.maxOutputs) };
}

/** The smallest power of two that holds n rows, or the limit. 0 for none. */
export function bucketOf(n: number, most: number): number {
  return n === 0 ? 0 : Math.min(most, 2 ** Math.ceil(Math.log2(n)));
}

/** 1, 2, 4, … from `least` on, and the limit itself. */
export function buckets(most: number, least = 1): number[] {
  const out: number[] = [];
  for (let n = least; n < most; n *= 2) out.push(n);
  out.push(most);
  return out;
}
