/** The sampler's state of running rows: made ready when a row is admitted, let go of with its slot. */

import { NoSamplerRows, type RowRecord, type SamplerRows } from '../device/sampling.js';
import type { KvantError } from '../errors.js';
import { asKvantError } from './core-errors.js';
import type { Sequence } from './sequence.js';
import type { TokenLogprobs } from './types.js';

export class PreparedRows {
  readonly #rows: SamplerRows;

  constructor(rows: SamplerRows | null) {
    this.#rows = rows ?? new NoSamplerRows('sampling');
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
        // A row that comes back has been told already.
        if (sequence.ids.length === 0) this.constrain(sequence, null);
        else this.#setMask(sequence);
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

  /** Asks the row's constraint about the token after `last`. No step under way may name the row's slot. */
  constrain(sequence: Sequence, last: number | null): void {
    sequence.rule = sequence.constraint!.next(last);
    this.#setMask(sequence);
  }

  release(slot: number): void {
    this.#rows.release(slot);
  }

  #setMask(sequence: Sequence): void {
    const { rule } = sequence;
    if (typeof rule === 'object' && rule !== null) this.#rows.setMask(sequence.slot, rule);
  }
}

export function toLogprobs(id: number, { logprob, rank, ids, logprobs }: RowRecord): TokenLogprobs {
  return { id, logprob, rank, top: ids.map((top, i) => ({ id: top, logprob: logprobs[i]! })) };
}
