/**
 * The disk tier of the prefix cache at work: what the caches enter is written behind, and a waiting sequence whose beginning
 * goes on in files is held until they are read. Then it finds them like any other prefix.
 *
 * Few sequences are restored at once, in turn, and only while a row is free for them. One that has had its turns is
 * computed; so is every one as long as the disk has been slower than that.
 */

import { diskKeys } from '../../kv/disk/disk-key.js';
import type { DiskTier } from '../../kv/disk/disk-tier.js';
import { farthestBorder, Restore, type RestoreHost } from '../../kv/disk/restore.js';
import { WriteBehind } from '../../kv/disk/write-behind.js';
import type { ChainKeys, TokenSource } from '../../kv/prefix/chain-keys.js';
import { agreedBorder } from '../../kv/prefix/holders.js';
import type { Sequence } from '../sequence.js';
import type { PrefixDiskStats } from '../types.js';
import type { FoundChains } from './group-caches.js';
import type { PrefixCaches } from './prefix-caches.js';

/** Sequences restored at once, and how often one is. */
const AT_ONCE = 2;
const TURNS = 2;
/** Blocks left to the rows that compute: so many for each row, or this part of a small pool. */
const RESERVE = 2;
const RESERVE_PART = 0.25;
/** A disk that took at least so long for a sequence, and longer than computing it, is not tried again for a while. */
const LONG_MS = 1000;
const SLOW_MS = 30_000;
/** How long what was published last may take to be written when the engine closes. */
const DRAIN_MS = 5000;

interface Running {
  readonly sequence: Sequence;
  readonly floatStart: boolean;
  /** Blocks that its chains will have. */
  readonly end: number;
  /** One a cache group. */
  readonly restores: readonly Restore[];
}

export class PrefixDisk {
  readonly #tier: DiskTier;
  /** By cache group. */
  readonly #main: readonly RestoreHost[];
  /** The same with float-start blocks in group 0; null where there are none. */
  readonly #floatStart: readonly RestoreHost[] | null;
  readonly #writers: readonly WriteBehind[];
  readonly #floatStartWriter: WriteBehind | null;
  readonly #floatStartTokens: number;
  readonly #blockTokens: number;
  readonly #tokenMs: () => number;
  readonly #onRestored: () => void;
  readonly #running: Running[] = [];
  #restored = 0;
  #slowUntil = 0;
  #clears = 0;
  #closed: Promise<void> | null = null;

  /**
   * `tokenMs`: what it takes to compute a token, 0 if unknown. `onRestored`: a held sequence need not wait any more.
   */
  constructor(tier: DiskTier, caches: PrefixCaches, tokenMs: () => number, onRestored: () => void) {
    const { groups, floatStart, blockTokens, floatStartTokens } = caches;
    this.#tier = tier;
    this.#floatStartTokens = floatStartTokens;
    this.#tokenMs = tokenMs;
    this.#onRestored = onRestored;
    const host = (group: number, isFloatStart: boolean): RestoreHost => {
      const { caches: ofKind, pools } = caches.of(isFloatStart);
      const device = groups[group]!.pool;
      const pool = pools[group]!;
      return {
        cache: ofKind[group]!,
        pool,
        device,
        firstId: isFloatStart ? device.spec.blocks : 0,
        blockBytes: isFloatStart ? caches.blockBytes[group]!.floatStart : caches.blockBytes[group]!.blocks,
        tier,
        kind: { group, floatStart: isFloatStart },
        reserve: Math.min(RESERVE * device.spec.slots, Math.floor(pool.size * RESERVE_PART)),
      };
    };
    this.#main = groups.map((_, group) => host(group, false));
    this.#floatStart = floatStart === null ? null : [host(0, true), ...this.#main.slice(1)];
    this.#blockTokens = blockTokens;
    this.#writers = this.#main.map((of) => new WriteBehind(of));
    this.#floatStartWriter = this.#floatStart === null ? null : new WriteBehind(this.#floatStart[0]!);
  }

  /** Sequences being restored. */
  get restoring(): number {
    return this.#running.length;
  }

  /** A block is new in a cache. */
  published(
    group: number,
    floatStart: boolean,
    block: number,
    keys: ChainKeys,
    at: number,
    tokens: TokenSource,
  ): void {
    const writer = floatStart ? this.#floatStartWriter : this.#writers[group];
    writer?.published(block, keys, at, tokens);
  }

  /** A waiting sequence has been looked up in memory: whether it should wait for what is read, or is to be read. */
  look(sequence: Sequence): boolean {
    const prefix = sequence.prefix!;
    for (const running of this.#running) {
      if (running.restores.some(({ dropped }) => dropped)) continue;
      if (running.sequence === sequence || this.#awaits(sequence, running)) return true;
    }
    if (!this.#isOpen(sequence)) return false;
    const found = this.#find(sequence);
    if (found === null) {
      // What is not there now is not looked for again.
      prefix.restores = TURNS;
      return false;
    }
    if (this.#running.length < AT_ONCE) this.#start(sequence, found.floatStart, found.end);
    return true;
  }

  /** `look` may say so when there is a row for the sequence. */
  mayRead(sequence: Sequence): boolean {
    return this.#isOpen(sequence) && this.#find(sequence) !== null;
  }

  /** Blocks of one kind that sequences hold while they are restored, and those that are soon free since they were dropped. */
  blocks(group: number, ofFloatStart: boolean): { held: number; leaving: number } {
    let held = 0;
    let leaving = 0;
    for (const { floatStart, restores } of this.#running) {
      // FloatStart are the blocks of group 0 alone.
      if (group === 0 && floatStart !== ofFloatStart) continue;
      held += restores[group]!.held;
      leaving += restores[group]!.leaving;
    }
    return { held, leaving };
  }

  /** Those that compute need blocks: what is being restored gives back what it holds, and is computed. */
  drop(): void {
    for (const { sequence, restores } of this.#running) {
      sequence.prefix!.restores = TURNS;
      for (const restore of restores) restore.drop();
    }
  }

  /** Forgets what is on disk. */
  async clear(): Promise<void> {
    this.#clears++;
    await this.#tier.clear();
  }

  /** Gives what was entered last time to be written. Then nothing is read from the device any more. */
  close(): Promise<void> {
    this.#closed ??= this.#drain();
    return this.#closed;
  }

  stats(): PrefixDiskStats {
    const left = this.#allWriters().reduce((sum, writer) => sum + writer.dropped, 0);
    const tier = this.#tier.stats();
    return {
      ...tier,
      dropped: tier.dropped + left,
      restoredBlocks: this.#restored,
      restoredTokens: this.#restored * this.#blockTokens,
    };
  }

  async #drain(): Promise<void> {
    let timer: NodeJS.Timeout | undefined;
    const late = new Promise<void>((resolve) => {
      timer = setTimeout(resolve, DRAIN_MS);
    });
    await Promise.race([Promise.all(this.#allWriters().map((writer) => writer.flush())), late]);
    clearTimeout(timer);
    for (const writer of this.#allWriters()) writer.stop();
    await this.#tier.close(0);
    for (const writer of this.#allWriters()) await writer.idle();
  }

  #allWriters(): readonly WriteBehind[] {
    return this.#floatStartWriter === null ? this.#writers : [...this.#writers, this.#floatStartWriter];
  }

  /** It has not had all its turns, and the disk is of use. */
  #isOpen({ prefix }: Sequence): boolean {
    return prefix!.restores < TURNS && this.#closed === null && Date.now() >= this.#slowUntil;
  }

  /** Of which kind the sequence can have blocks from disk, and how long its chains would be. */
  #find(sequence: Sequence): { floatStart: boolean; end: number } | null {
    const prefix = sequence.prefix!;
    const N = this.#floatStartTokens;
    // One token is left to be computed.
    const limit = sequence.length - 1;
    if (N === 0 || limit >= N) {
      const end = this.#end(this.#main, prefix.main, sequence, limit);
      // Fewer than N tokens of the main pool are of no use.
      if (end > prefix.main.length && end * this.#blockTokens >= N) return { floatStart: false, end };
    }
    if (this.#floatStart === null || prefix.takes === prefix.main) return null;
    const end = this.#end(this.#floatStart, prefix.floatStart, sequence, Math.min(limit, N - 1));
    return end > prefix.floatStart.length ? { floatStart: true, end } : null;
  }

  /** The longest border, in blocks, that all groups could go on at with what is on disk besides. */
  #end(hosts: readonly RestoreHost[], found: FoundChains, sequence: Sequence, tokens: number): number {
    const { keys } = sequence.prefix!;
    const most = Math.floor(tokens / this.#blockTokens);
    const full = hosts[0]!;
    let end = most;
    if (!full.cache.gaps) {
      const have = hosts.length > 1 ? found.reach.length : found.length;
      end = have + this.#tier.find(diskKeys(keys, have, most, full.kind));
    }
    return agreedBorder(hosts.length, end, (group, least) =>
      hosts[group]!.cache.gaps ? farthestBorder(hosts[group]!, keys, sequence, least) : least,
    );
  }

  #start(sequence: Sequence, floatStart: boolean, end: number): void {
    const prefix = sequence.prefix!;
    prefix.restores++;
    const started = performance.now();
    const clears = this.#clears;
    const wanted = (): boolean => sequence.phase === 'waiting' && clears === this.#clears;
    const hosts = (floatStart ? this.#floatStart : this.#main)!;
    const restores = hosts.map((host) => new Restore(host, prefix.keys, sequence, end, wanted));
    const running: Running = { sequence, floatStart, end, restores };
    this.#running.push(running);
    // A plan is being made: what there is stays as it is told until it is carried out.
    void Promise.resolve()
      .then(() => this.#run(restores))
      // The device has failed; the steps tell of it.
      .catch(() => 0)
      .then((blocks) => {
        this.#running.splice(this.#running.indexOf(running), 1);
        this.#restored += blocks;
        const took = performance.now() - started;
        const computed = this.#tokenMs() * blocks * this.#blockTokens;
        if (took > LONG_MS && computed > 0 && took > computed) this.#slowUntil = Date.now() + SLOW_MS;
        this.#onRestored();
      });
  }

  /** One group after the other. Gives the blocks of the group that brought in most. */
  async #run(restores: readonly Restore[]): Promise<number> {
    let most = 0;
    for (const restore of restores) most = Math.max(most, await restore.run());
    return most;
  }

  /** Another sequence is having the block read that comes next for this one; with gaps, those up to a border of both. */
  #awaits({ prefix, length }: Sequence, { sequence, floatStart, end }: Running): boolean {
    const own = prefix!;
    if (this.#main.some(({ cache }) => cache.gaps)) {
      if (own.main.length >= end || end * this.#blockTokens >= length) return false;
      return own.keys.sameAt(end - 1, sequence.prefix!.keys);
    }
    const at = (floatStart ? own.floatStart : own.main).length;
    return at < end && (at + 1) * this.#blockTokens < length && own.keys.sameAt(at, sequence.prefix!.keys);
  }
}
