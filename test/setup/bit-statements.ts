/** What statements of `let NAME = EXPRESSION;` on words of bits leave in their variables, beside `words`. */
export function runBitStatements(
  text: string,
  words: Readonly<Record<string, number>>,
): ReadonlyMap<string, number> {
  const values = new Map(Object.entries(words));
  for (const [, name, expression] of text.matchAll(/let (\w+) = (.*);/g)) {
    const body = expression!.replace(/\b(0x[0-9a-f]+|\d+)u\b/g, '$1').replaceAll('>>', '>>>');
    const result = new Function(...values.keys(), `return (${body}) >>> 0;`)(...values.values()) as number;
    values.set(name!, result);
  }
  return values;
}

/** The statements that are more than a name or a constant. */
export const operationsIn = (text: string): number =>
  [...text.matchAll(/let \w+ = (.*);/g)].filter(([, expression]) => /~| [&|^] /.test(expression!)).length;
