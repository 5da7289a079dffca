/** Steps that were submitted and whose results have not been read. */

import type { StepInputs } from '../step.js';
import type { StepResult } from '../step-result.js';
import type { GpuSamplerRows } from './sampler-rows.js';

export class UnderWay {
  readonly #steps = new Set<Promise<void>>();

  add(result: Promise<unknown>): void {
    const settled = result.then(
      () => {},
      () => {},
    );
    this.#steps.add(settled);
    void settled.then(() => this.#steps.delete(settled));
  }

  /** Resolves when there are none, however they ended. */
  async settled(): Promise<void> {
    await Promise.all(this.#steps);
  }
}

/** What the words of a step mean. Before the caller has it, the tokens that state has taken in are noted. */
export async function resultOf(
  read: Promise<Uint32Array>,
  meant: (words: Uint32Array) => StepResult,
  sampler: GpuSamplerRows | null,
  inputs: StepInputs,
): Promise<StepResult> {
  const drawing = sampler?.begin(inputs) ?? null;
  let words: Uint32Array | null = null;
  try {
    words = await read;
    return meant(words);
  } finally {
    if (drawing !== null) sampler?.retire(drawing, words);
  }
}
