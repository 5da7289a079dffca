/**
 * Prompts: how many of their tokens a step takes, and whose.
 *
 * **How many.** Beside nobody who decodes: the budget. Beside decoding rows, time is shared by the head: with `p` prompts, in rows
 * and waiting, each of the weight `w` of some rows, and `d` decoding rows, prompts have w·p / (w·p + d) of the time, but no
 * less than `LEAST_SHARE`. Each step of decoding rows adds what that is in milliseconds, by the measured costs, to an
 * account; prompts spend it in chunks worth their launch: `chunkTokens`, or what `targetItl` leaves of a step, if that is
 * less, or what `SAVING_STEPS` steps bring in; never less than `minChunk`. So no step takes longer than `targetItl` and one
 * smallest chunk, and the decoding rows keep their part of the time over all.
 *
 * **Whose.** A newcomer comes in with its first chunk, on credit if need be: whoever finds a row free is begun in the next step.
 * Newcomers have at most half of the tokens; the rest goes round among the prompts in rows, the one that has waited longest first,
 * each taking at most half of what is left (but not less than `minChunk`). So a long prompt leaves room for short ones, and
 * no flood of short ones stops a long one.
 */

import { countWaiting, mayEnter, nextWaiting } from './admission.js';
import {
  blocksFor,
  converts,
  decodes,
  floatStartToEnter,
  mainToEnter,
  slides,
  tokensToCut,
  tokensWithin,
  wholeChunk,
} from './blocks.js';
import type {
  PlannedWork,
  RunningView,
  SchedulerConfig,
  SchedulerState,
  StepPlan,
  WaitingView,
} from './step-plan.js';

/**
 * Part of the time that prompts have however many rows decode: what holds for one prompt beside nine rows and more. Eight
 * rows keep 81 % of their rate by `PROMPT_WEIGHT`; 80 are promised, and with 0.2 they kept 78 to 80 as measured.
 */
export const LEAST_SHARE = 0.18;
/** Decoding rows that one prompt weighs as much as: who decodes has something to read already. */
export const PROMPT_WEIGHT = 1.9;
/** Steps that prompts save up for a chunk, at most. */
export const SAVING_STEPS = 256;

/**
 * Sets `plan.promptTokens`, what prompts may take of the step; 0 if there are none, and while they save. `plan.credit` is what is
 * in the account then. `plan.onCredit`: only a newcomer may, and only so much. `newcomer`: who may come in, −1 for nobody.
 */
export function allowPrompts(
  state: SchedulerState,
  config: SchedulerConfig,
  plan: StepPlan,
  newcomer: number,
): void {
  const { costs } = state;
  const { minChunk, targetItl, maxBatchTokens } = config;
  if (plan.promptCount === 0 && newcomer < 0) return;
  plan.promptTokens = maxBatchTokens;
  const decoding = countDecoding(state, plan);
  if (targetItl === 0 || decoding === 0) return;
  if (costs.token === 0) {
    // Nothing is known yet: as little as may be.
    plan.promptTokens = minChunk;
    return;
  }
  const base = costs.fixed + costs.row * decoding;
  const token = costs.token + (costs.depth * (deepest(state, plan, newcomer) + minChunk)) / 1000;
  const fits = Math.max(minChunk, Math.floor((targetItl - base - costs.chunk) / token)) | 0;
  const heads = plan.promptCount + countWaiting(state);
  const gain = base * Math.max((PROMPT_WEIGHT * heads) / decoding, LEAST_SHARE / (1 - LEAST_SHARE));
  const credit = Math.min(state.credit + gain, costs.chunk + token * fits);
  const saved = Math.max(minChunk, Math.floor((gain * SAVING_STEPS - costs.chunk) / token)) | 0;
  const worth = Math.min(pendingTokens(state, plan, newcomer), fits, config.chunkTokens, saved) | 0;
  plan.credit = credit;
  plan.saving = state.saving + 1;
  // Where nobody decodes just now, there is nothing to wait for.
  if (credit >= costs.chunk + token * worth || state.saving >= SAVING_STEPS || plan.rowCount === 0)
    plan.promptTokens = Math.min(fits, Math.max(worth, Math.floor((credit - costs.chunk) / token))) | 0;
  else if (newcomer >= 0 && state.credit >= 0) {
    plan.promptTokens = minChunk;
    plan.onCredit = true;
  } else plan.promptTokens = 0;
}

/** Plans what `allowPrompts` allowed, as far as the budget goes. `closed`: nobody comes in now. */
export function planPrompts(
  state: SchedulerState,
  config: SchedulerConfig,
  plan: StepPlan,
  closed: boolean,
): void {
  const before = plan.tokens;
  const end = Math.min(config.maxBatchTokens, before + plan.promptTokens);
  const first = plan.count;
  if (end > before) {
    const both = plan.promptCount > 0 && !plan.onCredit;
    if (!closed) admit(state, config, plan, both ? before + newcomersPart(state, config, end - before) : end);
    if (!plan.onCredit) {
      for (let i = 0; i < plan.promptCount && plan.tokens < end; i++)
        planRow(state, config, plan, plan.prompts[i]!, end);
      if (!closed && both) admit(state, config, plan, end);
      spendRest(state, config, plan, first, end);
    }
  }
  plan.prefilled = plan.tokens - before;
  if (plan.prefilled === 0) return;
  if (plan.saving > 0) {
    const { chunk, token, depth } = state.costs;
    plan.spent = chunk + token * plan.prefilled;
    for (let i = first; i < plan.count; i++) {
      const { index, tokens } = plan.work[i]!;
      plan.spent += (depth * tokens * (startOf(state, plan, index) + tokens / 2)) / 1000;
    }
    plan.credit -= plan.spent;
  }
  plan.saving = 0;
}

/** Where the work of a planned sequence begins. */
function startOf({ running, waiting }: SchedulerState, plan: StepPlan, index: number): number {
  return index < running.length
    ? running[index]!.computed
    : waiting[plan.admits[index - running.length]!]!.computed;
}

/** Most tokens that are before a prompt's next ones. */
function deepest({ running, waiting }: SchedulerState, plan: StepPlan, newcomer: number): number {
  let most = newcomer < 0 ? 0 : waiting[newcomer]!.computed;
  for (let i = 0; i < plan.promptCount; i++) most = Math.max(most, running[plan.prompts[i]!]!.computed);
  return most;
}

/** Rows that decode, those that sit this step out included: they want their next token soon. */
function countDecoding({ running }: SchedulerState, plan: StepPlan): number {
  let count = 0;
  for (let index = 0; index < running.length; index++) {
    const row = running[index]!;
    if (index !== plan.victim && row.drawsLeft > 0 && decodes(row)) count++;
  }
  return count;
}

/** Half, or all and nothing in turn where that is less than a chunk. */
function newcomersPart(state: SchedulerState, { minChunk }: SchedulerConfig, tokens: number): number {
  if (tokens >= 2 * minChunk) return (tokens + 1) >> 1;
  return (state.chunkSteps & 1) === 0 ? tokens : 0;
}

/** Lets in whoever is next while there is room and the step holds less than `end` tokens. */
function admit(state: SchedulerState, config: SchedulerConfig, plan: StepPlan, end: number): void {
  while (plan.tokens < end && plan.admitted < state.freeSlots) {
    const at = nextWaiting(state, config, plan);
    if (at < 0 || !mayEnter(state, config, plan, at)) return;
    const next = state.waiting[at]!;
    const index = state.running.length + plan.admitted;
    const work = planChunk(config, plan, index, next, newcomersReach(next, config), end);
    // Its picture comes in with the next step.
    if (work === null) return;
    for (let group = 0; group < config.groups.length; group++) {
      const main = mainToEnter(next, config, group);
      plan.blocksLeft[group]! -= main;
      work.newBlocks[group] = main;
    }
    if (next.floatStart) {
      const own = floatStartToEnter(next, config);
      plan.floatStartLeft -= own;
      work.reserve = work.newBlocks[0]!;
      work.newBlocks[0] = own;
      plan.floatStartAdmitted++;
    }
    takeAsItGoes(next, config, work);
    plan.admits[plan.admitted++] = at;
  }
}

/** Of a sliding group a newcomer is given the blocks that its chunk reaches into. */
function takeAsItGoes(next: WaitingView, config: SchedulerConfig, work: PlannedWork): void {
  const reach = blocksFor(next.computed + work.tokens, config.blockTokens);
  for (let group = 0; group < config.groups.length; group++)
    if (slides(config.groups[group]!)) work.newBlocks[group] = reach - next.blocks[group]!;
}

/** All its blocks are its own since it came in, but those of sliding groups: it takes them as it goes. */
function planRow(
  state: SchedulerState,
  config: SchedulerConfig,
  plan: StepPlan,
  index: number,
  end: number,
): void {
  const row = state.running[index]!;
  const reach = rowsReach(row, config, plan, index, null);
  if (reach <= 0) return;
  const work = planChunk(config, plan, index, row, reach, end);
  if (work === null) return;
  work.converts = converts(row, config);
  takeBlocks(row, config, plan, work);
}

/** Of a sliding group a row is given the blocks that its chunk reaches into. */
function takeBlocks(row: RunningView, config: SchedulerConfig, plan: StepPlan, work: PlannedWork): void {
  const reach = blocksFor(row.computed + work.tokens, config.blockTokens);
  for (let group = 0; group < config.groups.length; group++) {
    if (!slides(config.groups[group]!)) continue;
    const more = Math.max(0, reach - row.blocks[group]!);
    plan.blocksLeft[group]! -= more - work.newBlocks[group]!;
    work.newBlocks[group] = more;
    if (work.index === plan.anchor) plan.anchorBlocks[group] = 0;
  }
}

/**
 * At most half of what is left, but not less than `minChunk`; not beyond `until`. More only where tokens are computed together; null
 * where the step has no room for those.
 */
function planChunk(
  config: SchedulerConfig,
  plan: StepPlan,
  index: number,
  view: RunningView | WaitingView,
  until: number,
  end: number,
): PlannedWork | null {
  const pending = view.length - view.computed;
  const left = end - plan.tokens;
  const half = Math.max(config.minChunk, (left + 1) >> 1);
  const most = Math.min(until, config.maxBatchTokens - plan.tokens);
  const tokens = wholeChunk(view, Math.min(pending, left, half, until), most);
  return tokens === 0 ? null : plan.add(index, tokens, pending);
}

/** What is left goes to the prompts that the plan has already, in their order. */
function spendRest(
  state: SchedulerState,
  config: SchedulerConfig,
  plan: StepPlan,
  first: number,
  end: number,
): void {
  const { running, waiting } = state;
  for (let i = first; i < plan.count && plan.tokens < end; i++) {
    const work = plan.work[i]!;
    if (work.draws) continue;
    let pending: number;
    let until: number;
    const row = running[work.index];
    const next = row === undefined ? waiting[plan.admits[work.index - running.length]!]! : null;
    if (row !== undefined) {
      pending = row.length - row.computed;
      until = rowsReach(row, config, plan, work.index, work);
    } else {
      pending = next!.length - next!.computed;
      until = newcomersReach(next!, config);
    }
    const room = work.tokens + config.maxBatchTokens - plan.tokens;
    const wanted = Math.max(work.tokens, Math.min(pending, until, work.tokens + end - plan.tokens));
    const more = wholeChunk(row ?? next!, wanted, Math.min(until, room)) - work.tokens;
    work.tokens += more;
    plan.tokens += more;
    if (row !== undefined) takeBlocks(row, config, plan, work);
    else takeAsItGoes(next!, config, work);
    if (work.tokens === pending) {
      work.draws = true;
      plan.draws++;
    }
  }
}

/**
 * Tokens that a row may take: before it has to be converted or its state is copied, and with the blocks of sliding groups that it has, that `work` gives
 * it and that are left.
 */
function rowsReach(
  row: RunningView,
  config: SchedulerConfig,
  plan: StepPlan,
  index: number,
  work: PlannedWork | null,
): number {
  let reach = row.floatStart && !converts(row, config) ? config.floatStartTokens - row.computed : row.length;
  reach = Math.min(reach, tokensToCut(row));
  for (let group = 0; group < config.groups.length; group++) {
    if (!slides(config.groups[group]!)) continue;
    const left = plan.blocksLeft[group]! - (index === plan.anchor ? 0 : plan.anchorBlocks[group]!);
    const more = (work?.newBlocks[group] ?? 0) + Math.max(0, left);
    reach = Math.min(reach, tokensWithin(row, more, config, group));
  }
  return reach;
}

/** Tokens that a newcomer may take, which has the blocks it lacked. */
function newcomersReach(next: WaitingView, config: SchedulerConfig): number {
  let reach = next.floatStart ? config.floatStartTokens - next.computed : next.length - next.computed;
  reach = Math.min(reach, tokensToCut(next));
  for (let group = 0; group < config.groups.length; group++) {
    const kind = config.groups[group]!;
    if (slides(kind)) reach = Math.min(reach, tokensWithin(next, kind.rowBlocks, config, group));
  }
  return reach;
}

/** What prompts in rows and the newcomer could take at once. */
function pendingTokens({ running, waiting }: SchedulerState, plan: StepPlan, newcomer: number): number {
  let tokens = newcomer < 0 ? 0 : waiting[newcomer]!.length - waiting[newcomer]!.computed;
  for (let i = 0; i < plan.promptCount; i++) {
    const row = running[plan.prompts[i]!]!;
    tokens += row.length - row.computed;
  }
  return tokens;
}
