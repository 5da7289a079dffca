/**
 * In which order texts are worked on. A text's place is when it came plus what it will take, so that a short one goes before long
 * ones that came a little earlier and none waits for ever; and of several senders the one that has had least goes first.
 */

/** What the queue needs to know of a job. */
export interface Queued {
  /** Characters or bytes: what it will take grows with it. */
  readonly size: number;
  /** Whose it is: time is shared evenly between senders. */
  readonly share: string;
}

interface Place<T> {
  readonly job: T;
  readonly rank: number;
}

/** Characters that weigh as much as a millisecond of waiting. */
const CHARACTERS_PER_MS = 200;

export class TextQueue<T extends Queued> {
  readonly #waiting = new Map<string, Place<T>[]>();
  /** Characters that each sender has had while it waited; one that comes again starts with the least that others have had. */
  readonly #served = new Map<string, number>();
  #length = 0;
  #size = 0;

  get length(): number {
    return this.#length;
  }

  /** Of all that wait. */
  get size(): number {
    return this.#size;
  }

  /** `now`: milliseconds. */
  add(job: T, now: number): void {
    const place = { job, rank: now + job.size / CHARACTERS_PER_MS };
    const others = this.#waiting.get(job.share);
    if (others === undefined) {
      this.#served.set(job.share, Math.max(this.#served.get(job.share) ?? 0, this.#leastServed()));
      this.#waiting.set(job.share, [place]);
    } else {
      let at = others.length;
      while (at > 0 && others[at - 1]!.rank > place.rank) at--;
      others.splice(at, 0, place);
    }
    this.#length++;
    this.#size += job.size;
  }

  /** The next one, out of the queue; undefined if none waits. */
  take(): T | undefined {
    let next: string | undefined;
    for (const share of this.#waiting.keys())
      if (next === undefined || this.#served.get(share)! < this.#served.get(next)!) next = share;
    if (next === undefined) return undefined;
    const { job } = this.#waiting.get(next)![0]!;
    this.#served.set(next, this.#served.get(next)! + job.size);
    this.remove(job);
    return job;
  }

  /** False if it does not wait. */
  remove(job: T): boolean {
    const others = this.#waiting.get(job.share);
    const at = others?.findIndex((place) => place.job === job) ?? -1;
    if (others === undefined || at < 0) return false;
    others.splice(at, 1);
    if (others.length === 0) this.#waiting.delete(job.share);
    this.#length--;
    this.#size -= job.size;
    // What was had counts among those who wait at the same time only.
    if (this.#length === 0) this.#served.clear();
    return true;
  }

  #leastServed(): number {
    let least = Number.POSITIVE_INFINITY;
    for (const share of this.#waiting.keys()) least = Math.min(least, this.#served.get(share)!);
    return least === Number.POSITIVE_INFINITY ? 0 : least;
  }
}
