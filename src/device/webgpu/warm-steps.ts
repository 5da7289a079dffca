/** The smallest steps that between them have all kernels of a program run that steps without the sampler's features have. */

import type { ProgramLimits } from '../device.js';
import { StepInputs } from '../step.js';

/** One token of a sequence, and two of one, for those are attended to in tiles. A token is drawn in each, with filters and without. */
export function warmSteps({ maxTokens, maxContext, maxOutputs }: ProgramLimits): StepInputs[] {
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
