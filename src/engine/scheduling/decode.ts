/** Decoding rows: each has one token in every step that has room for it. */

import { converts, mainNeed, owed, ready, youngNeed } from './blocks.js';
import type { RunningView, SchedulerConfig, SchedulerState, StepPlan } from './step-plan.js';

/** Lists the rows that have work: those with one token to go, and those with more of a prompt. */
export function listRows(state: SchedulerState, config: SchedulerConfig, plan: StepPlan): void {
  const { running } = state;
  for (let index = 0; index < running.length; index++) {
    const row = running[index]!;
    plan.owed += owed(row, config);
    if (index === plan.victim || !ready(row, state, config)) continue;
    if (row.length - row.computed === 1) plan.rows[plan.rowCount++] = index;
    else plan.prompts[plan.promptCount++] = index;
  }
  // Whoever was worked on last comes last: with fewer places than rows they take turns.
  if (plan.promptCount > 1) sortByIdleness(plan.prompts, plan.promptCount, running);
}

/** Those that waited longest first, where not all fit. */
export function orderDecodeRows(state: SchedulerState, plan: StepPlan, places: number): void {
  if (plan.rowCount > places) sortByIdleness(plan.rows, plan.rowCount, state.running);
}

/** Serves listed rows from `from` on while the step holds less than `budget` tokens; answers how far it came. */
export function planDecode(
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

/** By insertion, as the lists are short and nearly in order; stable, and makes nothing. */
function sortByIdleness(list: number[], count: number, running: readonly RunningView[]): void {
  for (let i = 1; i < count; i++) {
    const index = list[i]!;
    const { lastStep } = running[index]!;
    let at = i;
    for (; at > 0 && running[list[at - 1]!]!.lastStep > lastStep; at--) list[at] = list[at - 1]!;
    list[at] = index;
  }
}
