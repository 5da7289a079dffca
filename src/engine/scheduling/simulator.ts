/**
 * The scheduler on a clock of its own, without a model: requests arrive as a trace says, a step takes as long as a formula
 * says, and everything between is what the engine does: queue limit, shares, the learnt costs, blocks, preemption. A step is planned when
 * the one before has ended, where the engine plans one ahead.
 */

import type { Arrival } from './arrivals.js';
import { Pacing } from './pacing.js';
import { carry, type SchedulerConfig, type SchedulerState, StepPlan, schedule } from './scheduler.js';
import type { PlannedWork, RunningView, StepCosts, WaitingView } from './step-plan.js';

/** What a step takes, in milliseconds, on the machine that is played. */
export type Machine = StepCosts;

export interface SimulatorOptions {
  readonly scheduler: SchedulerConfig;
  readonly machine: Machine;
  readonly maxRows: number;
  readonly maxQueue: number;
  /** Blocks of the KV pool; a sequence of full length must fit. */
  readonly blocks: number;
}

const OUTCOMES = ['done', 'refused', 'late'] as const;
/** `refused`: the queue was full. `late`: its time in the queue was over. */
export type Outcome = (typeof OUTCOMES)[number];

/** What became of one request. Times are NaN for what did not happen. */
export interface SimulatedRequest {
  readonly arrival: Arrival;
  outcome: Outcome;
  /** Milliseconds, from its arrival: to its first step, its first token, its last. */
  startMs: number;
  ttftMs: number;
  totalMs: number;
  /** Steps from the first that could have it to the one that brought its first token, both counted. */
  ttftSteps: number;
  /** Longest time between two of its tokens. */
  longestGapMs: number;
  preemptions: number;
}

export interface SimulatedStep {
  /** When it ended, and how long it took, in milliseconds. */
  readonly at: number;
  readonly ms: number;
  readonly decoding: number;
  readonly promptTokens: number;
  readonly tokens: number;
}

export interface Simulation {
  readonly requests: readonly SimulatedRequest[];
  readonly steps: readonly SimulatedStep[];
  /** Milliseconds between two tokens of a request: all of them. */
  readonly gaps: readonly number[];
  /** Milliseconds to the end of the last request. */
  readonly ms: number;
}

class SimulatedSequence implements RunningView, WaitingView {
  readonly result: SimulatedRequest;
  readonly index: number;
  readonly priority: number;
  readonly share: number;
  readonly arrival: number;
  deadline: number;
  length: number;
  computed = 0;
  readonly blocks = [0];
  readonly front = [0];
  drawsLeft: number;
  lastStep = -1;
  readonly joinedAt: number;
  lastTokenAt = 0;
  readonly floatStart = false;
  readonly reserved = 0;
  readonly held = false;

  constructor(result: SimulatedRequest, index: number, share: number, step: number) {
    const { at, prompt, generate, priority, startWithinMs } = result.arrival;
    this.result = result;
    this.index = index;
    this.share = share;
    this.priority = priority;
    this.arrival = at;
    this.deadline = at + startWithinMs;
    this.length = prompt;
    this.drawsLeft = generate;
    this.joinedAt = step;
  }
}

/** Plays a trace to its end. */
export function simulate(arrivals: readonly Arrival[], options: SimulatorOptions): Simulation {
  return new Simulator(arrivals, options).run();
}

class Simulator {
  readonly #options: SimulatorOptions;
  readonly #requests: SimulatedRequest[];
  readonly #pacing = new Pacing();
  readonly #plan = new StepPlan();
  readonly #running: SimulatedSequence[] = [];
  readonly #waiting: SimulatedSequence[] = [];
  readonly #state: { -readonly [K in keyof SchedulerState]: SchedulerState[K] };
  readonly #steps: SimulatedStep[] = [];
  readonly #gaps: number[] = [];
  #next = 0;
  #now = 0;
  #step = 0;
  #blocks: number;

  constructor(arrivals: readonly Arrival[], options: SimulatorOptions) {
    this.#options = options;
    this.#blocks = options.blocks;
    this.#requests = arrivals.map((arrival) => ({
      arrival,
      outcome: 'refused',
      startMs: Number.NaN,
      ttftMs: Number.NaN,
      totalMs: Number.NaN,
      ttftSteps: Number.NaN,
      longestGapMs: 0,
      preemptions: 0,
    }));
    this.#state = {
      step: 0,
      now: 0,
      running: this.#running,
      waiting: this.#waiting,
      freeSlots: 0,
      freeBlocks: [0],
      leavingBlocks: [0],
      queuedBlocks: [0],
      freeFloatStart: 0,
      leavingFloatStart: 0,
      queuedFloatStart: 0,
      retired: 0,
      costs: this.#pacing.costs,
      served: this.#pacing.served,
      credit: 0,
      saving: 0,
      chunkSteps: 0,
    };
  }

  run(): Simulation {
    for (;;) {
      this.#arrive();
      if (this.#playStep()) continue;
      const next = this.#requests[this.#next];
      if (next === undefined) break;
      this.#now = Math.max(this.#now, next.arrival.at);
    }
    if (this.#waiting.length + this.#running.length > 0)
      throw new Error('requests are left, and nothing can run');
    return { requests: this.#requests, steps: this.#steps, gaps: this.#gaps, ms: this.#now };
  }

  /** Takes in, or refuses, everybody who has come by now. */
  #arrive(): void {
    const { maxRows, maxQueue } = this.#options;
    for (; this.#next < this.#requests.length; this.#next++) {
      const result = this.#requests[this.#next]!;
      if (result.arrival.at > this.#now) return;
      const free = maxRows - this.#running.length;
      if (!this.#pacing.admits(result.arrival, 1, this.#waiting.length, free, maxQueue)) continue;
      const share = this.#pacing.join(result.arrival, 1);
      this.#waiting.push(new SimulatedSequence(result, this.#next, share, this.#step));
    }
  }

  #playStep(): boolean {
    const { scheduler } = this.#options;
    const plan = this.#plan;
    const state = this.#state;
    for (;;) {
      state.step = this.#step;
      state.now = this.#now;
      state.freeSlots = this.#options.maxRows - this.#running.length;
      state.freeBlocks = [this.#blocks];
      state.retired = this.#step - 1;
      state.served = this.#pacing.served;
      schedule(state, scheduler, plan);
      if (plan.expired > 0) this.#endTooLate();
      else if (plan.count > 0 || plan.victim < 0) break;
      else this.#giveWay(this.#running[plan.victim]!);
    }
    if (plan.count === 0) return false;
    carry(state, plan, this.#pacing.takeError());
    const victim = this.#running[plan.victim];
    const admitted = plan.admits.slice(0, plan.admitted).map((at) => this.#waiting[at]!);
    const left = this.#waiting.filter((sequence) => !admitted.includes(sequence));
    this.#waiting.splice(0, this.#waiting.length, ...left);
    for (const sequence of admitted) this.#start(sequence, left.length > 0);
    const begun = this.#now;
    const { ms, decoding, depth } = this.#cost();
    this.#now += ms;
    for (const work of plan.work.slice(0, plan.count)) this.#work(work);
    const promptTokens = plan.tokens - decoding;
    const { spent } = plan;
    this.#pacing.retire({ submittedAt: begun, decoding, promptTokens, depth, spent }, this.#now);
    this.#steps.push({ at: this.#now, ms, decoding, promptTokens, tokens: plan.tokens });
    for (const sequence of this.#running.filter((row) => row.drawsLeft === 0)) this.#end(sequence);
    if (victim !== undefined && victim.drawsLeft > 0) this.#giveWay(victim);
    this.#step++;
    return true;
  }

  /** What the planned step takes on this machine, and of what. */
  #cost(): { ms: number; decoding: number; depth: number } {
    const costs = this.#options.machine;
    let decoding = 0;
    let tokens = 0;
    let depth = 0;
    for (let i = 0; i < this.#plan.count; i++) {
      const work = this.#plan.work[i]!;
      if (work.tokens === 1 && work.draws) decoding++;
      else {
        tokens += work.tokens;
        depth += (work.tokens * (this.#running[work.index]!.computed + work.tokens / 2)) / 1000;
      }
    }
    const prompts = tokens > 0 ? costs.chunk + costs.token * tokens + costs.depth * depth : 0;
    return { ms: costs.fixed + costs.row * decoding + prompts, decoding, depth };
  }

  #start(sequence: SimulatedSequence, queued: boolean): void {
    this.#running.push(sequence);
    if (!Number.isNaN(sequence.result.startMs)) return;
    sequence.result.startMs = this.#now - sequence.arrival;
    sequence.deadline = Number.POSITIVE_INFINITY;
    this.#pacing.start(sequence, this.#now, queued);
  }

  #work({ index, tokens, newBlocks, draws }: PlannedWork): void {
    const sequence = this.#running[index]!;
    const { result } = sequence;
    sequence.blocks[0]! += newBlocks[0]!;
    this.#blocks -= newBlocks[0]!;
    sequence.computed += tokens;
    sequence.lastStep = this.#step;
    if (!draws) return;
    sequence.length++;
    sequence.drawsLeft--;
    this.#pacing.drew(sequence);
    if (Number.isNaN(result.ttftMs)) {
      result.ttftMs = this.#now - sequence.arrival;
      result.ttftSteps = this.#step - sequence.joinedAt + 1;
    } else {
      const gap = this.#now - sequence.lastTokenAt;
      this.#gaps.push(gap);
      result.longestGapMs = Math.max(result.longestGapMs, gap);
    }
    sequence.lastTokenAt = this.#now;
  }

  #giveWay(sequence: SimulatedSequence): void {
    this.#free(sequence);
    sequence.computed = 0;
    sequence.result.preemptions++;
    this.#waiting.unshift(sequence);
  }

  #end(sequence: SimulatedSequence): void {
    this.#free(sequence);
    this.#pacing.leave(sequence.result.arrival);
    sequence.result.outcome = 'done';
    sequence.result.totalMs = this.#now - sequence.arrival;
  }

  #free(sequence: SimulatedSequence): void {
    this.#running.splice(this.#running.indexOf(sequence), 1);
    this.#blocks += sequence.blocks[0]!;
    sequence.blocks[0] = 0;
  }

  #endTooLate(): void {
    const { expires, expired } = this.#plan;
    const late = new Set(expires.slice(0, expired));
    const left = this.#waiting.filter((_, at) => !late.has(at));
    for (const at of late) {
      const { result } = this.#waiting[at]!;
      result.outcome = 'late';
      this.#pacing.leave(result.arrival);
    }
    this.#waiting.splice(0, this.#waiting.length, ...left);
  }
}

/**
 * Requests a millisecond that the machine can do at most: all rows decode in every step, and a prompt is computed at once,
 * in as few chunks as the budget allows.
 */
export function capacity(
  { machine, maxRows, scheduler }: Pick<SimulatorOptions, 'machine' | 'maxRows' | 'scheduler'>,
  arrivals: readonly Arrival[],
): number {
  const { fixed, row, chunk, token, depth } = machine;
  const total = arrivals.reduce((sum, { prompt, generate }) => {
    // The first token of an answer comes with the last chunk of the prompt.
    const decode = ((generate - 1) * (fixed + maxRows * row)) / maxRows;
    const chunks = Math.ceil(prompt / scheduler.maxBatchTokens);
    return sum + decode + chunks * chunk + prompt * (token + (depth * prompt) / 2000);
  }, 0);
  return arrivals.length / total;
}
