/** From a plan to the device's input arrays, and the book-keeping of what the step will have done. */

import { ROPE_AXES } from '../device/rope.js';
import { NO_SLOT, type StepInputs } from '../device/step.js';
import type { StepResult } from '../device/step-result.js';
import type { KvantError } from '../errors.js';
import { fillHidden } from './hidden-states.js';
import type { RetiredStep } from './scheduling/pacing.js';
import type { StepPlan } from './scheduling/scheduler.js';
import type { Sequence } from './sequence.js';

/** What a submitted step names. Refilled, not made anew. */
export class StepInFlight implements RetiredStep {
  step = 0;
  /** Or why there is none. */
  result: Promise<StepResult | KvantError> | null = null;
  /** Every sequence the step works on: the first `rows`. */
  readonly members: Sequence[] = [];
  /** Tokens that each of them has stored when the step has retired. */
  readonly reached: number[] = [];
  rows = 0;
  /** Those it draws a token for, in the order of its outputs: the first `draws`. Null: one that was left out. */
  readonly drawn: (Sequence | null)[] = [];
  draws = 0;
  /** Outputs whose rule was not known when the step was filled, and which of `members` they are: the first `waits`. */
  readonly waiting: number[] = [];
  readonly waitingMembers: number[] = [];
  waits = 0;
  /** Whose hidden rows it brings, part after part: from which position on, how many, and whether these are the last. */
  readonly hiddenOf: Sequence[] = [];
  readonly hiddenAt: number[] = [];
  readonly hiddenCounts: number[] = [];
  readonly hiddenEnds: boolean[] = [];
  hiddenParts = 0;
  /** The device has computed what there is to draw from; for a step in two halves. */
  computed = false;
  /** It will be told. */
  watched = false;
  decoding = 0;
  runTokens = 0;
  promptTokens = 0;
  depth = 0;
  submittedAt = 0;
  spent = 0;
}

/**
 * Fills `inputs` and `flight` from the plan and moves the sequences on: their tokens count as computed, and a
 * token drawn counts in their length. The plan's waiting sequences have been admitted: `running` holds them. Work for those
 * whose state is being made is left out. Rows whose rule is not known yet wait for `fillDraw`: the step has two halves then.
 */
export function fillStep(
  inputs: StepInputs,
  flight: StepInFlight,
  plan: StepPlan,
  running: readonly Sequence[],
): void {
  inputs.clear();
  flight.rows = 0;
  flight.draws = 0;
  flight.waits = 0;
  flight.hiddenParts = 0;
  flight.computed = false;
  flight.watched = false;
  flight.decoding = 0;
  flight.runTokens = 0;
  flight.promptTokens = 0;
  flight.depth = 0;
  for (let i = 0; i < plan.count; i++) {
    const work = plan.work[i]!;
    const sequence = running[work.index]!;
    const tables = sequence.tables!;
    for (let group = 0; group < tables.length; group++) tables[group]!.grow(work.newBlocks[group]!);
    // Admitted with this plan: the blocks are its own, but it has no work before its state is there.
    if (sequence.preparing) continue;
    if (work.draws && sequence.recurrent && !sequence.ruled) {
      // Its state takes in every position once, so the last one waits for the rule of its draw.
      if (work.tokens === 1) continue;
      work.tokens--;
      work.draws = false;
    }

    const start = inputs.tokenCount;
    const at = inputs.sequenceCount++;
    const { slot } = sequence;
    inputs.seqSlot[at] = slot;
    inputs.seqStart[at] = start;
    inputs.seqLength[at] = work.tokens;
    inputs.seqPosition[at] = sequence.computed;
    fillTokens(inputs.tokens, start, sequence, slot, work.tokens);
    if (sequence.pictures !== null) fillRotary(inputs, at, start, sequence, work.tokens);
    fillAhead(inputs, start, sequence, work.tokens);
    inputs.tokenCount += work.tokens;
    const decodes = sequence.run || (work.draws && work.tokens === 1);
    sequence.computed += work.tokens;
    sequence.lastStep = flight.step;
    flight.reached[flight.rows] = sequence.computed;
    flight.members[flight.rows++] = sequence;
    if (decodes) {
      flight.decoding++;
      flight.runTokens += work.tokens - 1;
    } else {
      flight.promptTokens += work.tokens;
      flight.depth += (work.tokens * (sequence.computed - work.tokens / 2)) / 1000;
    }

    if (sequence.hidden !== null) {
      fillHidden(inputs, flight, sequence, start, work.tokens, work.draws);
      continue;
    }
    if (work.draws) {
      const row = inputs.outputCount++;
      inputs.outputs[row] = start + work.tokens - 1;
      flight.drawn[flight.draws++] = sequence;
      if (sequence.ruled) draw(inputs, row, sequence);
      else {
        // What comes to it in time is filled then.
        inputs.outputSlot[row] = NO_SLOT;
        sequence.row.fill(inputs.sampling, row, sequence);
        flight.waiting[flight.waits] = row;
        flight.waitingMembers[flight.waits++] = flight.rows - 1;
      }
    }
  }
}

/** Whether a step in two halves has all that its second half can have. */
export function isRuled(flight: StepInFlight): boolean {
  for (let i = 0; i < flight.waits; i++) {
    const sequence = flight.drawn[flight.waiting[i]!]!;
    if (sequence.phase === 'running' && !sequence.ruled) return false;
  }
  return true;
}

/**
 * Fills the second half of a step: the rows whose rule has come. The others are left out of the draw, and their last position
 * counts as not computed: they compute it again.
 */
export function fillDraw(inputs: StepInputs, flight: StepInFlight): void {
  for (let i = 0; i < flight.waits; i++) {
    const row = flight.waiting[i]!;
    const sequence = flight.drawn[row]!;
    // More of its tokens are known meanwhile: it draws behind those.
    const goesOn = sequence.computed < sequence.length;
    if (sequence.phase === 'running' && sequence.ruled && !goesOn) {
      draw(inputs, row, sequence);
      continue;
    }
    flight.drawn[row] = null;
    if (sequence.phase !== 'running' || goesOn) continue;
    sequence.late++;
    sequence.computed--;
    flight.reached[flight.waitingMembers[i]!] = sequence.computed;
  }
}

/** Has a row draw, and counts the token. */
function draw(inputs: StepInputs, row: number, sequence: Sequence): void {
  inputs.outputSlot[row] = sequence.slot;
  sequence.row.fill(inputs.sampling, row, sequence);
  sequence.length++;
  sequence.drawsLeft--;
}

function fillTokens(
  tokens: Int32Array,
  start: number,
  sequence: Sequence,
  slot: number,
  count: number,
): void {
  for (let i = 0; i < count; i++) {
    const position = sequence.computed + i;
    // The token drawn last: the host may not have seen it yet, the device has it in the row's slot.
    tokens[start + i] = sequence.pictures?.sourceAt(position) ?? sequence.tokenAt(position) ?? -(slot + 1);
  }
}

/** How far tokens see that see later ones: those of a picture, or of a whole text. */
function fillAhead(
  { visibleEnd }: StepInputs,
  start: number,
  { computed, uncut }: Sequence,
  count: number,
): void {
  if (visibleEnd === null) return;
  for (let i = 0; i < uncut.length; i += 2) {
    const [from, to] = [Math.max(uncut[i]!, computed), uncut[i + 1]!];
    const last = Math.min(to, computed + count);
    for (let position = from; position < last; position++) visibleEnd[start + position - computed] = to;
  }
}

/** Positions of a sequence with pictures, of a model that turns by axes. */
function fillRotary(
  inputs: StepInputs,
  at: number,
  start: number,
  { computed, pictures }: Sequence,
  count: number,
): void {
  const places = pictures?.prompt.rotary;
  const { rotary } = inputs;
  if (places === null || places === undefined || rotary === null) return;
  if (computed >= places.end) {
    rotary.shift[at] = places.shift;
    return;
  }
  rotary.placed[at] = 1;
  for (let i = 0; i < count; i++) {
    const position = computed + i;
    for (let axis = 0; axis < ROPE_AXES; axis++)
      rotary.positions[(start + i) * ROPE_AXES + axis] =
        position < places.end ? places.positions[position * ROPE_AXES + axis]! : position + places.shift;
  }
}
