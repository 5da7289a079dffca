/** Makes tables of a grammar, or says why not. */

import { shown } from '../printable.js';
import { type Automaton, determinise, withoutEmpty } from './automaton.js';
import { ByteNfa, type Countable } from './byte-nfa.js';
import { EMPTY, type Expression, type Grammar, invalidGrammar, isLasting } from './expression.js';
import { Budget, MadeOnce } from './limits.js';
import { packTables } from './pack.js';
import { productiveRules, pruneRule, type Rule, reachableRules, refuseLeftRecursion } from './rules.js';
import type { GrammarTables } from './tables.js';

/**
 * Errors: `grammar-too-large`; `invalid-grammar` for a rule that is missing or begins with itself, and where there is nothing that
 * could be written.
 */
export function compileGrammar(grammar: Grammar, budget: Budget = new Budget()): GrammarTables {
  const rules = readRules(grammar, budget);
  const live = productiveRules(rules, budget);
  if (!live[0]!)
    throw invalidGrammar(
      'Nothing can be written that is all that is asked for.',
      'Loosen what contradicts itself.',
    );
  const pruned = rules.map((rule) => pruneRule(rule, live, budget));
  refuseLeftRecursion(pruned, budget);
  return { ...packTables(pruned, reachableRules(pruned, budget), budget), left: budget.left };
}

/** Automata of what lasts. */
const LASTING = new MadeOnce<Expression, Automaton>(new WeakMap());

const noRules = (): never => {
  throw new Error('what lasts calls no rules');
};

function readExpression(
  expression: Expression,
  budget: Budget,
  numberOf: (name: string) => number,
  countedNumber: (expression: Countable) => number,
): Automaton {
  const nfa = new ByteNfa(budget, numberOf, countedNumber);
  const start = nfa.add();
  const end = nfa.add();
  nfa.build(expression, start, end);
  return determinise(nfa, start, end, budget);
}

function readRules(grammar: Grammar, budget: Budget): Rule[] {
  const numbers = new Map<string, number>();
  const todo: { readonly name: string; readonly expression: Expression }[] = [];
  const numberOf = (name: string): number => {
    let number = numbers.get(name);
    if (number === undefined) {
      const expression = grammar.rules.get(name);
      if (expression === undefined)
        throw invalidGrammar(`There is no rule "${shown(name)}".`, 'Define it, or correct the name.');
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
  const known = new Map<Expression, Automaton>();
  const automaton = (expression: Expression): Automaton => {
    let made = known.get(expression);
    if (made === undefined) {
      made = automatonOf(expression);
      known.set(expression, made);
    }
    return made;
  };
  const automatonOf = (expression: Expression): Automaton =>
    isLasting(expression)
      ? LASTING.get(expression, budget, (own) => readExpression(expression, own, noRules, noRules))
      : readExpression(expression, budget, numberOf, countedNumber);
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
