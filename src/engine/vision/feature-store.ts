/**
 * What towers made of pictures, on the device: rows of the feature slab, known by the digest of their picture. Sequences hold the rows of
 * their pictures from the time they wait until they end. What nobody holds stays for the next request with the same picture, until its
 * rows are wanted.
 */

import type { FeatureSlab } from '../../device/feature-slab.js';
import type { KvantError } from '../../errors.js';
import { asKvantError } from '../core-errors.js';
import type { FeatureStoreStats } from '../info.js';
import { NO_PACE, type Pace } from './pace.js';
import type { PatchedImage } from './patched-image.js';
import type { PromptPicture, SequencePictures } from './pictures.js';

/** The part of an encoder that a store needs. */
export interface Encodes {
  /** That it took so far. */
  readonly seconds: number;
  /** Fills rows of the slab, of each picture from the row of `firsts` on. */
  encodeTo(
    images: readonly PatchedImage[],
    slab: FeatureSlab,
    firsts: readonly number[],
    pace: Pace,
  ): Promise<void>;
}

interface Entry {
  readonly key: string;
  readonly first: number;
  readonly rows: number;
  holders: number;
  /** Null once its rows are in the slab. */
  encoding: Promise<KvantError | null> | null;
}

interface Wanting {
  readonly pictures: SequencePictures;
  readonly salt: string;
  readonly done: (error: KvantError | null) => void;
}

export class FeatureStore {
  readonly #slab: FeatureSlab;
  readonly #encoder: Encodes;
  /** That of the rows that decode meanwhile. */
  pace: Pace = NO_PACE;
  /** The least recently used first. */
  readonly #entries = new Map<string, Entry>();
  readonly #held = new Map<SequencePictures, Entry[]>();
  readonly #waiting: Wanting[] = [];
  #encoded = 0;
  #hits = 0;
  #evictions = 0;

  constructor(slab: FeatureSlab, encoder: Encodes) {
    this.#slab = slab;
    this.#encoder = encoder;
  }

  /** Rows of all pictures together that one sequence may have. */
  get rows(): number {
    return this.#slab.rows;
  }

  stats(): FeatureStoreStats {
    let [rowsUsed, references] = [0, 0];
    for (const { rows, holders } of this.#entries.values()) {
      rowsUsed += rows;
      references += holders;
    }
    const rowBytes = this.#slab.cols * Float32Array.BYTES_PER_ELEMENT;
    return {
      rows: this.#slab.rows,
      rowsUsed,
      bytes: rowsUsed * rowBytes,
      maxBytes: this.#slab.rows * rowBytes,
      entries: this.#entries.size,
      references,
      evictions: this.#evictions,
      encoded: this.#encoded,
      hits: this.#hits,
      seconds: this.#encoder.seconds,
    };
  }

  /**
   * Has the pictures of a sequence computed from the one with the index `from` on, all or none; those who asked first come first. `done`
   * when they are in the slab, or why they are not. `salt`: only requests with the same one share what is kept. Who asks again for more lets
   * go of what it had: nobody waits for others and holds what these wait for.
   */
  acquire(
    pictures: SequencePictures,
    salt: string,
    done: (error: KvantError | null) => void,
    from = 0,
  ): void {
    this.#drop(pictures);
    pictures.from = from;
    pictures.ready = false;
    this.#waiting.push({ pictures, salt, done });
    this.#serve();
  }

  /** The sequence has ended. */
  release(pictures: SequencePictures): void {
    this.#drop(pictures);
    this.#serve();
  }

  #drop(pictures: SequencePictures): void {
    const at = this.#waiting.findIndex((one) => one.pictures === pictures);
    if (at >= 0) this.#waiting.splice(at, 1);
    for (const entry of this.#held.get(pictures) ?? []) entry.holders--;
    this.#held.delete(pictures);
  }

  #serve(): void {
    for (let next = this.#waiting[0]; next !== undefined; next = this.#waiting[0]) {
      if (!this.#give(next)) return;
      this.#waiting.shift();
    }
  }

  /** False where there is no room before others end. */
  #give(wanting: Wanting): boolean {
    const { pictures, salt, done } = wanting;
    const empty = this.#entries.size === 0;
    const wanted = pictures.prompt.list.slice(pictures.from);
    const keys = wanted.map((picture) => keyOf(picture, salt));
    // What is there already comes first, so that it does not make room for the others.
    const there = keys.map((key) => this.#hold(this.#entries.get(key)));
    const fresh: { readonly entry: Entry; readonly picture: PromptPicture }[] = [];
    const taken: Entry[] = [];
    for (const [i, picture] of wanted.entries()) {
      const key = keys[i]!;
      // A picture may be there twice.
      let entry = there[i] ?? this.#hold(this.#entries.get(key));
      if (entry === undefined) {
        const first = this.#room(picture.tokens);
        if (first < 0) {
          for (const one of there) if (one !== undefined) one.holders--;
          for (const one of fresh) this.#entries.delete(one.entry.key);
          // Nobody will end, so what is kept lies in the way: in an empty slab there is room for all pictures of a request.
          return !empty && this.#clear() && this.#give(wanting);
        }
        entry = { key, first, rows: picture.tokens, holders: 1, encoding: null };
        this.#entries.set(key, entry);
        fresh.push({ entry, picture });
      }
      taken.push(entry);
    }
    this.#hits += taken.length - fresh.length;
    taken.forEach(({ first }, i) => {
      pictures.rows[pictures.from + i] = first;
    });
    this.#held.set(pictures, taken);
    const encoding = fresh.length === 0 ? null : this.#encode(fresh);
    for (const { entry } of fresh) entry.encoding = encoding;
    const all = taken.flatMap((entry) => (entry.encoding === null ? [] : [entry.encoding]));
    void Promise.all(all).then((errors) => {
      // It has let go of them meanwhile.
      if (this.#held.get(pictures) !== taken) return;
      const error = errors.find((one) => one !== null) ?? null;
      pictures.ready = error === null;
      done(error);
    });
    return true;
  }

  /** One more holder of an entry, and that to the end of the line of those that may go. */
  #hold(entry: Entry | undefined): Entry | undefined {
    if (entry === undefined) return undefined;
    this.#entries.delete(entry.key);
    this.#entries.set(entry.key, entry);
    entry.holders++;
    return entry;
  }

  /** Lets all go, if nobody holds or computes any; false if somebody does. */
  #clear(): boolean {
    const { size } = this.#entries;
    for (const { holders, encoding } of this.#entries.values())
      if (holders > 0 || encoding !== null) return false;
    this.#entries.clear();
    this.#evictions += size;
    return true;
  }

  async #encode(
    fresh: readonly { readonly entry: Entry; readonly picture: PromptPicture }[],
  ): Promise<KvantError | null> {
    try {
      await this.#encoder.encodeTo(
        fresh.map(({ picture }) => picture),
        this.#slab,
        fresh.map(({ entry }) => entry.first),
        this.pace,
      );
      for (const { entry } of fresh) entry.encoding = null;
      this.#encoded += fresh.length;
      // Who held them may have gone meanwhile, and others wait for their rows.
      this.#serve();
      return null;
    } catch (error) {
      // Whoever else waits for them is told too; the next one tries again.
      for (const { entry } of fresh) {
        entry.encoding = null;
        if (this.#entries.get(entry.key) === entry) this.#forget(entry);
      }
      this.#serve();
      return asKvantError(error);
    }
  }

  /** Its rows are free as soon as nobody holds them. */
  #forget(entry: Entry): void {
    this.#entries.delete(entry.key);
    if (entry.holders > 0) this.#entries.set(`failed ${entry.first} ${performance.now()}`, entry);
  }

  /** The first of so many free rows that lie together, made free where nobody holds them; −1 if there are none. */
  #room(rows: number): number {
    for (;;) {
      const first = this.#gap(rows);
      if (first >= 0) return first;
      const idle = [...this.#entries].find(([, entry]) => entry.holders === 0 && entry.encoding === null);
      if (idle === undefined) return -1;
      this.#entries.delete(idle[0]);
      this.#evictions++;
    }
  }

  #gap(rows: number): number {
    const taken = [...this.#entries.values()].sort((a, b) => a.first - b.first);
    let at = 0;
    for (const { first, rows: own } of taken) {
      if (first - at >= rows) return at;
      at = first + own;
    }
    return this.#slab.rows - at >= rows ? at : -1;
  }
}

function keyOf({ digest, tokens }: PromptPicture, salt: string): string {
  return `${[...digest].map((word) => word.toString(16).padStart(8, '0')).join('')} ${tokens} ${salt}`;
}
