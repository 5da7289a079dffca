/**
 * The hook for grammars and the like: who decides, from the tokens so far, what may come next. It lives on the
 * engine's thread and is asked once for each token, as soon as the one before has been read; the row sits out until
 * then, the others go on (design, promise 4).
 */

/**
 * `Uint32Array`: a mask of `ceil(vocab / 32)` words, a set bit allows its id; it is copied. A number: the id that is
 * taken, whatever is drawn. Null: the next draw is free.
 */
export type ConstraintRule = Uint32Array | number | null;

export interface Constraint {
  /** What holds for the next token. `last`: the token that has just come, null before the first. */
  next(last: number | null): ConstraintRule;
}

/** Makes the constraint of a choice. */
export type Constrain = (choice: number) => Constraint;
