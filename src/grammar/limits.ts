/** How much a grammar may take: what goes beyond is refused, so that no request keeps the others waiting. */

import { KvantError } from '../errors.js';

/** Characters of a schema, a pattern or a grammar. */
export const MAX_SOURCE = 65_536;
/** Values within values, groups within groups. */
export const MAX_DEPTH = 64;
/** States of all automata together. */
export const MAX_STATES = 50_000;
/**
 * Edges, subsets and names that may be looked at on the way: about half a second. It is counted, not timed, so that a grammar is
 * taken or refused alike however busy the machine is.
 */
export const MAX_WORK = 2_000_000;

/** One for each grammar that is compiled. */
export class Budget {
  #work = 0;
  #states = 0;
  readonly #once = new Set<string>();
  readonly #left = new Set<string>();

  /** Steps so far. */
  get work(): number {
    return this.#work;
  }

  get states(): number {
    return this.#states;
  }

  /** Errors: `grammar-too-large`. */
  spend(work: number): void {
    this.#work += work;
    if (this.#work > MAX_WORK) throw tooLarge('takes too much work');
  }

  /** For what is kept once it has been found: it costs the first time, whether others have found it already or not. */
  spendOnce(what: string, work: number): void {
    if (this.#once.has(what)) return;
    this.#once.add(what);
    this.spend(work);
  }

  /** Formats of schemas that are annotations: whoever asks is told. */
  get left(): readonly string[] {
    return [...this.#left];
  }

  leave(format: string): void {
    this.#left.add(format);
  }

  /** Errors: `grammar-too-large`. */
  addStates(count: number): void {
    this.#states += count;
    if (this.#states > MAX_STATES) throw tooLarge(`needs more than ${MAX_STATES} states`);
  }
}

interface Made<V> {
  readonly value: V;
  readonly work: number;
  readonly states: number;
}

interface Kept<K, V> {
  get(key: K): Made<V> | undefined;
  set(key: K, made: Made<V>): unknown;
}

/**
 * What is the same in all grammars that have it: made once in a thread. Each grammar pays for it as if it had been made for it, so
 * whether one is taken does not depend on what others have asked for.
 */
export class MadeOnce<K, V> {
  readonly #known: Kept<K, V>;

  /** `known`: keeps it; a WeakMap may. */
  constructor(known: Kept<K, V>) {
    this.#known = known;
  }

  /** Errors: `grammar-too-large`. */
  get(key: K, budget: Budget, make: (own: Budget) => V): V {
    let made = this.#known.get(key);
    if (made === undefined) {
      const own = new Budget();
      const value = make(own);
      made = { value, work: own.work, states: own.states };
      this.#known.set(key, made);
    }
    budget.spend(made.work);
    budget.addStates(made.states);
    return made.value;
  }
}

export function tooLarge(what: string): KvantError {
  return new KvantError('grammar-too-large', `What the answer shall look like ${what}.`, {
    kind: 'invalid-request',
    fix: 'Make it smaller: fewer or shorter patterns, alternatives and bounds.',
  });
}

/** One text, or several together. Errors: `grammar-too-large`. */
export function checkSource(source: string | readonly string[]): void {
  const length =
    typeof source === 'string' ? source.length : source.reduce((sum, one) => sum + one.length, 0);
  if (length > MAX_SOURCE) throw tooLarge(`is ${length} characters long; ${MAX_SOURCE} are taken`);
}
