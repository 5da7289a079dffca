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
 * - A row that finds no block takes those of the newest row: that one goes back to the head of the queue and is
 *   computed again later (its tokens are known, so nothing is drawn twice). The oldest row never gives way and the
 *   pool holds at least one sequence of full length, so somebody always comes to an end.
 *
 * With `youngTokens`, a sequence starts young: its first tokens go into blocks of another pool, which keep them as
 * floats. Its chunks are cut where it holds exactly so many. There it waits until no step under way names it, and
 * then its next work converts it: what it holds moves to blocks of the main pool, which it must have first. A
 * sequence that comes in longer than that has them from the start; another one waits for them where it is, and if
 * they can only come from newer rows, takes theirs.
 */

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
  plan.victim = chooseVictim(state, config);
  const budget = config.maxBatchTokens;
  const forDecode = budget - prefillReserve(state, config, plan.victim);
  listDecodeRows(state, config, plan, forDecode);
  const served = planDecode(state, config, plan, 0, forDecode);
  planPrefill(state, config, plan);
  // What no prompt took goes to the decoding rows that were put off.
  planDecode(state, config, plan, served, budget);
}

/** Has work for the next step. One that is to be converted first waits for its steps under way. */
function ready(row: RunningView, state: SchedulerState, config: SchedulerConfig): boolean {
  if (row.held || row.drawsLeft === 0 || row.computed >= row.length) return false;
  return !converts(row, config) || row.lastStep <= state.retired;
}

function converts(row: RunningView, config: SchedulerConfig): boolean {
  return row.young && row.computed >= config.youngTokens;
}

/** Blocks of the main pool that a row lacks for its next token. */
function mainNeed(row: RunningView, config: SchedulerConfig): number {
  if (row.young && !converts(row, config)) return 0;
  return Math.max(
    0,
    blocksFor(row.computed + 1, config.blockTokens) - (row.young ? row.reserved : row.blocks),
  );
}

/** Young blocks that a row lacks for its next token. */
function youngNeed(row: RunningView, config: SchedulerConfig): number {
  if (!row.young || converts(row, config)) return 0;
  return Math.max(0, blocksFor(row.computed + 1, config.blockTokens) - row.blocks);
}

/**
 * If the rows need more blocks than are free, and none are about to be: the newest row that has some. Never the
 * oldest: alone it always has enough.
 */
function chooseVictim(state: SchedulerState, config: SchedulerConfig): number {
  const { running } = state;
  let main = 0;
  let young = 0;
  let mainSoon = state.leavingBlocks > 0;
  let youngSoon = state.leavingYoung > 0;
  for (let index = 0; index < running.length; index++) {
    const row = running[index]!;
    if (row.drawsLeft === 0) {
      // It ends with the steps under way, and its blocks come back.
      mainSoon ||= !row.young || row.reserved > 0;
      youngSoon ||= row.young;
    } else if (ready(row, state, config)) {
      main += mainNeed(row, config);
      young += youngNeed(row, config);
    }
  }
  if (main > state.freeBlocks && !mainSoon) {
    const victim = mainVictim(state, config, main);
    if (victim >= 0) return victim;
  }
  if (young <= state.freeYoung || youngSoon) return -1;
  for (let index = running.length - 1; index > 0; index--)
    if (running[index]!.young && !running[index]!.held) return index;
  return -1;
}

/** The newest row with blocks of the main pool. A newer one that has none and needs some waits: it takes none by force. */
function mainVictim(state: SchedulerState, config: SchedulerConfig, needed: number): number {
  const { running } = state;
  let rest = needed;
  for (let index = running.length - 1; index > 0; index--) {
    const row = running[index]!;
    if (row.held) continue;
    if (!row.young || row.reserved > 0) return index;
    if (ready(row, state, config)) rest -= mainNeed(row, config);
    if (rest <= state.freeBlocks) return -1;
  }
  return -1;
}

/**
 * Whether a sequence may come in: there must be blocks for all its tokens, and one for each row that may grow. In the
 * main pool it needs none while it can stay young.
 */
function hasRoom(
  next: WaitingView,
  config: SchedulerConfig,
  main: number,
  young: number,
  rows: number,
  youngRows: number,
): boolean {
  const ownMain = mainBlocks(next, config);
  const ownYoung = youngBlocks(next, config);
  return (ownMain === 0 || main >= ownMain + rows) && (ownYoung === 0 || young >= ownYoung + youngRows);
}

function mainBlocks({ length }: WaitingView, config: SchedulerConfig): number {
  return length <= config.youngTokens ? 0 : blocksFor(length, config.blockTokens);
}

function youngBlocks({ length }: WaitingView, config: SchedulerConfig): number {
  return blocksFor(Math.min(length, config.youngTokens), config.blockTokens);
}

function youngRows(state: SchedulerState, config: SchedulerConfig): number {
  if (config.youngTokens === 0) return 0;
  let rows = 0;
  for (let index = 0; index < state.running.length; index++) if (state.running[index]!.young) rows++;
  return rows;
}

function prefillReserve(state: SchedulerState, config: SchedulerConfig, victim: number): number {
  const budget = config.maxBatchTokens;
  if (!prefills(state, config, victim) && !admits(state, config, victim)) return 0;
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

function admits(state: SchedulerState, config: SchedulerConfig, victim: number): boolean {
  const next = state.waiting[0];
  if (next === undefined || victim >= 0 || state.freeSlots === 0) return false;
  const rows = state.running.length;
  return hasRoom(next, config, state.freeBlocks, state.freeYoung, rows, youngRows(state, config));
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
    if (main > plan.blocksLeft || young > plan.youngLeft) {
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
  let young = youngRows(state, config);
  while (!closed && plan.admitted < waiting.length) {
    const next = waiting[plan.admitted]!;
    const rows = running.length + plan.admitted;
    if (plan.tokens >= budget || plan.admitted >= state.freeSlots) break;
    if (!hasRoom(next, config, plan.blocksLeft, plan.youngLeft, rows, young)) break;
    const main = mainBlocks(next, config);
    const own = youngBlocks(next, config);
    plan.blocksLeft -= main;
    plan.youngLeft -= own;
    const until = config.youngTokens > 0 ? config.youngTokens : next.length;
    const work = planChunk(config, plan, rows, next.length, until, own > 0 ? own : main);
    work.reserve = own > 0 ? main : 0;
    if (own > 0) young++;
    plan.admitted++;
  }
  spendRest(state, config, plan, first, budget);
}

/** Tokens that a row may take before it has to be converted. */
function untilConversion(row: RunningView, config: SchedulerConfig): number {
  return row.young && !converts(row, config) ? config.youngTokens - row.computed : row.length;
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
    const row = state.running[work.index];
    const waiting = state.waiting[work.index - state.running.length];
    const pending = row !== undefined ? row.length - row.computed : waiting!.length;
    const until =
      row !== undefined
        ? untilConversion(row, config)
        : config.youngTokens > 0
          ? config.youngTokens
          : pending;
    const more = Math.min(pending, until, work.tokens + budget - plan.tokens) - work.tokens;
    work.tokens += more;
    plan.tokens += more;
    if (work.tokens === pending) {
      work.draws = true;
      plan.draws++;
    }
  }
}

function blocksFor(tokens: number, blockTokens: number): number {
  // As integers: a quotient would be a number of the heap.
  return ((tokens + blockTokens - 1) / blockTokens) | 0;
}
