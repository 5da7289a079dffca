/** What sequences need of the two pools, for their next token and to come in. */

import type { RunningView, SchedulerConfig, SchedulerState, StepPlan, WaitingView } from './step-plan.js';

/** Has work for the next step. One that is to be converted first waits for its steps under way. */
export function ready(row: RunningView, state: SchedulerState, config: SchedulerConfig): boolean {
  if (row.held || row.drawsLeft === 0 || row.computed >= row.length) return false;
  return !converts(row, config) || row.lastStep <= state.retired;
}

export function converts(row: RunningView, config: SchedulerConfig): boolean {
  return row.young && row.computed >= config.youngTokens;
}

/** Blocks of the main pool that a row lacks for its next token. */
export function mainNeed(row: RunningView, config: SchedulerConfig): number {
  if (row.young && !converts(row, config)) return 0;
  const has = row.young ? row.reserved : row.blocks;
  return Math.max(0, blocksFor(row.computed + 1, config.blockTokens) - has);
}

/** Young blocks that a row lacks for its next token. */
export function youngNeed(row: RunningView, config: SchedulerConfig): number {
  if (!row.young || converts(row, config)) return 0;
  return Math.max(0, blocksFor(row.computed + 1, config.blockTokens) - row.blocks);
}

/**
 * Blocks of the main pool that a waiting sequence lacks for all its tokens, or for as many as it ever holds at once. It needs
 * none while it can stay young.
 */
export function mainToEnter(next: WaitingView, config: SchedulerConfig): number {
  const { length, young } = next;
  if (!young) return lacking(next, config);
  return length <= config.youngTokens ? 0 : blocksFor(length, config.blockTokens);
}

/** Blocks that a row with a window will take for the rest of its prompt. One without has them all. */
export function owed(row: RunningView, config: SchedulerConfig): number {
  if (config.window === 0 || row.drawsLeft === 0 || row.length - row.computed < 2) return 0;
  return lacking(row, config);
}

function lacking(
  { length, blocks, front }: { readonly length: number; readonly blocks: number; readonly front: number },
  { blockTokens, rowBlocks }: SchedulerConfig,
): number {
  return Math.max(0, Math.min(blocksFor(length, blockTokens) - front, rowBlocks) - (blocks - front));
}

/** Tokens that a row may take with so many more blocks, without holding more than a row may. */
export function tokensWithin(
  { computed, front, blocks }: { readonly computed: number; readonly front: number; readonly blocks: number },
  more: number,
  { blockTokens, rowBlocks }: SchedulerConfig,
): number {
  return (Math.min(front + rowBlocks, blocks + more) * blockTokens - computed) | 0;
}

/** Blocks behind the window of a row's next token that it gives back when its steps under way have retired. */
export function givesBackSoon(row: RunningView, state: SchedulerState, config: SchedulerConfig): boolean {
  if (config.window === 0 || row.lastStep <= state.retired) return false;
  return row.computed - (config.window - 1) >= (row.front + 1) * config.blockTokens;
}

/** Young blocks that a waiting sequence lacks for what it holds while it is young. */
export function youngToEnter({ length, blocks, young }: WaitingView, config: SchedulerConfig): number {
  if (!young) return 0;
  return Math.max(0, blocksFor(Math.min(length, config.youngTokens), config.blockTokens) - blocks);
}

/** Whether a sequence may come in: there must be blocks for all its tokens, and one for each row that may grow. */
export function hasRoom(
  next: WaitingView,
  config: SchedulerConfig,
  { blocksLeft, youngLeft, owed: promised }: StepPlan,
  rows: number,
  youngRows: number,
): boolean {
  const main = mainToEnter(next, config);
  const young = youngToEnter(next, config);
  return (
    (main === 0 || blocksLeft >= main + rows + promised) && (young === 0 || youngLeft >= young + youngRows)
  );
}

export function countYoung(state: SchedulerState, config: SchedulerConfig): number {
  if (config.youngTokens === 0) return 0;
  let rows = 0;
  for (let index = 0; index < state.running.length; index++) if (state.running[index]!.young) rows++;
  return rows;
}

/** Blocks that so many tokens reach into. */
export function blocksFor(tokens: number, blockTokens: number): number {
  // As integers: a quotient would be a number of the heap.
  return ((tokens + blockTokens - 1) / blockTokens) | 0;
}
