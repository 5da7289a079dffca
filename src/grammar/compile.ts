/** Makes tables of a grammar, or says why not. */

import { createHash } from 'node:crypto';
import { KvantError } from '../errors.js';
import { shown } from '../printable.js';
import { type ByteEdge, ByteNfa, type Countable, type NumberedEdge } from './byte-nfa.js';
import { EMPTY, type Expression, type Grammar } from './expression.js';
import { Budget } from './limits.js';
import { plainDepths } from './plain-text.js';
import { type GrammarTables, NO_END, STATE } from './tables.js';
import { cut } from './words.js';

interface State {
  readonly bytes: ByteEdge[];
  readonly calls: NumberedEdge[];
  readonly tokens: NumberedEdge[];
  final: boolean;
}

/** A deterministic automaton; state 0 is its start. */
type Automaton = readonly State[];

interface Rule {
  readonly name: string;
  readonly head: Automaton;
  readonly loop: {
    readonly item: Automaton;
    readonly tail: Automaton;
    readonly min: number;
    readonly max: number | null;
  } | null;
}

/**
 * Errors: `grammar-too-large`; `invalid-grammar` for a rule that is missing or begins with itself, and where there is nothing that
 * could be written.
 */
export function compileGrammar(grammar: Grammar, budget: Budget = new Budget()): GrammarTables {
  const rules = readRules(grammar, budget);
  const live = productive(rules, budget);
  if (!live[0]!)
    throw invalid('Nothing can be written that is all that is asked for.', 'Loosen what contradicts itself.');
  const pruned = rules.map((rule) => prune(rule, live));
  refuseLeftRecursion(pruned, budget);
  return toTables(pruned, reachable(pruned), budget);
}

function readRules(grammar: Grammar, budget: Budget): Rule[] {
  const numbers = new Map<string, number>();
  const todo: { readonly name: string; readonly expression: Expression }[] = [];
  const numberOf = (name: string): number => {
    let number = numbers.get(name);
    if (number === undefined) {
      const expression = grammar.rules.get(name);
      if (expression === undefined)
        throw invalid(`There is no rule "${shown(name)}".`, 'Define it, or correct the name.');
      number = todo.length;
      numbers.set(name, number);
      todo.push({ name, expression });
    }
    return number;
  };
  const counted = new Map<Expression, number>();
  const countedNumber = (expression: Countable): number => {
    let number = counted.get(expression);
    if (number === undefined) {
      number = todo.length;
      counted.set(expression, number);
      todo.push({ name: '', expression: { head: EMPTY, tail: EMPTY, ...expression, kind: 'counted' } });
    }
    return number;
  };
  numberOf(grammar.root);
  const automaton = (expression: Expression): Automaton => {
    const nfa = new ByteNfa(budget, numberOf, countedNumber);
    const start = nfa.add();
    const end = nfa.add();
    nfa.build(expression, start, end);
    return determinise(nfa, start, end, budget);
  };
  const rules: Rule[] = [];
  for (let i = 0; i < todo.length; i++) {
    const { name, expression } = todo[i]!;
    if (expression.kind !== 'counted') {
      rules.push({ name, head: automaton(expression), loop: null });
      continue;
    }
    const { head, item, tail, min, max } = expression;
    const body = withoutEmpty(automaton(item));
    // Of items that may be empty there are enough at once.
    const least = body.empty ? 0 : min;
    rules.push({
      name,
      head: automaton(head),
      loop: { item: body.automaton, tail: automaton(tail), min: least, max },
    });
  }
  return rules;
}

function determinise(nfa: ByteNfa, start: number, end: number, budget: Budget): State[] {
  const closure = (states: readonly number[]): readonly number[] => {
    if (states.length === 1 && nfa.jumps[states[0]!]!.length === 0) return states;
    const seen = new Set(states);
    for (const state of seen) for (const to of nfa.jumps[state]!) seen.add(to);
    budget.spend(seen.size);
    return [...seen].sort((a, b) => a - b);
  };
  const numbers = new Map<string | number, number>();
  const subsets: (readonly number[])[] = [];
  const numberOf = (states: readonly number[]): number => {
    const subset = closure(states);
    const key = subset.length === 1 ? subset[0]! : subset.join();
    let number = numbers.get(key);
    if (number === undefined) {
      budget.addStates(1);
      number = subsets.length;
      numbers.set(key, number);
      subsets.push(subset);
    }
    return number;
  };
  const numbered = (edges: readonly NumberedEdge[]): NumberedEdge[] => {
    if (edges.length === 0) return [];
    const targets = new Map<number, number[]>();
    for (const { number, to } of edges) targets.set(number, [...(targets.get(number) ?? []), to]);
    return [...targets].map(([number, to]) => ({ number, to: numberOf(to) }));
  };
  const states: State[] = [];
  numberOf([start]);
  for (let i = 0; i < subsets.length; i++) {
    const subset = subsets[i]!;
    const of = <E>(lists: readonly (readonly E[])[]): readonly E[] => {
      if (subset.length === 1) return lists[subset[0]!]!;
      const all: E[] = [];
      for (const state of subset) for (const edge of lists[state]!) all.push(edge);
      return all;
    };
    const bytes = cut(of(nfa.bytes), budget).map(({ low, high, to }) => ({ low, high, to: numberOf(to) }));
    states.push({
      bytes,
      calls: numbered(of(nfa.calls)),
      tokens: numbered(of(nfa.tokens)),
      final: subset.includes(end),
    });
  }
  return states;
}

/** The same without the empty word; a state of its own begins it, since others may lead back to the start. */
function withoutEmpty(automaton: Automaton): { automaton: Automaton; empty: boolean } {
  if (!automaton[0]!.final) return { automaton, empty: false };
  const move = <E extends { to: number }>(edges: readonly E[]): E[] =>
    edges.map((edge) => ({ ...edge, to: edge.to + 1 }));
  const moved = automaton.map(({ bytes, calls, tokens, final }) => ({
    bytes: move(bytes),
    calls: move(calls),
    tokens: move(tokens),
    final,
  }));
  return { automaton: [{ ...moved[0]!, final: false }, ...moved], empty: true };
}

const partsOf = ({ head, loop }: Rule): readonly Automaton[] =>
  loop === null ? [head] : [head, loop.item, loop.tail];

const sizeOf = (rule: Rule): number => partsOf(rule).reduce((sum, { length }) => sum + length, 0);

/** By rule: whether there is anything that it can be. */
function productive(rules: readonly Rule[], budget: Budget): boolean[] {
  const live = rules.map(() => false);
  for (let changed = true; changed; ) {
    changed = false;
    // Rules call later ones for the most part.
    rules.toReversed().forEach((rule, back) => {
      const i = rules.length - 1 - back;
      if (live[i]!) return;
      budget.spend(sizeOf(rule));
      const { head, loop } = rule;
      const itself =
        aliveStates(head, live).has(0) &&
        (loop === null ||
          (aliveStates(loop.tail, live).has(0) &&
            (loop.max === null || loop.max >= loop.min) &&
            (loop.min === 0 || aliveStates(loop.item, live).has(0))));
      if (!itself) return;
      live[i] = true;
      changed = true;
    });
  }
  return live;
}

/** States from which the automaton can come to an end. */
function aliveStates(automaton: Automaton, live: readonly boolean[]): Set<number> {
  const back: number[][] = automaton.map(() => []);
  automaton.forEach(({ bytes, calls, tokens }, from) => {
    for (const { to } of bytes) back[to]!.push(from);
    for (const { number, to } of calls) if (live[number]!) back[to]!.push(from);
    for (const { to } of tokens) back[to]!.push(from);
  });
  const alive = new Set(automaton.flatMap(({ final }, i) => (final ? [i] : [])));
  for (const state of alive) for (const from of back[state]!) alive.add(from);
  return alive;
}

/** Leaves out what leads nowhere. */
function prune(rule: Rule, live: readonly boolean[]): Rule {
  const pruned = (automaton: Automaton): Automaton => {
    const alive = aliveStates(automaton, live);
    const numbers = new Map<number, number>([[0, 0]]);
    automaton.forEach((_, i) => {
      if (i > 0 && alive.has(i)) numbers.set(i, numbers.size);
    });
    const kept = <E extends { to: number }>(edges: readonly E[]): E[] =>
      edges.filter(({ to }) => alive.has(to)).map((edge) => ({ ...edge, to: numbers.get(edge.to)! }));
    return [...numbers.keys()].map((state) => {
      const { bytes, calls, tokens, final } = automaton[state]!;
      return {
        bytes: kept(bytes),
        calls: kept(calls.filter(({ number }) => live[number]!)),
        tokens: kept(tokens),
        final,
      };
    });
  };
  const { name, head, loop } = rule;
  return {
    name,
    head: pruned(head),
    loop: loop === null ? null : { ...loop, item: pruned(loop.item), tail: pruned(loop.tail) },
  };
}

/** A rule that begins with itself would be called for ever before anything is written. */
function refuseLeftRecursion(rules: readonly Rule[], budget: Budget): void {
  const empty = emptyRules(rules, budget);
  const begins = rules.map((rule) => [...firstCalls(rule, empty)]);
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
        throw invalid(
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

/** By rule: whether it may be empty. */
function emptyRules(rules: readonly Rule[], budget: Budget): boolean[] {
  const empty = rules.map(() => false);
  for (let changed = true; changed; ) {
    changed = false;
    rules.toReversed().forEach(({ head, loop }, back) => {
      const i = rules.length - 1 - back;
      budget.spend(1);
      if (empty[i]! || !reachesEnd(head, empty)) return;
      if (loop !== null && (loop.min > 0 || !reachesEnd(loop.tail, empty))) return;
      empty[i] = true;
      changed = true;
    });
  }
  return empty;
}

/** States that are reached without writing anything. */
function silentStates(automaton: Automaton, empty: readonly boolean[]): Set<number> {
  const seen = new Set([0]);
  for (const state of seen)
    for (const { number, to } of automaton[state]!.calls) if (empty[number]!) seen.add(to);
  return seen;
}

const reachesEnd = (automaton: Automaton, empty: readonly boolean[]): boolean =>
  [...silentStates(automaton, empty)].some((state) => automaton[state]!.final);

function firstCalls(rule: Rule, empty: readonly boolean[]): Set<number> {
  const calls = new Set<number>();
  const add = (automaton: Automaton): void => {
    for (const state of silentStates(automaton, empty))
      for (const { number } of automaton[state]!.calls) calls.add(number);
  };
  add(rule.head);
  if (rule.loop !== null && reachesEnd(rule.head, empty)) {
    if (rule.loop.max !== 0) add(rule.loop.item);
    if (rule.loop.min === 0) add(rule.loop.tail);
  }
  return calls;
}

/** Numbers of the rules that the first one leads to, itself first. */
function reachable(rules: readonly Rule[]): number[] {
  const seen = new Set([0]);
  for (const rule of seen)
    for (const automaton of partsOf(rules[rule]!))
      for (const { calls } of automaton) for (const { number } of calls) seen.add(number);
  return [...seen];
}

function toTables(rules: readonly Rule[], order: readonly number[], budget: Budget): GrammarTables {
  const numbers = new Map(order.map((rule, i) => [rule, i]));
  const [start, min, max, item, tail] = Array.from({ length: 5 }, () => shared(Int32Array, order.length));
  const ruleOf: number[] = [];
  const flags: number[] = [];
  const byteAt: number[] = [0];
  const bytes: ByteEdge[] = [];
  const callAt: number[] = [0];
  const calls: NumberedEdge[] = [];
  const tokenAt: number[] = [0];
  const tokens: NumberedEdge[] = [];
  const ruleKeys: string[] = [];

  order.forEach((number, i) => {
    const { head, loop } = rules[number]!;
    const hash = createHash('sha256');
    let plain = true;
    const put = (automaton: Automaton, end: number): number => {
      const base = ruleOf.length;
      for (const state of automaton) {
        budget.spend(1);
        const last = state.bytes.length + state.calls.length + state.tokens.length === 0;
        ruleOf.push(i);
        flags.push((state.final ? end : 0) | (last && end === STATE.FINAL ? STATE.LAST : 0));
        for (const edge of state.bytes) bytes.push({ ...edge, to: base + edge.to });
        for (const edge of state.calls) calls.push({ number: numbers.get(edge.number)!, to: base + edge.to });
        for (const edge of state.tokens) tokens.push({ ...edge, to: base + edge.to });
        byteAt.push(bytes.length);
        callAt.push(calls.length);
        tokenAt.push(tokens.length);
        if (state.calls.length > 0) plain = false;
      }
      hash.update(plain ? JSON.stringify([end, automaton]) : '');
      return base;
    };
    min![i] = 0;
    max![i] = -1;
    if (loop === null) start![i] = put(head, STATE.FINAL);
    else {
      start![i] = put(head, STATE.HEAD_END);
      item![i] = put(loop.item, STATE.ITEM_END);
      tail![i] = put(loop.tail, STATE.FINAL);
      min![i] = Math.min(loop.min, NO_END - 1);
      max![i] = loop.max === null ? NO_END : Math.min(loop.max, NO_END - 1);
    }
    ruleKeys.push(plain ? hash.digest('base64') : '');
  });

  const key = createHash('sha256');
  const made = {
    start: start!,
    min: min!,
    max: max!,
    item: item!,
    tail: tail!,
    ruleOf: sharedFrom(Int32Array, ruleOf),
    flags: sharedFrom(Uint8Array, flags),
    byteAt: sharedFrom(Int32Array, byteAt),
    byteLow: sharedFrom(
      Uint8Array,
      bytes.map(({ low }) => low),
    ),
    byteHigh: sharedFrom(
      Uint8Array,
      bytes.map(({ high }) => high),
    ),
    byteTo: sharedFrom(
      Int32Array,
      bytes.map(({ to }) => to),
    ),
    callAt: sharedFrom(Int32Array, callAt),
    callRule: sharedFrom(
      Int32Array,
      calls.map(({ number }) => number),
    ),
    callTo: sharedFrom(
      Int32Array,
      calls.map(({ to }) => to),
    ),
    tokenAt: sharedFrom(Int32Array, tokenAt),
    tokenId: sharedFrom(
      Int32Array,
      tokens.map(({ number }) => number),
    ),
    tokenTo: sharedFrom(
      Int32Array,
      tokens.map(({ to }) => to),
    ),
  };
  for (const array of Object.values(made))
    key.update(`${array.length};`).update(new Uint8Array(array.buffer));
  return { key: key.digest('base64'), ruleKeys, plain: plainDepths(made, budget), ...made };
}

type Typed<A> = {
  readonly BYTES_PER_ELEMENT: number;
  new (buffer: SharedArrayBuffer): A;
};

function shared<A>(kind: Typed<A>, length: number): A {
  return new kind(new SharedArrayBuffer(kind.BYTES_PER_ELEMENT * length));
}

function sharedFrom<A extends { set(values: readonly number[]): void }>(
  kind: Typed<A>,
  values: readonly number[],
): A {
  const array = shared(kind, values.length);
  array.set(values);
  return array;
}

function invalid(message: string, fix: string): KvantError {
  return new KvantError('invalid-grammar', message, { kind: 'invalid-request', fix });
}
