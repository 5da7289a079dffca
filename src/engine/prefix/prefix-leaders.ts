/**
 * Who waits for whom: a sequence whose next block another one is about to enter into the prefix cache does not compute it,
 * but comes in when it is there. Nobody waits for a lower priority, which may take its time.
 */

import type { StepPlan } from '../scheduling/scheduler.js';
import type { Sequence } from '../sequence.js';
import type { SequencePrefix } from './sequence-prefix.js';

export class PrefixLeaders {
  readonly #blockTokens: number;
  readonly #floatStartTokens: number;
  readonly #recurrent: boolean;
  readonly #leaders: Sequence[] = [];

  constructor(blockTokens: number, floatStartTokens: number, recurrent = false) {
    this.#recurrent = recurrent;
    this.#blockTokens = blockTokens;
    this.#floatStartTokens = floatStartTokens;
  }

  /** Brings up to date who may be waited for. `generation`: of those whose blocks may still be entered. */
  gather(running: readonly Sequence[], leaving: readonly Sequence[], generation: number): void {
    this.#leaders.length = 0;
    for (const row of running) if (this.#leads(row, generation)) this.#leaders.push(row);
    for (const row of leaving) if (this.#leads(row, generation)) this.#leaders.push(row);
  }

  /** Whether a waiting sequence waits for one of them. */
  precede(sequence: Sequence): boolean {
    for (const row of this.#leaders) if (this.#awaits(sequence, row)) return true;
    return false;
  }

  /** Of sequences that come in together one computes what they share. True: others wait for it now; plan again. */
  shareOut(plan: StepPlan, waiting: readonly Sequence[]): boolean {
    if (plan.admitted < 2) return false;
    const leaders = this.#leaders;
    leaders.length = 0;
    let found = false;
    for (let i = 0; i < plan.admitted; i++) {
      const sequence = waiting[plan.admits[i]!]!;
      const waits = this.precede(sequence);
      sequence.prefix!.awaits = waits;
      if (waits) found = true;
      else leaders.push(sequence);
    }
    if (!found) return false;
    for (const sequence of waiting)
      if (!sequence.held && !leaders.includes(sequence)) sequence.prefix!.awaits = this.precede(sequence);
    return true;
  }

  /** Whether `row` is about to enter the block that comes next for a waiting sequence. */
  #awaits({ prefix, length, priority }: Sequence, row: Sequence): boolean {
    if (row.priority < priority) return false;
    const own = prefix!;
    const other = row.prefix!;
    if (this.#recurrent) return this.#awaitsState(own, length, row);
    const N = this.#floatStartTokens;
    const reaches = reach(row);
    const limit = Math.min(length - 1, reaches);
    // In the main pool less than N tokens are of no use, and a row that does not get there enters nothing.
    if (N === 0 || reaches > N) {
      const at = Math.max(own.main.length, Math.ceil(N / this.#blockTokens) - 1);
      if (at >= (row.floatStart ? 0 : other.published[0]!) && this.#share(own, other, at, limit)) return true;
    }
    if (N === 0 || own.takes === own.main || !row.floatStart) return false;
    const at = own.floatStart.length;
    return at >= other.published[0]! && this.#share(own, other, at, Math.min(limit, N - 1));
  }

  /** With state one goes on only at a border where it is copied: the row's next one, or its last, which may not be entered yet. */
  #awaitsState(own: SequencePrefix, length: number, row: Sequence): boolean {
    const { prefix, cut } = row;
    const other = prefix!;
    const ahead = (tokens: number): boolean =>
      tokens > own.tokens &&
      this.#share(own, other, tokens / this.#blockTokens - 1, Math.min(length - 1, reach(row)));
    return (other.copiedAt > other.stored && ahead(other.copiedAt)) || ahead(cut);
  }

  /** Two sequences have one block in common, within the first `limit` tokens. */
  #share(own: SequencePrefix, other: SequencePrefix, at: number, limit: number): boolean {
    return (at + 1) * this.#blockTokens <= limit && own.keys.sameAt(at, other.keys);
  }

  /** A row that is about to enter more of the tokens that it came in with. */
  #leads(row: Sequence, generation: number): boolean {
    const prefix = row.prefix!;
    if (prefix.overtaken || prefix.tainted || prefix.generation !== generation) return false;
    if (this.#recurrent) return true;
    return row.floatStart || (prefix.published[0]! + 1) * this.#blockTokens <= reach(row);
  }
}

/** Tokens of those it came in with that a row will have entered: one that gives way or has ended computes no more. */
function reach(row: Sequence): number {
  return row.yielding || row.phase === 'leaving' ? row.computed : row.prefix!.length;
}
