/** Decoding rows: each has one token in every step that has room for it. */

import { converts, floatStartNeed, mainNeed, owed, ready } from './blocks.js';
import type { RunningView, SchedulerConfig, SchedulerState, StepPlan } from './step-plan.js';

/** Lists the rows that have work: those with one token to go, and those with more of a prompt. */
export function listRows(state: SchedulerState, config: SchedulerConfig, plan: StepPlan): void {
  const { running } = state;
  for (let index = 0; index < running.length; index++) {
    const row = running[index]!;
    for (let group = 0; group < config.groups.length; group++) plan.owed[group]! += owed(row, config, group);
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
    const floatStart = floatStartNeed(row, config);
    if (index === plan.anchor) plan.anchorBlocks.fill(0);
    if (floatStart > plan.floatStartLeft || !hasBlocks(row, config, plan)) {
      plan.stalled++;
      continue;
    }
    plan.floatStartLeft -= floatStart;
    const work = plan.add(index, 1, 1);
    for (let group = 0; group < config.groups.length; group++) {
      const main = mainNeed(row, config, group);
      plan.blocksLeft[group]! -= main;
      work.newBlocks[group] = main;
    }
    if (converts(row, config)) {
      work.converts = true;
      work.reserve = work.newBlocks[0]!;
      work.newBlocks[0] = 0;
    } else work.newBlocks[0]! += floatStart;
  }
  return at;
}

/** Every group has blocks left for the row's next token. */
function hasBlocks(row: RunningView, config: SchedulerConfig, plan: StepPlan): boolean {
  for (let group = 0; group < config.groups.length; group++) {
    const left = Math.max(0, plan.blocksLeft[group]! - plan.anchorBlocks[group]!);
    if (mainNeed(row, config, group) > left) return false;
  }
  return true;
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
