/** Copies between blocks of one pool, which the device makes behind what was submitted before. */

import type { KvPool } from '../../device/kv.js';
import type { KvantError } from '../../errors.js';
import { asKvantError } from '../core-errors.js';

export class BlockCopies {
  /** Under way. */
  count = 0;
  readonly #pool: KvPool;

  constructor(pool: KvPool) {
    this.#pool = pool;
  }

  /** `done` is told when they have been made, or why not; never before this returns. */
  start(from: Uint32Array, to: Uint32Array, done: (error: KvantError | null) => void): void {
    this.count++;
    const settle = (error: KvantError | null): void => {
      this.count--;
      done(error);
    };
    try {
      this.#pool.copy(from, to).then(
        () => settle(null),
        (error) => settle(asKvantError(error)),
      );
    } catch (error) {
      queueMicrotask(() => settle(asKvantError(error)));
    }
  }
}
