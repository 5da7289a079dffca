/** What devices do with the rotary positions of a step: check them, and lay them out for kernels. */

import { KvantError } from '../errors.js';
import type { Graph } from './graph.js';
import { ROPE_AXES, ROPE_FINE } from './rope.js';
import type { StepInputs } from './step.js';

/** Rotary positions that all rotations by axes of a graph have angles for; 0 where it has no such rotation. */
export function rotaryReach({ nodes }: Graph): number {
  let reach = 0;
  for (const node of nodes) {
    if (node.op !== 'rope-append' || !node.rope?.axes) continue;
    const own = (node.rope.coarse.length / node.rope.dims) * ROPE_FINE;
    reach = reach === 0 ? own : Math.min(reach, own);
  }
  return reach;
}

/** Errors: `invalid-step`, for positions from `reach` on, and for any at all where that is 0. */
export function checkRotary(step: StepInputs, reach: number): void {
  const { rotary } = step;
  if (rotary === null) return;
  const { shift, placed, positions } = rotary;
  for (let s = 0; s < step.sequenceCount; s++) {
    const first = step.seqPosition[s]! + shift[s]!;
    if (placed[s] === 0 && shift[s] === 0) continue;
    if (reach === 0)
      throw misuse(`sequence ${s} has rotary positions of its own; this model turns by cache indexes`);
    if (placed[s] === 0) {
      const last = first + step.seqLength[s]! - 1;
      if (first < 0 || last >= reach)
        throw misuse(`sequence ${s} has rotary positions from ${first} to ${last}; there are ${reach}`);
      continue;
    }
    const from = step.seqStart[s]! * ROPE_AXES;
    for (let i = from; i < from + step.seqLength[s]! * ROPE_AXES; i++)
      if (positions[i]! >= reach)
        throw misuse(`sequence ${s} has the rotary position ${positions[i]}; there are ${reach}`);
  }
}

/** Writes the three positions of every token to `words` from `at` on, `stride` words a token. */
export function writeRotary(step: StepInputs, words: Uint32Array, at: number, stride: number): void {
  const { rotary } = step;
  for (let s = 0; s < step.sequenceCount; s++) {
    const start = step.seqStart[s]!;
    const end = start + step.seqLength[s]!;
    const placed = rotary !== null && rotary.placed[s] !== 0;
    const ahead = step.seqPosition[s]! - start + (rotary === null ? 0 : rotary.shift[s]!);
    for (let t = start; t < end; t++)
      for (let axis = 0; axis < ROPE_AXES; axis++)
        words[at + t * stride + axis] = placed ? rotary.positions[t * ROPE_AXES + axis]! : t + ahead;
  }
}

function misuse(message: string): KvantError {
  return new KvantError('invalid-step', `Step: ${message}.`, {
    where: 'submit',
    fix: 'This is a fault of the caller: positions go with the rotations the model was recorded with.',
  });
}
