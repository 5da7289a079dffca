/**
 * The prefix cache at work: what waiting sequences find in it, what running ones enter into it, and who waits for whom.
 *
 * A waiting sequence is looked up for every plan, and holds nothing: what it found may be evicted until it comes in.
 * A sequence whose next block a running row is about to enter waits for it (prefix-leaders.ts), so that many requests with one
 * beginning compute it once. A row enters a block when the step that filled it has retired and the host knows its tokens.
 *
 * With `youngTokens` = N there are two caches. Tokens before N were computed over floats, later ones over what the main pool
 * keeps; so blocks of the main pool serve only who takes at least N tokens from them, and young ones who takes fewer.
 */

import type { KvPool } from '../../device/kv.js';
import type { KvantError } from '../../errors.js';
import type { BlockPool } from '../../kv/block-pool.js';
import type { DiskTier } from '../../kv/disk/disk-tier.js';
import { ChainKeys, chainRoot } from '../../kv/prefix/chain-keys.js';
import type { Holders } from '../../kv/prefix/holders.js';
import { PrefixCache, ROOT } from '../../kv/prefix/prefix-cache.js';
import { type PrefixLimits, prefixBlockBytes } from '../../kv/prefix/prefix-limits.js';
import { ALL_BLOCKS } from '../../kv/retention.js';
import { asKvantError } from '../core-errors.js';
import type { StepPlan } from '../scheduling/scheduler.js';
import type { Sequence } from '../sequence.js';
import type { Flight } from '../step-filler.js';
import type { PrefixCacheStats } from '../types.js';
import { PrefixDisk } from './prefix-disk.js';
import { PrefixLeaders } from './prefix-leaders.js';
import { SequencePrefix } from './sequence-prefix.js';

export interface PrefixOptions {
  /** All that the bytes of a block depend on besides its tokens: model, adapter, formats. */
  readonly identity: string;
  /** Most blocks that are kept while no sequence holds them. Default: all. */
  readonly limits?: PrefixLimits | undefined;
  /** Who says what rows hold, where they give back what no layer reads any more. */
  readonly holders?: Holders | undefined;
  /** Most blocks that a row holds at once; default: as many as it has tokens for. */
  readonly rowBlocks?: number | undefined;
  /** Keeps blocks beyond the life of the process. */
  readonly disk?: DiskTier | null | undefined;
}

export class Prefixes {
  readonly main: PrefixCache;
  readonly young: PrefixCache | null;
  /** Null where nothing is kept on disk. */
  readonly disk: PrefixDisk | null;
  /** Copies under way. */
  copying = 0;
  readonly #pool: KvPool;
  readonly #blocks: BlockPool;
  readonly #youngBlocks: BlockPool | null;
  readonly #youngTokens: number;
  readonly #rowBlocks: number;
  readonly #identity: string;
  /** Of sequences without a salt. */
  readonly #root: Uint32Array;
  readonly #blockBytes: PrefixLimits;
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
    pool: KvPool,
    blocks: BlockPool,
    young: BlockPool | null,
    youngTokens: number,
    onCopied: (sequence: Sequence, error: KvantError | null) => void,
    onRestored: () => void,
    tokenMs: () => number,
  ) {
    const { blockTokens } = pool.spec;
    this.#pool = pool;
    this.#blocks = blocks;
    this.#youngBlocks = young;
    this.#youngTokens = youngTokens;
    this.#rowBlocks = options.rowBlocks ?? ALL_BLOCKS;
    this.#leaders = new PrefixLeaders(blockTokens, youngTokens);
    this.#identity = options.identity;
    this.#root = chainRoot(options.identity);
    this.#blockBytes = prefixBlockBytes(pool.spec);
    this.#onCopied = onCopied;
    const { limits, disk, holders } = options;
    const cache = (of: BlockPool, isYoung: boolean): PrefixCache =>
      new PrefixCache({
        pool: of,
        blockTokens,
        limit: isYoung ? limits?.young : limits?.blocks,
        holders,
        ...(disk == null ? {} : { onPublish: (...args) => this.disk?.published(isYoung, ...args) }),
      });
    this.main = cache(blocks, false);
    this.young = young === null ? null : cache(young, true);
    this.disk =
      disk == null
        ? null
        : new PrefixDisk(
            disk,
            pool,
            { cache: this.main, pool: blocks, blockBytes: this.#blockBytes.blocks },
            young === null ? null : { cache: this.young!, pool: young, blockBytes: this.#blockBytes.young },
            youngTokens,
            tokenMs,
            onRestored,
          );
  }

  /** Makes the choices of a request known, before they wait; makes the keys of their prompt once. */
  open(choices: readonly Sequence[]): void {
    const { cacheSalt, prompt } = choices[0]!.request;
    const { blockTokens } = this.#pool.spec;
    const root = cacheSalt === undefined ? this.#root : chainRoot(this.#identity, cacheSalt);
    const keys = new ChainKeys(root, blockTokens);
    keys.extend(choices[0]!, Math.floor(prompt.length / blockTokens));
    for (const sequence of choices) sequence.prefix = new SequencePrefix(keys.fork(), this.young !== null);
  }

  /** Tells every waiting sequence what it would start with, and whom to wait for; before each plan. */
  look(waiting: readonly Sequence[], running: readonly Sequence[], leaving: readonly Sequence[]): void {
    if (waiting.length === 0) return;
    this.#leaders.gather(running, leaving, this.#generation);
    for (const sequence of waiting) {
      this.#look(sequence, running.length);
      sequence.prefix!.awaits = this.#leaders.precede(sequence) || (this.disk?.look(sequence) ?? false);
    }
  }

  /** Of sequences that come in together one computes what they share. True: others wait for it now; plan again. */
  shareOut(plan: StepPlan, waiting: readonly Sequence[]): boolean {
    return this.#leaders.shareOut(plan, waiting);
  }

  /** A sequence has come in and has an empty table: gives it what it found. */
  adopt(sequence: Sequence): void {
    const prefix = sequence.prefix!;
    const { takes, tokens } = prefix;
    const young = takes === prefix.young;
    prefix.generation = this.#generation;
    if (prefix.cached < 0) {
      this.#lookups++;
      if (tokens > 0) this.#hits++;
      this.#hitTokens += tokens;
      prefix.cached = tokens;
    } else this.#resumedTokens += tokens;
    sequence.computed = tokens;
    prefix.stored = tokens;
    prefix.published = takes.length;
    if (takes.length === 0) return;
    this.#cache(young).take(takes);
    sequence.table!.adopt(takes.blocks, young, takes.first);
    if (prefix.part < 0) return;
    this.#blocksOf(young).retain(prefix.part);
    this.#copies.push(sequence);
  }

  /** Has the device copy the blocks that sequences go on in: their tables have grown, the step that names them comes next. */
  copyParts(): void {
    if (this.#copies.length === 0) return;
    const sequences = this.#copies.splice(0);
    const from = new Uint32Array(sequences.length);
    const to = new Uint32Array(sequences.length);
    sequences.forEach(({ prefix, table }, i) => {
      const { part, takes } = prefix!;
      from[i] = table!.young ? this.#pool.spec.blocks + part : part;
      to[i] = table!.at(takes.length)!;
    });
    this.copying++;
    const done = (error: KvantError | null): void => {
      this.copying--;
      for (const sequence of sequences) this.#onCopied(sequence, error);
    };
    try {
      this.#pool.copy(from, to).then(
        () => done(null),
        (error) => done(asKvantError(error)),
      );
    } catch (error) {
      queueMicrotask(() => done(asKvantError(error)));
    }
    // Whoever has them next writes to them in a later step, and the device copies before that.
    for (const { prefix, table } of sequences) this.#blocksOf(table!.young).release(prefix!.part);
  }

  /**
   * A young sequence that holds all tokens it may is about to be converted: blocks of the main pool that hold the first
   * ones already, converted. They are the caller's.
   */
  converted(sequence: Sequence): readonly number[] {
    const prefix = sequence.prefix!;
    if (!this.#enters(prefix)) return [];
    const { main, keys } = prefix;
    const full = Math.floor(this.#youngTokens / this.#pool.spec.blockTokens);
    keys.extend(sequence, full);
    main.clear();
    this.main.find(main, keys, sequence, full);
    this.main.take(main);
    return main.blocks;
  }

  /** A step has retired: what it filled can be entered. */
  retire({ members, reached, rows }: Flight): void {
    for (let row = 0; row < rows; row++) this.#stored(members[row]!, reached[row]!);
  }

  #stored(sequence: Sequence, tokens: number): void {
    const prefix = sequence.prefix!;
    prefix.stored = tokens;
    if (sequence.phase !== 'running' || prefix.overtaken || !this.#enters(prefix)) return;
    const full = this.#full(sequence);
    if (full <= prefix.published) return;
    prefix.keys.extend(sequence, full);
    for (; prefix.published < full; prefix.published++) {
      const at = prefix.published;
      // What it gave back is entered already, or never will be.
      if (at < sequence.front) continue;
      // With gaps nothing depends on what is before: it goes on with what is its own.
      if (this.#publish(sequence, at) === sequence.table!.poolId(at) || this.main.gaps) continue;
      prefix.overtaken = true;
      return;
    }
  }

  /**
   * A row has given blocks back, for want of a window that shows them. Where its prompt ends the history of a conversation ends: the
   * next turn may go on from there and not from what was written since, as templates strip thoughts. So of all it gave
   * back, what is needed there is the last to be evicted.
   */
  keepHistory(sequence: Sequence): void {
    const prefix = sequence.prefix!;
    const { blockTokens } = this.#pool.spec;
    const end = Math.floor(sequence.request.prompt.length / blockTokens);
    if (end === 0 || prefix.published < end || !this.#enters(prefix)) return;
    // The last tokens of a prompt open the answer, and may be others in the history: so the border before as well.
    for (let at = this.main.firstHeld(end - 1); at < Math.min(end, sequence.front); at++) {
      const block = this.main.block(prefix.keys, at, sequence);
      if (block < 0 || this.#blocks.references(block) > 1) continue;
      this.#blocks.retain(block);
      this.#blocks.release(block);
    }
  }

  /** A sequence is about to clear its table, and no step under way names it: enters all it has. */
  leave(sequence: Sequence): void {
    const prefix = sequence.prefix!;
    const table = sequence.table!;
    if (!this.#enters(prefix)) return;
    const full = this.#full(sequence);
    prefix.keys.extend(sequence, full);
    // With gaps others may have entered what it computed too, all along.
    for (let at = this.main.gaps ? table.front : prefix.published; at < full; at++) {
      const there = this.#publish(sequence, at);
      if (there < 0) return;
      // It lets go of what it computed in vain, and of the index's own in its stead: in order, as if it had used that.
      if (there !== table.poolId(at)) table.exchange(at, there);
    }
    const rest = this.#known(sequence) - full * this.#pool.spec.blockTokens;
    if (rest > 0 && full > 0)
      this.#cache(table.young).publishPart(
        table.poolId(full),
        table.poolId(full - 1),
        prefix.keys,
        full,
        sequence,
        rest,
      );
  }

  /** Forgets all, on disk too; running rows keep what they have, and enter no more. */
  async clear(): Promise<void> {
    this.forget();
    await this.disk?.clear();
  }

  /** Forgets what is in memory. */
  forget(): void {
    this.#generation++;
    this.main.clear();
    this.young?.clear();
  }

  stats(): PrefixCacheStats {
    const each = this.#blockBytes;
    const bytes = (blocks: number, young: number): number => blocks * each.blocks + young * each.young;
    const { main, young } = this;
    return {
      lookups: this.#lookups,
      hits: this.#hits,
      hitTokens: this.#hitTokens,
      resumedTokens: this.#resumedTokens,
      evictions: main.evicted + (young?.evicted ?? 0),
      blocks: main.size + (young?.size ?? 0),
      bytes: bytes(main.size, young?.size ?? 0),
      idleBytes: bytes(this.#blocks.cold, this.#youngBlocks?.cold ?? 0),
      maxBytes: bytes(main.limit, young?.limit ?? 0),
      ...(this.disk === null ? {} : { disk: this.disk.stats() }),
    };
  }

  #look(sequence: Sequence, rows: number): void {
    const prefix = sequence.prefix!;
    const { blockTokens } = this.#pool.spec;
    const version = this.main.version + (this.young?.version ?? 0);
    // One token is left to be computed: the next one is drawn from it.
    const limit = sequence.length - 1;
    if (prefix.version !== version || prefix.length !== sequence.length) {
      prefix.version = version;
      prefix.length = sequence.length;
      prefix.keys.extend(sequence, Math.floor(sequence.length / blockTokens));
      this.main.find(prefix.main, prefix.keys, sequence, Math.floor(limit / blockTokens));
      const youngBlocks = Math.floor(this.#youngLimit(limit) / blockTokens);
      this.young?.find(prefix.young, prefix.keys, sequence, youngBlocks);
    }
    this.#take(sequence, rows, false, limit);
    if (this.young === null || prefix.tokens >= this.#youngTokens) return;
    this.#take(sequence, rows, true, this.#youngLimit(limit));
  }

  /** What it would start with if it took the chain of one kind. */
  #take(sequence: Sequence, rows: number, young: boolean, limit: number): void {
    const prefix = sequence.prefix!;
    const cache = this.#cache(young);
    const pool = this.#blocksOf(young);
    const { blockTokens } = this.#pool.spec;
    const chain = young ? prefix.young : prefix.main;
    prefix.takes = chain;
    prefix.cold = cache.coldIn(chain);
    prefix.tokens = chain.length * blockTokens;
    prefix.published = chain.length;
    prefix.part = -1;
    const part = cache.findPart(chain, sequence, limit - prefix.tokens);
    if (part >= 0) {
      // It is held besides the copy until that is made: there must be room for both.
      const cold = pool.references(part) === 1 ? 1 : 0;
      const needs =
        Math.min(Math.ceil(sequence.length / blockTokens) - chain.first, this.#rowBlocks) -
        chain.blocks.length +
        prefix.cold +
        cold;
      if (pool.available >= needs + rows) {
        prefix.part = part;
        prefix.cold += cold;
        prefix.tokens += cache.agreed;
      }
    }
    sequence.computed = prefix.tokens;
  }

  #youngLimit(limit: number): number {
    return Math.min(limit, this.#youngTokens - 1);
  }

  #enters({ generation, tainted, converting }: SequencePrefix): boolean {
    return generation === this.#generation && !tainted && !converting;
  }

  #publish(sequence: Sequence, at: number): number {
    const { prefix, table } = sequence;
    const parent = at === 0 ? ROOT : table!.poolId(at - 1);
    return this.#cache(table!.young).publish(table!.poolId(at), parent, prefix!.keys, at, sequence);
  }

  /** Tokens at its beginning that are stored, and known to the host. */
  #known({ prefix, request, ids }: Sequence): number {
    return Math.min(prefix!.stored, request.prompt.length + ids.length);
  }

  #full(sequence: Sequence): number {
    return Math.floor(this.#known(sequence) / this.#pool.spec.blockTokens);
  }

  #cache(young: boolean): PrefixCache {
    return young ? this.young! : this.main;
  }

  #blocksOf(young: boolean): BlockPool {
    return young ? this.#youngBlocks! : this.#blocks;
  }
}
