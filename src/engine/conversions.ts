/**
 * Sequences that come of age: what their float-start blocks hold is converted to blocks of the main pool, in device order
 * between the last step that wrote floats and the next one that names the sequence. The float-start blocks are free again
 * when the device has said that it is done.
 */

import type { KvPool } from '../device/kv.js';
import type { KvantError } from '../errors.js';
import { asKvantError } from './core-errors.js';
import type { Prefixes } from './prefix/prefixes.js';
import type { StepPlan } from './scheduling/scheduler.js';
import type { Sequence } from './sequence.js';

export class Conversions {
  /** Sequences converted since the start. */
  count = 0;
  #blocks = 0;
  readonly #pool: KvPool;
  readonly #prefixes: Prefixes | null;
  readonly #onDone: (sequence: Sequence, error: KvantError | null) => void;

  /** `pool`: of the cache group that has float-start blocks. `onDone` is told of each conversion when its blocks are free again. */
  constructor(
    pool: KvPool,
    prefixes: Prefixes | null,
    onDone: (sequence: Sequence, error: KvantError | null) => void,
  ) {
    this.#pool = pool;
    this.#prefixes = prefixes;
    this.#onDone = onDone;
  }

  /** FloatStart blocks that are being converted. */
  get blocks(): number {
    return this.#blocks;
  }

  /** Sets blocks aside and converts, as planned; before the step's blocks are handed out. */
  apply(plan: StepPlan, running: readonly Sequence[]): void {
    for (let i = 0; i < plan.count; i++) {
      const work = plan.work[i]!;
      const sequence = running[work.index]!;
      sequence.tables![0]!.reserve(work.reserve);
      if (work.converts) this.#convert(sequence);
    }
  }

  #convert(sequence: Sequence): void {
    const table = sequence.tables![0]!;
    const { prefix } = sequence;
    const known = this.#prefixes?.entries.converted(sequence) ?? [];
    const conversion = table.mature(known);
    prefix?.mature(known.length);
    this.#blocks += conversion.floatStart.length;
    this.count++;
    const done = (error: KvantError | null): void => {
      this.#blocks -= conversion.floatStart.length;
      table.releaseFloatStart(conversion);
      if (prefix !== null) prefix.converting = false;
      this.#onDone(sequence, error);
    };
    if (conversion.from.length === 0) {
      queueMicrotask(() => done(null));
      return;
    }
    try {
      this.#pool.convert(conversion.from, conversion.to).then(
        () => done(null),
        (error) => done(asKvantError(error)),
      );
    } catch (error) {
      queueMicrotask(() => done(asKvantError(error)));
    }
  }
}
