/**
 * The hook for grammars and the like: who decides, from the tokens so far, what may come next. It lives on the
 * engine's thread and is asked once for each token, as soon as the one before has been read. By then the device computes the
 * row's next position: the answer is waited for until that is done. A row whose answer comes later is left out of
 * the draw and computes the position again, and nobody else waits (promise 4).
 */

/**
 * `Uint32Array`: a mask of `ceil(vocab / 32)` words, a set bit allows its id; it stands until the constraint is asked again. A number: the id that is
 * taken, whatever is drawn. Null: the next draw is free.
 */
export type ConstraintRule = Uint32Array | number | null;

/**
 * Tokens that come next whatever the model says, one at least, and what holds behind the last of them. Only where that follows from
 * what the answer is held to and from the tokens so far: never from what is ready when.
 */
export interface ForcedRun {
  readonly run: ArrayLike<number>;
  readonly behind: ConstraintRule;
}

export type ConstraintAnswer = ConstraintRule | ForcedRun;

export interface Constraint {
  /**
   * What holds for the next token, or a promise of it: what takes longer than a moment is for another thread, for the engine's
   * own serves all rows. `last`: the token that has just come, null before the first. Behind a run it is asked with the token that
   * came after the run. `mayRun` false: no run is answered. Default: one may be.
   */
  next(last: number | null, mayRun?: boolean): ConstraintAnswer | Promise<ConstraintAnswer>;
}

export const isRun = (answer: ConstraintAnswer): answer is ForcedRun =>
  typeof answer === 'object' && answer !== null && 'run' in answer;

/** Makes the constraint of a choice. */
export type Constrain = (choice: number) => Constraint;
