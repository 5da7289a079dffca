/**
 * The engine core: takes requests made of token ids, runs the step loop, hands out events. It owns sequences,
 * slots and blocks; device, program and pool are lent to it. It runs on whichever thread it is made on.
 *
 * The loop keeps two steps under way: while the device works on step n + 1 the host reads the ids of step n,
 * ends rows, publishes what is new, lets messages in and submits step n + 2. The token a row drew never passes
 * through the host: the next step reads it from the row's slot. So a row that turns out to have stopped has one
 * more token under way; it is dropped, and slot and blocks are free when the last step naming them has retired.
 *
 * What may come next in a row may depend on its last token (constraint.ts). A step with such a row is submitted in two halves: the
 * device computes n + 1 while the host reads the ids of n and makes the masks, and the draw is submitted when they
 * are there, or when the device has nothing else to do.
 */

import { INVALID_TOKEN } from '../device/device.js';
import { StepInputs } from '../device/step.js';
import type { StepResult } from '../device/step-result.js';
import { KvantError } from '../errors.js';
import { noTokenLeft, suppressedIds } from '../sampling/draws-left.js';
import type { Constrain } from './constraint.js';
import { asKvantError, invalidLogits, shuttingDown, startedTooLate } from './core-errors.js';
import type { CoreOptions } from './core-options.js';
import { Counters } from './counters.js';
import { Intake } from './intake.js';
import { Outbox } from './outbox.js';
import { Planner } from './planner.js';
import { PreparedRows, toLogprobs } from './prepared-rows.js';
import { deadlineTimer, oldestAge, removeAdmitted } from './queue.js';
import { RowMemory } from './row-memory.js';
import { Pacing } from './scheduling/pacing.js';
import { ORDINARY_PLACE } from './scheduling/queue-place.js';
import type { PlannedWork, StepPlan } from './scheduling/step-plan.js';
import type { CoreRequest, Sequence } from './sequence.js';
import { fillDraw, fillStep, isRuled, type StepInFlight } from './step-filler.js';
import { StepsInFlight } from './steps-in-flight.js';
import type { CloseOptions, EngineStats, FinishReason, TokenLogprobs } from './types.js';
import { Sight } from './vision/sight.js';
import { epochNow } from './yield.js';

/** Steps under way at once: the one that runs and the one encoded behind it. */
export const STEPS_IN_FLIGHT = 2;

/** Steps that may fail in a row before the device counts as broken. */
const MAX_FAILED_STEPS = 3;

export class EngineCore {
  readonly #options: CoreOptions;
  readonly #inputs: StepInputs;
  readonly #startedAt = epochNow();
  readonly #memory: RowMemory;
  readonly #planner: Planner;
  readonly #intake: Intake;
  readonly #counters = new Counters();
  readonly #pacing = new Pacing();
  readonly #rows: PreparedRows;
  readonly #sight: Sight;

  readonly #waiting: Sequence[] = [];
  readonly #running: Sequence[] = [];
  readonly #leaving: Sequence[] = [];
  readonly #inFlight = new StepsInFlight(STEPS_IN_FLIGHT);
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
    const { limits, device, program } = options;
    // What a sequence waited for is there, or why it is not.
    const settled = (sequence: Sequence, error: KvantError | null): void => {
      if (error !== null) this.#finish(sequence, 'error', error);
      else this.#takeRun(sequence);
      this.#outbox.flush();
      this.#wakeUp();
    };
    this.#rows = new PreparedRows(program.sampler, settled);
    this.#sight = new Sight(options.vision ?? null, this.#running, this.#pacing.costs, settled);
    const rotary = (options.vision?.mergeSize ?? null) !== null;
    const ahead = (options.vision?.ahead ?? null) !== null;
    this.#inputs = new StepInputs(limits.maxBatchTokens, limits.maxRows, limits.maxRows, { rotary, ahead });
    this.#outbox = new Outbox(options.onEvents);
    this.#memory = new RowMemory(
      options,
      settled,
      () => this.#wakeUp(),
      () => this.#pacing.costs.token,
    );
    const lists = { waiting: this.#waiting, running: this.#running, leaving: this.#leaving };
    this.#planner = new Planner(options.scheduler, this.#memory, this.#pacing, lists);
    this.#intake = new Intake(options, this.#rows, this.#memory, this.#pacing);
    device.lost.then((error) => {
      this.#break(error);
      this.#outbox.flush();
    });
    this.#done = this.#run();
  }

  /**
   * Takes a request in: one sequence for each choice, all or none.
   * Errors: `prompt-empty`, `context-length-exceeded`, `prompt-token-unknown`, `invalid-stop` (400), `overloaded` (429),
   * `sampling-unsupported`, `engine-closed`, and the device's fault once it has one.
   */
  add(request: CoreRequest, constrain: Constrain | null = null): void {
    try {
      if (this.#fault !== null || this.#closing) throw this.#fault ?? shuttingDown();
      const waiting = this.#waiting;
      const rows = this.#memory.freeRows + this.#leaving.length;
      const accepted = this.#intake.accept(request, constrain, waiting.length, rows, this.#now());
      waiting.push(...accepted);
      for (const sequence of accepted) {
        if (sequence.pictures === null) continue;
        this.#memory.prefixes?.lookAhead(sequence, this.#running.length);
        this.#sight.see(sequence);
      }
      this.#counters.accepted(request.prompt.length);
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
      stepsInFlight: this.#inFlight.count,
      oldestQueuedMs: oldestAge(this.#waiting, this.#now()),
      queueTimeouts: this.#pacing.tooLate,
      ...this.#counters.snapshot(),
      ...(this.#options.vision ? { features: this.#options.vision.features.stats() } : {}),
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
    await this.#memory.close();
  }

  /** Forgets the cached prefixes, at once in memory and then on disk. Rows keep what they have, and what they have is not cached any more. */
  async clearPrefixes(): Promise<void> {
    const cleared = this.#memory.prefixes?.clear();
    this.#wakeUp();
    await cleared;
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
      while (!this.#inFlight.full && this.#inFlight.open === null && this.#submit());
      const flight = this.#inFlight.first;
      if (flight === undefined) {
        this.#sight.stepped();
        this.#outbox.flush();
        const left = this.#waiting.length + this.#running.length + this.#leaving.length;
        if (this.#closing && left === 0 && this.#memory.settled) return;
        const timer = deadlineTimer(this.#waiting, this.#now(), () => this.#wakeUp());
        await this.#woken();
        clearTimeout(timer);
        continue;
      }
      if (flight === this.#inFlight.open) {
        if (this.#draw()) continue;
        this.#inFlight.watch(this.#options.program, () => this.#wakeUp());
        await this.#woken();
        continue;
      }
      const result = await this.#inFlight.result(flight);
      // A lost device has settled everything meanwhile.
      if (this.#inFlight.first !== flight) continue;
      if (result instanceof KvantError) this.#failStep(flight, result);
      else this.#retire(flight, result);
      // What it told may be all that the next draw waits for; the device has little to do behind a draw.
      if (this.#draw()) this.#submit();
      this.#outbox.flush();
      if (!this.#inFlight.yielded) await this.#inFlight.turn();
    }
  }

  /** Plans and submits one step; false if nothing can run now. */
  #submit(): boolean {
    if (this.#fault !== null) return false;
    const { plan } = this.#planner;
    do {
      this.#planner.make(this.#step, this.#retired, this.#now());
      const victim = this.#running[plan.victim];
      if (victim !== undefined) victim.yielding = true;
    } while (this.#endTooLate(plan) || (plan.count === 0 && this.#requeueYielding()));
    this.#sight.seeAll(this.#waiting);
    if (plan.count === 0) return false;
    this.#planner.carryOut();
    if (plan.admitted > 0) this.#admitPlanned(plan);
    this.#memory.convert(plan, this.#running);
    const flight = this.#inFlight.take();
    flight.step = this.#step;
    flight.spent = plan.spent;
    fillStep(this.#inputs, flight, plan, this.#running);
    this.#memory.prefixes?.copyParts();
    if (flight.rows === 0) {
      // All that was planned was admitted just now and is being made ready.
      this.#inFlight.recycle(flight);
      return false;
    }
    this.#step++;
    const { program } = this.#options;
    if (flight.waits > 0) this.#inFlight.launchForward(flight, program, this.#inputs, this.#now());
    else this.#inFlight.launch(flight, program, this.#inputs, this.#now());
    this.#memory.prefixes?.launched(flight);
    this.#sight.stepped();
    return true;
  }

  /** Asks for the draw of the step that is open, if nothing is to be waited for; false if there is none, or something is. */
  #draw(): boolean {
    const { open, first } = this.#inFlight;
    if (open === null || open !== first || !(open.computed || isRuled(open))) return false;
    fillDraw(this.#inputs, open);
    this.#inFlight.launchSample(this.#options.program, this.#inputs);
    return true;
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

  /** Lets those in that the plan admits, in its order. */
  #admitPlanned(plan: StepPlan): void {
    const rows = this.#running.length;
    for (let i = 0; i < plan.count; i++) {
      const work = plan.work[i]!;
      if (work.index >= rows) this.#admit(this.#waiting[plan.admits[work.index - rows]!]!, work, plan);
    }
    this.#memory.seat();
    removeAdmitted(this.#waiting);
  }

  #admit(sequence: Sequence, work: PlannedWork, { admitted }: StepPlan): void {
    this.#memory.admit(sequence, work);
    sequence.phase = 'running';
    if (sequence.startedAt === 0) {
      sequence.startedAt = epochNow();
      sequence.deadline = Number.POSITIVE_INFINITY;
      this.#pacing.start(sequence, this.#now(), this.#waiting.length > admitted);
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
      sequence.decodesFrom = Number.POSITIVE_INFINITY;
      sequence.prefix?.requeue();
      sequence.phase = 'waiting';
      this.#waiting.unshift(sequence);
      this.#counters.preemptions++;
      moved = true;
    }
    return moved;
  }

  #retire(flight: StepInFlight, result: StepResult): void {
    this.#inFlight.retire();
    this.#retired = flight.step;
    this.#failedSteps = 0;
    this.#pacing.retire(flight, this.#now());
    this.#memory.retire(flight);
    for (let row = 0; row < flight.draws; row++) {
      const sequence = flight.drawn[row]!;
      // Left out of the draw, or the extra token of a row that ended.
      if (sequence?.phase !== 'running') continue;
      const id = result.ids[row]!;
      if (id === INVALID_TOKEN) {
        this.#finish(sequence, 'error', this.#nothingDrawn(sequence));
        continue;
      }
      const record = sequence.row.recorded ? result.record(row) : null;
      if (record !== null) sequence.mu = record.mu;
      this.#deliver(sequence, id, sequence.row.logprobs && record !== null ? toLogprobs(id, record) : null);
    }
    this.#releaseLeaving();
    this.#requeueYielding();
    this.#options.onStep?.(flight.step, flight.rows);
    this.#inFlight.recycle(flight);
  }

  /** Why a row had nothing to draw from: its request forbids all that could come next, or the model gave no numbers. */
  #nothingDrawn(sequence: Sequence): KvantError {
    const { row, request, ids } = sequence;
    const asked = row.forbidsAll(sequence.history(), ids.length, this.#options.vocabSize);
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
    if (error !== null) this.#finish(sequence, 'error', error);
    else this.#takeRun(sequence);
  }

  /** Takes what is forced without a draw, if that may be: the row computes it in one chunk, and draws behind it. */
  #takeRun(sequence: Sequence): void {
    if (!sequence.skipsDraws) return;
    for (const id of sequence.skipDraws()) if (!this.#tell(sequence, id, null)) return;
    this.#rows.endSkipped(sequence);
  }

  /** Takes a token in that is known now; false if the sequence ends with it. */
  #tell(sequence: Sequence, id: number, logprobs: TokenLogprobs | null): boolean {
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
      return true;
    }
    return false;
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
      this.#sight.lookAway(sequence);
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
      this.#sight.lookAway(sequence);
    }
  }

  #freeRow(sequence: Sequence): void {
    // After a fault the program goes as a whole, and what it holds with it.
    const works = this.#fault === null;
    if (sequence.row.features !== 0 && works) this.#rows.release(sequence.slot);
    this.#memory.release(sequence, works);
  }

  /** A step went wrong: the sequences it worked on end; the others go on, unless it keeps happening. */
  #failStep(flight: StepInFlight, error: KvantError): void {
    if (error.code === 'device-lost' || ++this.#failedSteps >= MAX_FAILED_STEPS) {
      this.#break(error);
      return;
    }
    this.#inFlight.retire();
    this.#retired = flight.step;
    this.#memory.prefixes?.failed(flight.step);
    for (let i = 0; i < flight.rows; i++) {
      const sequence = flight.members[i]!;
      if (sequence.prefix !== null) sequence.prefix.tainted = true;
      this.#finish(sequence, 'error', error);
    }
    this.#releaseLeaving();
    this.#requeueYielding();
    this.#inFlight.recycle(flight);
  }

  /** The device is gone: everything ends with its error, and every later request is answered with it. */
  #break(error: KvantError): void {
    if (this.#fault !== null) return;
    this.#fault = error;
    this.#sight.stepped();
    this.#inFlight.abandon();
    this.#retired = this.#step;
    for (const sequence of [...this.#waiting, ...this.#running]) this.#finish(sequence, 'error', error);
    this.#releaseLeaving();
    this.#options.onFault?.(error);
    this.#wakeUp();
  }

  /** Resolves when there may be something to do. */
  #woken(): Promise<void> {
    return new Promise((resolve) => {
      this.#wake = resolve;
    });
  }

  #wakeUp(): void {
    this.#wake?.();
    this.#wake = null;
  }
}
