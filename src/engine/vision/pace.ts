/** How fast rows decode while a picture is computed: what its tower may take of the device at once. */

export interface Pace {
  /** Milliseconds that a step takes in which rows draw tokens; null while none do. */
  readonly stepMs: number | null;
  /** Milliseconds that a row may wait for a token beside prompts (`targetItlMs`); 0 where nobody says. */
  readonly targetMs: number;
  /** Resolves when a step has been submitted from now on, or when none can be. */
  turn(): Promise<void>;
}

/** Nobody decodes. */
export const NO_PACE: Pace = { stepMs: null, targetMs: 0, turn: async () => {} };

/** Who waits for the next step. */
export class Turns {
  readonly #waiting: (() => void)[] = [];

  wait(): Promise<void> {
    return new Promise((resolve) => this.#waiting.push(resolve));
  }

  /** A step has been submitted, or none can be. */
  give(): void {
    for (const resolve of this.#waiting.splice(0)) resolve();
  }
}
