/**
 * The scheduler: who does how much in the next step. A pure function over plain data: it reads the state, writes
 * the plan it was handed and nothing else.
 *
 * One budget of tokens a step is shared by decoding rows and prompt chunks.
 * - Decoding rows come first, each with one token. While a prompt waits, a part of the budget (`prefillReserve`)
 *   is not theirs, so prefill always moves; with more rows than budget they take turns, longest idle first, so
 *   decoding always moves too. A budget of 1 alternates.
 * - Prompts come in order of arrival. Each takes at most half of what is left (but not less than `minChunk`), so
 *   that a long prompt leaves room for short ones behind it; what then remains goes to the oldest.
 * - A sequence is admitted when a row is free and there are blocks for all its tokens and one more for every
 *   running row. It then grows by one block at a time.
 * - A row that finds no block takes those of the row of the lowest rank (scheduler-pressure.ts): that one goes back to
 *   the head of the queue and is computed again later (its tokens are known, so nothing is drawn twice).
 *
 * With `youngTokens`, a sequence starts young: its first tokens go into blocks of another pool, which keep them as
 * floats. Its chunks are cut where it holds exactly so many. There it waits until no step under way names it, and
 * then its next work converts it: what it holds moves to blocks of the main pool, which it must have first. A
 * sequence that comes in longer than that has them from the start; another one waits for them where it is, and if
 * they can only come from rows of a lower rank, takes theirs.
 */

import {
  converts,
  countYoung,
  hasRoom,
  mainNeed,
  mainToEnter,
  ready,
  youngNeed,
  youngToEnter,
} from './scheduler-blocks.js';
import { relievePressure } from './scheduler-pressure.js';
import {
  type PlannedWork,
  type RunningView,
  type SchedulerConfig,
  type SchedulerState,
  StepPlan,
  type WaitingView,
} from './step-plan.js';

export { type RunningView, type SchedulerConfig, type SchedulerState, StepPlan, type WaitingView };

/** Plans one step. `plan.count` is 0 if nothing can run. */
export function schedule(state: SchedulerState, config: SchedulerConfig, plan: StepPlan): void {
  plan.clear();
  plan.blocksLeft = state.freeBlocks;
  plan.youngLeft = state.freeYoung;
  relievePressure(state, config, plan);
  if (plan.dropHeld) return;
  const budget = config.maxBatchTokens;
  const forDecode = budget - prefillReserve(state, config, plan);
  listDecodeRows(state, config, plan, forDecode);
  const served = planDecode(state, config, plan, 0, forDecode);
  planPrefill(state, config, plan);
  // What no prompt took goes to the decoding rows that were put off.
  planDecode(state, config, plan, served, budget);
  if (plan.count === 0) dropIfStuck(state, plan);
}

/** Nothing runs, and nobody can come in for what others that wait hold. */
function dropIfStuck(state: SchedulerState, plan: StepPlan): void {
  if (state.running.length > 0 || state.queuedBlocks + state.queuedYoung === 0) return;
  if (state.freeSlots > 0 && nextWaiting(state, 0) >= 0) plan.dropHeld = true;
}

function prefillReserve(state: SchedulerState, config: SchedulerConfig, plan: StepPlan): number {
  const budget = config.maxBatchTokens;
  if (!prefills(state, config, plan.victim) && !admits(state, config, plan)) return 0;
  if (budget === 1) return state.step & 1;
  return Math.min(Math.max(1, config.prefillReserve), budget - 1);
}

function prefills(state: SchedulerState, config: SchedulerConfig, victim: number): boolean {
  for (let index = 0; index < state.running.length; index++) {
    const row = state.running[index]!;
    if (index !== victim && ready(row, state, config) && row.length - row.computed > 1) return true;
  }
  return false;
}

function admits(state: SchedulerState, config: SchedulerConfig, plan: StepPlan): boolean {
  const at = nextWaiting(state, 0);
  if (at < 0 || plan.victim >= 0 || state.freeSlots === 0) return false;
  return hasRoom(state.waiting[at]!, config, plan, state.running.length, countYoung(state, config));
}

/** The first waiting sequence from `from` on that may come in, −1 for none. */
function nextWaiting({ waiting }: SchedulerState, from: number): number {
  for (let at = from; at < waiting.length; at++) if (!waiting[at]!.held) return at;
  return -1;
}

/** Lists the rows with one token to go; those that waited longest first, if not all fit. */
function listDecodeRows(
  state: SchedulerState,
  config: SchedulerConfig,
  plan: StepPlan,
  budget: number,
): void {
  const { running } = state;
  const { rows, victim } = plan;
  for (let index = 0; index < running.length; index++) {
    const row = running[index]!;
    if (index !== victim && ready(row, state, config) && row.length - row.computed === 1)
      rows[plan.rowCount++] = index;
  }
  if (plan.rowCount <= budget) return;
  rows.length = plan.rowCount;
  sortByIdleness(rows, running);
}

/** Apart from its caller, which would make room for what the comparison sees each time it is called. */
function sortByIdleness(rows: number[], running: readonly RunningView[]): void {
  rows.sort((a, b) => running[a]!.lastStep - running[b]!.lastStep);
}

/** Serves listed rows from `from` on while the step holds less than `budget` tokens; answers how far it came. */
function planDecode(
  state: SchedulerState,
  config: SchedulerConfig,
  plan: StepPlan,
  from: number,
  budget: number,
): number {
  let at = from;
  for (; at < plan.rowCount && plan.tokens < budget; at++) {
    const index = plan.rows[at]!;
    const row = state.running[index]!;
    const main = mainNeed(row, config);
    const young = youngNeed(row, config);
    if (index === plan.anchor) plan.anchorBlocks = 0;
    if (main > Math.max(0, plan.blocksLeft - plan.anchorBlocks) || young > plan.youngLeft) {
      plan.stalled++;
      continue;
    }
    plan.blocksLeft -= main;
    plan.youngLeft -= young;
    const change = converts(row, config);
    const work = plan.add(index, 1, change ? 0 : main + young, 1);
    if (change) {
      work.converts = true;
      work.reserve = main;
    }
  }
  return at;
}

function planPrefill(state: SchedulerState, config: SchedulerConfig, plan: StepPlan): void {
  const { running, waiting } = state;
  const budget = config.maxBatchTokens;
  const first = plan.count;
  for (let index = 0; index < running.length && plan.tokens < budget; index++) {
    const row = running[index]!;
    const pending = row.length - row.computed;
    if (index === plan.victim || pending <= 1 || !ready(row, state, config)) continue;
    // All its blocks are its own since it came in.
    const work = planChunk(config, plan, index, pending, untilConversion(row, config), 0);
    work.converts = converts(row, config);
  }
  const closed = plan.stalled > 0 || plan.victim >= 0;
  let young = countYoung(state, config);
  for (let at = nextWaiting(state, 0); !closed && at >= 0; at = nextWaiting(state, at + 1)) {
    const next = waiting[at]!;
    const rows = running.length + plan.admitted;
    if (plan.tokens >= budget || plan.admitted >= state.freeSlots) break;
    if (!hasRoom(next, config, plan, rows, young)) break;
    const main = mainToEnter(next, config);
    const own = youngToEnter(next, config);
    plan.blocksLeft -= main;
    plan.youngLeft -= own;
    const pending = next.length - next.computed;
    const work = planChunk(config, plan, rows, pending, untilCut(next, config), next.young ? own : main);
    work.reserve = next.young ? main : 0;
    if (next.young) young++;
    plan.admits[plan.admitted++] = at;
  }
  spendRest(state, config, plan, first, budget);
}

/** Tokens that a row may take before it has to be converted. */
function untilConversion(row: RunningView, config: SchedulerConfig): number {
  return row.young && !converts(row, config) ? config.youngTokens - row.computed : row.length;
}

function untilCut(next: WaitingView, config: SchedulerConfig): number {
  return next.young ? config.youngTokens - next.computed : next.length;
}

/** At most half of what the budget has left, but not less than `minChunk`; not beyond `until`. */
function planChunk(
  config: SchedulerConfig,
  plan: StepPlan,
  index: number,
  pending: number,
  until: number,
  blocks: number,
): PlannedWork {
  const left = config.maxBatchTokens - plan.tokens;
  const half = Math.max(config.minChunk, (left + 1) >> 1);
  return plan.add(index, Math.min(pending, left, half, until), blocks, pending);
}

/** What is left of the budget goes to the prompts that the plan has already, oldest first. */
function spendRest(
  state: SchedulerState,
  config: SchedulerConfig,
  plan: StepPlan,
  first: number,
  budget: number,
): void {
  for (let i = first; i < plan.count && plan.tokens < budget; i++) {
    const work = plan.work[i]!;
    if (work.draws) continue;
    const { running, waiting } = state;
    const runs = work.index < running.length;
    const { length, computed } = runs
      ? running[work.index]!
      : waiting[plan.admits[work.index - running.length]!]!;
    const pending = length - computed;
    const until = runs
      ? untilConversion(running[work.index]!, config)
      : untilCut(waiting[plan.admits[work.index - running.length]!]!, config);
    const more = Math.min(pending, until, work.tokens + budget - plan.tokens) - work.tokens;
    work.tokens += more;
    plan.tokens += more;
    if (work.tokens === pending) {
      work.draws = true;
      plan.draws++;
    }
  }
}
