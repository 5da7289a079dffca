/**
 * Sets of words as deterministic automata over code points: what patterns, formats and lengths say of a string. They can be
 * intersected and subtracted, which expressions cannot.
 */

import { ANY_CODE_POINT, type CodePointRange } from './code-points.js';
import { Cutter } from './cutter.js';
import { type Budget, tooLarge } from './limits.js';
import { Subsets } from './subsets.js';

export interface WordEdge {
  readonly low: number;
  readonly high: number;
  readonly to: number;
}

/** State 0 is where a word begins. Edges of a state do not overlap, and come in order. */
export interface Words {
  readonly edges: readonly (readonly WordEdge[])[];
  readonly final: readonly boolean[];
}

/** States of an automaton before it is determinised. */
const MAX_NFA = 50_000;

/** An automaton that may be in several states at once; made by regex.ts. */
export class WordNfa {
  readonly edges: WordEdge[][] = [];
  readonly jumps: number[][] = [];
  /** Jumps that are there only where the word begins, or ends. */
  readonly atBegin: number[][] = [];
  readonly atEnd: number[][] = [];

  /** Errors: `grammar-too-large`. */
  add(): number {
    if (this.edges.length === MAX_NFA) throw tooLarge('repeats too much');
    for (const list of [this.edges, this.jumps, this.atBegin, this.atEnd]) list.push([]);
    return this.edges.length - 1;
  }

  edge(from: number, ranges: readonly CodePointRange[], to: number): void {
    for (const [low, high] of ranges) this.edges[from]!.push({ low, high, to });
  }

  jump(from: number, to: number): void {
    this.jumps[from]!.push(to);
  }
}

/** The words that lead from `start` to `end`. Errors: `grammar-too-large`. */
export function determinise(nfa: WordNfa, start: number, end: number, budget: Budget): Words {
  const { edges, jumps, atBegin, atEnd } = nfa;
  const matters = (state: number): boolean =>
    edges[state]!.length > 0 || atEnd[state]!.length > 0 || state === end;
  const subsets = new Subsets(jumps, matters, budget);
  const cutter = new Cutter(budget);
  const made: WordEdge[][] = [];
  const final: boolean[] = [];
  const add = (members: ArrayLike<number>, isFinal: boolean): void => {
    const pieces: WordEdge[] = [];
    for (const { low, high, to } of cutter.cut(edges, members)) {
      // What no character has led to comes first, and nothing leads there.
      put(pieces, low, high, subsets.numberOf(to) + 1);
    }
    made.push(pieces);
    final.push(isFinal);
  };
  const isFinal = (members: ArrayLike<number>): boolean => subsets.closure(members, [atEnd]).includes(end);
  add(subsets.closure([start], [atBegin]), subsets.closure([start], [atBegin, atEnd]).includes(end));
  for (let number = 0; number < subsets.size; number++) {
    const members = subsets.membersOf(number);
    add(members, isFinal(members));
  }
  return trim({ edges: made, final });
}

/** Words of both. Errors: `grammar-too-large`. */
export function intersectWords(a: Words, b: Words, budget: Budget): Words {
  return explore<readonly [number, number]>(
    [0, 0],
    ([i, j]) => i * b.edges.length + j,
    ([i, j]) => a.final[i]! && b.final[j]!,
    ([i, j]) => overlaps(a.edges[i]!, b.edges[j]!),
    budget,
  );
}

/** All words but these. */
export function otherWords(words: Words, budget: Budget): Words {
  const sink = words.edges.length;
  return explore<number>(
    0,
    (state) => state,
    (state) => state === sink || !words.final[state]!,
    (state) => {
      const own = state === sink ? [] : words.edges[state]!;
      const rest = gaps(own).map(([low, high]) => ({ low, high, to: sink }));
      return [...own, ...rest].sort((a, b) => a.low - b.low);
    },
    budget,
  );
}

/** Just these words. */
export function listedWords(list: readonly string[], budget: Budget): Words {
  const nodes: Map<number, number>[] = [];
  const final: boolean[] = [];
  const add = (): number => {
    budget.addStates(1);
    final.push(false);
    return nodes.push(new Map()) - 1;
  };
  add();
  for (const word of list) {
    let at = 0;
    for (const character of word) {
      budget.spend(2);
      const point = character.codePointAt(0)!;
      let next = nodes[at]!.get(point);
      if (next === undefined) {
        next = add();
        nodes[at]!.set(point, next);
      }
      at = next;
    }
    final[at] = true;
  }
  const edges = nodes.map((node) =>
    [...node].map(([point, to]) => ({ low: point, high: point, to })).sort((a, b) => a.low - b.low),
  );
  return { edges, final };
}

/** Words of so many code points. */
export function wordsOfLength(min: number, max: number | null, budget: Budget): Words {
  const last = max ?? min;
  budget.addStates(last);
  const edges: WordEdge[][] = [];
  for (let i = 0; i <= last; i++) {
    const to = i < last ? i + 1 : max === null ? i : -1;
    edges.push(to < 0 ? [] : ANY_CODE_POINT.map(([low, high]) => ({ low, high, to })));
  }
  return { edges, final: edges.map((_, i) => i >= min) };
}

/** Numbers the states that can be reached, and leaves out those that lead nowhere. */
export function explore<S>(
  start: S,
  keyOf: (state: S) => number,
  isFinal: (state: S) => boolean,
  edgesOf: (state: S) => readonly { readonly low: number; readonly high: number; readonly to: S }[],
  budget: Budget,
): Words {
  const numbers = new Map([[keyOf(start), 0]]);
  const states = [start];
  const edges: WordEdge[][] = [];
  for (let i = 0; i < states.length; i++) {
    budget.addStates(1);
    const found = edgesOf(states[i]!);
    budget.spend(EXPLORED * (1 + found.length));
    const pieces: WordEdge[] = [];
    for (const { low, high, to } of found) {
      const key = keyOf(to);
      let number = numbers.get(key);
      if (number === undefined) {
        number = states.length;
        numbers.set(key, number);
        states.push(to);
      }
      put(pieces, low, high, number);
    }
    edges.push(pieces);
  }
  return trim({ edges, final: states.map(isFinal) });
}

/** Steps of work that an edge between pairs, or digits, takes. */
const EXPLORED = 4;

/** Adds an edge behind the others: to the last one where it goes on with it. */
function put(edges: WordEdge[], low: number, high: number, to: number): void {
  const last = edges.length === 0 ? undefined : edges[edges.length - 1]!;
  if (last !== undefined && last.to === to && last.high + 1 === low)
    edges[edges.length - 1] = { low: last.low, high, to };
  else edges.push({ low, high, to });
}

/** What both have, of edges in order. */
function overlaps(
  a: readonly WordEdge[],
  b: readonly WordEdge[],
): { readonly low: number; readonly high: number; readonly to: readonly [number, number] }[] {
  const both = [];
  for (let i = 0, j = 0; i < a.length && j < b.length; ) {
    const [one, two] = [a[i]!, b[j]!];
    const low = Math.max(one.low, two.low);
    const high = Math.min(one.high, two.high);
    if (low <= high) both.push({ low, high, to: [one.to, two.to] as const });
    if (one.high < two.high) i++;
    else j++;
  }
  return both;
}

/** A state from which any word leads to an end; −1 where there is none. */
export const anyState = ({ edges, final }: Words): number =>
  edges.findIndex(
    (list, i) => final[i]! && list.length > 0 && list.every(({ to }) => to === i) && gaps(list).length === 0,
  );

/** Whether there is no word at all. */
export const hasNoWords = (words: Words): boolean => !words.final.includes(true);

function trim({ edges, final }: Words): Words {
  const back: number[][] = edges.map(() => []);
  edges.forEach((list, from) => {
    for (const { to } of list) back[to]!.push(from);
  });
  const alive = new Set(final.flatMap((is, state) => (is ? [state] : [])));
  for (const state of alive) for (const from of back[state]!) alive.add(from);
  const numbers = new Map<number, number>([[0, 0]]);
  edges.forEach((_, state) => {
    if (state > 0 && alive.has(state)) numbers.set(state, numbers.size);
  });
  const kept = [...numbers.keys()];
  return {
    edges: kept.map((state) =>
      edges[state]!.filter(({ to }) => alive.has(to)).map(({ low, high, to }) => ({
        low,
        high,
        to: numbers.get(to)!,
      })),
    ),
    final: kept.map((state) => final[state]!),
  };
}

function gaps(edges: readonly WordEdge[]): CodePointRange[] {
  const found: CodePointRange[] = [];
  for (const [first, last] of ANY_CODE_POINT) {
    let from = first;
    for (const { low, high } of edges) {
      if (high < from || low > last) continue;
      if (low > from) found.push([from, low - 1]);
      from = Math.max(from, high + 1);
    }
    if (from <= last) found.push([from, last]);
  }
  return found;
}
