/** What the hidden states of one sequence come to: which rows of a chunk are wanted, and how they become one. */

import { KvantError } from '../errors.js';
import type { Pooling } from './pooling.js';

/** The hidden states of one sequence, as far as steps have brought them. */
export class PooledHidden {
  readonly pooling: Pooling;
  /** Of a mean: the sum so far. Position by position, so that no cut of the prompt shows. */
  #sum = new Float64Array(0);
  /** Positions that have been taken. A row that gave way brings some of them twice: with the same numbers, which do not count. */
  #taken = 0;
  #row: Float32Array | null = null;

  constructor(pooling: Pooling) {
    this.pooling = pooling;
  }

  /** Of a chunk of so many tokens: the first of those whose rows are wanted, and how many. */
  wanted(
    computed: number,
    tokens: number,
    ends: boolean,
  ): { readonly first: number; readonly count: number } {
    switch (this.pooling) {
      case 'mean':
        return { first: 0, count: tokens };
      case 'cls':
        return { first: 0, count: computed === 0 ? 1 : 0 };
      case 'last':
        return { first: tokens - 1, count: ends ? 1 : 0 };
    }
  }

  /** `rows`: `[count, n]`, those of the positions from `position` on. */
  take(rows: Float32Array, count: number, position: number): void {
    if (count === 0) return;
    const cols = rows.length / count;
    if (this.pooling !== 'mean') {
      this.#row = rows;
      return;
    }
    if (this.#sum.length === 0) this.#sum = new Float64Array(cols);
    for (let i = Math.max(0, this.#taken - position); i < count; i++)
      for (let col = 0; col < cols; col++) this.#sum[col]! += rows[i * cols + col]!;
    this.#taken = Math.max(this.#taken, position + count);
  }

  /** `[n]`, once all rows have been taken. Errors: `hidden-not-finite`. */
  pooled(): Float32Array {
    const row = this.#row ?? Float32Array.from(this.#sum, (value) => value / this.#taken);
    if (row.length === 0 || !row.every(Number.isFinite))
      throw new KvantError('hidden-not-finite', 'The model gave hidden states that are no finite numbers.', {
        kind: 'model',
        fix: 'Check the weights; a checkpoint made for another dtype may overflow. Try precision `reference`.',
      });
    return row;
  }
}
