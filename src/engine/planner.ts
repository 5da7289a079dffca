/** Keeps what the scheduler plans with up to date, and has it plan. Plan and state are made once. */

import type { MemoryState, RowMemory } from './row-memory.js';
import type { Pacing } from './scheduling/pacing.js';
import {
  carry,
  type SchedulerConfig,
  type SchedulerState,
  StepPlan,
  schedule,
} from './scheduling/scheduler.js';
import type { Sequence } from './sequence.js';

/** The core's own lists: it changes them between plans. */
interface Lists {
  readonly waiting: readonly Sequence[];
  readonly running: readonly Sequence[];
  readonly leaving: readonly Sequence[];
}

export class Planner {
  readonly plan = new StepPlan();
  readonly #state: { -readonly [K in keyof SchedulerState]: SchedulerState[K] } & MemoryState;
  readonly #config: SchedulerConfig;
  readonly #memory: RowMemory;
  readonly #pacing: Pacing;
  readonly #lists: Lists;

  constructor(config: SchedulerConfig, memory: RowMemory, pacing: Pacing, lists: Lists) {
    this.#config = config;
    this.#memory = memory;
    this.#pacing = pacing;
    this.#lists = lists;
    this.#state = {
      step: 0,
      now: 0,
      running: lists.running,
      waiting: lists.waiting,
      freeSlots: 0,
      freeBlocks: [],
      leavingBlocks: [],
      queuedBlocks: [],
      freeFloatStart: 0,
      leavingFloatStart: 0,
      queuedFloatStart: 0,
      retired: -1,
      costs: pacing.costs,
      served: pacing.served,
      credit: 0,
      saving: 0,
      chunkSteps: 0,
    };
  }

  /** Plans step `step` at `now`, with all steps up to `retired` retired. */
  make(step: number, retired: number, now: number): StepPlan {
    const state = this.#state;
    state.step = step;
    state.now = now;
    state.retired = retired;
    state.served = this.#pacing.served;
    this.#describe();
    for (;;) {
      schedule(state, this.#config, this.plan);
      if (this.plan.dropHeld) {
        this.#memory.dropHeld();
        this.#describe();
      } else if (!this.#memory.prefixes?.shareOut(this.plan, this.#lists.waiting)) return this.plan;
    }
  }

  #describe(): void {
    const { waiting, running, leaving } = this.#lists;
    const memory = this.#memory;
    memory.describe(this.#state, leaving, running);
    if (memory.freeRows > 0) memory.prefixes?.look(waiting, running, leaving);
  }

  /** The plan is carried out. */
  carryOut(): void {
    carry(this.#state, this.plan, this.#pacing.takeError());
  }
}
