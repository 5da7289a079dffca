/**
 * More blocks of a cache group needed than there are: who gives way. What only a cache holds counts as free. Beyond that, waiting
 * sequences drop what they hold; then one running row gives its blocks up and is computed again later.
 *
 * The running rows are ranked: by level, then by tokens computed, then by age. The level is the priority less the
 * age in steps of `ageingMs`; it does not change while the sequence lives, so that two rows cannot take each other's blocks
 * in turn. The row of the highest rank, the anchor, never gives way, and every group holds at least one sequence of full length,
 * so somebody always comes to an end; newcomers sink as time passes, so sooner or later everybody is the anchor.
 */

import { floatStartNeed, givesBackSoon, mainNeed, ready } from './blocks.js';
import type { RunningView, SchedulerConfig, SchedulerState, StepPlan } from './step-plan.js';

/** Sets `dropHeld`, or `victim`, if the rows need more blocks than are free and none are about to be; and the `anchor`. */
export function relievePressure(state: SchedulerState, config: SchedulerConfig, plan: StepPlan): void {
  const { running } = state;
  let floatStart = 0;
  let floatStartSoon = state.leavingFloatStart > 0;
  let anchor = -1;
  for (let index = 0; index < running.length; index++) {
    const row = running[index]!;
    if (row.drawsLeft === 0) {
      // It ends with the steps under way, and its blocks come back.
      floatStartSoon ||= row.floatStart;
      continue;
    }
    if (anchor < 0 || outranks(row, running[anchor]!, config)) anchor = index;
    if (ready(row, state, config)) floatStart += floatStartNeed(row, config);
  }
  for (let group = 0; group < config.groups.length; group++) {
    const needed = neededBlocks(state, config, group);
    if (needed <= state.freeBlocks[group]!) continue;
    plan.anchor = anchor;
    const row = running[anchor]!;
    plan.anchorBlocks[group] = ready(row, state, config) ? mainNeed(row, config, group) : 0;
    if (areFreedSoon(state, config, group)) continue;
    if (state.queuedBlocks[group]! > 0) plan.dropHeld = true;
    else plan.victim = mainVictim(state, config, anchor, needed, group);
    if (plan.dropHeld || plan.victim >= 0) return;
  }
  if (floatStart <= state.freeFloatStart || floatStartSoon) return;
  if (state.queuedFloatStart > 0) plan.dropHeld = true;
  else plan.victim = floatStartVictim(state, config, anchor);
}

/** Blocks of a group's main pool that the rows lack for their next tokens. */
function neededBlocks(state: SchedulerState, config: SchedulerConfig, group: number): number {
  let needed = 0;
  for (let index = 0; index < state.running.length; index++) {
    const row = state.running[index]!;
    if (row.drawsLeft > 0 && ready(row, state, config)) needed += mainNeed(row, config, group);
  }
  return needed;
}

/** Steps under way will bring blocks of a group's main pool back. */
function areFreedSoon(state: SchedulerState, config: SchedulerConfig, group: number): boolean {
  if (state.leavingBlocks[group]! > 0) return true;
  for (let index = 0; index < state.running.length; index++) {
    const row = state.running[index]!;
    // A row without draws ends with the steps under way.
    if (row.drawsLeft === 0 ? hasMain(row, group) : givesBackSoon(row, state, config, group)) return true;
  }
  return false;
}

/** Holds blocks of a group's main pool. */
function hasMain(row: RunningView, group: number): boolean {
  if (group === 0 && row.floatStart) return row.reserved > 0;
  return row.blocks[group]! > row.front[group]!;
}

/** `a` has a higher rank than `b`, an older row. */
function outranks(a: RunningView, b: RunningView, config: SchedulerConfig): boolean {
  const difference = level(a, config) - level(b, config);
  return difference !== 0 ? difference > 0 : a.computed > b.computed;
}

function level({ priority, arrival }: RunningView, { ageingMs }: SchedulerConfig): number {
  // As integers: a quotient would be a number of the heap.
  return (priority - ((arrival / ageingMs) | 0)) | 0;
}

/** The row next above `below` in rank (the lowest for −1), or −1. Of equals the newest is the lowest. */
function nextInRank(running: readonly RunningView[], config: SchedulerConfig, below: number): number {
  let found = -1;
  for (let index = running.length - 1; index >= 0; index--) {
    if (below >= 0 && !isAbove(running, config, index, below)) continue;
    if (found < 0 || isAbove(running, config, found, index)) found = index;
  }
  return found;
}

function isAbove(
  running: readonly RunningView[],
  config: SchedulerConfig,
  index: number,
  other: number,
): boolean {
  if (index === other) return false;
  return index > other
    ? outranks(running[index]!, running[other]!, config)
    : !outranks(running[other]!, running[index]!, config);
}

/**
 * The lowest row with blocks of a group's main pool. A lower one that has none and needs some waits: it takes none by
 * force.
 */
function mainVictim(
  state: SchedulerState,
  config: SchedulerConfig,
  anchor: number,
  needed: number,
  group: number,
): number {
  const { running } = state;
  let rest = needed;
  for (
    let index = nextInRank(running, config, -1);
    index >= 0 && index !== anchor;
    index = nextInRank(running, config, index)
  ) {
    const row = running[index]!;
    if (row.held) continue;
    if (hasMain(row, group)) return index;
    if (ready(row, state, config)) rest -= mainNeed(row, config, group);
    if (rest <= state.freeBlocks[group]!) return -1;
  }
  return -1;
}

/** The lowest float-start row. */
function floatStartVictim({ running }: SchedulerState, config: SchedulerConfig, anchor: number): number {
  for (
    let index = nextInRank(running, config, -1);
    index >= 0 && index !== anchor;
    index = nextInRank(running, config, index)
  )
    if (running[index]!.floatStart && !running[index]!.held) return index;
  return -1;
}
