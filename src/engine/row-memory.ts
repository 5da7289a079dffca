/**
 * The memory that rows have: the two pools of blocks, a table for each row, blocks on their way from one kind to the
 * other, and the prefixes that are kept when a row leaves.
 */

import type { KvantError } from '../errors.js';
import { BlockPool } from '../kv/block-pool.js';
import { BlockTable } from '../kv/block-table.js';
import { Holders } from '../kv/prefix/holders.js';
import { Conversions } from './conversions.js';
import type { CoreOptions } from './core-options.js';
import { Prefixes } from './prefix/prefixes.js';
import type { SchedulerState, StepPlan } from './scheduling/scheduler.js';
import type { Sequence } from './sequence.js';
import type { Flight } from './step-filler.js';

/** What of the scheduler's state is about memory. */
export type MemoryState = {
  -readonly [K in
    | 'freeSlots'
    | 'freeBlocks'
    | 'leavingBlocks'
    | 'queuedBlocks'
    | 'queuedYoung'
    | 'freeYoung'
    | 'leavingYoung']: SchedulerState[K];
};

export class RowMemory {
  /** Null where no prefixes are cached. */
  readonly prefixes: Prefixes | null;
  readonly #blocks: BlockPool;
  /** Null where sequences are never young. */
  readonly #young: BlockPool | null;
  readonly #conversions: Conversions;
  /** Null where rows keep all they have. */
  readonly #holders: Holders | null;
  readonly #freeTables: BlockTable[] = [];

  /** `onMoved` is told when blocks of a sequence have been converted or copied, or could not be; for the rest see Prefixes. */
  constructor(
    options: Pick<CoreOptions, 'pool' | 'limits' | 'scheduler' | 'windows' | 'prefixes'>,
    onMoved: (sequence: Sequence, error: KvantError | null) => void,
    onRestored: () => void,
    tokenMs: () => number,
  ) {
    const { pool, limits, scheduler, windows = [], prefixes } = options;
    const { young } = pool.spec;
    // Where all layers see everything there is nothing to agree on.
    const some = windows.some((window) => window !== null);
    const holders = some ? Holders.of(windows, pool.spec.blockTokens) : undefined;
    this.#holders = scheduler.window > 0 ? holders! : null;
    this.#blocks = new BlockPool(pool.spec.blocks);
    this.#young = young ? new BlockPool(young.blocks) : null;
    const { youngTokens } = scheduler;
    this.prefixes = prefixes
      ? new Prefixes(
          { ...prefixes, holders, rowBlocks: scheduler.rowBlocks },
          pool,
          this.#blocks,
          this.#young,
          youngTokens,
          onMoved,
          onRestored,
          tokenMs,
        )
      : null;
    this.#conversions = new Conversions(pool, this.prefixes, onMoved);
    for (let slot = limits.maxRows - 1; slot >= 0; slot--)
      this.#freeTables.push(new BlockTable(slot, this.#blocks, pool, this.#young));
  }

  get freeRows(): number {
    return this.#freeTables.length;
  }

  /** Sequences start young. */
  get startsYoung(): boolean {
    return this.#young !== null;
  }

  /** Nothing is being moved. */
  get settled(): boolean {
    const { copying = 0, disk = null } = this.prefixes ?? {};
    return this.#conversions.blocks + copying + (disk?.restoring ?? 0) === 0;
  }

  /** Tells the scheduler what there is. `leaving` and those of `running` that give way soon bring theirs back. */
  describe(state: MemoryState, leaving: readonly Sequence[], running: readonly Sequence[]): void {
    state.freeSlots = this.#freeTables.length;
    state.freeBlocks = this.#blocks.available;
    state.leavingBlocks = 0;
    state.queuedBlocks = 0;
    state.queuedYoung = 0;
    state.freeYoung = this.#young?.available ?? 0;
    state.leavingYoung = this.#conversions.blocks;
    this.#describeRestores(state);
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
    const main = disk.blocks(false);
    const young = disk.blocks(true);
    state.queuedBlocks = main.held;
    state.queuedYoung = young.held;
    state.leavingBlocks += main.leaving;
    state.leavingYoung += young.leaving;
  }

  /** Gives a sequence that comes in a row, and what it found in the cache. `work` is what is planned for it. */
  admit(sequence: Sequence, work: { newBlocks: number }): void {
    sequence.table = this.#freeTables.pop()!;
    const { prefix } = sequence;
    if (prefix === null) return;
    // To the scheduler they were blocks still to be had.
    work.newBlocks -= prefix.cold;
    this.prefixes!.adopt(sequence);
  }

  /** Sets blocks aside and has converted what is to be converted, as planned. All that come in have been admitted. */
  convert(plan: StepPlan, running: readonly Sequence[]): void {
    if (this.#young !== null) this.#conversions.apply(plan, running);
  }

  /** A step has retired: what it filled can be cached, and what no later one reads is given back. */
  retire(flight: Flight): void {
    this.prefixes?.retire(flight);
    if (this.#holders === null) return;
    for (let row = 0; row < flight.rows; row++) {
      const sequence = flight.members[row]!;
      const { table } = sequence;
      if (table === null) continue;
      const { front } = table;
      table.giveBack(this.#holders.firstHeld(flight.reached[row]!));
      if (table.front > front) this.prefixes?.keepHistory(sequence);
    }
  }

  /** Takes a sequence's row back; `keep`: what it holds is good, and may be kept. */
  release(sequence: Sequence, keep: boolean): void {
    const table = sequence.table!;
    if (keep) this.prefixes?.leave(sequence);
    table.clear();
    this.#freeTables.push(table);
    sequence.table = null;
  }

  /** When nothing is being moved: ends the disk tier, forgets all prefixes, and throws if a block is still in use. */
  async close(): Promise<void> {
    await this.prefixes?.disk?.close();
    this.prefixes?.forget();
    this.#blocks.check(0);
    this.#young?.check(0);
  }

  stats() {
    return {
      blocksUsed: this.#blocks.held,
      blocksTotal: this.#blocks.size,
      youngBlocksUsed: this.#young?.held ?? 0,
      youngBlocksTotal: this.#young?.size ?? 0,
      conversions: this.#conversions.count,
      ...(this.prefixes === null ? {} : { prefixCache: this.prefixes.stats() }),
    };
  }
}

function countLeaving(state: MemoryState, { young, blocks, front, reserved }: Sequence): void {
  state.leavingBlocks += young ? reserved : blocks - front;
  if (young) state.leavingYoung += blocks;
}
