/**
 * The disk tier of the prefix cache at work: what the caches enter is written behind, and a waiting sequence whose beginning
 * goes on in files is held until they are read. Then it finds them like any other prefix.
 *
 * Few sequences are restored at once, in turn, and only while a row is free for them. One that has had its turns is
 * computed; so is every one as long as the disk has been slower than that.
 */

import type { KvPool } from '../../device/kv.js';
import type { BlockPool } from '../../kv/block-pool.js';
import { diskKeys } from '../../kv/disk/disk-key.js';
import type { DiskTier } from '../../kv/disk/disk-tier.js';
import { farthestBorder, Restore, type RestoreHost } from '../../kv/disk/restore.js';
import { WriteBehind } from '../../kv/disk/write-behind.js';
import type { ChainKeys, TokenSource } from '../../kv/prefix/chain-keys.js';
import type { PrefixCache } from '../../kv/prefix/prefix-cache.js';
import type { Sequence } from '../sequence.js';
import type { PrefixDiskStats } from '../types.js';

/** One kind of blocks: those of the main pool, or young ones. */
export interface DiskSide {
  readonly cache: PrefixCache;
  readonly pool: BlockPool;
  readonly blockBytes: number;
}

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
  readonly young: boolean;
  /** Blocks that its chain will have. */
  readonly end: number;
  readonly restore: Restore;
}

export class PrefixDisk {
  readonly #tier: DiskTier;
  readonly #sides: readonly [main: RestoreHost, young: RestoreHost | null];
  readonly #writers: readonly [main: WriteBehind, young: WriteBehind | null];
  readonly #youngTokens: number;
  readonly #blockTokens: number;
  readonly #tokenMs: () => number;
  readonly #onRestored: () => void;
  readonly #running: Running[] = [];
  #restored = 0;
  #slowUntil = 0;
  #clears = 0;
  #closed: Promise<void> | null = null;

  /** `tokenMs`: what it takes to compute a token, 0 if unknown. `onRestored`: a held sequence need not wait any more. */
  constructor(
    tier: DiskTier,
    device: KvPool,
    main: DiskSide,
    young: DiskSide | null,
    youngTokens: number,
    tokenMs: () => number,
    onRestored: () => void,
  ) {
    this.#tier = tier;
    this.#youngTokens = youngTokens;
    this.#blockTokens = device.spec.blockTokens;
    this.#tokenMs = tokenMs;
    this.#onRestored = onRestored;
    const { slots } = device.spec;
    const side = (of: DiskSide, isYoung: boolean): RestoreHost => ({
      ...of,
      device,
      firstId: isYoung ? device.spec.blocks : 0,
      tier,
      young: isYoung,
      reserve: Math.min(RESERVE * slots, Math.floor(of.pool.size * RESERVE_PART)),
    });
    this.#sides = [side(main, false), young === null ? null : side(young, true)];
    this.#writers = [
      new WriteBehind(this.#sides[0]),
      this.#sides[1] === null ? null : new WriteBehind(this.#sides[1]),
    ];
  }

  /** Sequences being restored. */
  get restoring(): number {
    return this.#running.length;
  }

  /** A block is new in a cache. */
  published(young: boolean, block: number, keys: ChainKeys, at: number, tokens: TokenSource): void {
    this.#writers[young ? 1 : 0]?.published(block, keys, at, tokens);
  }

  /** A waiting sequence has been looked up in memory: whether it should wait for what is read, or is to be read. */
  look(sequence: Sequence): boolean {
    const prefix = sequence.prefix!;
    for (const running of this.#running) {
      if (running.restore.dropped) continue;
      if (running.sequence === sequence || this.#awaits(sequence, running)) return true;
    }
    if (prefix.restores >= TURNS || this.#closed !== null || Date.now() < this.#slowUntil) return false;
    const found = this.#find(sequence);
    if (found === null) {
      // What is not there now is not looked for again.
      prefix.restores = TURNS;
      return false;
    }
    if (this.#running.length < AT_ONCE) this.#start(sequence, found.young, found.end);
    return true;
  }

  /** Blocks of one kind that sequences hold while they are restored, and those that are soon free since they were dropped. */
  blocks(ofYoung: boolean): { held: number; leaving: number } {
    let held = 0;
    let leaving = 0;
    for (const { young, restore } of this.#running) {
      if (young !== ofYoung) continue;
      held += restore.held;
      leaving += restore.leaving;
    }
    return { held, leaving };
  }

  /** Those that compute need blocks: what is being restored gives back what it holds, and is computed. */
  drop(): void {
    for (const { sequence, restore } of this.#running) {
      sequence.prefix!.restores = TURNS;
      restore.drop();
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
    const left = this.#writers.reduce((sum, writer) => sum + (writer?.dropped ?? 0), 0);
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
    await Promise.race([Promise.all(this.#writers.map((writer) => writer?.flush())), late]);
    clearTimeout(timer);
    for (const writer of this.#writers) writer?.stop();
    await this.#tier.close(0);
    for (const writer of this.#writers) await writer?.idle();
  }

  /** Of which kind the sequence can have blocks from disk, and how long its chain would be. */
  #find(sequence: Sequence): { young: boolean; end: number } | null {
    const prefix = sequence.prefix!;
    const N = this.#youngTokens;
    // One token is left to be computed.
    const limit = sequence.length - 1;
    const [host] = this.#sides;
    if (host.cache.gaps) {
      const border = farthestBorder(host, prefix.keys, sequence, Math.floor(limit / this.#blockTokens));
      return border > prefix.main.length ? { young: false, end: border } : null;
    }
    const end = (young: boolean, have: number, tokens: number): number =>
      have + this.#tier.find(diskKeys(prefix.keys, have, Math.floor(tokens / this.#blockTokens), young));
    if (N === 0 || limit >= N) {
      const all = end(false, prefix.main.length, limit);
      // Fewer than N tokens of the main pool are of no use.
      if (all > prefix.main.length && all * this.#blockTokens >= N) return { young: false, end: all };
    }
    if (N === 0 || prefix.takes === prefix.main) return null;
    const all = end(true, prefix.young.length, Math.min(limit, N - 1));
    return all > prefix.young.length ? { young: true, end: all } : null;
  }

  #start(sequence: Sequence, young: boolean, end: number): void {
    const prefix = sequence.prefix!;
    prefix.restores++;
    const started = performance.now();
    const clears = this.#clears;
    const wanted = (): boolean => sequence.phase === 'waiting' && clears === this.#clears;
    const restore = new Restore(this.#sides[young ? 1 : 0]!, prefix.keys, sequence, end, wanted);
    const running: Running = { sequence, young, end, restore };
    this.#running.push(running);
    // A plan is being made: what there is stays as it is told until it is carried out.
    void Promise.resolve()
      .then(() => restore.run())
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

  /** Another sequence is having the block read that comes next for this one; with gaps, those up to a border of both. */
  #awaits({ prefix, length }: Sequence, { sequence, young, end }: Running): boolean {
    const own = prefix!;
    if (this.#sides[0].cache.gaps) {
      if (own.main.length >= end || end * this.#blockTokens >= length) return false;
      return own.keys.sameAt(end - 1, sequence.prefix!.keys);
    }
    const at = (young ? own.young : own.main).length;
    return at < end && (at + 1) * this.#blockTokens < length && own.keys.sameAt(at, sequence.prefix!.keys);
  }
}
