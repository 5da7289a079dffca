/** Last hidden states on their way: which rows a step is asked for, and whose they are when it has retired. */

import { NO_SLOT, type StepInputs } from '../device/step.js';
import type { Sequence } from './sequence.js';

/** What a step knows of the hidden rows it brings: part after part whose they are, from which position on, how many, and whether these are the last. */
export interface HiddenFlight {
  readonly hiddenOf: Sequence[];
  readonly hiddenAt: number[];
  readonly hiddenCounts: number[];
  readonly hiddenEnds: boolean[];
  hiddenParts: number;
  /** By output: null for one without a draw. */
  readonly drawn: (Sequence | null)[];
  draws: number;
}

/** Asks a step for the rows that a sequence wants of its tokens, which begin at `start`. `ends`: the last one is among them. */
export function fillHidden(
  inputs: StepInputs,
  flight: HiddenFlight,
  sequence: Sequence,
  start: number,
  tokens: number,
  ends: boolean,
): void {
  const position = sequence.computed - tokens;
  const { first, count } = sequence.hidden!.wanted(position, tokens, ends);
  const part = flight.hiddenParts++;
  flight.hiddenOf[part] = sequence;
  flight.hiddenAt[part] = position + first;
  flight.hiddenCounts[part] = count;
  flight.hiddenEnds[part] = ends;
  for (let i = 0; i < count; i++) {
    const token = start + first + i;
    let row = token;
    if (!inputs.hiddenTokens) {
      // It is an output without a draw.
      row = inputs.outputCount++;
      inputs.outputs[row] = token;
      inputs.outputSlot[row] = NO_SLOT;
      sequence.row.fill(inputs.sampling, row, sequence);
      flight.drawn[flight.draws++] = null;
    }
    inputs.hiddenRows[inputs.hiddenCount++] = row;
  }
  if (ends) sequence.drawsLeft = 0;
}

/**
 * Hands the rows that a step brought to the sequences that asked for them, and calls `ended` for each that has all it wanted. What has
 * ended meanwhile is left out.
 */
export function takeHidden(
  flight: HiddenFlight,
  hidden: Float32Array,
  ended: (sequence: Sequence) => void,
): void {
  const rows = flight.hiddenCounts.slice(0, flight.hiddenParts).reduce((sum, count) => sum + count, 0);
  const cols = rows === 0 ? 0 : hidden.length / rows;
  let at = 0;
  for (let part = 0; part < flight.hiddenParts; part++) {
    const sequence = flight.hiddenOf[part]!;
    const count = flight.hiddenCounts[part]!;
    const own = hidden.subarray(at * cols, (at + count) * cols);
    at += count;
    if (sequence.phase !== 'running') continue;
    // What it keeps is its own: the step's rows may be many.
    sequence.hidden!.take(
      sequence.hidden!.pooling === 'mean' ? own : own.slice(),
      count,
      flight.hiddenAt[part]!,
    );
    if (flight.hiddenEnds[part]) ended(sequence);
  }
}
