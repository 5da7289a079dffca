/** What devices do with tokens that see later ones: those of a picture see each other, whichever comes first. */

import { KvantError } from '../errors.js';
import type { Graph } from './graph.js';
import type { StepInputs } from './step.js';

/** Whether some layer of a graph lets tokens see as far as StepInputs.visibleEnd says. */
export function looksAhead({ nodes }: Graph): boolean {
  return nodes.some((node) => node.op === 'attend' && (node.ahead ?? false) !== false);
}

/** Cache index behind the last token that token `t` of a step sees, itself at `position`. */
export function visibleEndOf({ visibleEnd }: StepInputs, t: number, position: number): number {
  return Math.max(position + 1, visibleEnd === null ? 0 : visibleEnd[t]!);
}

/**
 * `looks`: the graph looks ahead. Returns whether some token of the step does.
 *
 * Errors: `invalid-step`, for ends in a model that only looks back, behind what the step stores, or that fall along a sequence.
 */
export function checkLookAhead(step: StepInputs, looks: boolean): boolean {
  if (step.visibleEnd === null) return false;
  let some = false;
  for (let s = 0; s < step.sequenceCount; s++) {
    const [start, length, position] = [step.seqStart[s]!, step.seqLength[s]!, step.seqPosition[s]!];
    let before = 0;
    for (let i = 0; i < length; i++) {
      const end = visibleEndOf(step, start + i, position + i);
      if (end > position + i + 1) {
        some = true;
        if (!looks) throw misuse(`sequence ${s} has tokens that see later ones; this model only looks back`);
      }
      if (end > position + length)
        throw misuse(
          `a token of sequence ${s} sees up to ${end}; the step stores up to ${position + length}`,
        );
      if (end < before) throw misuse(`ends of sequence ${s} fall from ${before} to ${end}`);
      before = end;
    }
  }
  return some;
}

function misuse(message: string): KvantError {
  return new KvantError('invalid-step', `Step: ${message}.`, {
    where: 'submit',
    fix: 'This is a fault of the caller: a step has all tokens of a picture that it has some of, or those before are stored.',
  });
}
