/**
 * The engine core: takes requests made of token ids, runs the step loop, hands out events. It owns sequences (sequences.ts),
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

import { StepInputs } from '../device/step.js';
import type { StepResult } from '../device/step-result.js';
import { KvantError } from '../errors.js';
import type { Constrain } from './constraint.js';
import { asKvantError, shuttingDown } from './core-errors.js';
import type { CoreOptions } from './core-options.js';
import { Intake } from './intake.js';
import { Outbox } from './outbox.js';
import { Planner } from './planner.js';
import { PreparedRows } from './prepared-rows.js';
import { deadlineTimer, oldestAge } from './queue.js';
import { RowMemory } from './row-memory.js';
import { Pacing } from './scheduling/pacing.js';
import type { CoreRequest, Sequence } from './sequence.js';
import { Sequences } from './sequences.js';
import { fillDraw, fillStep, isRuled, type StepInFlight } from './step-filler.js';
import { StepsInFlight } from './steps-in-flight.js';
import type { CloseOptions, EngineStats } from './types.js';
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
  readonly #pacing = new Pacing();
  readonly #sight: Sight;
  readonly #sequences: Sequences;
  readonly #inFlight = new StepsInFlight(STEPS_IN_FLIGHT);
  readonly #outbox: Outbox;
  #step = 0;
  #failedSteps = 0;
  #closing = false;
  #wake: (() => void) | null = null;
  readonly #done: Promise<void>;

  constructor(options: CoreOptions) {
    this.#options = options;
    const { limits, device, program } = options;
    // What a sequence waited for is there, or why it is not.
    const settled = (sequence: Sequence, error: KvantError | null): void => {
      if (error !== null) this.#sequences.finish(sequence, 'error', error);
      else this.#sequences.takeRun(sequence);
      this.#outbox.flush();
      this.#wakeUp();
    };
    // Those that run, as others see them.
    const running: Sequence[] = [];
    const rows = new PreparedRows(program.sampler, settled);
    const { targetItl } = options.scheduler;
    this.#sight = new Sight(options.vision ?? null, running, this.#pacing.costs, targetItl, settled);
    const rotary = (options.vision?.mergeSize ?? null) !== null;
    const ahead = options.whole === true || (options.vision?.ahead ?? null) !== null;
    const hiddenTokens = options.hidden === 'tokens';
    this.#inputs = new StepInputs(limits.maxBatchTokens, limits.maxRows, limits.maxRows, {
      rotary,
      ahead,
      hiddenTokens,
    });
    this.#outbox = new Outbox(options.onEvents);
    this.#memory = new RowMemory(
      options,
      settled,
      () => this.#wakeUp(),
      () => this.#pacing.costs.token,
    );
    this.#sequences = new Sequences({
      running,
      memory: this.#memory,
      rows,
      sight: this.#sight,
      pacing: this.#pacing,
      outbox: this.#outbox,
      vocabSize: options.vocabSize,
      now: () => this.#now(),
      wakeUp: () => this.#wakeUp(),
    });
    this.#planner = new Planner(options.scheduler, this.#memory, this.#pacing, this.#sequences);
    this.#intake = new Intake(options, rows, this.#memory, this.#pacing);
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
      const { waiting, running, leaving, fault } = this.#sequences;
      if (fault !== null || this.#closing) throw fault ?? shuttingDown();
      const rows = this.#memory.freeRows + leaving.length;
      const accepted = this.#intake.accept(request, constrain, waiting.length, rows, this.#now());
      waiting.push(...accepted);
      for (const sequence of accepted) {
        if (sequence.pictures === null) continue;
        this.#memory.prefixes?.lookAhead(sequence, running.length);
        this.#sight.see(sequence);
      }
      this.#sequences.counters.requests++;
    } catch (error) {
      this.#sequences.counters.refused++;
      throw error;
    }
    this.#wakeUp();
  }

  /** Ends what is left of a request with `cancelled`. Unknown and finished requests are left alone. */
  cancel(request: number): void {
    this.#sequences.cancel(request);
    this.#wakeUp();
  }

  stats(): EngineStats {
    const { waiting, running, counters, fault } = this.#sequences;
    const decoding = running.filter((sequence) => sequence.computed >= sequence.request.prompt.length);
    const { limits, device } = this.#options;
    return {
      queued: waiting.length,
      prefilling: running.length - decoding.length,
      decoding: decoding.length,
      maxRows: limits.maxRows,
      slotsUsed: limits.maxRows - this.#memory.freeRows,
      ...this.#memory.stats(),
      steps: this.#step,
      stepsInFlight: this.#inFlight.count,
      oldestQueuedMs: oldestAge(waiting, this.#now()),
      queueTimeouts: this.#pacing.tooLate,
      ...counters.snapshot(),
      ...(this.#options.vision ? { features: this.#options.vision.features.stats() } : {}),
      device: device.stats(),
      ...(fault === null ? {} : { fault }),
    };
  }

  /** Ends the loop; resolves when no step is under way and nothing is held. No event comes afterwards. */
  async close({ drain = false }: CloseOptions = {}): Promise<void> {
    this.#closing = true;
    if (!drain) this.#sequences.finishAll('cancelled', null);
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
        if (this.#closing && this.#sequences.count === 0 && this.#memory.settled) return;
        const timer = deadlineTimer(this.#sequences.waiting, this.#now(), () => this.#wakeUp());
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
    if (this.#sequences.fault !== null) return false;
    const { plan } = this.#planner;
    do {
      this.#planner.make(this.#step, this.#sequences.retired, this.#now());
      const victim = this.#sequences.running[plan.victim];
      if (victim !== undefined) victim.yielding = true;
    } while (this.#sequences.endTooLate(plan) || (plan.count === 0 && this.#sequences.requeueYielding()));
    this.#sight.seeAll(this.#sequences.waiting);
    if (plan.count === 0) return false;
    this.#planner.carryOut();
    if (plan.admitted > 0) this.#sequences.admitPlanned(plan);
    this.#memory.convert(plan, this.#sequences.running);
    const flight = this.#inFlight.take();
    flight.step = this.#step;
    flight.spent = plan.spent;
    fillStep(this.#inputs, flight, plan, this.#sequences.running);
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

  /** Milliseconds since the start. */
  #now(): number {
    return epochNow() - this.#startedAt;
  }

  #retire(flight: StepInFlight, result: StepResult): void {
    this.#inFlight.retire();
    this.#sequences.retired = flight.step;
    this.#failedSteps = 0;
    this.#pacing.retire(flight, this.#now());
    this.#memory.retire(flight);
    this.#sequences.receive(flight, result);
    this.#sequences.releaseLeaving();
    this.#sequences.requeueYielding();
    this.#options.onStep?.(flight.step, flight.rows);
    this.#inFlight.recycle(flight);
  }

  /** A step went wrong: the sequences it worked on end; the others go on, unless it keeps happening. */
  #failStep(flight: StepInFlight, error: KvantError): void {
    if (error.code === 'device-lost' || ++this.#failedSteps >= MAX_FAILED_STEPS) {
      this.#break(error);
      return;
    }
    this.#inFlight.retire();
    this.#sequences.retired = flight.step;
    this.#memory.prefixes?.failed(flight.step);
    for (let i = 0; i < flight.rows; i++) {
      const sequence = flight.members[i]!;
      if (sequence.prefix !== null) sequence.prefix.tainted = true;
      this.#sequences.finish(sequence, 'error', error);
    }
    this.#sequences.releaseLeaving();
    this.#sequences.requeueYielding();
    this.#inFlight.recycle(flight);
  }

  /** The device is gone: everything ends with its error, and every later request is answered with it. */
  #break(error: KvantError): void {
    if (this.#sequences.fault !== null) return;
    this.#sequences.fault = error;
    this.#sight.stepped();
    this.#inFlight.abandon();
    this.#sequences.retired = this.#step;
    this.#sequences.finishAll('error', error);
    this.#sequences.releaseLeaving();
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
