/**
 * The scheduler: who does how much in the next step. A pure function over plain data: it reads the state, writes
 * the plan it was handed and nothing else. docs/scheduling.md says what it promises.
 *
 * One budget of tokens a step is shared by decoding rows and prompt chunks.
 * - Decoding rows come first, each with one token or a run of known ones (decode.ts). While a prompt may have some, a part of the budget
 *   (`prefillReserve`) is not theirs, so prefill always moves; with more rows than budget they take turns, longest idle first,
 *   so decoding always moves too. A budget of 1 alternates.
 * - Prompts share the rest, several at once, newcomers beside those in rows; beside decoding rows only as much as leaves
 *   those their part of the time (prefill.ts).
 * - A sequence is admitted when a row is free and there are blocks for all its tokens and one more for every
 *   running row; who is next, admission.ts says. It then grows by one block at a time.
 * - A row that finds no block takes those of the row of the lowest rank (pressure.ts): that one waits again and is
 *   computed again later (its tokens are known, so nothing is drawn twice).
 * - All of this counts in each cache group apart: a row has work only where every group has blocks for it.
 *
 * With `floatStartTokens`, a sequence starts float-start: its first tokens go into blocks of another pool, which keep them as
 * floats. Its chunks are cut where it holds exactly so many. There it waits until no step under way names it, and
 * then its next work converts it: what it holds moves to blocks of the main pool, which it must have first. A
 * sequence that comes in longer than that has them from the start; another one waits for them where it is, and if
 * they can only come from rows of a lower rank, takes theirs.
 */

import { expire, mayEnter, nextWaiting } from './admission.js';
import { allowRuns, listRows, orderDecodeRows, planDecode } from './decode.js';
import { allowPrompts, planPrompts } from './prefill.js';
import { relievePressure } from './pressure.js';
import {
  carry,
  type RunningView,
  type SchedulerConfig,
  type SchedulerState,
  StepPlan,
  type WaitingView,
} from './step-plan.js';

export { carry, type RunningView, type SchedulerConfig, type SchedulerState, StepPlan, type WaitingView };

/** Plans one step. `plan.count` is 0 if nothing can run. */
export function schedule(state: SchedulerState, config: SchedulerConfig, plan: StepPlan): void {
  plan.clear(config.groups.length);
  for (let group = 0; group < config.groups.length; group++)
    plan.blocksLeft[group] = state.freeBlocks[group]!;
  plan.floatStartLeft = state.freeFloatStart;
  expire(state, plan);
  relievePressure(state, config, plan);
  if (plan.dropHeld) return;
  listRows(state, config, plan);
  const next = plan.victim >= 0 ? -1 : nextWaiting(state, config, plan);
  const newcomer = next >= 0 && mayEnter(state, config, plan, next) ? next : -1;
  allowPrompts(state, config, plan, newcomer);
  allowRuns(state, config, plan);
  const budget = config.maxBatchTokens;
  const forDecode = budget - prefillReserve(state, config, plan);
  orderDecodeRows(state, plan, forDecode);
  const served = planDecode(state, config, plan, 0, forDecode);
  planPrompts(state, config, plan, newcomer < 0 || plan.stalled > 0);
  // What no prompt took goes to the decoding rows that were put off.
  planDecode(state, config, plan, served, budget);
  if (plan.count === 0 && next >= 0) dropIfStuck(state, plan);
}

/** Tokens of the step that decoding rows leave to prompts. */
function prefillReserve(state: SchedulerState, config: SchedulerConfig, plan: StepPlan): number {
  const budget = config.maxBatchTokens;
  if (plan.promptTokens === 0) return 0;
  if (budget === 1) return state.step & 1;
  return Math.min(Math.max(1, config.prefillReserve), plan.promptTokens, budget - 1);
}

/** Nothing runs, and nobody can come in for what others that wait hold. */
function dropIfStuck(state: SchedulerState, plan: StepPlan): void {
  const { running, freeSlots, queuedBlocks, queuedFloatStart, leavingBlocks, leavingFloatStart } = state;
  if (running.length > 0 || freeSlots === 0 || sum(leavingBlocks) + leavingFloatStart > 0) return;
  plan.dropHeld = sum(queuedBlocks) + queuedFloatStart > 0;
}

function sum(blocks: ArrayLike<number>): number {
  let total = 0;
  for (let group = 0; group < blocks.length; group++) total += blocks[group]!;
  return total;
}
