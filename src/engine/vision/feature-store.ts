/**
 * What towers made of pictures, on the device: rows of the feature slab, known by the digest of their picture. Sequences hold the rows of
 * their pictures from the time they wait until they end. What nobody holds stays for the next request with the same picture, until its
 * rows are wanted.
 */

import type { FeatureSlab } from '../../device/feature-slab.js';
import type { KvantError } from '../../errors.js';
import { asKvantError } from '../core-errors.js';
import type { FeatureStoreStats } from '../info.js';
import type { PatchedImage } from './encoder.js';
import type { PromptPicture, SequencePictures } from './pictures.js';

/** The part of an encoder that a store needs. */
export interface Encodes {
  /** That it took so far. */
  readonly seconds: number;
  encode(images: readonly PatchedImage[]): Promise<Float32Array[]>;
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
   * Has the pictures of a sequence computed, all or none; those who asked first come first. `done` when they are in the slab, or why they
   * are not. `salt`: only requests with the same one share what is kept.
   */
  acquire(pictures: SequencePictures, salt: string, done: (error: KvantError | null) => void): void {
    this.#waiting.push({ pictures, salt, done });
    this.#serve();
  }

  /** The sequence has ended. */
  release(pictures: SequencePictures): void {
    const at = this.#waiting.findIndex((one) => one.pictures === pictures);
    if (at >= 0) this.#waiting.splice(at, 1);
    for (const entry of this.#held.get(pictures) ?? []) entry.holders--;
    this.#held.delete(pictures);
    this.#serve();
  }

  #serve(): void {
    for (let next = this.#waiting[0]; next !== undefined; next = this.#waiting[0]) {
      if (!this.#give(next)) return;
      this.#waiting.shift();
    }
  }

  /** False where there is no room before others end. */
  #give({ pictures, salt, done }: Wanting): boolean {
    const taken: Entry[] = [];
    const fresh: { readonly entry: Entry; readonly picture: PromptPicture }[] = [];
    for (const picture of pictures.prompt.list) {
      const key = keyOf(picture, salt);
      let entry = this.#entries.get(key);
      if (entry === undefined) {
        const first = this.#room(picture.tokens);
        if (first < 0) {
          for (const one of taken) one.holders--;
          for (const one of fresh) this.#entries.delete(one.entry.key);
          return false;
        }
        entry = { key, first, rows: picture.tokens, holders: 0, encoding: null };
        fresh.push({ entry, picture });
      }
      // To the end of the line of those that may go.
      this.#entries.delete(key);
      this.#entries.set(key, entry);
      entry.holders++;
      taken.push(entry);
    }
    this.#hits += taken.length - fresh.length;
    pictures.rows.push(...taken.map(({ first }) => first));
    this.#held.set(pictures, taken);
    const encoding = fresh.length === 0 ? null : this.#encode(fresh);
    for (const { entry } of fresh) entry.encoding = encoding;
    const all = taken.flatMap((entry) => (entry.encoding === null ? [] : [entry.encoding]));
    void Promise.all(all).then((errors) => {
      const error = errors.find((one) => one !== null) ?? null;
      pictures.ready = error === null;
      done(error);
    });
    return true;
  }

  async #encode(
    fresh: readonly { readonly entry: Entry; readonly picture: PromptPicture }[],
  ): Promise<KvantError | null> {
    try {
      const features = await this.#encoder.encode(fresh.map(({ picture }) => picture));
      fresh.forEach(({ entry }, i) => {
        this.#slab.write(entry.first, features[i]!);
        entry.encoding = null;
      });
      this.#encoded += fresh.length;
      return null;
    } catch (error) {
      // Whoever else waits for them is told too; the next one tries again.
      for (const { entry } of fresh) {
        entry.encoding = null;
        if (this.#entries.get(entry.key) === entry) this.#forget(entry);
      }
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
