/** What schemas say of a string: lengths, patterns and formats. */

import { KvantError } from '../../errors.js';
import { type Expression, lasts, NOTHING, rule, sequence, text } from '../expression.js';
import { type Budget, MadeOnce } from '../limits.js';
import { regexWords } from '../regex.js';
import {
  anyState,
  hasNoWords,
  intersectWords,
  listedWords,
  otherWords,
  type Words,
  wordsOfLength,
} from '../words.js';

import { FORMATS, formatMeant, isFormat, SHORT_FORMATS } from './formats.js';
import { boundsOf, type Lengths, type Plain } from './plain.js';
import { NOT_PATTERN, NOT_STRINGS, unsupported } from './schema-nodes.js';
import type { SchemaValues } from './schema-values.js';
import { ANY, FEW_STATES, stringOfLength } from './terminals.js';

/** What patterns and formats leave; null where there are none. Errors: `unsupported-schema`, `invalid-pattern`, `grammar-too-large`. */
export function patternWords(plain: Plain, budget: Budget, formatOf = formatWords): Words | null {
  let words: Words | null = null;
  for (const { schema, pointer } of plain) {
    const { pattern, format } = schema as { pattern?: string; format?: string };
    const put = (more: Words): void => {
      words = words === null ? more : intersectWords(words, more, budget);
    };
    const read = (source: string, search: boolean, keyword: string): Words =>
      at(`${pointer}/${keyword}`, () => regexWords(source, search, budget));
    if (pattern !== undefined) put(read(pattern, true, 'pattern'));
    const { [NOT_PATTERN]: other, [NOT_STRINGS]: strings } = schema as {
      [NOT_PATTERN]?: string;
      [NOT_STRINGS]?: readonly string[];
    };
    if (other !== undefined) put(otherWords(read(other, true, 'pattern'), budget));
    if (strings !== undefined) put(otherWords(listedWords(strings, budget), budget));
    if (format === undefined) continue;
    if (!isFormat(format)) {
      const meant = formatMeant(format);
      if (meant !== undefined) throw unsupported(pointer, 'format', `Did you mean "${meant}"?`);
      budget.leave(format);
      continue;
    }
    put(formatOf(format, budget));
  }
  return words;
}

const FORMAT_WORDS = new MadeOnce<string, Words>(new Map());
const FORMAT_STRINGS = new MadeOnce<string, { readonly string: Expression; readonly long: boolean }>(
  new Map(),
);

function formatWords(format: string, budget: Budget): Words {
  return FORMAT_WORDS.get(format, budget, (own) => regexWords(FORMATS[format]!, false, own));
}

const shortFormat = (format: string, budget: Budget): Words =>
  regexWords(SHORT_FORMATS[format]?.pattern ?? FORMATS[format]!, false, budget);

/**
 * Strings as they are written: of the formats beside a greatest length some, else all. Null where anything may be.
 * Errors: `unsupported-schema`, `invalid-pattern`, `grammar-too-large`.
 */
export function writtenWords(plain: Plain, budget: Budget): Words | null {
  const { min, max } = boundsOf(plain, 'minLength', 'maxLength');
  if (max !== null && max < min) return { edges: [[]], final: [false] };
  const most = Math.min(
    ...plain.map(({ schema }) => SHORT_FORMATS[String(schema.format)]?.most ?? Number.POSITIVE_INFINITY),
  );
  const isShort = max !== null && min <= most;
  const words = patternWords(plain, budget, isShort ? shortFormat : formatWords);
  if (words === null || (min === 0 && max === null)) return words;
  const last = isShort ? Math.min(max, most) : max;
  return intersectWords(words, wordsOfLength(min, last, budget), budget);
}

/** The format of a string of which nothing else is said; null where more is, or less. */
function onlyFormat(plain: Plain): string | null {
  let found: string | null = null;
  for (const { schema } of plain) {
    const { pattern, format } = schema as { pattern?: string; format?: string };
    if (pattern !== undefined || schema[NOT_PATTERN] !== undefined || schema[NOT_STRINGS] !== undefined)
      return null;
    if (format === undefined || format === found) continue;
    if (found !== null || !isFormat(format)) return null;
    found = format;
  }
  return found;
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

/** As `stringWords`, for a string that is written. */
export function textWords(plain: Plain, budget: Budget): Words | 'any' {
  const { min, max } = boundsOf(plain, 'minLength', 'maxLength');
  return writtenWords(plain, budget) ?? (min === 0 && max === null ? 'any' : wordsOfLength(min, max, budget));
}

/**
 * Strings of a schema: those of which the same is said are one expression. Long ones are rules of their own: what masks know of such a
 * rule holds in every grammar that has it.
 */
export class StringExpressions {
  readonly #budget: Budget;
  readonly #define: SchemaValues['define'];
  readonly #known = new Map<string, Expression>();

  constructor({ budget, define }: Pick<SchemaValues, 'budget' | 'define'>) {
    this.#budget = budget;
    this.#define = define;
  }

  /** Errors: `unsupported-schema`, `invalid-pattern`, `grammar-too-large`. */
  of(plain: Plain): Expression {
    const { min, max } = boundsOf(plain, 'minLength', 'maxLength');
    const said = ['pattern', 'format', NOT_PATTERN, NOT_STRINGS];
    const patterns = plain.map(({ schema }) => said.map((name) => schema[name]));
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
    const format = min === 0 && max === null ? onlyFormat(plain) : null;
    if (format !== null) {
      const { string, long } = FORMAT_STRINGS.get(format, budget, (own) => {
        const words = formatWords(format, own);
        return { string: lasts(stringOf(words)), long: words.edges.length > FEW_STATES };
      });
      return long ? this.#define('text', string) : string;
    }
    const words = writtenWords(plain, budget);
    if (words === null) return min === 0 && max === null ? rule(ANY.STRING) : stringOfLength(min, max);
    if (hasNoWords(words)) return NOTHING;
    const string = stringOf(words);
    return words.edges.length > FEW_STATES ? this.#define('text', string) : string;
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
