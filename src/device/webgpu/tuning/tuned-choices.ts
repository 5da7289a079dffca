/** What a device was tuned to: choices by key. */

import type { LinearShape, TunedKernels } from '../kernel.js';
import { type LinearChoice, linearKey } from '../kernels/linear-choice.js';

export class TunedChoices implements TunedKernels {
  readonly #linear = new Map<string, LinearChoice>();

  /** Choices that differ from the rules'. */
  get size(): number {
    return this.#linear.size;
  }

  adopt(key: string, choice: LinearChoice): void {
    this.#linear.set(key, choice);
  }

  linear(shape: LinearShape): LinearChoice | undefined {
    return this.#linear.size === 0 ? undefined : this.#linear.get(linearKey(shape));
  }
}
