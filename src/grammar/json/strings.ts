/** What schemas say of a string: lengths, patterns and formats. */

import { KvantError } from '../../errors.js';
import { type Expression, NOTHING, rule, sequence, text } from '../expression.js';
import type { Budget } from '../limits.js';
import { regexWords } from '../regex.js';
import { anyState, hasNoWords, intersectWords, type Words, wordsOfLength } from '../words.js';

import { FORMATS } from './formats.js';
import { boundsOf, type Lengths, type Plain } from './plain.js';
import { unsupported } from './schema-nodes.js';
import { ANY, stringOfLength } from './terminals.js';

/** What patterns and formats leave; null where there are none. Errors: `unsupported-schema`, `invalid-pattern`, `grammar-too-large`. */
export function patternWords(plain: Plain, budget: Budget): Words | null {
  let words: Words | null = null;
  for (const { schema, pointer } of plain) {
    const { pattern, format } = schema as { pattern?: string; format?: string };
    const add = (source: string, search: boolean, keyword: string): void => {
      const more = at(`${pointer}/${keyword}`, () => regexWords(source, search, budget));
      words = words === null ? more : intersectWords(words, more, budget);
    };
    if (pattern !== undefined) add(pattern, true, 'pattern');
    if (format === undefined) continue;
    if (!Object.hasOwn(FORMATS, format))
      throw unsupported(
        pointer,
        'format',
        `Formats are ${Object.keys(FORMATS).join(', ')}. Use \`pattern\` for others.`,
      );
    add(FORMATS[format]!, false, 'format');
  }
  return words;
}

/** All that is said of a string, as words; `any` where nothing is. */
export function stringWords(plain: Plain, budget: Budget): Words | 'any' {
  const { min, max } = boundsOf(plain, 'minLength', 'maxLength');
  const words = patternWords(plain, budget);
  if (min === 0 && max === null) return words ?? 'any';
  if (max !== null && max < min) return { edges: [[]], final: [false] };
  const lengths = wordsOfLength(min, max, budget);
  return words === null ? lengths : intersectWords(words, lengths, budget);
}

/** Strings of a schema: those of which the same is said are one expression. */
export class StringExpressions {
  readonly #budget: Budget;
  readonly #known = new Map<string, Expression>();

  constructor(budget: Budget) {
    this.#budget = budget;
  }

  /** Errors: `unsupported-schema`, `invalid-pattern`, `grammar-too-large`. */
  of(plain: Plain): Expression {
    const { min, max } = boundsOf(plain, 'minLength', 'maxLength');
    const patterns = plain.map(({ schema }) => [schema.pattern, schema.format]);
    const key = JSON.stringify([min, max, patterns]);
    let known = this.#known.get(key);
    if (known === undefined) {
      known = this.#make(plain, { min, max });
      this.#known.set(key, known);
    }
    return known;
  }

  #make(plain: Plain, { min, max }: Lengths): Expression {
    if (max !== null && max < min) return NOTHING;
    const budget = this.#budget;
    const words = patternWords(plain, budget);
    if (words === null) return min === 0 && max === null ? rule(ANY.STRING) : stringOfLength(min, max);
    const both =
      min === 0 && max === null ? words : intersectWords(words, wordsOfLength(min, max, budget), budget);
    if (hasNoWords(both)) return NOTHING;
    return stringOf(both);
  }
}

/** A string of these words. */
export function stringOf(words: Words): Expression {
  const any = anyState(words);
  if (any <= 0) return sequence(text('"'), quoted(words), text('"'));
  return sequence(text('"'), { kind: 'string-rest', words, any, rule: ANY.STRING_REST });
}

/** Words between the quotes of a string. */
const quoted = (words: Words): Expression => ({ kind: 'words', words, spelling: 'json' });

/** Says where in the schema it was. */
export function at<T>(pointer: string, make: () => T): T {
  try {
    return make();
  } catch (cause) {
    if (!(cause instanceof KvantError) || cause.where !== undefined) throw cause;
    const { code, message, kind, fix } = cause;
    throw new KvantError(code, `${message.replace(/\.$/, '')} (at ${pointer}).`, {
      kind,
      where: 'schema',
      ...(fix === undefined ? {} : { fix }),
      cause,
    });
  }
}
