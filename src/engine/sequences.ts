/**
 * The sequences of the core, from waiting to done: who is given a row and who gives it back, what becomes of the tokens that are
 * drawn, and what readers are told.
 */

import { INVALID_TOKEN } from '../device/device.js';
import type { StepResult } from '../device/step-result.js';
import type { KvantError } from '../errors.js';
import { noTokenLeft, suppressedIds } from '../sampling/draws-left.js';
import { asKvantError, invalidLogits, startedTooLate } from './core-errors.js';
import { Counters } from './counters.js';
import { takeHidden } from './hidden-states.js';
import type { Outbox } from './outbox.js';
import { type PreparedRows, toLogprobs } from './prepared-rows.js';
import { removeAdmitted } from './queue.js';
import type { RowMemory } from './row-memory.js';
import type { Pacing } from './scheduling/pacing.js';
import { ORDINARY_PLACE } from './scheduling/queue-place.js';
import type { PlannedWork, StepPlan } from './scheduling/step-plan.js';
import type { Sequence } from './sequence.js';
import type { StepInFlight } from './step-filler.js';
import type { FinishReason, TokenLogprobs } from './types.js';
import type { Sight } from './vision/sight.js';
import { epochNow } from './yield.js';

/** What sequences hold, and whom they are told of. */
export interface SequenceParts {
  /** Is filled with those that run: others look at it too. */
  readonly running: Sequence[];
  readonly memory: RowMemory;
  readonly rows: PreparedRows;
  readonly sight: Sight;
  readonly pacing: Pacing;
  readonly outbox: Outbox;
  readonly vocabSize: number;
  /** Milliseconds since the start. */
  readonly now: () => number;
  /** There may be something to do. */
  readonly wakeUp: () => void;
}

export class Sequences {
  readonly waiting: Sequence[] = [];
  readonly running: Sequence[];
  /** They have ended, and steps under way name them. */
  readonly leaving: Sequence[] = [];
  readonly counters = new Counters();
  /** The last step that has retired. */
  retired = -1;
  /** The device is gone. */
  fault: KvantError | null = null;
  readonly #memory: RowMemory;
  readonly #rows: PreparedRows;
  readonly #sight: Sight;
  readonly #pacing: Pacing;
  readonly #outbox: Outbox;
  readonly #vocabSize: number;
  readonly #now: () => number;
  readonly #wakeUp: () => void;

  constructor({ running, memory, rows, sight, pacing, outbox, vocabSize, now, wakeUp }: SequenceParts) {
    this.running = running;
    this.#memory = memory;
    this.#rows = rows;
    this.#sight = sight;
    this.#pacing = pacing;
    this.#outbox = outbox;
    this.#vocabSize = vocabSize;
    this.#now = now;
    this.#wakeUp = wakeUp;
  }

  /** All that there are. */
  get count(): number {
    return this.waiting.length + this.running.length + this.leaving.length;
  }

  /** Lets those in that the plan admits, in its order. */
  admitPlanned(plan: StepPlan): void {
    const rows = this.running.length;
    for (let i = 0; i < plan.count; i++) {
      const work = plan.work[i]!;
      if (work.index >= rows) this.#admit(this.waiting[plan.admits[work.index - rows]!]!, work, plan);
    }
    this.#memory.seat();
    removeAdmitted(this.waiting);
  }

  #admit(sequence: Sequence, work: PlannedWork, { admitted }: StepPlan): void {
    this.#memory.admit(sequence, work);
    sequence.phase = 'running';
    if (sequence.startedAt === 0) {
      sequence.startedAt = epochNow();
      this.counters.started(sequence);
      // Somebody may wait to know that it was not too late.
      if (sequence.deadline < Number.POSITIVE_INFINITY)
        this.#outbox.push(sequence, '', null, null, null, null);
      sequence.deadline = Number.POSITIVE_INFINITY;
      this.#pacing.start(sequence, this.#now(), this.waiting.length > admitted);
    }
    this.running.push(sequence);
    if (sequence.row.features === 0) return;
    void this.#rows.prepare(sequence).then((error) => {
      if (sequence.phase === 'running') {
        if (error !== null) this.finish(sequence, 'error', error);
      } else this.releaseLeaving();
      this.#wakeUp();
    });
  }

  /**
   * Rows that give way and that no step under way names go back to the head of the queue. Their ids are known by
   * then; computed again they give the same numbers, and their draws are keyed by position: nothing is drawn,
   * or streamed, twice. False if there are none.
   */
  requeueYielding(): boolean {
    let moved = false;
    for (let i = this.running.length - 1; i >= 0; i--) {
      const sequence = this.running[i]!;
      if (!sequence.yielding || sequence.lastStep > this.retired) continue;
      this.running.splice(i, 1);
      this.#freeRow(sequence);
      sequence.yielding = false;
      sequence.computed = 0;
      sequence.decodesFrom = Number.POSITIVE_INFINITY;
      sequence.prefix?.requeue();
      sequence.phase = 'waiting';
      this.waiting.unshift(sequence);
      this.counters.preemptions++;
      moved = true;
    }
    return moved;
  }

  /** Ends what waits and may not start any more; false if there is nothing. The plan that told of it is void. */
  endTooLate(plan: StepPlan): boolean {
    const late = plan.expires.slice(0, plan.expired).map((at) => this.waiting[at]!);
    for (const sequence of late)
      this.finish(sequence, 'error', startedTooLate(sequence, this.#pacing, this.waiting.length));
    return late.length > 0;
  }

  /** A step has retired that drew for these rows: gives each its token. */
  receive(flight: StepInFlight, result: StepResult): void {
    const { draws, drawn } = flight;
    for (let row = 0; row < draws; row++) {
      const sequence = drawn[row]!;
      // Left out of the draw, or the extra token of a row that ended.
      if (sequence?.phase !== 'running') continue;
      const id = result.ids[row]!;
      if (id === INVALID_TOKEN) {
        this.finish(sequence, 'error', this.#nothingDrawn(sequence));
        continue;
      }
      const record = sequence.row.recorded ? result.record(row) : null;
      if (record !== null) sequence.mu = record.mu;
      this.#deliver(sequence, id, sequence.row.logprobs && record !== null ? toLogprobs(id, record) : null);
    }
    takeHidden(flight, result.hidden, (sequence) => this.#bring(sequence));
  }

  /** Ends a sequence whose hidden states have come. */
  #bring(sequence: Sequence): void {
    try {
      sequence.firstTokenAt = epochNow();
      this.finish(sequence, 'stop', null, '', null, null, sequence.hidden!.pooled());
    } catch (error) {
      this.finish(sequence, 'error', asKvantError(error));
    }
  }

  /** Why a row had nothing to draw from: its request forbids all that could come next, or the model gave no numbers. */
  #nothingDrawn(sequence: Sequence): KvantError {
    const { row, request, ids } = sequence;
    const asked = row.forbidsAll(sequence.history(), ids.length, this.#vocabSize);
    // A mask alone always leaves something.
    const bans = request.rules.banned.length > 0 || suppressedIds(request.rules).size > 0;
    // Its rule is still that of the draw: the next one is asked for with the id.
    const masked = typeof sequence.rule === 'object' && sequence.rule !== null;
    return asked || (masked && bans) ? noTokenLeft(request.sampling) : invalidLogits();
  }

  #deliver(sequence: Sequence, id: number, logprobs: TokenLogprobs | null): void {
    if (!this.#tell(sequence, id, logprobs) || sequence.constraint === null) return;
    // It is asked what may come next; the row is free to go on then.
    const error = this.#rows.tryConstrain(sequence, id);
    if (error !== null) this.finish(sequence, 'error', error);
    else this.takeRun(sequence);
  }

  /** Takes what is forced without a draw, if that may be: the row computes it in one chunk, and draws behind it. */
  takeRun(sequence: Sequence): void {
    if (!sequence.skipsDraws) return;
    for (const id of sequence.skipDraws()) if (!this.#tell(sequence, id, null)) return;
    this.#rows.endSkipped(sequence);
  }

  /** Takes a token in that is known now; false if the sequence ends with it. */
  #tell(sequence: Sequence, id: number, logprobs: TokenLogprobs | null): boolean {
    if (sequence.ids.push(id) === 1) sequence.firstTokenAt = epochNow();
    this.counters.completionTokens++;
    this.#pacing.drew(sequence);
    const { output } = sequence;
    const text = output.push(id);
    if (output.stopped) this.finish(sequence, 'stop', null, text, id, logprobs);
    else if (sequence.drawsLeft === 0 && sequence.coming === 0)
      this.finish(sequence, 'length', null, text, id, logprobs);
    else {
      this.#outbox.push(sequence, text, id, logprobs, null, null);
      return true;
    }
    return false;
  }

  /** Ends what is left of a request with `cancelled`. */
  cancel(request: number): void {
    const mine = (sequence: Sequence): boolean => sequence.request.id === request;
    for (const sequence of [...this.waiting.filter(mine), ...this.running.filter(mine)])
      this.finish(sequence, 'cancelled', null);
  }

  /** Ends all that wait or run. */
  finishAll(finish: FinishReason, error: KvantError | null): void {
    for (const sequence of [...this.waiting, ...this.running]) this.finish(sequence, finish, error);
  }

  /** Ends a sequence in any phase. Its slot and blocks go back when no step under way names them. */
  finish(
    sequence: Sequence,
    finish: FinishReason,
    error: KvantError | null,
    text = '',
    id: number | null = null,
    logprobs: TokenLogprobs | null = null,
    hidden: Float32Array | null = null,
  ): void {
    if (error !== null && sequence.prefix !== null) sequence.prefix.tainted = true;
    if (sequence.phase === 'waiting') {
      this.waiting.splice(this.waiting.indexOf(sequence), 1);
      sequence.phase = 'done';
      this.#sight.lookAway(sequence);
    } else if (sequence.phase === 'running') {
      this.running.splice(this.running.indexOf(sequence), 1);
      sequence.phase = 'leaving';
      this.leaving.push(sequence);
      this.releaseLeaving();
    } else return;
    this.#pacing.leave(sequence.request.place ?? ORDINARY_PLACE);
    this.counters.finish(finish);
    this.#outbox.push(sequence, text + sequence.output.end(), id, logprobs, finish, error, hidden);
  }

  /** Takes the rows back of those that have ended and that no step under way names. */
  releaseLeaving(): void {
    const leaving = this.leaving;
    for (let i = leaving.length - 1; i >= 0; i--) {
      const sequence = leaving[i]!;
      if (sequence.lastStep > this.retired || (sequence.preparing && this.fault === null)) continue;
      leaving.splice(i, 1);
      sequence.phase = 'done';
      this.#freeRow(sequence);
      this.#sight.lookAway(sequence);
    }
  }

  #freeRow(sequence: Sequence): void {
    // After a fault the program goes as a whole, and what it holds with it.
    const works = this.fault === null;
    if (sequence.row.features !== 0 && works) this.#rows.release(sequence.slot);
    this.#memory.release(sequence, works);
  }
}
