/** Decoding rows: each has one token in every step that has room for it, or some of a run of tokens that are known. */

import {
  converts,
  decodes,
  floatStartNeed,
  mainNeed,
  owed,
  ready,
  slides,
  tokensToCut,
  tokensWithin,
} from './blocks.js';
import type { RunningView, SchedulerConfig, SchedulerState, StepPlan } from './step-plan.js';

/** Lists the rows that have work: those that decode, and those with more of a prompt. */
export function listRows(state: SchedulerState, config: SchedulerConfig, plan: StepPlan): void {
  const { running } = state;
  for (let index = 0; index < running.length; index++) {
    const row = running[index]!;
    for (let group = 0; group < config.groups.length; group++) plan.owed[group]! += owed(row, config, group);
    if (index === plan.victim || !ready(row, state, config)) continue;
    if (decodes(row)) plan.rows[plan.rowCount++] = index;
    else plan.prompts[plan.promptCount++] = index;
  }
  // Whoever was worked on last comes last: with fewer places than rows they take turns.
  if (plan.promptCount > 1) sortByIdleness(plan.prompts, plan.promptCount, running);
}

/**
 * Sets what runs may take beside the first token of each row: what `targetItl` leaves of a step, or a smallest chunk, but no more than
 * `evenTokens` has room for: a run of one row is not worth a step that is dearer for all. While prompts have
 * some of the step it is half of one, and prompts have so much less: the step is no longer for it.
 */
export function allowRuns(state: SchedulerState, config: SchedulerConfig, plan: StepPlan): void {
  const { minChunk, targetItl, maxBatchTokens, evenTokens = 0 } = config;
  let wanted = 0;
  for (let i = 0; i < plan.rowCount; i++) {
    const { length, computed } = state.running[plan.rows[i]!]!;
    wanted += length - computed - 1;
  }
  if (wanted === 0) return;
  if (evenTokens > 0 && plan.promptTokens === 0) {
    const even = Math.max(evenTokens, 2 ** Math.ceil(Math.log2(plan.rowCount)));
    wanted = Math.min(wanted, even - plan.rowCount);
  }
  if (targetItl === 0) {
    plan.runTokens = Math.min(wanted, maxBatchTokens);
    return;
  }
  if (plan.promptTokens > 0) {
    plan.runTokens = Math.min(wanted, minChunk >> 1);
    const least = Math.min(plan.promptTokens, (minChunk + 1) >> 1);
    plan.promptTokens = Math.max(least, plan.promptTokens - plan.runTokens);
    return;
  }
  const { fixed, row, token } = state.costs;
  const fits = token === 0 ? 0 : Math.floor((targetItl - fixed - row * plan.rowCount) / token) | 0;
  plan.runTokens = Math.min(wanted, Math.max(minChunk, fits));
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
    if (index === plan.anchor) plan.anchorBlocks.fill(0);
    const pending = row.length - row.computed;
    // Each of those behind it has one token before this one has more.
    const most = Math.min(pending, 1 + plan.runTokens, budget - plan.tokens - (plan.rowCount - at - 1));
    const tokens = tokensWithRoom(row, config, plan, most);
    if (tokens === 0) {
      plan.stalled++;
      continue;
    }
    plan.runTokens -= tokens - 1;
    const floatStart = floatStartNeed(row, config, tokens);
    plan.floatStartLeft -= floatStart;
    const work = plan.add(index, tokens, pending);
    for (let group = 0; group < config.groups.length; group++) {
      const main = mainNeed(row, config, group, tokens);
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

/** How many of its next tokens a row has room for, `most` at most; 0 for none. */
function tokensWithRoom(row: RunningView, config: SchedulerConfig, plan: StepPlan, most: number): number {
  let tokens = Math.max(1, Math.min(most, tokensToCut(row)));
  if (row.floatStart && !converts(row, config))
    tokens = Math.max(1, Math.min(tokens, config.floatStartTokens - row.computed));
  while (tokens > 0 && !hasBlocks(row, config, plan, tokens)) tokens--;
  return tokens;
}

/** Every group has blocks left for the row's next tokens. */
function hasBlocks(row: RunningView, config: SchedulerConfig, plan: StepPlan, tokens: number): boolean {
  if (floatStartNeed(row, config, tokens) > plan.floatStartLeft) return false;
  for (let group = 0; group < config.groups.length; group++) {
    const left = Math.max(0, plan.blocksLeft[group]! - plan.anchorBlocks[group]!);
    const need = mainNeed(row, config, group, tokens);
    if (need > left) return false;
    // Of a sliding group it holds so many at once.
    if (tokens > 1 && slides(config.groups[group]!) && tokensWithin(row, need, config, group) < tokens)
      return false;
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
