/** The first run of kernels, before rows wait: the smallest steps that between them have all kernels run but those of the sampler's features. */

import type { ProgramLimits } from '../device.js';
import { StepInputs } from '../step.js';
import type { StepFacts } from './kernel.js';
import type { Plan } from './plan.js';
import { type StepPacker, WIDE_SPLITS } from './step-buffer.js';

/** One token of a sequence, and two of one, for those are attended to in tiles. A token is drawn in each, with filters and without. */
function warmSteps({ maxTokens, maxContext, maxOutputs }: ProgramLimits): StepInputs[] {
  return [1, 2]
    .filter((tokens) => tokens <= Math.min(maxTokens, maxContext))
    .flatMap((tokens) => {
      const greedy = smallest(tokens, maxOutputs);
      const filtered = smallest(tokens, maxOutputs);
      if (maxOutputs > 0) {
        filtered.sampling.temperature[0] = 1;
        filtered.sampling.topP[0] = 0.5;
      }
      return [greedy, filtered];
    });
}

/** What has run of a program's pipelines, and what makes the others run. */
export class WarmUp {
  readonly #device: GPUDevice;
  readonly #packer: StepPacker;
  readonly #step: GPUBuffer;
  readonly #limits: ProgramLimits;
  readonly #maxItems: number;
  readonly #warm = new Set<GPUComputePipeline>();

  /** @param step the buffer that `packer` packs for */
  constructor(
    device: GPUDevice,
    packer: StepPacker,
    step: GPUBuffer,
    limits: ProgramLimits,
    maxItems: number,
  ) {
    this.#device = device;
    this.#packer = packer;
    this.#step = step;
    this.#limits = limits;
    this.#maxItems = maxItems;
  }

  isCold(plan: Plan): boolean {
    return plan.isCold(this.#warm);
  }

  /** Runs what of a plan has never run, once. The steps leave a token at the first place of the pool's first slot. */
  async run(plan: Plan): Promise<void> {
    const { queue } = this.#device;
    for (const inputs of warmSteps(this.#limits)) {
      const words = this.#packer.pack(inputs);
      queue.writeBuffer(this.#step, 0, this.#packer.words, 0, words);
      const encoder = this.#device.createCommandEncoder();
      const pass = encoder.beginComputePass();
      this.#encode(pass, plan, this.#packer.facts);
      pass.end();
      queue.submit([encoder.finish()]);
    }
    await queue.onSubmittedWorkDone();
  }

  #encode(pass: GPUComputePassEncoder, plan: Plan, facts: StepFacts): void {
    // A workgroup of each will do; tiles want all that walk one.
    plan.encodeCold(pass, facts, this.#warm, facts.tiles === 0);
    // A tile in parts is another kernel, and so are items by how many there are, and how wide.
    if (facts.tiles > 0) plan.encodeCold(pass, { ...facts, tileParts: 2 }, this.#warm, false);
    for (const itemSplits of facts.items > 0 ? [1, WIDE_SPLITS] : [])
      for (const items of warmItems(this.#maxItems))
        plan.encodeCold(pass, { ...facts, items, itemSplits }, this.#warm, true);
  }
}

/** Numbers of items that between them reach every kernel that takes from one number up to twice that or more, or up to the most. */
export function warmItems(most: number): number[] {
  const out: number[] = [];
  for (let items = 1; items < most; items *= 2) out.push(items);
  if (most > 0) out.push(most);
  return out;
}

function smallest(tokens: number, maxOutputs: number): StepInputs {
  const inputs = new StepInputs(tokens, 1, 1);
  inputs.clear();
  inputs.tokenCount = tokens;
  inputs.sequenceCount = 1;
  inputs.seqLength[0] = tokens;
  if (maxOutputs > 0) {
    inputs.outputCount = 1;
    inputs.outputs[0] = tokens - 1;
  }
  return inputs;
}
