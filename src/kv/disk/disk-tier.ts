/**
 * The slow tier of the prefix cache: blocks of the KV cache as files, found again after a restart. It knows bytes, keys and
 * files, and nothing of engines.
 *
 * Nothing waits for it. Blocks are written behind, through a queue that drops what it cannot hold; a file comes into being
 * by a rename, whole or not at all. What is read is used only if every check sum, the signature, the key and the tokens
 * agree. A file system that fails is left alone for a while: then nothing is written, or nothing is found, and that is
 * all. Other processes may use the folder at the same time: files come and go, and never change.
 */

import { createHash } from 'node:crypto';
import * as nodeFs from 'node:fs/promises';
import { join } from 'node:path';
import { systemCode } from '../../system-errors.js';
import { DiskCounts } from './disk-counts.js';
import { makeDiskFolder } from './disk-folder.js';
import { blockFileBytes, hasMagic, MAGIC } from './disk-format.js';
import { type DiskFs, FILE_MODE, readFully, writeFully } from './disk-fs.js';
import { ABOUT, type DiskEntry, DiskIndex } from './disk-index.js';
import { type DiskBlock, DiskReader } from './disk-reader.js';
import { type DiskWrite, DiskWriter, type RoomClaim } from './disk-writer.js';
import { Outage } from './outage.js';

export interface DiskTierOptions {
  readonly folder: string;
  /** Bytes that the files of the folder may take, of all signatures together. */
  readonly maxBytes: number;
  /** All that the bytes of a block depend on besides its key: a text. Blocks are found under the same one only. */
  readonly signature: string;
  /** Bytes of blocks that wait to be written. Default: 64 MiB. */
  readonly queueBytes?: number;
  /** Told when writing or reading stops because the file system fails, and when it goes on. */
  readonly onFault?: (fault: DiskFault) => void;
  /** For tests. */
  readonly fs?: DiskFs;
  readonly now?: () => number;
}

export interface DiskFault {
  readonly what: 'write' | 'read';
  /** System error code, or `slow`; null: it works again. */
  readonly code: string | null;
}

export interface DiskStats extends DiskCounts {
  readonly files: number;
  readonly bytes: number;
  readonly maxBytes: number;
  readonly queued: number;
  readonly queuedBytes: number;
  /** Blocks are written: the file system has not failed lately. */
  readonly writing: boolean;
  readonly reading: boolean;
}

const QUEUE_BYTES = 64 * 2 ** 20;
const DRAIN_MS = 5000;
/** How often the folder is looked through for what other processes have written. */
const RESCAN_MS = 30_000;

export class DiskTier {
  readonly counts = new DiskCounts();
  readonly #fs: DiskFs;
  readonly #now: () => number;
  readonly #maxBytes: number;
  readonly #signature: string;
  readonly #index: DiskIndex;
  readonly #reader: DiskReader;
  readonly #writer: DiskWriter;
  readonly #readOutage: Outage;
  readonly #writeOutage: Outage;
  /** Names in the folder that are not ours. */
  #foreignNames = 0;
  #scanned = 0;
  #scanning: Promise<void> | null = null;
  #closed = false;

  /** Errors: `prefix-cache-dir-unusable`, for a folder that cannot be used by any means. */
  static async open(options: DiskTierOptions): Promise<DiskTier> {
    const { folder, signature, fs = nodeFs } = options;
    const tier = new DiskTier(options);
    const own = join(folder, tier.#signature);
    const trouble = await makeDiskFolder(folder, own, fs);
    if (trouble !== null) tier.#writeOutage.fail(trouble);
    await tier.#about(join(own, ABOUT), signature);
    await tier.#scan();
    return tier;
  }

  private constructor({ folder, maxBytes, signature, queueBytes, onFault, fs, now }: DiskTierOptions) {
    this.#fs = fs ?? nodeFs;
    this.#now = now ?? Date.now;
    this.#maxBytes = maxBytes;
    this.#signature = createHash('sha256').update(signature).digest('hex').slice(0, 32);
    this.#index = new DiskIndex(this.#fs, folder);
    this.#readOutage = new Outage(this.#now, (code) => onFault?.({ what: 'read', code }));
    this.#writeOutage = new Outage(this.#now, (code) => onFault?.({ what: 'write', code }));
    this.#reader = new DiskReader({
      fs: this.#fs,
      index: this.#index,
      signature: this.#signature,
      counts: this.counts,
      outage: this.#readOutage,
      now: this.#now,
      discard: async (entry) => {
        await this.#unlink(entry);
      },
    });
    this.#writer = new DiskWriter({
      fs: this.#fs,
      index: this.#index,
      signature: this.#signature,
      queueBytes: queueBytes ?? QUEUE_BYTES,
      counts: this.counts,
      outage: this.#writeOutage,
      now: this.#now,
      makeRoom: (bytes) => this.#makeRoom(bytes),
    });
  }

  /** How many blocks from the first on could be read, as far as is known without looking. */
  find(keys: Iterable<string>): number {
    if (this.#closed || this.#readOutage.lasts) return 0;
    let count = 0;
    for (const key of keys) {
      if (!this.#index.has(this.#signature, key)) {
        this.#rescan();
        break;
      }
      count++;
    }
    return count;
  }

  /** A block could be read, as far as is known without looking. */
  readable(key: string): boolean {
    if (this.#closed || this.#readOutage.lasts) return false;
    if (this.#index.has(this.#signature, key)) return true;
    this.#rescan();
    return false;
  }

  /** It is on disk, or waits to be written. */
  has(key: string): boolean {
    return this.#index.has(this.#signature, key) || this.#writer.has(key);
  }

  /**
   * Resolves with room in the queue for one to `most` blocks of `bytes` each, first come first served. A block that is larger than the
   * whole queue has room when the queue is empty. Resolves at once where nothing is written: such blocks are dropped.
   */
  claim(bytes: number, most: number): Promise<RoomClaim> {
    return this.#writer.claim(
      bytes,
      most,
      () => this.#closed || this.#writeOutage.lasts || bytes > this.#maxBytes,
    );
  }

  /** A block of so many bytes would be queued by `offer`: it is not there yet, and has room. Counts what is dropped. */
  wants(key: string, bytes: number, claim?: RoomClaim): boolean {
    if (this.#closed || this.has(key)) return false;
    const hasRoom = claim === undefined ? this.#writer.hasRoom(bytes) : claim.blocks > 0;
    if (bytes <= this.#maxBytes && !this.#writeOutage.lasts && hasRoom) return true;
    this.counts.dropped++;
    return false;
  }

  /**
   * Queues a block to be written; its bytes belong to the tier from here on. `depth`: blocks before it in its chain, which
   * are to outlive it. `claim`: room that was kept for it. False if it is not wanted.
   */
  offer(block: DiskWrite, claim?: RoomClaim): boolean {
    const bytes = blockFileBytes(block.tokens.length, block.data.length);
    if (!this.wants(block.key, bytes, claim)) return false;
    this.#writer.push(block);
    claim?.use();
    return true;
  }

  /**
   * Reads blocks that follow one another in a chain, `depth` blocks from its beginning: those that are to be had, up to the
   * first that is not. What takes longer than `timeoutMs`, all together, is left.
   */
  async read(
    blocks: readonly DiskBlock[],
    dataBytes: number,
    depth: number,
    timeoutMs: number,
  ): Promise<Uint8Array[]> {
    if (this.#closed || this.#readOutage.lasts) return [];
    const data = await this.#reader.read(blocks, dataBytes, depth, timeoutMs);
    for (let i = data.length - 1; i >= 0; i--) this.#index.use(this.#signature, blocks[i]!.key);
    return data;
  }

  /** They are of use, though they were not read: those of a chain, its first block first. */
  touch(keys: readonly string[]): void {
    for (let i = keys.length - 1; i >= 0; i--) this.#index.use(this.#signature, keys[i]!);
  }

  stats(): DiskStats {
    return {
      ...this.counts,
      foreign: this.counts.foreign + this.#foreignNames,
      files: this.#index.files,
      bytes: this.#index.bytes,
      maxBytes: this.#maxBytes,
      queued: this.#writer.length,
      queuedBytes: this.#writer.bytes,
      writing: !this.#writeOutage.lasts,
      reading: !this.#readOutage.lasts,
    };
  }

  /** Removes all blocks of this signature, and those that wait. */
  async clear(): Promise<void> {
    const gone = this.#index.of(this.#signature);
    for (const entry of gone) this.#index.remove(entry);
    this.#writer.drop();
    const { current } = this.#writer;
    if (current !== null) {
      await this.#writer.turn();
      const entry = this.#index.get(this.#signature, current.key);
      if (entry !== undefined) gone.push(entry);
    }
    for (const entry of gone) {
      this.#index.remove(entry);
      await this.#unlink(entry).catch(() => this.counts.writeErrors++);
    }
  }

  /** Resolves when all that was offered is written or dropped. */
  async flush(): Promise<void> {
    await this.#writer.idle();
  }

  /** Takes no more, and gives what waits and what is under way so long to come to an end. */
  async close(drainMs = DRAIN_MS): Promise<void> {
    this.#closed = true;
    this.#writer.wake();
    let timer: NodeJS.Timeout | undefined;
    const late = new Promise<void>((resolve) => {
      timer = setTimeout(resolve, drainMs);
    });
    await Promise.race([Promise.all([this.#writer.idle(), this.#scanning]), late]);
    clearTimeout(timer);
    this.#writer.drop();
  }

  /** Removes the files that were used longest ago, until so many more bytes are within the cap. */
  async #makeRoom(bytes: number): Promise<void> {
    this.#rescan();
    for (let entry = this.#index.oldest; entry !== undefined; entry = this.#index.oldest) {
      if (this.#index.bytes + bytes <= this.#maxBytes) return;
      if (await this.#unlink(entry)) this.counts.evicted++;
      this.#index.remove(entry);
    }
  }

  /** Removes a file if it is ours. Throws where the file system does not let us. */
  async #unlink(entry: DiskEntry): Promise<boolean> {
    const path = this.#index.pathOf(entry);
    try {
      const file = await this.#fs.open(path, 'r');
      const head = new Uint8Array(MAGIC.length);
      try {
        await readFully(file, head);
      } finally {
        await file.close();
      }
      if (hasMagic(head)) {
        await this.#fs.unlink(path);
        return true;
      }
      this.counts.foreign++;
    } catch (error) {
      if (systemCode(error) !== 'ENOENT') throw error;
    }
    return false;
  }

  #rescan(): void {
    if (this.#scanning === null && this.#now() - this.#scanned >= RESCAN_MS) void this.#scan();
  }

  async #scan(): Promise<void> {
    this.#scanned = this.#now();
    this.#scanning = (async () => {
      this.#foreignNames = await this.#index.scan(this.#now());
      this.#scanning = null;
    })();
    await this.#scanning;
  }

  /** Says what the folder is for. Whoever looks into it is helped; nobody depends on it. */
  async #about(path: string, signature: string): Promise<void> {
    try {
      const file = await this.#fs.open(path, 'wx', FILE_MODE);
      try {
        await writeFully(file, [new TextEncoder().encode(`${signature}\n`)]);
      } finally {
        await file.close();
      }
    } catch {
      // It is there, or there is no room for it.
    }
  }
}
