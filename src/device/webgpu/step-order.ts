/**
 * The order of what goes to the queue where steps wait for the host in between: whatever is given while a step is not wholly submitted
 * follows it. Where none waits, it is submitted at once.
 */
export class StepOrder {
  /** Settles when all that was given has been submitted; null where nothing waits. */
  #tail: Promise<void> | null = null;

  /** Runs a step behind what was given before. What is given later waits until its promise settles. */
  step(work: () => Promise<void>): Promise<void> {
    const run = this.#tail === null ? work() : this.#tail.then(work);
    this.#follow(run);
    return run;
  }

  /** Runs work that submits before it first waits. What is given later waits for that alone. */
  submit<T>(work: () => Promise<T>): Promise<T> {
    if (this.#tail === null) return work();
    const begun = this.#tail.then(() => ({ result: work() }));
    this.#follow(begun.then(({ result }) => void result.catch(() => {})));
    return begun.then(({ result }) => result);
  }

  #follow(run: Promise<void>): void {
    const over = run
      .catch(() => {})
      .then(() => {
        if (this.#tail === over) this.#tail = null;
      });
    this.#tail = over;
  }
}
