/** A time after a failure in which a thing is not tried again. It is reported when it begins and when it is over. */

/** Short enough that a disk with room again is soon used, long enough that a broken one costs nothing. */
const OUTAGE_MS = 30_000;

export class Outage {
  readonly #now: () => number;
  readonly #onChange: (code: string | null) => void;
  #until = Number.NEGATIVE_INFINITY;
  #reported = false;

  constructor(now: () => number, onChange: (code: string | null) => void) {
    this.#now = now;
    this.#onChange = onChange;
  }

  get lasts(): boolean {
    return this.#now() < this.#until;
  }

  fail(code: string): void {
    this.#until = this.#now() + OUTAGE_MS;
    if (this.#reported) return;
    this.#reported = true;
    this.#onChange(code);
  }

  /** It worked. */
  end(): void {
    if (this.lasts || !this.#reported) return;
    this.#reported = false;
    this.#onChange(null);
  }
}
