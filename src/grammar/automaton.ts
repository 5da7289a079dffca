/** Deterministic automata over bytes, calls of rules and tokens: what a rule is read by. */

import type { ByteEdge, ByteNfa, NumberedEdge } from './byte-nfa.js';
import { Cutter } from './cutter.js';
import type { Budget } from './limits.js';
import { Subsets } from './subsets.js';

export interface State {
  /** In order, without overlaps. */
  readonly bytes: readonly ByteEdge[];
  readonly calls: readonly NumberedEdge[];
  readonly tokens: readonly NumberedEdge[];
  readonly final: boolean;
}

/** State 0 is its start. */
export type Automaton = readonly State[];

const NONE: readonly never[] = [];

/** Reads what leads from `start` to `end`. Errors: `grammar-too-large`. */
export function determinise(nfa: ByteNfa, start: number, end: number, budget: Budget): Automaton {
  const { bytes, calls, tokens, jumps } = nfa;
  const matters = (state: number): boolean =>
    state === end || bytes[state]!.length + calls[state]!.length + tokens[state]!.length > 0;
  const subsets = new Subsets(jumps, matters, budget);
  const cutter = new Cutter(budget);
  /** By state: the number of all that it leads to; most edges lead to one. */
  const single = new Int32Array(jumps.length).fill(-1);
  const numberOf = (states: readonly number[]): number => {
    if (states.length > 1) return subsets.numberOf(states);
    const [state] = states as [number];
    if (single[state]! < 0) single[state] = subsets.numberOf(states);
    return single[state]!;
  };
  const numbered = (
    lists: readonly (readonly NumberedEdge[])[],
    members: Int32Array,
  ): readonly NumberedEdge[] => {
    const targets = new Map<number, number[]>();
    for (const state of members)
      for (const { number, to } of lists[state]!) {
        const known = targets.get(number);
        if (known === undefined) targets.set(number, [to]);
        else known.push(to);
      }
    if (targets.size === 0) return NONE;
    budget.spend(2 * targets.size);
    return [...targets].map(([number, to]) => ({ number, to: numberOf(to) }));
  };
  const states: State[] = [];
  numberOf([start]);
  for (let i = 0; i < subsets.size; i++) {
    const members = subsets.membersOf(i);
    const edges: ByteEdge[] = [];
    for (const { low, high, to } of cutter.cut(bytes, members)) {
      const target = numberOf(to);
      const last = edges.at(-1);
      if (last !== undefined && last.to === target && last.high + 1 === low)
        edges[edges.length - 1] = { low: last.low, high, to: target };
      else edges.push({ low, high, to: target });
    }
    states.push({
      bytes: edges,
      calls: numbered(calls, members),
      tokens: numbered(tokens, members),
      final: members.includes(end),
    });
  }
  return states;
}

/** The same without the empty word; a state of its own begins it, since others may lead back to the start. */
export function withoutEmpty(automaton: Automaton): { automaton: Automaton; empty: boolean } {
  if (!automaton[0]!.final) return { automaton, empty: false };
  const moved = automaton.map((state) => renumbered(state, (to) => to + 1));
  return { automaton: [{ ...moved[0]!, final: false }, ...moved], empty: true };
}

/** By state: whether the automaton can come to an end from it. `live`: by rule, whether there is anything that it can be. */
export function aliveStates(automaton: Automaton, live: readonly boolean[], budget: Budget): Uint8Array {
  const back: number[][] = automaton.map(() => []);
  const todo: number[] = [];
  let work = automaton.length;
  automaton.forEach(({ bytes, calls, tokens, final }, from) => {
    if (final) todo.push(from);
    for (const { to } of bytes) back[to]!.push(from);
    for (const { number, to } of calls) if (live[number]!) back[to]!.push(from);
    for (const { to } of tokens) back[to]!.push(from);
    work += bytes.length + calls.length + tokens.length;
  });
  budget.spend(work);
  const alive = new Uint8Array(automaton.length);
  for (const state of todo) alive[state] = 1;
  for (let i = 0; i < todo.length; i++)
    for (const from of back[todo[i]!]!) {
      if (alive[from] === 1) continue;
      alive[from] = 1;
      todo.push(from);
    }
  return alive;
}

/** The same without what leads nowhere; its start stays. */
export function prune(automaton: Automaton, live: readonly boolean[], budget: Budget): Automaton {
  const alive = aliveStates(automaton, live, budget);
  const numbers = new Int32Array(automaton.length).fill(-1);
  let count = 0;
  alive.forEach((is, state) => {
    if (is === 1 || state === 0) numbers[state] = count++;
  });
  const mayCall = ({ calls }: State): boolean => calls.every(({ number }) => live[number]!);
  if (count === automaton.length && alive[0] === 1 && automaton.every(mayCall)) return automaton;
  return automaton
    .filter((_, state) => numbers[state]! >= 0)
    .map((state) => {
      const kept = <E extends { readonly to: number }>(edges: readonly E[]): readonly E[] =>
        edges.filter(({ to }) => alive[to] === 1);
      const left = {
        bytes: kept(state.bytes),
        calls: kept(state.calls).filter(({ number }) => live[number]!),
        tokens: kept(state.tokens),
        final: state.final,
      };
      return renumbered(left, (to) => numbers[to]!);
    });
}

function renumbered({ bytes, calls, tokens, final }: State, numberOf: (state: number) => number): State {
  return {
    bytes: bytes.map(({ low, high, to }) => ({ low, high, to: numberOf(to) })),
    calls: calls.map(({ number, to }) => ({ number, to: numberOf(to) })),
    tokens: tokens.map(({ number, to }) => ({ number, to: numberOf(to) })),
    final,
  };
}
