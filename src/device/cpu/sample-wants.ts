/** What the rows of a step want of the sampler. */
import { NO_SLOT, type StepInputs } from '../step.js';
import * as w from './sample-words.js';

/** Whether log-probabilities are of logits that penalties change: those are kept beside them. */
export function keepsRaw(features: number): boolean {
  const raw = (features & (w.F_LOGPROBS | w.F_PROCESSED)) === w.F_LOGPROBS;
  return raw && (features & w.F_PENALTIES) !== 0;
}

/** What the rows of a step want, all together. */
export function wantsOf({ sampling, outputSlot, outputCount }: StepInputs): number {
  let wants = 0;
  for (let row = 0; row < outputCount; row++) {
    if (outputSlot[row] === NO_SLOT) continue;
    const features = sampling.features[row]!;
    wants |= features;
    if (keepsRaw(features)) wants |= w.WANTS_RAW;
    if (!(sampling.temperature[row]! > 0) || (features & w.F_FORCED) !== 0) continue;
    wants |= w.WANTS_DRAW;
    if (sampling.topK[row]! > 0 || sampling.topP[row]! < 1) wants |= w.WANTS_PREFIX;
  }
  return wants;
}
