/** Writes blocks behind, one file at a time, from a queue of bounded bytes. */

import { makeFolder } from '../../make-folder.js';
import { systemCode } from '../../system-errors.js';
import type { DiskCounts } from './disk-counts.js';
import { blockFileBytes, encodeHead } from './disk-format.js';
import { type DiskFile, type DiskFs, FILE_MODE, FOLDER_MODE, writeFully } from './disk-fs.js';
import type { DiskIndex } from './disk-index.js';
import type { Outage } from './outage.js';

export interface DiskWrite {
  /** 32 hexadecimal digits. */
  readonly key: string;
  readonly tokens: Uint32Array;
  /** Blocks before it in its chain. */
  readonly depth: number;
  readonly data: Uint8Array;
}

export interface DiskWriterHost {
  readonly fs: DiskFs;
  readonly index: DiskIndex;
  readonly signature: string;
  readonly queueBytes: number;
  readonly counts: DiskCounts;
  readonly outage: Outage;
  readonly now: () => number;
  /** Removes files until so many bytes more are within the cap. */
  readonly makeRoom: (bytes: number) => Promise<void>;
}

/** Room in the queue that is kept for some blocks of one size, until they are offered or the claim ends. */
export class RoomClaim {
  readonly #release: (bytes: number) => void;
  #blocks = 0;
  #blockBytes = 0;

  constructor(release: (bytes: number) => void) {
    this.#release = release;
  }

  /** Blocks that it still has room for. */
  get blocks(): number {
    return this.#blocks;
  }

  get bytes(): number {
    return this.#blocks * this.#blockBytes;
  }

  /** @internal by the writer, once */
  grant(blockBytes: number, blocks: number): void {
    this.#blockBytes = blockBytes;
    this.#blocks = blocks;
  }

  /** One of its blocks is in the queue. */
  use(): void {
    this.#blocks--;
    this.#release(this.#blockBytes);
  }

  end(): void {
    const { bytes } = this;
    this.#blocks = 0;
    if (bytes > 0) this.#release(bytes);
  }
}

export class DiskWriter {
  readonly #host: DiskWriterHost;
  readonly #queue = new Map<string, DiskWrite>();
  #bytes = 0;
  #claimed = 0;
  readonly #line: RoomClaim[] = [];
  readonly #turns: (() => void)[] = [];
  #current: DiskWrite | null = null;
  #running: Promise<void> | null = null;

  constructor(host: DiskWriterHost) {
    this.#host = host;
  }

  /** Blocks that wait, and the one that is being written. */
  get length(): number {
    return this.#queue.size;
  }

  get bytes(): number {
    return this.#bytes;
  }

  /** The block that is being written. */
  get current(): DiskWrite | null {
    return this.#current;
  }

  has(key: string): boolean {
    return this.#queue.has(key);
  }

  /** What is neither taken nor claimed. One block always finds room in an empty queue, whatever its size. */
  hasRoom(bytes: number): boolean {
    const taken = this.#bytes + this.#claimed;
    return taken === 0 || taken + bytes <= this.#host.queueBytes;
  }

  /**
   * Waits in line for room for `most` blocks of `bytes` each, or as many of them as there is room for then, but for one. A block that
   * is larger than the queue waits until the queue is empty; those who come later wait behind it. `isOver`: room is of no use any more.
   */
  async claim(bytes: number, most: number, isOver: () => boolean): Promise<RoomClaim> {
    const claim = new RoomClaim((released) => {
      this.#claimed -= released;
      this.wake();
    });
    this.#line.push(claim);
    while (!isOver() && !(this.#line[0] === claim && this.hasRoom(bytes))) await this.turn();
    this.#line.splice(this.#line.indexOf(claim), 1);
    const room = this.#host.queueBytes - this.#bytes - this.#claimed;
    claim.grant(bytes, Math.max(1, Math.min(most, Math.floor(room / bytes))));
    this.#claimed += claim.bytes;
    // Whoever is next may fit beside it.
    this.wake();
    return claim;
  }

  push(block: DiskWrite): void {
    this.#queue.set(block.key, block);
    this.#bytes += sizeOf(block);
    this.#running ??= this.#run();
  }

  /** Lets go of all that waits. What is being written is written. */
  drop(): void {
    for (const block of [...this.#queue.values()]) {
      if (block === this.#current) continue;
      this.#host.counts.dropped++;
      this.#remove(block);
    }
  }

  /** Resolves when a block has left the queue. */
  turn(): Promise<void> {
    return new Promise((resolve) => this.#turns.push(resolve));
  }

  /** As if one had. */
  wake(): void {
    for (const resolve of this.#turns.splice(0)) resolve();
  }

  async idle(): Promise<void> {
    while (this.#running !== null) await this.#running;
  }

  async #run(): Promise<void> {
    const { counts, outage } = this.#host;
    // Whoever offers blocks in a row has offered them all.
    await null;
    for (let block = this.#next(); block !== undefined; block = this.#next()) {
      this.#current = block;
      try {
        await this.#write(block);
        outage.end();
      } catch (error) {
        counts.writeErrors++;
        counts.dropped++;
        outage.fail(systemCode(error));
        this.drop();
      }
      this.#remove(block);
      this.#current = null;
      this.wake();
    }
    this.#running = null;
  }

  /** The one that has waited longest. */
  #next(): DiskWrite | undefined {
    return this.#queue.values().next().value;
  }

  #remove(block: DiskWrite): void {
    if (this.#queue.delete(block.key)) this.#bytes -= sizeOf(block);
  }

  async #write(block: DiskWrite): Promise<void> {
    const { fs, index, signature, counts, now, makeRoom } = this.#host;
    const { key, data, depth } = block;
    const bytes = sizeOf(block);
    await makeRoom(bytes);
    await makeFolder(index.folderOf(signature, key), FOLDER_MODE, fs);
    const temporary = index.temporaryPathOf(signature, key);
    let file: DiskFile | null = await fs.open(temporary, 'wx', FILE_MODE);
    try {
      await writeFully(file, [encodeHead({ signature, ...block }, data), data]);
      // Of a chain the beginning is to be the last that goes.
      const used = new Date(now() - depth);
      await file.utimes(used, used).catch(() => {});
      // Its bytes are on the disk before its name is. Whether the name survives a fall of power does not matter.
      await file.sync();
      await file.close();
      file = null;
      await fs.rename(temporary, index.pathOf({ signature, key }));
    } catch (error) {
      await file?.close().catch(() => {});
      await fs.unlink(temporary).catch(() => {});
      throw error;
    }
    index.add({ signature, key, bytes });
    counts.writtenBlocks++;
    counts.writtenBytes += bytes;
  }
}

function sizeOf({ tokens, data }: DiskWrite): number {
  return blockFileBytes(tokens.length, data.length);
}
