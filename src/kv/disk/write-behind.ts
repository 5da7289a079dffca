/**
 * Writes blocks of a prefix cache to the disk tier, behind the steps. It owns no block meanwhile: one that is
 * evicted before it was read, or while it is, is left out. So no sequence ever waits for it.
 */

import type { KvPool } from '../../device/kv.js';
import type { ChainKeys, TokenSource } from '../prefix/chain-keys.js';
import type { PrefixCache } from '../prefix/prefix-cache.js';
import { blockFileBytes } from './disk-format.js';
import { type BlockKind, diskKey } from './disk-key.js';
import type { DiskTier } from './disk-tier.js';
import type { RoomClaim } from './disk-writer.js';

export interface WriteBehindHost {
  readonly cache: PrefixCache;
  readonly device: KvPool;
  /** Id by which the device knows block 0 of the cache. */
  readonly firstId: number;
  readonly blockBytes: number;
  readonly tier: DiskTier;
  /** Which of the caches it is. */
  readonly kind: BlockKind;
}

interface Published {
  readonly block: number;
  readonly serial: number;
  readonly key: string;
  readonly depth: number;
  readonly tokens: Uint32Array;
}

/** Blocks that wait to be read. They cost a few words each: it is the tier's queue that holds bytes. */
const WAITING = 8192;
/** Bytes read from the device at once, or one block. */
const READ_BYTES = 4 * 2 ** 20;

export class WriteBehind {
  readonly #host: WriteBehindHost;
  readonly #batch: number;
  readonly #fileBytes: number;
  readonly #waiting: Published[] = [];
  #running: Promise<void> | null = null;
  #closed = false;
  /** Blocks left out because too many waited. Those that the tier drops are counted there. */
  dropped = 0;

  constructor(host: WriteBehindHost) {
    this.#host = host;
    this.#batch = Math.max(1, Math.floor(READ_BYTES / host.blockBytes));
    this.#fileBytes = blockFileBytes(host.cache.blockTokens, host.blockBytes);
  }

  /** Block `at` of a chain is new in the cache. */
  published(block: number, keys: ChainKeys, at: number, tokens: TokenSource): void {
    const { tier, cache, kind } = this.#host;
    if (this.#closed) return;
    const key = diskKey(keys, at, kind);
    if (tier.has(key)) return;
    if (this.#waiting.length >= WAITING) {
      this.dropped++;
      return;
    }
    const first = at * cache.blockTokens;
    this.#waiting.push({
      block,
      serial: cache.serial(block),
      key,
      depth: at,
      tokens: Uint32Array.from({ length: cache.blockTokens }, (_, i) => tokens.tokenAt(first + i)!),
    });
    this.#running ??= this.#run();
  }

  /** Resolves when all that was published is written or left out. */
  async flush(): Promise<void> {
    await this.idle();
    await this.#host.tier.flush();
  }

  /** Reads no more from the device than it does now. */
  stop(): void {
    this.#closed = true;
    this.#waiting.length = 0;
  }

  /** Resolves when it reads nothing; after `stop` and the closing of the tier. */
  async idle(): Promise<void> {
    while (this.#running !== null) await this.#running;
  }

  async #run(): Promise<void> {
    const { tier } = this.#host;
    // All that this step publishes first.
    await null;
    while (this.#waiting.length > 0) {
      const claim = await tier.claim(this.#fileBytes, Math.min(this.#batch, this.#waiting.length));
      const some = this.#take(claim);
      if (some.length > 0) await this.#write(some, claim);
      claim.end();
    }
    this.#running = null;
  }

  /** The next few that are still there and wanted, as many as the claim has room for. */
  #take(claim: RoomClaim): Published[] {
    const { tier } = this.#host;
    const bytes = this.#fileBytes;
    const some: Published[] = [];
    let next = 0;
    for (; next < this.#waiting.length && some.length < claim.blocks; next++) {
      const one = this.#waiting[next]!;
      if (this.#isThere(one) && tier.wants(one.key, bytes, claim)) some.push(one);
    }
    this.#waiting.splice(0, next);
    return some;
  }

  async #write(some: readonly Published[], claim: RoomClaim): Promise<void> {
    const { device, tier, firstId } = this.#host;
    let data: Uint8Array[];
    try {
      data = await device.read(Uint32Array.from(some, ({ block }) => block + firstId));
    } catch {
      // The device has failed; the steps tell of it.
      this.stop();
      return;
    }
    some.forEach((one, i) => {
      // An entry never changes: what was one before and is one now was one all the time.
      if (this.#isThere(one)) tier.offer({ ...one, data: data[i]! }, claim);
    });
  }

  #isThere({ block, serial }: Published): boolean {
    return this.#host.cache.serial(block) === serial;
  }
}
