/** Cuts ranges that overlap at each other's ends, with all the states that a piece leads to. */

import type { Budget } from './limits.js';

export interface RangeEdge {
  readonly low: number;
  readonly high: number;
  readonly to: number;
}

export interface Piece {
  readonly low: number;
  readonly high: number;
  readonly to: readonly number[];
}

export class Cutter {
  readonly #budget: Budget;

  constructor(budget: Budget) {
    this.#budget = budget;
  }

  /** The edges of these states, in pieces that are in order and do not overlap. Errors: `grammar-too-large`. */
  cut(lists: readonly (readonly RangeEdge[])[], states: ArrayLike<number>): readonly Piece[] {
    const edges: RangeEdge[] = [];
    for (let i = 0; i < states.length; i++) for (const edge of lists[states[i]!]!) edges.push(edge);
    if (edges.length === 0) return [];
    this.#budget.spend(2 * edges.length);
    let sorted = true;
    for (let i = 1; sorted && i < edges.length; i++) sorted = edges[i - 1]!.low <= edges[i]!.low;
    if (!sorted) edges.sort((a, b) => a.low - b.low);
    let apart = true;
    for (let i = 1; apart && i < edges.length; i++) apart = edges[i - 1]!.high < edges[i]!.low;
    return apart ? edges.map(({ low, high, to }) => ({ low, high, to: [to] })) : this.#pieces(edges);
  }

  #pieces(edges: readonly RangeEdge[]): Piece[] {
    const bounds = new Int32Array(2 * edges.length);
    edges.forEach(({ low, high }, i) => {
      bounds[2 * i] = low;
      bounds[2 * i + 1] = high + 1;
    });
    bounds.sort();
    let count = 0;
    for (const bound of bounds) if (count === 0 || bounds[count - 1] !== bound) bounds[count++] = bound;
    const targets: number[][] = Array.from({ length: count }, () => []);
    // Edges are in order: so are the places where they begin.
    let first = 0;
    for (const { low, high, to } of edges) {
      while (bounds[first]! < low) first++;
      let i = first;
      for (; bounds[i]! <= high; i++) targets[i]!.push(to);
      this.#budget.spend(i - first);
    }
    const pieces: { low: number; high: number; readonly to: readonly number[] }[] = [];
    for (let i = 0; i + 1 < count; i++) {
      const to = targets[i]!;
      if (to.length === 0) continue;
      const last = pieces.at(-1);
      if (last !== undefined && last.high + 1 === bounds[i] && same(last.to, to))
        last.high = bounds[i + 1]! - 1;
      else pieces.push({ low: bounds[i]!, high: bounds[i + 1]! - 1, to });
    }
    return pieces;
  }
}

const same = (a: readonly number[], b: readonly number[]): boolean =>
  a.length === b.length && a.every((value, i) => value === b[i]);
