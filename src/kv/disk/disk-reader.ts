/** Reads blocks from files, a few at a time, as long as it does not take too long, and trusts none that is not whole. */

import { systemCode } from '../../system-errors.js';
import type { DiskCounts } from './disk-counts.js';
import { blockFileBytes, decodeBlock } from './disk-format.js';
import { type DiskFile, type DiskFs, readFully } from './disk-fs.js';
import type { DiskEntry, DiskIndex } from './disk-index.js';
import type { Outage } from './outage.js';

export interface DiskBlock {
  /** 32 hexadecimal digits. */
  readonly key: string;
  readonly tokens: Uint32Array;
}

export interface DiskReaderHost {
  readonly fs: DiskFs;
  readonly index: DiskIndex;
  readonly signature: string;
  readonly counts: DiskCounts;
  readonly outage: Outage;
  readonly now: () => number;
  /** Removes a file that is corrupt. */
  readonly discard: (entry: DiskEntry) => Promise<void>;
}

/** Files read at once, by all reads together: with the one that is written they leave threads to the rest of the process. */
const READS_AT_ONCE = 2;
/** Failures in a row that make an outage: one bad file does not. */
const BAD_READS = 3;

export class DiskReader {
  readonly #host: DiskReaderHost;
  #reads = 0;
  readonly #waiting: (() => void)[] = [];
  #failures = 0;

  constructor(host: DiskReaderHost) {
    this.#host = host;
  }

  /** See DiskTier.read. */
  async read(
    blocks: readonly DiskBlock[],
    dataBytes: number,
    depth: number,
    timeoutMs: number,
  ): Promise<Uint8Array[]> {
    const { counts, outage } = this.#host;
    const done = new Array<Uint8Array | null>(blocks.length).fill(null);
    const run = { over: false };
    let timer: NodeJS.Timeout | undefined;
    const late = new Promise<'late'>((resolve) => {
      timer = setTimeout(() => resolve('late'), timeoutMs);
    });
    const all = Promise.all(
      blocks.map(async (block, i) => {
        await this.#turn();
        try {
          if (!run.over) done[i] = await this.#readBlock(block, dataBytes, depth + i);
          // What follows a gap is of no use.
          if (done[i] === null) run.over = true;
        } finally {
          const next = this.#waiting.shift();
          if (next === undefined) this.#reads--;
          else next();
        }
      }),
    );
    const outcome = await Promise.race([all, late]);
    clearTimeout(timer);
    run.over = true;
    if (outcome === 'late') {
      counts.slowReads++;
      outage.fail('slow');
    }
    const gap = done.indexOf(null);
    const data = (gap < 0 ? done : done.slice(0, gap)) as Uint8Array[];
    for (const { length } of data) counts.readBytes += length;
    counts.readBlocks += data.length;
    return data;
  }

  async #readBlock(block: DiskBlock, dataBytes: number, depth: number): Promise<Uint8Array | null> {
    const { fs, index, signature, counts, outage, now, discard } = this.#host;
    const entry = index.get(signature, block.key);
    if (entry === undefined) return null;
    let file: DiskFile | null = null;
    try {
      file = await fs.open(index.pathOf(entry), 'r');
      const { size } = await file.stat();
      // A longer one is corrupt, and found to be, by any byte too many.
      const bytes = new Uint8Array(Math.min(size, blockFileBytes(block.tokens.length, dataBytes) + 1));
      const count = await readFully(file, bytes);
      const data = decodeBlock(bytes.subarray(0, count), { signature, ...block }, dataBytes);
      if (typeof data !== 'string') {
        // Its date says when it was last used. Where that cannot be set it says when it was written.
        const used = new Date(now() - depth);
        await file.utimes(used, used).catch(() => {});
        this.#failures = 0;
        outage.end();
        return data;
      }
      index.remove(entry);
      if (data === 'corrupt') counts.corrupt++;
      else counts.foreign++;
      if (data === 'corrupt') await discard(entry).catch(() => {});
    } catch (error) {
      index.remove(entry);
      // Another process may have removed it.
      if (systemCode(error) !== 'ENOENT') {
        counts.readErrors++;
        if (++this.#failures >= BAD_READS) outage.fail(systemCode(error));
      }
    } finally {
      await file?.close().catch(() => {});
    }
    return null;
  }

  async #turn(): Promise<void> {
    if (this.#reads < READS_AT_ONCE) this.#reads++;
    else await new Promise<void>((resolve) => this.#waiting.push(resolve));
  }
}
