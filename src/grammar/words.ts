/**
 * Sets of words as deterministic automata over code points: what patterns, formats and lengths say of a string. They can be
 * intersected and subtracted, which expressions cannot.
 */

import { ANY_CODE_POINT, type CodePointRange } from './code-points.js';
import { type Budget, tooLarge } from './limits.js';

export interface WordEdge {
  readonly low: number;
  readonly high: number;
  readonly to: number;
}

/** State 0 is where a word begins. Edges of a state do not overlap. */
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
  const closure = (states: Iterable<number>, begins: boolean, ends: boolean): number[] => {
    const seen = new Set(states);
    for (const state of seen) {
      for (const to of nfa.jumps[state]!) seen.add(to);
      if (begins) for (const to of nfa.atBegin[state]!) seen.add(to);
      if (ends) for (const to of nfa.atEnd[state]!) seen.add(to);
    }
    budget.spend(seen.size);
    return [...seen].sort((a, b) => a - b);
  };
  interface Subset {
    readonly states: number[];
    /** No character has been read. */
    readonly begins: boolean;
  }
  return explore<Subset>(
    { states: closure([start], true, false), begins: true },
    ({ states, begins }) => (begins ? `^${states.join()}` : states.join()),
    ({ states, begins }) => closure(states, begins, true).includes(end),
    ({ states }) => {
      const edges = states.flatMap((state) => nfa.edges[state]!);
      return cut(edges, budget).map(({ low, high, to }) => ({
        low,
        high,
        to: { states: closure(to, false, false), begins: false },
      }));
    },
    budget,
  );
}

/** Words of both. Errors: `grammar-too-large`. */
export function intersectWords(a: Words, b: Words, budget: Budget): Words {
  return explore<readonly [number, number]>(
    [0, 0],
    (pair) => pair.join(),
    ([i, j]) => a.final[i]! && b.final[j]!,
    ([i, j]) => {
      const both = [];
      for (const one of a.edges[i]!)
        for (const two of b.edges[j]!) {
          const low = Math.max(one.low, two.low);
          const high = Math.min(one.high, two.high);
          if (low <= high) both.push({ low, high, to: [one.to, two.to] as const });
        }
      budget.spend(a.edges[i]!.length * b.edges[j]!.length);
      return both;
    },
    budget,
  );
}

/** All words but these. */
export function otherWords(words: Words, budget: Budget): Words {
  const sink = words.edges.length;
  return explore<number>(
    0,
    String,
    (state) => state === sink || !words.final[state]!,
    (state) => {
      const own = state === sink ? [] : words.edges[state]!;
      const rest = gaps(own).map(([low, high]) => ({ low, high, to: sink }));
      return [...own, ...rest];
    },
    budget,
  );
}

/** Just these words. */
export function listedWords(list: readonly string[], budget: Budget): Words {
  const nfa = new WordNfa();
  const start = nfa.add();
  const end = nfa.add();
  for (const word of list) {
    let at = start;
    for (const character of word) {
      const next = nfa.add();
      const point = character.codePointAt(0)!;
      nfa.edge(at, [[point, point]], next);
      at = next;
    }
    nfa.jump(at, end);
  }
  return determinise(nfa, start, end, budget);
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
  keyOf: (state: S) => string,
  isFinal: (state: S) => boolean,
  edgesOf: (state: S) => readonly { readonly low: number; readonly high: number; readonly to: S }[],
  budget: Budget,
): Words {
  const numbers = new Map([[keyOf(start), 0]]);
  const states = [start];
  const edges: WordEdge[][] = [];
  for (let i = 0; i < states.length; i++) {
    budget.addStates(1);
    edges.push(
      edgesOf(states[i]!).map(({ low, high, to }) => {
        budget.spend(1);
        const key = keyOf(to);
        let number = numbers.get(key);
        if (number === undefined) {
          number = states.length;
          numbers.set(key, number);
          states.push(to);
        }
        return { low, high, to: number };
      }),
    );
  }
  return trim({ edges, final: states.map(isFinal) });
}

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

/** Cuts ranges that overlap at each other's ends, with all the states that a piece leads to. */
export function cut(
  edges: readonly WordEdge[],
  budget: Budget,
): { readonly low: number; readonly high: number; readonly to: number[] }[] {
  if (edges.length === 0) return [];
  const apart = withoutOverlap(edges);
  if (apart !== null) return apart;
  const bounds = [...new Set(edges.flatMap(({ low, high }) => [low, high + 1]))].sort((a, b) => a - b);
  const places = new Map(bounds.map((bound, i) => [bound, i]));
  const targets: Set<number>[] = bounds.map(() => new Set());
  for (const { low, high, to } of edges) {
    const end = places.get(high + 1)!;
    for (let i = places.get(low)!; i < end; i++) targets[i]!.add(to);
    budget.spend(end - places.get(low)!);
  }
  const pieces: { low: number; high: number; to: number[]; key: string }[] = [];
  for (let i = 0; i + 1 < bounds.length; i++) {
    if (targets[i]!.size === 0) continue;
    const to = [...targets[i]!].sort((a, b) => a - b);
    const key = to.join();
    const last = pieces.at(-1);
    if (last !== undefined && last.key === key && last.high + 1 === bounds[i]!)
      last.high = bounds[i + 1]! - 1;
    else pieces.push({ low: bounds[i]!, high: bounds[i + 1]! - 1, to, key });
  }
  return pieces;
}

/** The pieces of edges that do not overlap, as most do not; null if they do. */
function withoutOverlap(
  edges: readonly WordEdge[],
): { readonly low: number; readonly high: number; readonly to: number[] }[] | null {
  const sorted = edges.length === 1 ? edges : [...edges].sort((a, b) => a.low - b.low);
  const pieces: { low: number; high: number; to: number[] }[] = [];
  for (const { low, high, to } of sorted) {
    const last = pieces.at(-1);
    if (last !== undefined && last.high >= low) return null;
    if (last !== undefined && last.high + 1 === low && last.to[0] === to) last.high = high;
    else pieces.push({ low, high, to: [to] });
  }
  return pieces;
}

function gaps(edges: readonly WordEdge[]): CodePointRange[] {
  const found: CodePointRange[] = [];
  for (const [first, last] of ANY_CODE_POINT) {
    let from = first;
    for (const { low, high } of [...edges].sort((a, b) => a.low - b.low)) {
      if (high < from || low > last) continue;
      if (low > from) found.push([from, low - 1]);
      from = Math.max(from, high + 1);
    }
    if (from <= last) found.push([from, last]);
  }
  return found;
}
