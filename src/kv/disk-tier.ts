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
import { KvantError } from '../errors.js';
import { type BlockIdentity, blockFileBytes, decodeBlock, hasMagic, MAGIC } from './disk-format.js';
import { type DiskFile, type DiskFs, readFully, systemCode, writeFully } from './disk-fs.js';
import { ABOUT, type DiskEntry, DiskIndex } from './disk-index.js';
import { type DiskWrite, DiskWriter } from './disk-writer.js';
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

export interface DiskBlock {
  /** 32 hexadecimal digits. */
  readonly key: string;
  readonly tokens: Uint32Array;
}

export interface DiskCounts {
  /** Blocks read and found good, and their bytes. */
  readBlocks: number;
  readBytes: number;
  writtenBlocks: number;
  writtenBytes: number;
  /** Blocks not written: the queue was full, the file system failed, or the cap is smaller than the block. */
  dropped: number;
  /** Files removed for others. */
  evicted: number;
  /** Files not as they were written. */
  corrupt: number;
  /** Names and files in the folder that are not ours, and those of other versions. */
  foreign: number;
  /** Failures of the file system. */
  readErrors: number;
  writeErrors: number;
  /** Reads given up because they took too long. */
  slowReads: number;
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
/** Files read at once, by all reads together: with the one that is written they leave threads to the rest of the process. */
const READS_AT_ONCE = 2;
/** Failures in a row that make an outage: one bad file does not. */
const BAD_READS = 3;
/** How often the folder is looked through for what other processes have written. */
const RESCAN_MS = 30_000;

export class DiskTier {
  readonly counts: DiskCounts = {
    readBlocks: 0,
    readBytes: 0,
    writtenBlocks: 0,
    writtenBytes: 0,
    dropped: 0,
    evicted: 0,
    corrupt: 0,
    foreign: 0,
    readErrors: 0,
    writeErrors: 0,
    slowReads: 0,
  };
  readonly #fs: DiskFs;
  readonly #now: () => number;
  readonly #maxBytes: number;
  readonly #signature: string;
  readonly #index: DiskIndex;
  readonly #writer: DiskWriter;
  readonly #readOutage: Outage;
  readonly #writeOutage: Outage;
  #reads = 0;
  #badReads = 0;
  /** Names in the folder that are not ours. */
  #foreignNames = 0;
  readonly #readers: (() => void)[] = [];
  #scanned = 0;
  #scanning: Promise<void> | null = null;
  #closed = false;

  /** Errors: `prefix-cache-dir-unusable`, for a folder that cannot be used by any means. */
  static async open(options: DiskTierOptions): Promise<DiskTier> {
    const { folder, signature, fs = nodeFs } = options;
    const tier = new DiskTier(options);
    const own = join(folder, tier.#signature);
    try {
      await fs.mkdir(own, { recursive: true });
    } catch (error) {
      const code = systemCode(error);
      // Full, or not to be written to: what is there can be read.
      if (!['ENOSPC', 'EDQUOT', 'EROFS', 'EIO'].includes(code)) throw unusable(folder, code, error);
      tier.#writeOutage.fail(code);
    }
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

  /** It is on disk, or waits to be written. */
  has(key: string): boolean {
    return this.#index.has(this.#signature, key) || this.#writer.has(key);
  }

  /** Resolves when a block of so many bytes has room in the queue, or is not wanted anyway. */
  async room(bytes: number): Promise<void> {
    while (!this.#closed && !this.#writeOutage.lasts && !this.#writer.hasRoom(bytes))
      await this.#writer.turn();
  }

  /** A block of so many bytes would be queued by `offer`: it is not there yet, and there is room. Counts what is dropped. */
  wants(key: string, bytes: number): boolean {
    if (this.#closed || this.has(key)) return false;
    if (bytes <= this.#maxBytes && !this.#writeOutage.lasts && this.#writer.hasRoom(bytes)) return true;
    this.counts.dropped++;
    return false;
  }

  /**
   * Queues a block to be written; its bytes belong to the tier from here on. `depth`: blocks before it in its chain, which
   * are to outlive it. False if it is not wanted.
   */
  offer(block: DiskWrite): boolean {
    if (!this.wants(block.key, blockFileBytes(block.tokens.length, block.data.length))) return false;
    this.#writer.push(block);
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
    const done = new Array<Uint8Array | null>(blocks.length).fill(null);
    const run = { over: false };
    let timer: NodeJS.Timeout | undefined;
    const late = new Promise<'late'>((resolve) => {
      timer = setTimeout(() => resolve('late'), timeoutMs);
    });
    const all = Promise.all(
      blocks.map(async (block, i) => {
        await this.#reader();
        try {
          if (!run.over) done[i] = await this.#readBlock(block, dataBytes, depth + i);
          // What follows a gap is of no use.
          if (done[i] === null) run.over = true;
        } finally {
          this.#reads--;
          this.#readers.shift()?.();
        }
      }),
    );
    const outcome = await Promise.race([all, late]);
    clearTimeout(timer);
    run.over = true;
    if (outcome === 'late') {
      this.counts.slowReads++;
      this.#readOutage.fail('slow');
    }
    const gap = done.indexOf(null);
    const data = (gap < 0 ? done : done.slice(0, gap)) as Uint8Array[];
    for (let i = data.length - 1; i >= 0; i--) this.#index.use(this.#signature, blocks[i]!.key);
    for (const { length } of data) this.counts.readBytes += length;
    this.counts.readBlocks += data.length;
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
    this.#writer.drop();
    await this.#writer.idle();
    for (const entry of this.#index.of(this.#signature)) {
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

  async #readBlock(block: DiskBlock, dataBytes: number, depth: number): Promise<Uint8Array | null> {
    const entry = this.#index.get(this.#signature, block.key);
    if (entry === undefined) return null;
    const identity: BlockIdentity = { signature: this.#signature, ...block };
    let file: DiskFile | null = null;
    try {
      file = await this.#fs.open(this.#index.pathOf(entry), 'r');
      const { size } = await file.stat();
      const expected = blockFileBytes(block.tokens.length, dataBytes);
      // A longer one is corrupt, and found to be, by any byte too many.
      const bytes = new Uint8Array(Math.min(size, expected + 1));
      const count = await readFully(file, bytes);
      const data = decodeBlock(bytes.subarray(0, count), identity, dataBytes);
      if (typeof data !== 'string') {
        await dated(file, this.#now() - depth);
        this.#badReads = 0;
        this.#readOutage.end();
        return data;
      }
      this.#index.remove(entry);
      if (data === 'corrupt') this.counts.corrupt++;
      else this.counts.foreign++;
      if (data === 'corrupt') await this.#unlink(entry).catch(() => {});
    } catch (error) {
      this.#index.remove(entry);
      // Another process may have removed it.
      if (systemCode(error) !== 'ENOENT') {
        this.counts.readErrors++;
        if (++this.#badReads >= BAD_READS) this.#readOutage.fail(systemCode(error));
      }
    } finally {
      await file?.close().catch(() => {});
    }
    return null;
  }

  async #reader(): Promise<void> {
    if (this.#reads >= READS_AT_ONCE) await new Promise<void>((resolve) => this.#readers.push(resolve));
    this.#reads++;
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
      const file = await this.#fs.open(path, 'wx');
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

/** The date of a file says when it was last used. That of a file system that does not let us is another one. */
async function dated(file: DiskFile, ms: number): Promise<void> {
  await file.utimes(new Date(ms), new Date(ms)).catch(() => {});
}

function unusable(folder: string, code: string, cause: unknown): KvantError {
  return new KvantError('prefix-cache-dir-unusable', `The folder ${folder} cannot be used (${code}).`, {
    kind: 'invalid-request',
    where: 'prefixCacheDir',
    fix: 'Name a folder that this user may write to, or leave the option out.',
    cause,
  });
}
