/** Rules that begin with themselves, `sum: sum "+" item | item`, said the other way round: `sum: item ("+" item)*`. */

import { type Expression, oneOf, repeat, sequence } from './expression.js';

/**
 * The same texts by rules of which none begins with itself at once. One that does so through another rule stays: compiling refuses
 * it (rules.ts).
 */
export function withoutLeftRecursion(rules: ReadonlyMap<string, Expression>): Map<string, Expression> {
  return new Map([...rules].map(([name, expression]) => [name, reversed(name, expression)]));
}

function reversed(name: string, expression: Expression): Expression {
  const begins: Expression[] = [];
  const goesOn: Expression[] = [];
  for (const item of alternatives(expression)) {
    const [first, ...rest] = items(item);
    if (first?.kind !== 'rule' || first.rule !== name) begins.push(item);
    // The rule alone, as an alternative of itself, says nothing.
    else if (rest.length > 0) goesOn.push(sequence(...rest));
  }
  if (goesOn.length === 0)
    return begins.length === alternatives(expression).length ? expression : oneOf(begins);
  return sequence(oneOf(begins), repeat(oneOf(goesOn), 0, null));
}

function alternatives(expression: Expression): readonly Expression[] {
  return expression.kind === 'choice' ? expression.items.flatMap(alternatives) : [expression];
}

function items(expression: Expression): readonly Expression[] {
  return expression.kind === 'sequence' ? expression.items.flatMap(items) : [expression];
}
