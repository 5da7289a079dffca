/** What the core does about pictures: has those computed that a sequence needs, and has towers give way to the rows that decode. */

import type { KvantError } from '../../errors.js';
import type { VisionOptions } from '../core-options.js';
import type { StepCostModel } from '../scheduling/step-costs.js';
import type { Sequence } from '../sequence.js';
import { type Pace, Turns } from './pace.js';

export class Sight {
  readonly #vision: VisionOptions | null;
  readonly #onSeen: (sequence: Sequence, error: KvantError | null) => void;
  readonly #turns = new Turns();

  /** `vision`: null for a model that reads text only. `targetMs`: see {@link Pace}. `onSeen`: what a sequence waited for is there, or why it is not. */
  constructor(
    vision: VisionOptions | null,
    running: readonly Sequence[],
    costs: StepCostModel,
    targetMs: number,
    onSeen: (sequence: Sequence, error: KvantError | null) => void,
  ) {
    this.#vision = vision;
    this.#onSeen = onSeen;
    if (vision !== null) vision.features.pace = paceOf(running, costs, targetMs, this.#turns);
  }

  /** Has those of a waiting sequence's pictures computed that its prefix does not cover; it is held until they are. */
  see(sequence: Sequence): void {
    const { pictures, request, prefix } = sequence;
    // One that gave way is looked up first, and one that may be read from disk is read.
    if (pictures === null || (prefix !== null && (prefix.reads || prefix.version < 0))) return;
    const first = pictures.prompt.firstBehind(prefix?.tokens ?? 0);
    if (first >= pictures.from) return;
    const done = (error: KvantError | null): void => this.#onSeen(sequence, error);
    this.#vision!.features.acquire(pictures, request.cacheSalt ?? '', done, first);
  }

  /** The same for all that wait, once they have been looked up for a plan. */
  seeAll(waiting: readonly Sequence[]): void {
    if (this.#vision !== null) for (const sequence of waiting) this.see(sequence);
  }

  /** A sequence has ended. */
  lookAway({ pictures }: Sequence): void {
    if (pictures !== null) this.#vision!.features.release(pictures);
  }

  /** A step has been submitted, or none can be. */
  stepped(): void {
    this.#turns.give();
  }
}

function paceOf(running: readonly Sequence[], costs: StepCostModel, targetMs: number, turns: Turns): Pace {
  return {
    targetMs,
    get stepMs() {
      const rows = running.filter(({ computed, request }) => computed >= request.prompt.length).length;
      return rows === 0 ? null : costs.fixed + costs.row * rows;
    },
    turn: () => turns.wait(),
  };
}
