/**
 * Choices that were measured on a device, kept on disk for the next start: one JSON file for each device.
 *
 * A cache and nothing more: what cannot be read is measured again, what cannot be written is lost, and neither ever
 * throws. A file is replaced as a whole, so that a reader sees one version of it or another, and processes that add at
 * the same time take turns, by a lock that nobody waits for long.
 */

import { createHash, randomBytes } from 'node:crypto';
import { readFile, rename, rm, stat, writeFile } from 'node:fs/promises';
import { homedir, tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { makeFolder } from '../make-folder.js';

/** Of the layout of the file. */
const FORMAT = 1;
/** Far more than choices take. A file that is larger is not ours. */
const MOST_BYTES = 16 * 2 ** 20;
/** A lock that is older was left behind: adding takes milliseconds. Who waits longer than that adds without it. */
const LOCK_MS = 3000;
const POLL_MS = 5;

/**
 * Where kvant keeps what it can make again: `KVANT_CACHE`, else `XDG_CACHE_HOME/kvant`, else `~/.cache/kvant`. Empty
 * variables do not count.
 */
export function cacheFolder(env: NodeJS.ProcessEnv = process.env): string {
  const own = env.KVANT_CACHE?.trim();
  if (own) return own;
  const caches = env.XDG_CACHE_HOME?.trim();
  return join(caches ? caches : join(home(), '.cache'), 'kvant');
}

/** A user of a container may have none. */
function home(): string {
  try {
    return homedir() || tmpdir();
  } catch {
    return tmpdir();
  }
}

export interface ChoiceFileOptions<Entry> {
  /** Of the device: `webgpu`, `cpu`. Part of the file's name. */
  readonly kind: string;
  /** What sets the device apart: plain data. Choices are read back where it is equal, and nowhere else. */
  readonly identity: Readonly<Record<string, unknown>>;
  /** Whether a value from the file is an entry. What is not is left out. */
  readonly isEntry: (value: unknown) => value is Entry;
  readonly folder?: string;
  /** Told once why nothing can be read, and once why nothing can be written. */
  readonly onWarning?: (message: string, fields: Readonly<Record<string, unknown>>) => void;
}

export class ChoiceFile<Entry> {
  readonly path: string;
  readonly #folder: string;
  readonly #identity: string;
  readonly #isEntry: (value: unknown) => value is Entry;
  readonly #onWarning: (message: string, fields: Readonly<Record<string, unknown>>) => void;
  readonly #warned = new Set<string>();

  constructor({ kind, identity, isEntry, folder, onWarning }: ChoiceFileOptions<Entry>) {
    this.#folder = folder ?? join(cacheFolder(), 'tuning');
    this.#identity = JSON.stringify(sorted(identity));
    this.#isEntry = isEntry;
    this.#onWarning = onWarning ?? (() => {});
    const hash = createHash('sha256').update(this.#identity).digest('hex').slice(0, 16);
    this.path = join(this.#folder, `${kind}-${hash}.json`);
  }

  /** What is kept; empty where there is nothing, or nothing that can be used. */
  async read(): Promise<Record<string, Entry>> {
    let text: string;
    try {
      text = await readFile(this.path, 'utf8');
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'ENOENT')
        this.#warn('tuned choices cannot be read', String(error));
      return {};
    }
    const entries = this.#parse(text);
    if (entries === null) this.#warn('tuned choices on disk are damaged or of another device', 'ignored');
    return entries ?? {};
  }

  /** Adds to what is there, in the place of entries of the same names. */
  async add(entries: Readonly<Record<string, Entry>>): Promise<void> {
    try {
      await makeFolder(this.#folder);
      await locked(`${this.path}.lock`, async () => {
        await this.#replace({ ...(await this.read()), ...entries });
      });
    } catch (error) {
      this.#warn('tuned choices cannot be kept', String(error));
    }
  }

  async #replace(entries: Readonly<Record<string, Entry>>): Promise<void> {
    const temporary = `${this.path}.${process.pid}.${randomBytes(6).toString('hex')}.tmp`;
    const identity: unknown = JSON.parse(this.#identity);
    try {
      await writeFile(temporary, `${JSON.stringify({ format: FORMAT, identity, entries }, null, 1)}\n`);
      await rename(temporary, this.path);
    } catch (error) {
      await rm(temporary, { force: true }).catch(() => {});
      throw error;
    }
  }

  #parse(text: string): Record<string, Entry> | null {
    if (text.length > MOST_BYTES) return null;
    let data: unknown;
    try {
      data = JSON.parse(text);
    } catch {
      return null;
    }
    if (!isRecord(data) || data.format !== FORMAT || !isRecord(data.identity) || !isRecord(data.entries))
      return null;
    if (JSON.stringify(sorted(data.identity)) !== this.#identity) return null;
    const isEntry = this.#isEntry;
    // Without a prototype, whatever the names are.
    const entries: Record<string, Entry> = Object.create(null) as Record<string, Entry>;
    for (const [name, value] of Object.entries(data.entries)) if (isEntry(value)) entries[name] = value;
    return entries;
  }

  #warn(message: string, why: string): void {
    if (this.#warned.has(message)) return;
    this.#warned.add(message);
    this.#onWarning(message, { path: this.path, why });
  }
}

/** Runs `work` while no other process holds the lock; after a while, whether it does or not. */
async function locked(path: string, work: () => Promise<void>): Promise<void> {
  const until = performance.now() + LOCK_MS;
  let mine = false;
  while (!mine && performance.now() < until) {
    try {
      await writeFile(path, String(process.pid), { flag: 'wx' });
      mine = true;
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
      const held = await stat(path).catch(() => null);
      if (held !== null && Date.now() - held.mtimeMs > LOCK_MS) await rm(path, { force: true });
      else await sleep(POLL_MS * (1 + Math.random()));
    }
  }
  try {
    await work();
  } finally {
    if (mine) await rm(path, { force: true });
  }
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** The same data with the names of every object in order. */
function sorted(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(sorted);
  if (!isRecord(value)) return value;
  return Object.fromEntries(
    Object.keys(value)
      .sort()
      .map((name) => [name, sorted(value[name])]),
  );
}
