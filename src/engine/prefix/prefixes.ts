/**
 * The prefix cache at work: what waiting sequences find in it, what running ones enter into it, and who waits for whom.
 *
 * A waiting sequence is looked up for every plan, and holds nothing: what it found may be evicted until it comes in.
 * A sequence whose next block a running row is about to enter waits for it (prefix-leaders.ts), so that many requests with one
 * beginning compute it once. A row enters a block when the step that filled it has retired and the host knows its tokens.
 */

import type { KvantError } from '../../errors.js';
import type { DiskTier } from '../../kv/disk/disk-tier.js';
import { ChainKeys, chainRoot } from '../../kv/prefix/chain-keys.js';
import type { PrefixLimits } from '../../kv/prefix/prefix-limits.js';
import type { GroupMemory } from '../group-memory.js';
import type { StepPlan } from '../scheduling/scheduler.js';
import type { Sequence } from '../sequence.js';
import type { StepInFlight } from '../step-filler.js';
import type { PrefixCacheStats } from '../types.js';
import { PartCopies } from './part-copies.js';
import { PrefixCaches } from './prefix-caches.js';
import { PrefixDisk } from './prefix-disk.js';
import { PrefixEntries } from './prefix-entries.js';
import { PrefixLeaders } from './prefix-leaders.js';
import { PrefixLookup } from './prefix-lookup.js';
import { SequencePrefix } from './sequence-prefix.js';
import { StateSnapshots } from './state-snapshots.js';

/** Tokens of a sequence for one snapshot of its state, besides those at the ends of prompts. */
const SNAPSHOT_EVERY = 2048;

export interface PrefixOptions {
  /** All that the bytes of a block depend on besides its tokens: model, adapter, formats. */
  readonly identity: string;
  /** By cache group: most blocks that are kept while no sequence holds them. Default: all. */
  readonly limits?: readonly PrefixLimits[] | undefined;
  /** Tokens, about, at whose multiples the state of recurrent layers is kept. Default: 2048. */
  readonly snapshotEvery?: number | undefined;
  /** Keeps blocks beyond the life of the process. */
  readonly disk?: DiskTier | null | undefined;
}

export class Prefixes {
  /** What running sequences enter. */
  readonly entries: PrefixEntries;
  /** Null where nothing is kept on disk. */
  readonly disk: PrefixDisk | null;
  /** Of recurrent layers; null where there are none. */
  readonly snapshots: StateSnapshots | null;
  readonly #caches: PrefixCaches;
  readonly #lookup: PrefixLookup;
  readonly #leaders: PrefixLeaders;
  readonly #parts: PartCopies;
  readonly #snapshotEvery: number;
  readonly #identity: string;
  /** Of sequences without a salt. */
  readonly #root: Uint32Array;
  #lookups = 0;
  #hits = 0;
  #hitTokens = 0;
  #resumedTokens = 0;

  /**
   * `onCopied` is told when a copy that a sequence goes on in has been made, or has failed; `onRestored` when a sequence
   * need not wait for the disk any more. `tokenMs`: what it takes to compute a token, 0 if unknown.
   */
  constructor(
    options: PrefixOptions,
    groups: readonly GroupMemory[],
    floatStartTokens: number,
    onCopied: (sequence: Sequence, error: KvantError | null) => void,
    onRestored: () => void,
    tokenMs: () => number,
  ) {
    const { limits, disk } = options;
    const caches = new PrefixCaches(
      groups,
      limits,
      floatStartTokens,
      disk == null ? null : (...args) => this.disk?.published(...args),
    );
    const { blockTokens, stateGroup } = caches;
    this.#caches = caches;
    this.#lookup = new PrefixLookup(caches);
    this.#leaders = new PrefixLeaders(blockTokens, floatStartTokens, stateGroup >= 0);
    this.#parts = new PartCopies(caches, onCopied);
    this.entries = new PrefixEntries(caches);
    this.#snapshotEvery = Math.ceil((options.snapshotEvery ?? SNAPSHOT_EVERY) / blockTokens) * blockTokens;
    this.#identity = options.identity;
    this.#root = chainRoot(options.identity);
    this.snapshots =
      stateGroup < 0
        ? null
        : new StateSnapshots(groups[stateGroup]!, caches.main.caches[stateGroup]!, onCopied);
    this.disk = disk == null ? null : new PrefixDisk(disk, caches, tokenMs, onRestored);
  }

  /** Copies under way. */
  get copying(): number {
    return this.#parts.copying + (this.snapshots?.copying ?? 0);
  }

  /** Makes the choices of a request known, before they wait; makes the keys of their prompt once. */
  open(choices: readonly Sequence[]): void {
    const { cacheSalt, prompt } = choices[0]!.request;
    const { blockTokens, floatStart, groups } = this.#caches;
    const root = cacheSalt === undefined ? this.#root : chainRoot(this.#identity, cacheSalt);
    const keys = new ChainKeys(root, blockTokens);
    keys.extend(choices[0]!, Math.floor(prompt.length / blockTokens));
    const promptEnd = Math.floor((prompt.length - 1) / blockTokens) * blockTokens;
    const snapshots = this.snapshots === null ? null : { promptEnd, every: this.#snapshotEvery };
    for (const sequence of choices)
      sequence.prefix = new SequencePrefix(keys.fork(), floatStart !== null, groups.length, snapshots);
  }

  /** Tells every waiting sequence what it would start with, and whom to wait for; before each plan. */
  look(waiting: readonly Sequence[], running: readonly Sequence[], leaving: readonly Sequence[]): void {
    if (waiting.length === 0) return;
    this.#leaders.gather(running, leaving, this.entries.generation);
    for (const sequence of waiting) {
      this.#lookup.look(sequence, running.length);
      const prefix = sequence.prefix!;
      const follows = this.#leaders.precede(sequence);
      prefix.reads = !follows && (this.disk?.look(sequence) ?? false);
      prefix.awaits = follows || prefix.reads;
    }
  }

  /** Tells a sequence that has just come to wait what it would start with as far as that is known before the next plan. */
  lookAhead(sequence: Sequence, running: number): void {
    this.#lookup.look(sequence, running);
    sequence.prefix!.reads = this.disk?.mayRead(sequence) ?? false;
  }

  /** Of sequences that come in together one computes what they share. True: others wait for it now; plan again. */
  shareOut(plan: StepPlan, waiting: readonly Sequence[]): boolean {
    return this.#leaders.shareOut(plan, waiting);
  }

  /** A sequence has come in and has an empty table: gives it what it found. */
  adopt(sequence: Sequence): void {
    const prefix = sequence.prefix!;
    const { takes, tokens } = prefix;
    const floatStart = takes === prefix.floatStart;
    prefix.generation = this.entries.generation;
    if (prefix.cached < 0) {
      this.#lookups++;
      if (tokens > 0) this.#hits++;
      this.#hitTokens += tokens;
      prefix.cached = tokens;
    } else this.#resumedTokens += tokens;
    sequence.computed = tokens;
    prefix.stored = tokens;
    prefix.published.fill(takes.length);
    if (takes.length === 0) return;
    this.#caches.of(floatStart).take(takes);
    sequence.tables!.forEach((table, group) => {
      // It is copied to a slot of the row's own: see `seat`.
      if (group === this.#caches.stateGroup) return;
      const chain = takes.chains[group]!;
      table.adopt(chain.blocks, floatStart && group === 0, chain.first);
    });
    if (prefix.part >= 0) this.#parts.add(sequence);
  }

  /** Gives a sequence that has come in its slot of state; behind `adopt` of all that come in with it. */
  seat(sequence: Sequence): void {
    const { takes } = sequence.prefix!;
    const snapshot = takes.length === 0 ? -1 : takes.chains[this.#caches.stateGroup]!.last;
    this.snapshots!.seat(sequence, this.#caches.stateGroup, snapshot);
  }

  /** A step has been launched. */
  launched(flight: StepInFlight): void {
    this.snapshots?.take(flight, this.#caches.stateGroup);
  }

  /** A step has failed, or all have (Infinity). */
  failed(step: number): void {
    this.snapshots?.drop(step);
  }

  /** Has the device copy the blocks that sequences go on in: their tables have grown, the step that names them comes next. */
  copyParts(): void {
    this.#parts.copy();
  }

  /** A step has retired: what it filled can be entered. */
  retire({ members, reached, rows, step }: StepInFlight): void {
    this.snapshots?.retire(step, ({ prefix }) => this.entries.keeps(prefix!));
    for (let row = 0; row < rows; row++) this.entries.stored(members[row]!, reached[row]!);
  }

  /** Forgets all, on disk too; running rows keep what they have, and enter no more. */
  async clear(): Promise<void> {
    this.forget();
    await this.disk?.clear();
  }

  /** Forgets what is in memory. */
  forget(): void {
    this.entries.generation++;
    this.#caches.clear();
  }

  stats(): PrefixCacheStats {
    return {
      lookups: this.#lookups,
      hits: this.#hits,
      hitTokens: this.#hitTokens,
      resumedTokens: this.#resumedTokens,
      ...this.#caches.totals(),
      ...(this.disk === null ? {} : { disk: this.disk.stats() }),
    };
  }
}
