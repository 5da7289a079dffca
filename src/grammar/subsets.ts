/** Sets of an automaton's states, each numbered once: what the states of a deterministic automaton stand for. */

import type { Budget } from './limits.js';

export class Subsets {
  readonly #budget: Budget;
  readonly #jumps: readonly (readonly number[])[];
  readonly #matters: (state: number) => boolean;
  /** By state: the closure that has it. */
  readonly #marks: Int32Array;
  #turn = 0;
  readonly #members: Int32Array[] = [];
  /** By hash: numbers of sets that have it. */
  readonly #byHash = new Map<number, number[]>();

  /** `jumps`: where each state leads without reading. `matters`: whether a state is more than a way to others; only such are members. */
  constructor(jumps: readonly (readonly number[])[], matters: (state: number) => boolean, budget: Budget) {
    this.#jumps = jumps;
    this.#matters = matters;
    this.#budget = budget;
    this.#marks = new Int32Array(jumps.length);
  }

  get size(): number {
    return this.#members.length;
  }

  membersOf(number: number): Int32Array {
    return this.#members[number]!;
  }

  /** Of all that these lead to. Errors: `grammar-too-large`. */
  numberOf(states: ArrayLike<number>): number {
    const members = this.closure(states);
    let hash = members.length;
    // In whatever order they were found.
    for (const state of members) hash = (hash + Math.imul(state + 1, 0x9e3779b1)) | 0;
    const candidates = this.#byHash.get(hash);
    for (const number of candidates ?? [])
      if (this.#isMarked(this.#members[number]!, members.length)) return number;
    this.#budget.addStates(1);
    const number = this.#members.length;
    this.#members.push(Int32Array.from(members));
    if (candidates === undefined) this.#byHash.set(hash, [number]);
    else candidates.push(number);
    return number;
  }

  /** What these lead to, as far as it matters. `also`: jumps that are there this time. */
  closure(states: ArrayLike<number>, also: readonly (readonly (readonly number[])[])[] = []): number[] {
    const turn = ++this.#turn;
    const marks = this.#marks;
    const todo: number[] = [];
    const members: number[] = [];
    let work = 1;
    const visit = (state: number): void => {
      work++;
      if (marks[state] === turn) return;
      marks[state] = turn;
      todo.push(state);
    };
    for (let i = 0; i < states.length; i++) visit(states[i]!);
    for (let i = 0; i < todo.length; i++) {
      const state = todo[i]!;
      if (this.#matters(state)) members.push(state);
      for (const to of this.#jumps[state]!) visit(to);
      for (const jumps of also) for (const to of jumps[state]!) visit(to);
    }
    this.#budget.spend(work);
    return members;
  }

  /** Whether these are the members of the last closure, which has so many. */
  #isMarked(members: Int32Array, length: number): boolean {
    if (members.length !== length) return false;
    this.#budget.spend(length >> 2);
    for (const state of members) if (this.#marks[state] !== this.#turn) return false;
    return true;
  }
}
