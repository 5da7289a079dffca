/**
 * Which files a folder of blocks holds, in the order in which they were last used: one process' view of it. Rebuilt from
 * names, sizes and dates; files are not opened.
 *
 *     <folder>/<signature>/<first two digits of the key>/<key>.kvb
 *
 * Several signatures (models, formats) share a folder and its byte cap. Whatever has another name is left alone.
 */

import { createHash, randomInt } from 'node:crypto';
import { hostname } from 'node:os';
import { join } from 'node:path';
import { systemCode } from '../../system-errors.js';
import type { DiskFs } from './disk-fs.js';

export interface DiskEntry {
  readonly signature: string;
  readonly key: string;
  readonly bytes: number;
}

const SIGNATURE = /^[0-9a-f]{32}$/;
const PREFIX = /^[0-9a-f]{2}$/;
const BLOCK = /^([0-9a-f]{32})\.kvb$/;
const TEMPORARY = /^[0-9a-f]{32}\.([0-9a-f]{8})-(\d+)-\d+-\d+\.tmp$/;
/** What is in a signature's folder beside blocks. */
export const ABOUT = 'about.json';
const HOST = createHash('sha256').update(hostname()).digest('hex').slice(0, 8);
/** Of a process on another machine nobody knows whether it lives: no write takes so long. */
const ABANDONED_MS = 3_600_000;
const STATS_AT_ONCE = 16;

interface Scan {
  readonly now: number;
  readonly found: { readonly entry: DiskEntry; readonly used: number }[];
  readonly seen: Set<string>;
  foreign: number;
  /** All folders could be read. */
  complete: boolean;
}

export class DiskIndex {
  readonly #fs: DiskFs;
  readonly #folder: string;
  /** Least recently used first. */
  readonly #entries = new Map<string, DiskEntry>();
  #bytes = 0;
  /** Of this index among others of the process. */
  readonly #number = randomInt(2 ** 32);
  #temporary = 0;

  constructor(fs: DiskFs, folder: string) {
    this.#fs = fs;
    this.#folder = folder;
  }

  get files(): number {
    return this.#entries.size;
  }

  get bytes(): number {
    return this.#bytes;
  }

  has(signature: string, key: string): boolean {
    return this.#entries.has(`${signature}/${key}`);
  }

  get(signature: string, key: string): DiskEntry | undefined {
    return this.#entries.get(`${signature}/${key}`);
  }

  /** As the most recently used. */
  add(entry: DiskEntry): void {
    this.remove(entry);
    this.#entries.set(`${entry.signature}/${entry.key}`, entry);
    this.#bytes += entry.bytes;
  }

  remove({ signature, key }: { readonly signature: string; readonly key: string }): void {
    const entry = this.#entries.get(`${signature}/${key}`);
    if (entry === undefined) return;
    this.#entries.delete(`${signature}/${key}`);
    this.#bytes -= entry.bytes;
  }

  use(signature: string, key: string): void {
    const entry = this.get(signature, key);
    if (entry !== undefined) this.add(entry);
  }

  /** The least recently used. */
  get oldest(): DiskEntry | undefined {
    return this.#entries.values().next().value;
  }

  of(signature: string): DiskEntry[] {
    return [...this.#entries.values()].filter((entry) => entry.signature === signature);
  }

  folderOf(signature: string, key: string): string {
    return join(this.#folder, signature, key.slice(0, 2));
  }

  pathOf({ signature, key }: { readonly signature: string; readonly key: string }): string {
    return join(this.folderOf(signature, key), `${key}.kvb`);
  }

  /** A name that no process uses a second time, beside where the block will be. */
  temporaryPathOf(signature: string, key: string): string {
    const name = `${key}.${HOST}-${process.pid}-${this.#number}-${this.#temporary++}.tmp`;
    return join(this.folderOf(signature, key), name);
  }

  /**
   * Takes in what the folder holds; forgets what is gone; removes what killed processes left half written. Gives the number of names that are none of ours.
   */
  async scan(now: number): Promise<number> {
    // What is written while this looks is not there to be seen.
    const known = [...this.#entries.values()];
    const scan: Scan = { now, found: [], seen: new Set(), foreign: 0, complete: true };
    for (const signature of await this.#names(this.#folder, scan)) {
      if (SIGNATURE.test(signature)) await this.#scanSignature(signature, scan);
      else scan.foreign++;
    }
    for (const entry of scan.complete ? known : [])
      if (!scan.seen.has(`${entry.signature}/${entry.key}`)) this.remove(entry);
    scan.found.sort((a, b) => a.used - b.used);
    for (const { entry } of scan.found) if (!this.has(entry.signature, entry.key)) this.add(entry);
    return scan.foreign;
  }

  async #scanSignature(signature: string, scan: Scan): Promise<void> {
    for (const prefix of await this.#names(join(this.#folder, signature), scan)) {
      if (prefix === ABOUT) continue;
      if (!PREFIX.test(prefix)) {
        scan.foreign++;
        continue;
      }
      const folder = join(this.#folder, signature, prefix);
      const fresh: { path: string; key: string }[] = [];
      for (const name of await this.#names(folder, scan)) {
        const key = BLOCK.exec(name)?.[1];
        if (key?.startsWith(prefix)) {
          scan.seen.add(`${signature}/${key}`);
          if (!this.has(signature, key)) fresh.push({ path: join(folder, name), key });
        } else if (!(await this.#isTemporary(join(folder, name), name, scan.now))) scan.foreign++;
      }
      for (let i = 0; i < fresh.length; i += STATS_AT_ONCE) {
        await Promise.all(
          fresh.slice(i, i + STATS_AT_ONCE).map(async ({ path, key }) => {
            try {
              const { size, mtimeMs } = await this.#fs.stat(path);
              scan.found.push({ entry: { signature, key, bytes: size }, used: mtimeMs });
            } catch {
              // Gone meanwhile, or not to be had.
            }
          }),
        );
      }
    }
  }

  async #names(path: string, scan: Scan): Promise<string[]> {
    try {
      return await this.#fs.readdir(path);
    } catch (error) {
      // No folder has nothing in it. Of one that cannot be read nobody knows.
      if (!['ENOENT', 'ENOTDIR'].includes(systemCode(error))) scan.complete = false;
      return [];
    }
  }

  /** It is a file under way; one whose process has ended is removed. */
  async #isTemporary(path: string, name: string, now: number): Promise<boolean> {
    const [, host, pid] = TEMPORARY.exec(name) ?? [];
    if (host === undefined) return false;
    try {
      const abandoned =
        host === HOST ? !lives(Number(pid)) : now - (await this.#fs.stat(path)).mtimeMs > ABANDONED_MS;
      if (abandoned) await this.#fs.unlink(path);
    } catch {
      // Another process was faster.
    }
    return true;
  }
}

function lives(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return systemCode(error) !== 'ESRCH';
  }
}
