/** From a plan to the device's input arrays, and the book-keeping of what the step will have done. */

import type { StepInputs } from '../device/step.js';
import type { StepResult } from '../device/step-result.js';
import type { KvantError } from '../errors.js';
import type { RetiredStep } from './scheduling/pacing.js';
import type { StepPlan } from './scheduling/scheduler.js';
import type { Sequence } from './sequence.js';

/** What a submitted step names. Refilled, not made anew. */
export class Flight implements RetiredStep {
  step = 0;
  /** Or why there is none. */
  result: Promise<StepResult | KvantError> | null = null;
  /** Every sequence the step works on: the first `rows`. */
  readonly members: Sequence[] = [];
  /** Tokens that each of them has stored when the step has retired. */
  readonly reached: number[] = [];
  rows = 0;
  /** Those it draws a token for, in the order of its outputs: the first `draws`. */
  readonly drawn: Sequence[] = [];
  draws = 0;
  decoding = 0;
  promptTokens = 0;
  depth = 0;
  submittedAt = 0;
  spent = 0;
}

/**
 * Fills `inputs` and `flight` from the plan and moves the sequences on: their tokens count as computed, and a
 * token drawn counts in their length. The plan's waiting sequences have been admitted: `running` holds them. Work for those
 * whose state is being made is left out.
 */
export function fillStep(
  inputs: StepInputs,
  flight: Flight,
  plan: StepPlan,
  running: readonly Sequence[],
): void {
  inputs.clear();
  flight.rows = 0;
  flight.draws = 0;
  flight.decoding = 0;
  flight.promptTokens = 0;
  flight.depth = 0;
  for (let i = 0; i < plan.count; i++) {
    const work = plan.work[i]!;
    const sequence = running[work.index]!;
    const tables = sequence.tables!;
    for (let group = 0; group < tables.length; group++) tables[group]!.grow(work.newBlocks[group]!);
    // Admitted with this plan: the blocks are its own, but it has no work before its state is there.
    if (sequence.preparing) continue;

    const start = inputs.tokenCount;
    const at = inputs.sequenceCount++;
    const { slot } = sequence;
    inputs.seqSlot[at] = slot;
    inputs.seqStart[at] = start;
    inputs.seqLength[at] = work.tokens;
    inputs.seqPosition[at] = sequence.computed;
    fillTokens(inputs.tokens, start, sequence, slot, work.tokens);
    inputs.tokenCount += work.tokens;
    sequence.computed += work.tokens;
    sequence.lastStep = flight.step;
    flight.reached[flight.rows] = sequence.computed;
    flight.members[flight.rows++] = sequence;
    if (work.draws && work.tokens === 1) flight.decoding++;
    else {
      flight.promptTokens += work.tokens;
      flight.depth += (work.tokens * (sequence.computed - work.tokens / 2)) / 1000;
    }

    if (work.draws) {
      fillOutput(inputs, sequence, slot, start + work.tokens - 1);
      sequence.length++;
      sequence.drawsLeft--;
      flight.drawn[flight.draws++] = sequence;
    }
  }
}

function fillTokens(
  tokens: Int32Array,
  start: number,
  sequence: Sequence,
  slot: number,
  count: number,
): void {
  for (let i = 0; i < count; i++) {
    // The token drawn last: the host may not have seen it yet, the device has it in the row's slot.
    tokens[start + i] = sequence.tokenAt(sequence.computed + i) ?? -(slot + 1);
  }
}

function fillOutput(inputs: StepInputs, sequence: Sequence, slot: number, token: number): void {
  const row = inputs.outputCount++;
  inputs.outputs[row] = token;
  inputs.outputSlot[row] = slot;
  sequence.row.fill(inputs.sampling, row, sequence);
}
