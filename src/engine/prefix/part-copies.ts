/** Copies of blocks of whose tokens only the first few are a sequence's own: it goes on in a block like it. */

import type { KvantError } from '../../errors.js';
import type { Sequence } from '../sequence.js';
import { BlockCopies } from './block-copies.js';
import type { PrefixCaches } from './prefix-caches.js';

export class PartCopies {
  readonly #caches: PrefixCaches;
  readonly #onCopied: (sequence: Sequence, error: KvantError | null) => void;
  readonly #copies: BlockCopies;
  readonly #waiting: Sequence[] = [];

  /** `onCopied`: as of Prefixes. */
  constructor(caches: PrefixCaches, onCopied: (sequence: Sequence, error: KvantError | null) => void) {
    this.#caches = caches;
    this.#onCopied = onCopied;
    this.#copies = new BlockCopies(caches.groups[0]!.pool);
  }

  /** Under way. */
  get copying(): number {
    return this.#copies.count;
  }

  /** A sequence has come in that goes on inside a block, which is held until it has been copied. */
  add(sequence: Sequence): void {
    const { part, takes, floatStart } = sequence.prefix!;
    this.#caches.poolOf(takes === floatStart).retain(part);
    this.#waiting.push(sequence);
  }

  /** Has the device copy the blocks that sequences go on in: their tables have grown, the step that names them comes next. */
  copy(): void {
    if (this.#waiting.length === 0) return;
    const { spec } = this.#caches.groups[0]!.pool;
    const sequences = this.#waiting.splice(0);
    const from = new Uint32Array(sequences.length);
    const to = new Uint32Array(sequences.length);
    sequences.forEach(({ prefix, tables }, i) => {
      const { part, takes } = prefix!;
      const table = tables![0]!;
      from[i] = table.floatStart ? spec.blocks + part : part;
      to[i] = table.at(takes.length)!;
    });
    this.#copies.start(from, to, (error) => {
      for (const sequence of sequences) this.#onCopied(sequence, error);
    });
    // Whoever has them next writes to them in a later step, and the device copies before that.
    for (const { prefix, floatStart } of sequences) this.#caches.poolOf(floatStart).release(prefix!.part);
  }
}
