/** A grammar's rules as automata: which can be anything at all, which may be empty, and that none begins with itself. */

import { shown } from '../printable.js';
import { type Automaton, aliveStates, prune } from './automaton.js';
import { invalidGrammar } from './expression.js';
import type { Budget } from './limits.js';

export interface Rule {
  /** Empty for one that no grammar names. */
  readonly name: string;
  readonly head: Automaton;
  /** Of a rule that counts: what it has behind its head. */
  readonly loop: {
    readonly item: Automaton;
    readonly tail: Automaton;
    readonly min: number;
    readonly max: number | null;
  } | null;
}

export const partsOf = ({ head, loop }: Rule): readonly Automaton[] =>
  loop === null ? [head] : [head, loop.item, loop.tail];

/** By rule: whether there is anything that it can be. Errors: `grammar-too-large`. */
export function productiveRules(rules: readonly Rule[], budget: Budget): boolean[] {
  const isAlive = (automaton: Automaton, live: readonly boolean[]): boolean =>
    aliveStates(automaton, live, budget)[0] === 1;
  return fixedPoint(rules, budget, ({ head, loop }, live) => {
    if (!isAlive(head, live)) return false;
    if (loop === null) return true;
    const { item, tail, min, max } = loop;
    return isAlive(tail, live) && (max === null || max >= min) && (min === 0 || isAlive(item, live));
  });
}

/** By rule: whether it may be empty. */
function emptyRules(rules: readonly Rule[], budget: Budget): boolean[] {
  return fixedPoint(
    rules,
    budget,
    ({ head, loop }, empty) =>
      reachesEnd(head, empty, budget) &&
      (loop === null || (loop.min === 0 && reachesEnd(loop.tail, empty, budget))),
  );
}

/** By rule: what can be told of it from what is known of those that it calls; false where it never can. */
function fixedPoint(
  rules: readonly Rule[],
  budget: Budget,
  holds: (rule: Rule, known: readonly boolean[]) => boolean,
): boolean[] {
  const callers: number[][] = rules.map(() => []);
  rules.forEach((rule, caller) => {
    for (const called of calledBy(rule, budget)) callers[called]!.push(caller);
  });
  const known = rules.map(() => false);
  // Rules call later ones for the most part.
  const todo = rules.map((_, i) => i);
  const isWaiting = rules.map(() => true);
  for (let i = todo.pop(); i !== undefined; i = todo.pop()) {
    isWaiting[i] = false;
    if (known[i]! || !holds(rules[i]!, known)) continue;
    known[i] = true;
    for (const caller of callers[i]!) {
      if (known[caller]! || isWaiting[caller]!) continue;
      isWaiting[caller] = true;
      todo.push(caller);
    }
  }
  return known;
}

function calledBy(rule: Rule, budget: Budget): Set<number> {
  const called = new Set<number>();
  for (const automaton of partsOf(rule)) {
    budget.spend(automaton.length);
    for (const { calls } of automaton) for (const { number } of calls) called.add(number);
  }
  return called;
}

/** Leaves out what leads nowhere. */
export function pruneRule(rule: Rule, live: readonly boolean[], budget: Budget): Rule {
  const { name, head, loop } = rule;
  return {
    name,
    head: prune(head, live, budget),
    loop:
      loop === null
        ? null
        : { ...loop, item: prune(loop.item, live, budget), tail: prune(loop.tail, live, budget) },
  };
}

/** A rule that begins with itself would be called for ever before anything is written. Errors: `invalid-grammar`. */
export function refuseLeftRecursion(rules: readonly Rule[], budget: Budget): void {
  const empty = emptyRules(rules, budget);
  const begins = rules.map((rule) => [...firstCalls(rule, empty, budget)]);
  const state = rules.map(() => 'new' as 'new' | 'open' | 'done');
  for (let root = 0; root < rules.length; root++) {
    if (state[root] !== 'new') continue;
    state[root] = 'open';
    const path = [{ rule: root, at: 0 }];
    for (let top = path.at(-1); top !== undefined; top = path.at(-1)) {
      const next = begins[top.rule]![top.at++];
      if (next === undefined) {
        state[top.rule] = 'done';
        path.pop();
      } else if (state[next] === 'open') {
        const { name } = rules[next]!;
        throw invalidGrammar(
          `The rule${name === '' ? '' : ` "${shown(name)}"`} begins with itself.`,
          'Write what repeats to the right: list ::= item ("," item)*, or item ("," list)?.',
        );
      } else if (state[next] === 'new') {
        state[next] = 'open';
        path.push({ rule: next, at: 0 });
      }
    }
  }
}

/** States that are reached without writing anything. */
function silentStates(automaton: Automaton, empty: readonly boolean[], budget: Budget): Set<number> {
  const seen = new Set([0]);
  for (const state of seen) {
    const { calls } = automaton[state]!;
    budget.spend(1 + calls.length);
    for (const { number, to } of calls) if (empty[number]!) seen.add(to);
  }
  return seen;
}

function reachesEnd(automaton: Automaton, empty: readonly boolean[], budget: Budget): boolean {
  for (const state of silentStates(automaton, empty, budget)) if (automaton[state]!.final) return true;
  return false;
}

function firstCalls(rule: Rule, empty: readonly boolean[], budget: Budget): Set<number> {
  const calls = new Set<number>();
  const add = (automaton: Automaton): void => {
    for (const state of silentStates(automaton, empty, budget))
      for (const { number } of automaton[state]!.calls) calls.add(number);
  };
  add(rule.head);
  if (rule.loop !== null && reachesEnd(rule.head, empty, budget)) {
    if (rule.loop.max !== 0) add(rule.loop.item);
    if (rule.loop.min === 0) add(rule.loop.tail);
  }
  return calls;
}

/** Numbers of the rules that the first one leads to, itself first. */
export function reachableRules(rules: readonly Rule[], budget: Budget): number[] {
  const seen = new Set([0]);
  for (const rule of seen) for (const called of calledBy(rules[rule]!, budget)) seen.add(called);
  return [...seen];
}
