/** What a device was tuned to: choices by key. */

import type { LinearShape, TunedKernels } from '../kernel.js';
import type { AttendShape } from '../kernels/attend.js';
import type { DecodeConfig } from '../kernels/attend-decode-plan.js';
import { decodeKey } from '../kernels/attend-fast.js';
import { type LinearChoice, linearKey } from '../kernels/linear-choice.js';

export class TunedChoices implements TunedKernels {
  readonly #linear = new Map<string, LinearChoice>();
  readonly #decode = new Map<string, DecodeConfig>();

  /** Choices that differ from the rules'. */
  get size(): number {
    return this.#linear.size + this.#decode.size;
  }

  adoptLinear(key: string, choice: LinearChoice): void {
    this.#linear.set(key, choice);
  }

  adoptDecode(key: string, config: DecodeConfig): void {
    this.#decode.set(key, config);
  }

  linear(shape: LinearShape): LinearChoice | undefined {
    return this.#linear.size === 0 ? undefined : this.#linear.get(linearKey(shape));
  }

  decode(shape: AttendShape, splits: number, band: number): DecodeConfig | undefined {
    return this.#decode.size === 0 ? undefined : this.#decode.get(decodeKey(shape, splits, band));
  }
}
