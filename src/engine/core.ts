/**
 * The engine core: takes requests made of token ids, runs the step loop, hands out events. It owns sequences,
 * slots and blocks; device, program and pool are lent to it. It runs on whichever thread it is made on.
 *
 * The loop keeps two steps under way: while the device works on step n + 1 the host reads the ids of step n,
 * ends rows, publishes what is new, lets messages in and submits step n + 2. The token a row drew never passes
 * through the host: the next step reads it from the row's slot. So a row that turns out to have stopped has one
 * more token under way; it is dropped, and slot and blocks are free when the last step naming them has retired.
 */

import { type Device, INVALID_TOKEN, type Program } from '../device/device.js';
import type { KvPool } from '../device/kv.js';
import { hasRecords, readRecord, requireFeatures } from '../device/sampling.js';
import { StepInputs } from '../device/step.js';
import { KvantError } from '../errors.js';
import { RowSampling } from '../sampling/row-sampling.js';
import { StopMatcher } from '../text/stop-matcher.js';
import type { TokenTable } from '../text/token-bytes.js';
import type { Constrain } from './constraint.js';
import {
  admissionError,
  asKvantError,
  invalidLogits,
  queueError,
  shuttingDown,
  startedTooLate,
} from './core-errors.js';
import { Counters } from './counters.js';
import { Outbox } from './outbox.js';
import { Pacing } from './pacing.js';
import type { PrefixOptions } from './prefixes.js';
import { PreparedRows, toLogprobs } from './prepared-rows.js';
import { RowMemory } from './row-memory.js';
import { carry, type SchedulerConfig, type SchedulerState, StepPlan, schedule } from './scheduler.js';
import { type ChoiceEvent, type CoreRequest, ORDINARY_PLACE, Sequence } from './sequence.js';
import { SequenceOutput } from './sequence-output.js';
import { Flight, fillStep } from './step-filler.js';
import type { PlannedWork } from './step-plan.js';
import type { CloseOptions, EngineLimits, EngineStats, FinishReason, TokenLogprobs } from './types.js';
import { epochNow, yieldToEvents } from './yield.js';

/** Steps under way at once: the one that runs and the one encoded behind it. */
export const STEPS_IN_FLIGHT = 2;

/** Longest that a timer can be set for. */
const MAX_TIMER_MS = 2 ** 31 - 1;

/** Steps that may fail in a row before the device counts as broken. */
const MAX_FAILED_STEPS = 3;

export interface CoreOptions {
  readonly device: Device;
  readonly program: Program;
  readonly pool: KvPool;
  readonly tokenTable: TokenTable;
  readonly eosIds: readonly number[];
  readonly vocabSize: number;
  readonly limits: EngineLimits;
  readonly scheduler: SchedulerConfig;
  /** Null or absent: no prefixes are cached. */
  readonly prefixes?: PrefixOptions | null;
  /** All that one step (or a cancellation) brought, at once. The array is not used again. */
  readonly onEvents: (events: readonly ChoiceEvent[]) => void;
  /** The device is gone. Every sequence ends with this error, every later request is refused with it. */
  readonly onFault?: (error: KvantError) => void;
  /** Called after each retired step with the sequences it worked on; absent: no work at all. */
  readonly onStep?: (step: number, rows: number) => void;
}

export class EngineCore {
  readonly #options: CoreOptions;
  readonly #eosIds: ReadonlySet<number>;
  readonly #inputs: StepInputs;
  readonly #plan = new StepPlan();
  /** What the scheduler plans with; brought up to date for every plan, made once. */
  readonly #startedAt = epochNow();
  readonly #state: { -readonly [K in keyof SchedulerState]: SchedulerState[K] };
  readonly #memory: RowMemory;
  readonly #counters = new Counters();
  readonly #pacing = new Pacing();
  readonly #rows: PreparedRows;

  readonly #waiting: Sequence[] = [];
  readonly #running: Sequence[] = [];
  readonly #leaving: Sequence[] = [];
  readonly #flights: Flight[] = [];
  readonly #spareFlights: Flight[] = [];

  readonly #outbox: Outbox;
  #step = 0;
  #retired = -1;
  #failedSteps = 0;
  #fault: KvantError | null = null;
  #closing = false;
  #wake: (() => void) | null = null;
  readonly #done: Promise<void>;

  constructor(options: CoreOptions) {
    this.#options = options;
    const { limits, pool, device, program } = options;
    this.#rows = new PreparedRows(program.sampler);
    this.#eosIds = new Set(options.eosIds);
    this.#inputs = new StepInputs(limits.maxBatchTokens, limits.maxRows, limits.maxRows);
    this.#outbox = new Outbox(options.onEvents);
    const { youngTokens } = options.scheduler;
    this.#memory = new RowMemory(
      pool,
      limits.maxRows,
      youngTokens,
      options.prefixes ?? null,
      (sequence, error) => {
        if (error !== null) this.#finish(sequence, 'error', error);
        this.#outbox.flush();
        this.#wakeUp();
      },
    );
    this.#state = {
      step: 0,
      now: 0,
      running: this.#running,
      waiting: this.#waiting,
      freeSlots: 0,
      freeBlocks: 0,
      leavingBlocks: 0,
      queuedBlocks: 0,
      freeYoung: 0,
      leavingYoung: 0,
      queuedYoung: 0,
      retired: -1,
      costs: this.#pacing.costs,
      served: this.#pacing.served,
      credit: 0,
      saving: 0,
      chunkSteps: 0,
    };
    for (let i = 0; i < STEPS_IN_FLIGHT; i++) this.#spareFlights.push(new Flight());
    device.lost.then((error) => {
      this.#break(error);
      this.#outbox.flush();
    });
    this.#done = this.#run();
  }

  /**
   * Takes a request in: one sequence for each choice, all or none.
   * Errors: `prompt-empty`, `prompt-too-long`, `prompt-token-unknown`, `invalid-stop` (400), `overloaded` (429),
   * `sampling-unsupported`, `engine-closed`, and the device's fault once it has one.
   */
  add(request: CoreRequest, constrain: Constrain | null = null): void {
    try {
      const error = this.#fault ?? (this.#closing ? shuttingDown() : null);
      if (error !== null) throw error;
      const { prompt, sampling, place = ORDINARY_PLACE } = request;
      const { limits, vocabSize, device } = this.#options;
      const rows = this.#memory.freeRows + this.#leaving.length;
      const refused =
        admissionError(request, limits, vocabSize) ??
        queueError(place, sampling.bestOf, this.#waiting.length, rows, limits, this.#pacing);
      if (refused !== null) throw refused;
      const draws = Math.min(sampling.maxTokens ?? limits.maxContext, limits.maxContext - prompt.length);
      const stop = sampling.stop.length === 0 ? null : new StopMatcher(sampling.stop);
      const endIds = new Set([...(sampling.ignoreEos ? [] : this.#eosIds), ...sampling.stopTokenIds]);
      const row = new RowSampling(sampling, request.rules, endIds, constrain !== null);
      requireFeatures(row.features, this.#rows.features, device.info.kind);
      const constraints = Array.from({ length: sampling.bestOf }, (_, choice) => constrain?.(choice) ?? null);
      const entry = {
        arrival: this.#now(),
        share: this.#pacing.join(place, sampling.bestOf),
        young: this.#memory.startsYoung,
      };
      const choices = constraints.map((constraint, choice) => {
        const output = this.#newOutput(request, stop, endIds);
        return new Sequence(request, choice, draws, output, row, constraint, entry);
      });
      for (const sequence of choices) this.#memory.prefixes?.open(sequence);
      this.#waiting.push(...choices);
      this.#counters.accepted(prompt.length);
    } catch (error) {
      this.#counters.refused++;
      throw error;
    }
    this.#wakeUp();
  }

  /** Ends what is left of a request with `cancelled`. Unknown and finished requests are left alone. */
  cancel(request: number): void {
    const mine = (sequence: Sequence): boolean => sequence.request.id === request;
    for (const sequence of [...this.#waiting.filter(mine), ...this.#running.filter(mine)])
      this.#finish(sequence, 'cancelled', null);
    this.#wakeUp();
  }

  stats(): EngineStats {
    const decoding = this.#running.filter((sequence) => sequence.computed >= sequence.request.prompt.length);
    const { limits, device } = this.#options;
    return {
      queued: this.#waiting.length,
      prefilling: this.#running.length - decoding.length,
      decoding: decoding.length,
      maxRows: limits.maxRows,
      slotsUsed: limits.maxRows - this.#memory.freeRows,
      ...this.#memory.stats(),
      steps: this.#step,
      stepsInFlight: this.#flights.length,
      oldestQueuedMs: this.#waiting.reduce((most, { arrival }) => Math.max(most, this.#now() - arrival), 0),
      queueTimeouts: this.#pacing.tooLate,
      ...this.#counters.snapshot(),
      device: device.stats(),
      ...(this.#fault === null ? {} : { fault: this.#fault }),
    };
  }

  /** Ends the loop; resolves when no step is under way and nothing is held. No event comes afterwards. */
  async close({ drain = false }: CloseOptions = {}): Promise<void> {
    this.#closing = true;
    if (!drain)
      for (const sequence of [...this.#waiting, ...this.#running]) this.#finish(sequence, 'cancelled', null);
    this.#wakeUp();
    await this.#done;
    this.#memory.close();
  }

  /** Forgets the cached prefixes. Rows keep what they have, and what they have is not cached any more. */
  clearPrefixes(): void {
    this.#memory.prefixes?.clear();
    this.#wakeUp();
  }

  /** A fault in the loop itself must not leave readers waiting for ever. */
  async #run(): Promise<void> {
    try {
      await this.#loop();
    } catch (error) {
      this.#break(asKvantError(error));
      this.#outbox.flush();
    }
  }

  async #loop(): Promise<void> {
    for (;;) {
      while (this.#flights.length < STEPS_IN_FLIGHT && this.#submit());
      const flight = this.#flights[0];
      if (flight === undefined) {
        this.#outbox.flush();
        const left = this.#waiting.length + this.#running.length + this.#leaving.length;
        if (this.#closing && left === 0 && this.#memory.settled) return;
        const timer = this.#deadlineTimer();
        await new Promise<void>((resolve) => {
          this.#wake = resolve;
        });
        clearTimeout(timer);
        continue;
      }
      const ids = await flight.ids!.catch(asKvantError);
      // A lost device has settled everything meanwhile.
      if (this.#flights[0] !== flight) continue;
      if (ids instanceof KvantError) this.#failStep(flight, ids);
      else this.#retire(flight, ids);
      this.#outbox.flush();
      await yieldToEvents();
    }
  }

  /** Plans and submits one step; false if nothing can run now. */
  #submit(): boolean {
    if (this.#fault !== null) return false;
    const plan = this.#plan;
    const { prefixes } = this.#memory;
    do {
      this.#schedule();
      const victim = this.#running[plan.victim];
      if (victim !== undefined) victim.yielding = true;
    } while (this.#endTooLate(plan) || (plan.count === 0 && this.#requeueYielding()));
    if (plan.count === 0) return false;
    carry(this.#state, plan, this.#pacing.takeError());
    if (plan.admitted > 0) this.#admitPlanned();
    this.#memory.convert(plan, this.#running);
    const flight = this.#spareFlights.pop()!;
    flight.step = this.#step++;
    fillStep(this.#inputs, flight, plan, this.#running);
    prefixes?.copyParts();
    if (flight.rows === 0) {
      // All that was planned was admitted just now and is being made ready.
      this.#step--;
      this.#spareFlights.push(flight);
      return false;
    }
    this.#flights.push(flight);
    flight.submittedAt = this.#now();
    flight.spent = plan.spent;
    try {
      flight.ids = this.#options.program.submit(this.#inputs);
    } catch (error) {
      flight.ids = Promise.reject(error);
    }
    // It is awaited when its turn comes; until then a rejection is not unhandled.
    flight.ids.catch(() => {});
    return true;
  }

  /** Nothing runs, so no step comes to see that somebody waits too long. */
  #deadlineTimer(): ReturnType<typeof setTimeout> | undefined {
    const deadline = this.#waiting.reduce((least, next) => Math.min(least, next.deadline), Infinity);
    if (deadline === Infinity) return undefined;
    return setTimeout(() => this.#wakeUp(), Math.min(MAX_TIMER_MS, Math.max(1, deadline - this.#now())));
  }

  /** Ends what waits and may not start any more; false if there is nothing. The plan that told of it is void. */
  #endTooLate(plan: StepPlan): boolean {
    const late = plan.expires.slice(0, plan.expired).map((at) => this.#waiting[at]!);
    for (const sequence of late)
      this.#finish(sequence, 'error', startedTooLate(sequence, this.#pacing, this.#waiting.length));
    return late.length > 0;
  }

  /** Milliseconds since the start. */
  #now(): number {
    return epochNow() - this.#startedAt;
  }

  #schedule(): void {
    const plan = this.#plan;
    const { prefixes, freeRows } = this.#memory;
    const state = this.#schedulerState();
    if (freeRows > 0) prefixes?.look(this.#waiting, this.#running, this.#leaving);
    do schedule(state, this.#options.scheduler, plan);
    while (prefixes?.shareOut(plan, this.#waiting));
  }

  #schedulerState(): SchedulerState {
    const state = this.#state;
    state.step = this.#step;
    state.now = this.#now();
    state.retired = this.#retired;
    state.served = this.#pacing.served;
    this.#memory.describe(state, this.#leaving, this.#running);
    return state;
  }

  /** Lets those in that the plan admits, in its order. */
  #admitPlanned(): void {
    const plan = this.#plan;
    const rows = this.#running.length;
    for (let i = 0; i < plan.count; i++) {
      const work = plan.work[i]!;
      if (work.index >= rows) this.#admit(this.#waiting[plan.admits[work.index - rows]!]!, work);
    }
    const waiting = this.#waiting;
    let kept = 0;
    for (const sequence of waiting) if (sequence.phase === 'waiting') waiting[kept++] = sequence;
    waiting.length = kept;
  }

  #admit(sequence: Sequence, work: PlannedWork): void {
    this.#memory.admit(sequence, work);
    sequence.phase = 'running';
    if (sequence.startedAt === 0) {
      sequence.startedAt = epochNow();
      sequence.deadline = Number.POSITIVE_INFINITY;
      this.#pacing.start(sequence, this.#now(), this.#waiting.length > this.#plan.admitted);
    }
    this.#running.push(sequence);
    if (sequence.row.features === 0) return;
    void this.#rows.prepare(sequence).then((error) => {
      if (sequence.phase === 'running') {
        if (error !== null) this.#finish(sequence, 'error', error);
      } else this.#releaseLeaving();
      this.#wakeUp();
    });
  }

  /**
   * Rows that give way and that no step under way names go back to the head of the queue. Their ids are known by
   * then; computed again they give the same numbers, and their draws are keyed by position: nothing is drawn,
   * or streamed, twice. False if there are none.
   */
  #requeueYielding(): boolean {
    let moved = false;
    for (let i = this.#running.length - 1; i >= 0; i--) {
      const sequence = this.#running[i]!;
      if (!sequence.yielding || sequence.lastStep > this.#retired) continue;
      this.#running.splice(i, 1);
      this.#freeRow(sequence);
      sequence.yielding = false;
      sequence.computed = 0;
      sequence.prefix?.requeue();
      sequence.phase = 'waiting';
      this.#waiting.unshift(sequence);
      this.#counters.preemptions++;
      moved = true;
    }
    return moved;
  }

  #retire(flight: Flight, ids: Uint32Array): void {
    this.#flights.shift();
    this.#retired = flight.step;
    this.#failedSteps = 0;
    const { submittedAt, decoding, promptTokens, spent } = flight;
    this.#pacing.retire(submittedAt, decoding, promptTokens, spent, this.#now());
    const { prefixes } = this.#memory;
    if (prefixes !== null)
      for (let row = 0; row < flight.rows; row++) prefixes.stored(flight.members[row]!, flight.reached[row]!);
    const recorded = hasRecords(ids, flight.draws);
    for (let row = 0; row < flight.draws; row++) {
      const sequence = flight.drawn[row]!;
      if (sequence.phase !== 'running') continue; // the extra token of a row that ended
      const id = ids[row]!;
      if (id === INVALID_TOKEN) {
        this.#finish(sequence, 'error', invalidLogits());
        continue;
      }
      const record = recorded && sequence.row.recorded ? readRecord(ids, flight.draws, row) : null;
      if (record !== null) sequence.mu = record.mu;
      this.#deliver(sequence, id, sequence.row.logprobs && record !== null ? toLogprobs(id, record) : null);
    }
    this.#releaseLeaving();
    this.#requeueYielding();
    this.#options.onStep?.(flight.step, flight.rows);
    this.#spareFlights.push(flight);
  }

  #deliver(sequence: Sequence, id: number, logprobs: TokenLogprobs | null): void {
    if (sequence.ids.push(id) === 1) sequence.firstTokenAt = epochNow();
    this.#counters.completionTokens++;
    this.#pacing.drew(sequence);
    const { output } = sequence;
    const text = output.push(id);
    if (output.stopped) this.#finish(sequence, 'stop', null, text, id, logprobs);
    else if (sequence.drawsLeft === 0 && sequence.coming === 0)
      this.#finish(sequence, 'length', null, text, id, logprobs);
    else {
      this.#outbox.push(sequence, text, id, logprobs, null, null);
      if (sequence.constraint !== null) this.#constrain(sequence, id);
    }
  }

  /** Asks what may come next; the row is free to go on then. */
  #constrain(sequence: Sequence, last: number): void {
    try {
      this.#rows.constrain(sequence, last);
    } catch (error) {
      this.#finish(sequence, 'error', asKvantError(error));
    }
  }

  /** Ends a sequence in any phase. Its slot and blocks go back when no step under way names them. */
  #finish(
    sequence: Sequence,
    finish: FinishReason,
    error: KvantError | null,
    text = '',
    id: number | null = null,
    logprobs: TokenLogprobs | null = null,
  ): void {
    if (error !== null && sequence.prefix !== null) sequence.prefix.tainted = true;
    if (sequence.phase === 'waiting') {
      this.#waiting.splice(this.#waiting.indexOf(sequence), 1);
      sequence.phase = 'done';
    } else if (sequence.phase === 'running') {
      this.#running.splice(this.#running.indexOf(sequence), 1);
      sequence.phase = 'leaving';
      this.#leaving.push(sequence);
      this.#releaseLeaving();
    } else return;
    this.#pacing.leave(sequence.request.place ?? ORDINARY_PLACE);
    this.#counters.finish(finish);
    this.#outbox.push(sequence, text + sequence.output.end(), id, logprobs, finish, error);
  }

  #releaseLeaving(): void {
    const leaving = this.#leaving;
    for (let i = leaving.length - 1; i >= 0; i--) {
      const sequence = leaving[i]!;
      if (sequence.lastStep > this.#retired || (sequence.preparing && this.#fault === null)) continue;
      leaving.splice(i, 1);
      sequence.phase = 'done';
      this.#freeRow(sequence);
    }
  }

  #freeRow(sequence: Sequence): void {
    // After a fault the program goes as a whole, and what it holds with it.
    const works = this.#fault === null;
    if (sequence.row.features !== 0 && works) this.#rows.release(sequence.table!.slot);
    this.#memory.release(sequence, works);
  }

  /** A step went wrong: the sequences it worked on end; the others go on, unless it keeps happening. */
  #failStep(flight: Flight, error: KvantError): void {
    if (error.code === 'device-lost' || ++this.#failedSteps >= MAX_FAILED_STEPS) {
      this.#break(error);
      return;
    }
    this.#flights.shift();
    this.#retired = flight.step;
    for (let i = 0; i < flight.rows; i++) {
      const sequence = flight.members[i]!;
      if (sequence.prefix !== null) sequence.prefix.tainted = true;
      this.#finish(sequence, 'error', error);
    }
    this.#releaseLeaving();
    this.#requeueYielding();
    this.#spareFlights.push(flight);
  }

  /** The device is gone: everything ends with its error, and every later request is answered with it. */
  #break(error: KvantError): void {
    if (this.#fault !== null) return;
    this.#fault = error;
    this.#spareFlights.push(...this.#flights.splice(0));
    this.#retired = this.#step;
    for (const sequence of [...this.#waiting, ...this.#running]) this.#finish(sequence, 'error', error);
    this.#releaseLeaving();
    this.#options.onFault?.(error);
    this.#wakeUp();
  }

  #newOutput(
    { sampling, continuation }: CoreRequest,
    stop: StopMatcher | null,
    endIds: ReadonlySet<number>,
  ): SequenceOutput {
    const { minTokens } = sampling;
    const { tokenTable: table } = this.#options;
    return new SequenceOutput({ table, endIds, stop, minTokens, continuation });
  }

  #wakeUp(): void {
    this.#wake?.();
    this.#wake = null;
  }
}
