/** The sampler's state of running rows: made ready when a row is admitted, let go of with its slot. */

import { NoSamplerRows, type RowRecord, type SamplerRows } from '../device/sampling.js';
import type { KvantError } from '../errors.js';
import { type ConstraintAnswer, type ConstraintRule, isRun } from './constraint.js';
import { asKvantError } from './core-errors.js';
import type { Sequence } from './sequence.js';
import type { TokenLogprobs } from './types.js';

export class PreparedRows {
  readonly #rows: SamplerRows;
  readonly #onRuled: (sequence: Sequence, error: KvantError | null) => void;

  /** `onRuled` is told when a constraint has answered that promised to, or has failed to. */
  constructor(
    rows: SamplerRows | null,
    onRuled: (sequence: Sequence, error: KvantError | null) => void = () => {},
  ) {
    this.#rows = rows ?? new NoSamplerRows('sampling');
    this.#onRuled = onRuled;
  }

  get features(): number {
    return this.#rows.features;
  }

  /** Resolves when the row can draw, with the error if it cannot. It has no work meanwhile. */
  async prepare(sequence: Sequence): Promise<KvantError | null> {
    const { request, row } = sequence;
    sequence.preparing = true;
    try {
      await this.#rows.sync(sequence.slot, row.spec(sequence.mu), sequence.history(), request.prompt.length);
      if (sequence.phase === 'running' && sequence.constraint !== null) {
        // A row that comes back has asked already.
        if (!sequence.asked) this.constrain(sequence, null);
        if (sequence.ruled) this.#setMask(sequence);
      }
      return null;
    } catch (error) {
      return asKvantError(error);
    } finally {
      sequence.preparing = false;
    }
  }

  /** As `constrain`; the error if the constraint fails. */
  tryConstrain(sequence: Sequence, last: number): KvantError | null {
    try {
      this.constrain(sequence, last);
      return null;
    } catch (error) {
      return asKvantError(error);
    }
  }

  /** Asks the row's constraint about the token after `last`. No step under way may draw for the row's slot. */
  constrain(sequence: Sequence, last: number | null): void {
    sequence.asked = true;
    const { forcedRun } = sequence;
    if (forcedRun !== null) {
      // It drew what is forced.
      if (++sequence.runAt === forcedRun.run.length) this.#endRun(sequence);
      else this.#takeRule(sequence, forcedRun.run[sequence.runAt]!);
      return;
    }
    const answer = sequence.constraint!.next(last);
    if (!(answer instanceof Promise)) {
      this.#takeAnswer(sequence, answer);
      return;
    }
    void answer.then(
      (value) => {
        try {
          // It may have ended meanwhile, or have given its slot back: then it is told with the next one.
          this.#takeAnswer(sequence, value);
          this.#onRuled(sequence, null);
        } catch (error) {
          this.#onRuled(sequence, asKvantError(error));
        }
      },
      (error) => this.#onRuled(sequence, asKvantError(error)),
    );
  }

  /** All tokens of its run have come, the last ones without a draw. No step under way may draw for the row's slot. */
  endSkipped(sequence: Sequence): void {
    this.#rows.take(sequence.slot, sequence.history(), sequence.mu);
    this.#endRun(sequence);
  }

  #endRun(sequence: Sequence): void {
    const { behind } = sequence.forcedRun!;
    sequence.forcedRun = null;
    this.#takeRule(sequence, behind);
  }

  release(slot: number): void {
    this.#rows.release(slot);
  }

  #takeAnswer(sequence: Sequence, answer: ConstraintAnswer): void {
    if (!isRun(answer)) {
      this.#takeRule(sequence, answer);
      return;
    }
    sequence.forcedRun = answer;
    sequence.runAt = 0;
    this.#takeRule(sequence, answer.run[0]!);
  }

  #takeRule(sequence: Sequence, rule: ConstraintRule): void {
    sequence.rule = rule;
    sequence.ruledAt = sequence.ids.length;
    sequence.late = 0;
    if (sequence.phase === 'running' && !sequence.preparing) this.#setMask(sequence);
  }

  #setMask(sequence: Sequence): void {
    const { rule } = sequence;
    if (typeof rule === 'object' && rule !== null) this.#rows.setMask(sequence.slot, rule);
  }
}

export function toLogprobs(id: number, { logprob, rank, ids, logprobs }: RowRecord): TokenLogprobs {
  return { id, logprob, rank, top: ids.map((top, i) => ({ id: top, logprob: logprobs[i]! })) };
}
