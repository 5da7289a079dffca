/**
 * What sequences need of each cache group, for their next token and to come in.
 *
 * Only group 0 can have float-start blocks: where a sequence is `floatStart`, its blocks of group 0 are those, and what it has of
 * the group's main pool is `reserved`. All other groups know one kind of block.
 */

import type {
  RunningView,
  SchedulerConfig,
  SchedulerGroup,
  SchedulerState,
  StepPlan,
  WaitingView,
} from './step-plan.js';

/** Has work for the next step. One that is to be converted first waits for its steps under way. */
export function ready(row: RunningView, state: SchedulerState, config: SchedulerConfig): boolean {
  if (row.held || row.drawsLeft === 0 || row.computed >= row.length) return false;
  return !converts(row, config) || row.lastStep <= state.retired;
}

export function converts(row: RunningView, config: SchedulerConfig): boolean {
  return row.floatStart && row.computed >= config.floatStartTokens;
}

/** Blocks of a group's main pool that a row lacks for its next tokens. */
export function mainNeed(row: RunningView, config: SchedulerConfig, group: number, tokens = 1): number {
  if (isFixed(config.groups[group]!)) return 0;
  const floatStart = group === 0 && row.floatStart;
  if (floatStart && !converts(row, config)) return 0;
  const has = floatStart ? row.reserved : row.blocks[group]!;
  return Math.max(0, blocksFor(row.computed + tokens, config.blockTokens) - has);
}

/** Whoever came in has all it will ever have of the group. */
function isFixed({ state = false, head = false }: SchedulerGroup): boolean {
  return state || head;
}

/** FloatStart blocks that a row lacks for its next tokens. */
export function floatStartNeed(row: RunningView, config: SchedulerConfig, tokens = 1): number {
  if (!row.floatStart || converts(row, config)) return 0;
  return Math.max(0, blocksFor(row.computed + tokens, config.blockTokens) - row.blocks[0]!);
}

/** It takes its next tokens as a decoding row: one, or a run. */
export function decodes({ length, computed, run = false }: RunningView): boolean {
  return run || length - computed <= 1;
}

/**
 * Blocks of a group's main pool that a waiting sequence lacks for all its tokens, or for as many as it ever holds at once.
 * It needs none while it can stay float-start.
 */
export function mainToEnter(next: WaitingView, config: SchedulerConfig, group: number): number {
  const { length, floatStart } = next;
  if (!floatStart || group > 0) return lacking(next, config, group);
  return length <= config.floatStartTokens ? 0 : blocksFor(length, config.blockTokens);
}

/** Blocks that a row will take of a sliding group for the rest of its prompt. Of a full group it has them all. */
export function owed(row: RunningView, config: SchedulerConfig, group: number): number {
  if (!slides(config.groups[group]!) || row.drawsLeft === 0 || row.length - row.computed < 2) return 0;
  return lacking(row, config, group);
}

/** Whether rows give a group's blocks back behind a window, and take them as they go. */
export function slides({ window }: SchedulerGroup): boolean {
  return window > 0;
}

type Holding = Pick<WaitingView, 'length' | 'computed' | 'blocks' | 'front'>;

function lacking({ length, blocks, front }: Holding, config: SchedulerConfig, group: number): number {
  const { rowBlocks, head = false } = config.groups[group]!;
  const before = front[group]!;
  if (head) return rowBlocks - blocks[group]!;
  const most = Math.min(blocksFor(length, config.blockTokens) - before, rowBlocks);
  return Math.max(0, most - (blocks[group]! - before));
}

/** Tokens that a row may take with so many more blocks of a group, without holding more than a row may. */
export function tokensWithin(
  { computed, front, blocks }: Holding,
  more: number,
  config: SchedulerConfig,
  group: number,
): number {
  const { rowBlocks } = config.groups[group]!;
  const end = Math.min(front[group]! + rowBlocks, blocks[group]! + more);
  return (end * config.blockTokens - computed) | 0;
}

/** Tokens up to where a sequence wants its chunk to end. */
export function tokensToCut({ computed, cut }: Pick<WaitingView, 'computed' | 'cut'>): number {
  return cut === undefined ? Number.POSITIVE_INFINITY : cut - computed;
}

/**
 * A chunk of about so many tokens that ends within no span: fewer where the span begins later, else all of the span, if they are no
 * more than `most`. 0 where there is no room.
 */
export function wholeChunk(
  { computed, uncut = NO_SPANS }: Pick<WaitingView, 'computed' | 'uncut'>,
  tokens: number,
  most: number,
): number {
  const end = computed + tokens;
  for (let i = 0; i < uncut.length && uncut[i]! < end; i += 2) {
    const to = uncut[i + 1]!;
    if (end >= to) continue;
    if (uncut[i]! > computed) return uncut[i]! - computed;
    return to - computed <= most ? to - computed : 0;
  }
  return tokens;
}

const NO_SPANS: readonly number[] = [];

/** Blocks behind the window of a row's next token that it gives back when its steps under way have retired. */
export function givesBackSoon(
  row: RunningView,
  state: SchedulerState,
  config: SchedulerConfig,
  group: number,
): boolean {
  const { window } = config.groups[group]!;
  if (window === 0 || row.lastStep <= state.retired) return false;
  return row.computed - (window - 1) >= (row.front[group]! + 1) * config.blockTokens;
}

/** FloatStart blocks that a waiting sequence lacks for what it holds while it is float-start. */
export function floatStartToEnter(
  { length, blocks, floatStart }: WaitingView,
  config: SchedulerConfig,
): number {
  if (!floatStart) return 0;
  return Math.max(0, blocksFor(Math.min(length, config.floatStartTokens), config.blockTokens) - blocks[0]!);
}

/**
 * Whether a sequence may come in: in every group there must be blocks for all its tokens, and one for each row that may
 * grow. State and float heads do not.
 */
export function hasRoom(
  next: WaitingView,
  config: SchedulerConfig,
  plan: StepPlan,
  rows: number,
  floatStartRows: number,
): boolean {
  for (let group = 0; group < config.groups.length; group++) {
    const main = mainToEnter(next, config, group);
    const others = isFixed(config.groups[group]!) ? 0 : rows + plan.owed[group]!;
    if (main > 0 && plan.blocksLeft[group]! < main + others) return false;
  }
  const floatStart = floatStartToEnter(next, config);
  return floatStart === 0 || plan.floatStartLeft >= floatStart + floatStartRows;
}

export function countFloatStart(state: SchedulerState, config: SchedulerConfig): number {
  if (config.floatStartTokens === 0) return 0;
  let rows = 0;
  for (let index = 0; index < state.running.length; index++) if (state.running[index]!.floatStart) rows++;
  return rows;
}

/** Blocks that so many tokens reach into. */
export function blocksFor(tokens: number, blockTokens: number): number {
  // As integers: a quotient would be a number of the heap.
  return ((tokens + blockTokens - 1) / blockTokens) | 0;
}
