/**
 * The prefix cache at work: what waiting sequences find in it, what running ones enter into it, and who waits for whom.
 *
 * A waiting sequence is looked up for every plan, and holds nothing: what it found may be evicted until it comes in.
 * A sequence whose next block a running row is about to enter waits for it (prefix-leaders.ts), so that many requests with one
 * beginning compute it once. A row enters a block when the step that filled it has retired and the host knows its tokens.
 *
 * With `floatStartTokens` = N there are two caches. Tokens before N were computed over floats, later ones over what the main pool
 * keeps; so blocks of the main pool serve only who takes at least N tokens from them, and float-start ones who takes fewer.
 */

import type { KvantError } from '../../errors.js';
import type { BlockPool } from '../../kv/block-pool.js';
import type { DiskTier } from '../../kv/disk/disk-tier.js';
import { ChainKeys, chainRoot } from '../../kv/prefix/chain-keys.js';
import { PrefixCache, ROOT } from '../../kv/prefix/prefix-cache.js';
import type { KeyWords } from '../../kv/prefix/prefix-index.js';
import { type PrefixLimits, prefixBlockBytes } from '../../kv/prefix/prefix-limits.js';
import { asKvantError } from '../core-errors.js';
import type { GroupMemory } from '../group-memory.js';
import type { StepPlan } from '../scheduling/scheduler.js';
import type { Sequence } from '../sequence.js';
import type { StepInFlight } from '../step-filler.js';
import type { PrefixCacheStats } from '../types.js';
import { type FoundChains, GroupCaches } from './group-caches.js';
import { PrefixDisk } from './prefix-disk.js';
import { PrefixLeaders } from './prefix-leaders.js';
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
  readonly main: GroupCaches;
  /** The same with float-start blocks in group 0; null where there are none. */
  readonly floatStart: GroupCaches | null;
  /** Null where nothing is kept on disk. */
  readonly disk: PrefixDisk | null;
  /** Of recurrent layers; null where there are none. */
  readonly snapshots: StateSnapshots | null;
  readonly #stateGroup: number;
  readonly #snapshotEvery: number;
  #copying = 0;
  readonly #groups: readonly GroupMemory[];
  readonly #blockTokens: number;
  readonly #floatStartTokens: number;
  readonly #identity: string;
  /** Of sequences without a salt. */
  readonly #root: Uint32Array;
  /** By cache group. */
  readonly #blockBytes: readonly PrefixLimits[];
  readonly #onCopied: (sequence: Sequence, error: KvantError | null) => void;
  readonly #leaders: PrefixLeaders;
  readonly #copies: Sequence[] = [];
  #generation = 0;
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
    const { blockTokens } = groups[0]!.pool.spec;
    this.#groups = groups;
    this.#blockTokens = blockTokens;
    this.#floatStartTokens = floatStartTokens;
    this.#stateGroup = groups.findIndex(({ state }) => state);
    this.#snapshotEvery = Math.ceil((options.snapshotEvery ?? SNAPSHOT_EVERY) / blockTokens) * blockTokens;
    this.#leaders = new PrefixLeaders(blockTokens, floatStartTokens, this.#stateGroup >= 0);
    this.#identity = options.identity;
    this.#root = chainRoot(options.identity);
    this.#blockBytes = groups.map(({ pool }) => prefixBlockBytes(pool.spec));
    this.#onCopied = onCopied;
    const { limits, disk } = options;
    const cache = (group: number, isFloatStart: boolean): PrefixCache => {
      const { blocks, floatStart, holder } = groups[group]!;
      return new PrefixCache({
        pool: isFloatStart ? floatStart! : blocks,
        blockTokens,
        limit: isFloatStart ? limits?.[group]?.floatStart : limits?.[group]?.blocks,
        holder,
        // Behind a full block that is gone no group can go on.
        ...(group === 0 && !isFloatStart && groups.length > 1 && holder.keepsAll
          ? { onEvict: (keys) => this.#dropBehind(keys) }
          : {}),
        ...(disk == null
          ? {}
          : { onPublish: (...args) => this.disk?.published(group, isFloatStart, ...args) }),
      });
    };
    const main = groups.map((_, group) => cache(group, false));
    const pools = groups.map(({ blocks }) => blocks);
    this.main = new GroupCaches(main, pools);
    this.snapshots =
      this.#stateGroup < 0
        ? null
        : new StateSnapshots(groups[this.#stateGroup]!, main[this.#stateGroup]!, onCopied);
    const floatStartPool = groups[0]!.floatStart;
    this.floatStart =
      floatStartPool === null
        ? null
        : new GroupCaches([cache(0, true), ...main.slice(1)], [floatStartPool, ...pools.slice(1)]);
    this.disk =
      disk == null
        ? null
        : new PrefixDisk(
            disk,
            groups,
            this.main,
            this.floatStart,
            this.#blockBytes,
            floatStartTokens,
            tokenMs,
            onRestored,
          );
  }

  /** Copies under way. */
  get copying(): number {
    return this.#copying + (this.snapshots?.copying ?? 0);
  }

  /** Makes the choices of a request known, before they wait; makes the keys of their prompt once. */
  open(choices: readonly Sequence[]): void {
    const { cacheSalt, prompt } = choices[0]!.request;
    const blockTokens = this.#blockTokens;
    const root = cacheSalt === undefined ? this.#root : chainRoot(this.#identity, cacheSalt);
    const keys = new ChainKeys(root, blockTokens);
    keys.extend(choices[0]!, Math.floor(prompt.length / blockTokens));
    const promptEnd = Math.floor((prompt.length - 1) / blockTokens) * blockTokens;
    const snapshots = this.snapshots === null ? null : { promptEnd, every: this.#snapshotEvery };
    const { length } = this.#groups;
    for (const sequence of choices)
      sequence.prefix = new SequencePrefix(keys.fork(), this.floatStart !== null, length, snapshots);
  }

  /** Tells every waiting sequence what it would start with, and whom to wait for; before each plan. */
  look(waiting: readonly Sequence[], running: readonly Sequence[], leaving: readonly Sequence[]): void {
    if (waiting.length === 0) return;
    this.#leaders.gather(running, leaving, this.#generation);
    for (const sequence of waiting) {
      this.#look(sequence, running.length);
      const prefix = sequence.prefix!;
      const follows = this.#leaders.precede(sequence);
      prefix.reads = !follows && (this.disk?.look(sequence) ?? false);
      prefix.awaits = follows || prefix.reads;
    }
  }

  /** Tells a sequence that has just come to wait what it would start with as far as that is known before the next plan. */
  lookAhead(sequence: Sequence, running: number): void {
    this.#look(sequence, running);
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
    prefix.generation = this.#generation;
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
    this.#caches(floatStart).take(takes);
    sequence.tables!.forEach((table, group) => {
      // It is copied to a slot of the row's own: see `seat`.
      if (group === this.#stateGroup) return;
      const chain = takes.chains[group]!;
      table.adopt(chain.blocks, floatStart && group === 0, chain.first);
    });
    if (prefix.part < 0) return;
    this.#poolOf(floatStart).retain(prefix.part);
    this.#copies.push(sequence);
  }

  /** Gives a sequence that has come in its slot of state; behind `adopt` of all that come in with it. */
  seat(sequence: Sequence): void {
    const { takes } = sequence.prefix!;
    const snapshot = takes.length === 0 ? -1 : takes.chains[this.#stateGroup]!.last;
    this.snapshots!.seat(sequence, this.#stateGroup, snapshot);
  }

  /** A step has been launched. */
  launched(flight: StepInFlight): void {
    this.snapshots?.take(flight, this.#stateGroup);
  }

  /** A step has failed, or all have (Infinity). */
  failed(step: number): void {
    this.snapshots?.drop(step);
  }

  /** Has the device copy the blocks that sequences go on in: their tables have grown, the step that names them comes next. */
  copyParts(): void {
    if (this.#copies.length === 0) return;
    const { pool } = this.#groups[0]!;
    const sequences = this.#copies.splice(0);
    const from = new Uint32Array(sequences.length);
    const to = new Uint32Array(sequences.length);
    sequences.forEach(({ prefix, tables }, i) => {
      const { part, takes } = prefix!;
      const table = tables![0]!;
      from[i] = table.floatStart ? pool.spec.blocks + part : part;
      to[i] = table.at(takes.length)!;
    });
    this.#copying++;
    const done = (error: KvantError | null): void => {
      this.#copying--;
      for (const sequence of sequences) this.#onCopied(sequence, error);
    };
    try {
      pool.copy(from, to).then(
        () => done(null),
        (error) => done(asKvantError(error)),
      );
    } catch (error) {
      queueMicrotask(() => done(asKvantError(error)));
    }
    // Whoever has them next writes to them in a later step, and the device copies before that.
    for (const { prefix, floatStart } of sequences) this.#poolOf(floatStart).release(prefix!.part);
  }

  /**
   * A float-start sequence that holds all tokens it may is about to be converted: blocks of the main pool that hold the first
   * ones already, converted. They are the caller's.
   */
  converted(sequence: Sequence): readonly number[] {
    const prefix = sequence.prefix!;
    if (!this.#enters(prefix)) return [];
    const { keys } = prefix;
    const chain = prefix.main.chains[0]!;
    const full = Math.floor(this.#floatStartTokens / this.#blockTokens);
    keys.extend(sequence, full);
    chain.clear();
    const cache = this.main.caches[0]!;
    cache.find(chain, keys, sequence, full);
    cache.take(chain);
    return chain.blocks;
  }

  /** A step has retired: what it filled can be entered. */
  retire({ members, reached, rows, step }: StepInFlight): void {
    this.snapshots?.retire(step, (sequence) => this.#enters(sequence.prefix!));
    for (let row = 0; row < rows; row++) this.#stored(members[row]!, reached[row]!);
  }

  #stored(sequence: Sequence, tokens: number): void {
    const prefix = sequence.prefix!;
    prefix.stored = tokens;
    if (sequence.phase !== 'running' || !this.#enters(prefix)) return;
    const full = this.#full(sequence);
    for (let group = 0; group < this.#groups.length; group++) {
      const end = this.main.caches[group]!.endHeld(full);
      if (group !== this.#stateGroup && end > prefix.published[group]!) this.#enter(sequence, group, end);
    }
  }

  /** Enters blocks of one group, up to `full`. */
  #enter(sequence: Sequence, group: number, full: number): void {
    const prefix = sequence.prefix!;
    const table = sequence.tables![group]!;
    const { gaps } = this.#caches(sequence.floatStart).caches[group]!;
    if (!gaps && prefix.overtaken) return;
    prefix.keys.extend(sequence, full);
    const { published } = prefix;
    for (; published[group]! < full; published[group]!++) {
      const at = published[group]!;
      // What it gave back is entered already, or never will be.
      if (at < table.front) continue;
      // With gaps nothing depends on what is before: it goes on with what is its own.
      if (this.#publish(sequence, group, at) === table.poolId(at) || gaps) continue;
      prefix.overtaken = true;
      return;
    }
  }

  /**
   * A row has given blocks of a group back, for want of a window that shows them. Where its prompt ends the history of a conversation
   * ends: the next turn may go on from there and not from what was written since, as templates strip thoughts. So of all it
   * gave back, what is needed there is the last to be evicted.
   */
  keepHistory(sequence: Sequence, group: number): void {
    const prefix = sequence.prefix!;
    const end = Math.floor(sequence.request.prompt.length / this.#blockTokens);
    if (end === 0 || prefix.published[group]! < end || !this.#enters(prefix)) return;
    const cache = this.main.caches[group]!;
    const pool = this.main.pools[group]!;
    // The last tokens of a prompt open the answer, and may be others in the history: so the border before as well.
    for (let at = cache.firstHeld(end - 1); at < Math.min(end, sequence.tables![group]!.front); at++) {
      const block = cache.block(prefix.keys, at, sequence);
      if (block < 0 || pool.references(block) > 1) continue;
      pool.retain(block);
      pool.release(block);
    }
  }

  /** A sequence is about to clear its tables, and no step under way names it: enters all it has. */
  leave(sequence: Sequence): void {
    const prefix = sequence.prefix!;
    if (!this.#enters(prefix)) return;
    const full = this.#full(sequence);
    prefix.keys.extend(sequence, full);
    for (let group = 0; group < this.#groups.length; group++)
      if (group !== this.#stateGroup)
        this.#leaveGroup(sequence, group, this.main.caches[group]!.endHeld(full));
  }

  #leaveGroup(sequence: Sequence, group: number, full: number): void {
    const prefix = sequence.prefix!;
    const table = sequence.tables![group]!;
    const cache = this.#caches(table.floatStart).caches[group]!;
    // With gaps others may have entered what it computed too, all along.
    for (let at = cache.gaps ? table.front : prefix.published[group]!; at < full; at++) {
      const there = this.#publish(sequence, group, at);
      if (there < 0) return;
      // It lets go of what it computed in vain, and of the index's own in its stead: in order, as if it had used that.
      if (there !== table.poolId(at)) table.exchange(at, there);
    }
    const rest = this.#known(sequence) - full * this.#blockTokens;
    // A part of a block is of use only where there is one group.
    if (this.#groups.length > 1 || rest <= 0 || full === 0) return;
    cache.publishPart(table.poolId(full), table.poolId(full - 1), prefix.keys, full, sequence, rest);
  }

  #dropBehind(keys: KeyWords): void {
    for (const cache of this.main.caches) if (cache.gaps) cache.drop(keys);
  }

  /** Forgets all, on disk too; running rows keep what they have, and enter no more. */
  async clear(): Promise<void> {
    this.forget();
    await this.disk?.clear();
  }

  /** Forgets what is in memory. */
  forget(): void {
    this.#generation++;
    for (const { cache } of this.#sides()) cache.clear();
  }

  stats(): PrefixCacheStats {
    const total = { evictions: 0, blocks: 0, bytes: 0, idleBytes: 0, maxBytes: 0 };
    for (const { cache, pool, bytes } of this.#sides()) {
      total.evictions += cache.evicted;
      total.blocks += cache.size;
      total.bytes += cache.size * bytes;
      total.idleBytes += pool.cold * bytes;
      total.maxBytes += cache.limit * bytes;
    }
    return {
      lookups: this.#lookups,
      hits: this.#hits,
      hitTokens: this.#hitTokens,
      resumedTokens: this.#resumedTokens,
      ...total,
      ...(this.disk === null ? {} : { disk: this.disk.stats() }),
    };
  }

  /** Every cache there is, with the pool it is of and the bytes of a block. */
  #sides(): { cache: PrefixCache; pool: BlockPool; bytes: number }[] {
    const { main, floatStart } = this;
    const sides = main.caches.map((cache, group) => ({
      cache,
      pool: main.pools[group]!,
      bytes: this.#blockBytes[group]!.blocks,
    }));
    if (floatStart !== null)
      sides.push({
        cache: floatStart.caches[0]!,
        pool: floatStart.pools[0]!,
        bytes: this.#blockBytes[0]!.floatStart,
      });
    return sides;
  }

  #look(sequence: Sequence, rows: number): void {
    const prefix = sequence.prefix!;
    const blockTokens = this.#blockTokens;
    const version = this.main.version + (this.floatStart?.version ?? 0);
    // One token is left to be computed: the next one is drawn from it.
    const limit = sequence.length - 1;
    if (prefix.version !== version || prefix.length !== sequence.length) {
      prefix.version = version;
      prefix.length = sequence.length;
      prefix.keys.extend(sequence, Math.floor(sequence.length / blockTokens));
      this.main.find(prefix.main, prefix.keys, sequence, Math.floor(limit / blockTokens));
      const floatStartBlocks = Math.floor(this.#floatStartLimit(limit) / blockTokens);
      this.floatStart?.find(prefix.floatStart, prefix.keys, sequence, floatStartBlocks);
    }
    this.#take(sequence, rows, false, limit);
    if (this.floatStart === null || prefix.tokens >= this.#floatStartTokens) return;
    this.#take(sequence, rows, true, this.#floatStartLimit(limit));
  }

  /** What it would start with if it took the chains of one kind. */
  #take(sequence: Sequence, rows: number, floatStart: boolean, limit: number): void {
    const prefix = sequence.prefix!;
    const caches = this.#caches(floatStart);
    const blockTokens = this.#blockTokens;
    const found: FoundChains = floatStart ? prefix.floatStart : prefix.main;
    prefix.takes = found;
    for (let group = 0; group < found.chains.length; group++)
      prefix.cold[group] =
        group === this.#stateGroup ? 0 : caches.caches[group]!.coldIn(found.chains[group]!);
    // Where others have gone on otherwise, somebody may again.
    const known = found.reach.length * blockTokens;
    prefix.diverges = found.reach.length > found.length ? known : 0;
    prefix.tokens = found.length * blockTokens;
    prefix.published.fill(found.length);
    prefix.part = -1;
    const part = caches.findPart(found, sequence, limit - prefix.tokens);
    if (part >= 0) {
      // It is held besides the copy until that is made: there must be room for both.
      const chain = found.chains[0]!;
      const pool = this.#poolOf(floatStart);
      const cold = pool.references(part) === 1 ? 1 : 0;
      const needs =
        Math.min(Math.ceil(sequence.length / blockTokens) - chain.first, this.#groups[0]!.rowBlocks) -
        chain.blocks.length +
        prefix.cold[0]! +
        cold;
      if (pool.available >= needs + rows) {
        prefix.part = part;
        prefix.cold[0]! += cold;
        prefix.tokens += caches.agreed;
      }
    }
    sequence.computed = prefix.tokens;
  }

  #floatStartLimit(limit: number): number {
    return Math.min(limit, this.#floatStartTokens - 1);
  }

  #enters({ generation, tainted, converting }: SequencePrefix): boolean {
    return generation === this.#generation && !tainted && !converting;
  }

  #publish(sequence: Sequence, group: number, at: number): number {
    const { prefix, tables, floatStart } = sequence;
    const table = tables![group]!;
    const parent = at === 0 ? ROOT : table.poolId(at - 1);
    const cache = this.#caches(floatStart).caches[group]!;
    return cache.publish(table.poolId(at), parent, prefix!.keys, at, sequence);
  }

  /** Tokens at its beginning that are stored, and known to the host. */
  #known({ prefix, request, ids }: Sequence): number {
    return Math.min(prefix!.stored, request.prompt.length + ids.length);
  }

  #full(sequence: Sequence): number {
    return Math.floor(this.#known(sequence) / this.#blockTokens);
  }

  #caches(floatStart: boolean): GroupCaches {
    return floatStart ? this.floatStart! : this.main;
  }

  /** The pool of group 0 that has the blocks of one kind. */
  #poolOf(floatStart: boolean): BlockPool {
    return this.#caches(floatStart).pools[0]!;
  }
}
