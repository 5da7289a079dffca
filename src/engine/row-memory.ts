/**
 * The memory that rows have: a pool of blocks for each cache group, block tables for each row, blocks on their way from one
 * kind to the other, and the prefixes that are kept when a row leaves.
 */

import type { KvantError } from '../errors.js';
import { BlockTable } from '../kv/block-table.js';
import { groupPools } from '../kv/head-pool.js';
import { Conversions } from './conversions.js';
import type { CoreOptions } from './core-options.js';
import { type GroupMemory, groupMemory } from './group-memory.js';
import { Prefixes } from './prefix/prefixes.js';
import type { SchedulerState, StepPlan } from './scheduling/scheduler.js';
import type { PlannedWork } from './scheduling/step-plan.js';
import type { Sequence } from './sequence.js';
import type { StepInFlight } from './step-filler.js';

/** What of the scheduler's state is about memory. */
export interface MemoryState
  extends Pick<
    { -readonly [K in keyof SchedulerState]: SchedulerState[K] },
    'freeSlots' | 'queuedFloatStart' | 'freeFloatStart' | 'leavingFloatStart'
  > {
  readonly freeBlocks: number[];
  readonly leavingBlocks: number[];
  readonly queuedBlocks: number[];
}

export class RowMemory {
  /** Null where no prefixes are cached. */
  readonly prefixes: Prefixes | null;
  readonly #groups: readonly GroupMemory[];
  readonly #conversions: Conversions;
  readonly #freeTables: (readonly BlockTable[])[] = [];
  /** Rows that have just come in and have no slot of state yet. */
  readonly #unseated: Sequence[] = [];
  /** The group of recurrent layers, −1 for none. */
  readonly stateGroup: number;

  /** `onMoved` is told when blocks of a sequence have been converted or copied, or could not be; for the rest see Prefixes. */
  constructor(
    options: Pick<CoreOptions, 'caches' | 'limits' | 'scheduler' | 'prefixes'>,
    onMoved: (sequence: Sequence, error: KvantError | null) => void,
    onRestored: () => void,
    tokenMs: () => number,
  ) {
    const { caches, limits, scheduler, prefixes } = options;
    this.#groups = groupPools(caches).map((pool, group) => groupMemory(pool, scheduler.groups[group]!));
    this.stateGroup = scheduler.groups.findIndex(({ state }) => state === true);
    const { floatStartTokens } = scheduler;
    this.prefixes = prefixes
      ? new Prefixes(prefixes, this.#groups, floatStartTokens, onMoved, onRestored, tokenMs)
      : null;
    this.#conversions = new Conversions(caches.pools[0]!, this.prefixes, onMoved);
    for (let slot = limits.maxRows - 1; slot >= 0; slot--)
      this.#freeTables.push(
        this.#groups.map(({ pool, blocks, floatStart }) => new BlockTable(slot, blocks, pool, floatStart)),
      );
  }

  get freeRows(): number {
    return this.#freeTables.length;
  }

  /** Cache groups there are. */
  get groups(): number {
    return this.#groups.length;
  }

  /** Sequences start float-start. */
  get startsFloatStart(): boolean {
    return this.#groups[0]!.floatStart !== null;
  }

  /** Nothing is being moved. */
  get settled(): boolean {
    const { copying = 0, disk = null } = this.prefixes ?? {};
    return this.#conversions.blocks + copying + (disk?.restoring ?? 0) === 0;
  }

  /** Tells the scheduler what there is. `leaving` and those of `running` that give way soon bring theirs back. */
  describe(state: MemoryState, leaving: readonly Sequence[], running: readonly Sequence[]): void {
    state.freeSlots = this.#freeTables.length;
    state.queuedFloatStart = 0;
    state.freeFloatStart = this.#groups[0]!.floatStart?.available ?? 0;
    state.leavingFloatStart = this.#conversions.blocks;
    for (let group = 0; group < this.#groups.length; group++) {
      state.freeBlocks[group] = this.#groups[group]!.blocks.available;
      state.leavingBlocks[group] = 0;
      state.queuedBlocks[group] = 0;
    }
    this.#describeRestores(state);
    if (this.stateGroup >= 0) state.leavingBlocks[this.stateGroup]! += this.prefixes?.snapshots?.pending ?? 0;
    for (const sequence of leaving) countLeaving(state, sequence);
    for (const sequence of running) if (sequence.yielding) countLeaving(state, sequence);
  }

  /** Sequences that wait give back the blocks that they hold. */
  dropHeld(): void {
    this.prefixes?.disk?.drop();
  }

  /** Sequences that wait hold blocks only while these are filled from disk. */
  #describeRestores(state: MemoryState): void {
    const disk = this.prefixes?.disk;
    if (!disk?.restoring) return;
    for (let group = 0; group < this.#groups.length; group++) {
      const main = disk.blocks(group, false);
      state.queuedBlocks[group] = main.held;
      state.leavingBlocks[group]! += main.leaving;
    }
    const floatStart = disk.blocks(0, true);
    state.queuedFloatStart = floatStart.held;
    state.leavingFloatStart += floatStart.leaving;
  }

  /** Gives a sequence that comes in a row, and what it found in the cache. `work` is what is planned for it. */
  admit(sequence: Sequence, work: Pick<PlannedWork, 'newBlocks'>): void {
    sequence.tables = this.#freeTables.pop()!;
    const { prefix } = sequence;
    if (this.stateGroup >= 0) {
      work.newBlocks[this.stateGroup] = 0;
      this.#unseated.push(sequence);
    }
    if (prefix === null) return;
    // To the scheduler they were blocks still to be had.
    for (let group = 0; group < this.#groups.length; group++) work.newBlocks[group]! -= prefix.cold[group]!;
    this.prefixes!.adopt(sequence);
  }

  /** Gives those that have been admitted their slots of state: none is given while one may still name it as a snapshot. */
  seat(): void {
    for (const sequence of this.#unseated.splice(0))
      if (this.prefixes === null) sequence.tables![this.stateGroup]!.grow(1);
      else this.prefixes.seat(sequence);
  }

  /** Sets blocks aside and has converted what is to be converted, as planned. All that come in have been admitted. */
  convert(plan: StepPlan, running: readonly Sequence[]): void {
    if (this.startsFloatStart) this.#conversions.apply(plan, running);
  }

  /** A step has retired: what it filled can be cached, and what no later one reads is given back. */
  retire(flight: StepInFlight): void {
    this.prefixes?.retire(flight);
    for (let group = 0; group < this.#groups.length; group++) {
      const { holder, state } = this.#groups[group]!;
      if (holder.keepsAll || state) continue;
      for (let row = 0; row < flight.rows; row++) {
        const sequence = flight.members[row]!;
        const table = sequence.tables?.[group];
        if (table === undefined) continue;
        const { front } = table;
        table.giveBack(holder.firstHeld(flight.reached[row]!));
        if (table.front > front) this.prefixes?.entries.keepHistory(sequence, group);
      }
    }
  }

  /** Takes a sequence's row back; `keep`: what it holds is good, and may be kept. */
  release(sequence: Sequence, keep: boolean): void {
    const tables = sequence.tables!;
    if (keep) this.prefixes?.entries.leave(sequence);
    for (const table of tables) table.clear();
    this.#freeTables.push(tables);
    sequence.tables = null;
  }

  /** When nothing is being moved: ends the disk tier, forgets all prefixes, and throws if a block is still in use. */
  async close(): Promise<void> {
    await this.prefixes?.disk?.close();
    this.prefixes?.failed(Number.POSITIVE_INFINITY);
    this.prefixes?.forget();
    for (const { blocks, floatStart } of this.#groups) {
      blocks.check(0);
      floatStart?.check(0);
    }
  }

  stats() {
    const floatStart = this.#groups[0]!.floatStart;
    return {
      blocksUsed: this.#groups.reduce((sum, { blocks }) => sum + blocks.held, 0),
      blocksTotal: this.#groups.reduce((sum, { blocks }) => sum + blocks.size, 0),
      cacheGroups: this.#groups.map(({ blocks }) => ({ blocksUsed: blocks.held, blocksTotal: blocks.size })),
      floatStartBlocksUsed: floatStart?.held ?? 0,
      floatStartBlocksTotal: floatStart?.size ?? 0,
      conversions: this.#conversions.count,
      ...(this.prefixes === null ? {} : { prefixCache: this.prefixes.stats() }),
    };
  }
}

function countLeaving(state: MemoryState, sequence: Sequence): void {
  const { floatStart, reserved, blocks, front } = sequence;
  if (floatStart) state.leavingFloatStart += blocks[0]!;
  for (let group = 0; group < blocks.length; group++)
    state.leavingBlocks[group]! += floatStart && group === 0 ? reserved : blocks[group]! - front[group]!;
}
