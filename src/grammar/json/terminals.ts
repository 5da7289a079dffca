/** JSON itself: white space, strings, numbers, and any value at all. */

import {
  choice,
  EMPTY,
  type Expression,
  lasts,
  optional,
  repeat,
  rule,
  sequence,
  set,
  text,
} from '../expression.js';
import { ANY_JSON_CHARACTER } from '../json-characters.js';

/** Spaces or tabs that a line may begin with. */
const MAX_INDENT = 20;

/**
 * Between the signs of a value: nothing, one space, or a line break with up to 20 spaces or tabs behind it. Without a bound models
 * write white space until they are cut off.
 */
const WHITE: Expression = lasts(
  optional(
    choice(
      text(' '),
      sequence(
        text('\n'),
        repeat(set([0x09, 0x09], [0x20, 0x20]), 0, MAX_INDENT - 4),
        repeat(set([0x09, 0x09], [0x20, 0x20]), 0, 4),
      ),
    ),
  ),
);

/** Words of more states are a rule of their own, for what they are in several places is made once. */
export const FEW_STATES = 16;

/** A rule of its own: it stands in very many places. */
export const SPACE_RULE = 'space';
export const SPACE: Expression = rule(SPACE_RULE);

const DIGIT: Expression = set([0x30, 0x39]);
const digits = (min: number, max: number): Expression => repeat(DIGIT, min, max);
const MINUS: Expression = optional(text('-'));
const E: Expression = set([0x45, 0x45], [0x65, 0x65]);

/** Digits before the point that `JSON.stringify` writes without an exponent. */
export const MAX_INTEGER_DIGITS = 21;
export const MAX_FRACTION_DIGITS = 24;

const NONZERO = sequence(set([0x31, 0x39]), digits(0, 10), digits(0, MAX_INTEGER_DIGITS - 11));
const FRACTION = optional(sequence(text('.'), digits(1, 12), digits(0, MAX_FRACTION_DIGITS - 12)));

/** Whole numbers of up to 21 digits. */
export const INTEGER: Expression = lasts(choice(text('0'), sequence(MINUS, NONZERO)));

/**
 * Numbers that a double can hold: up to 21 digits and 24 behind the point, or one digit with an exponent up to 307.
 */
export const NUMBER: Expression = lasts(
  sequence(
    MINUS,
    choice(
      sequence(choice(text('0'), NONZERO), FRACTION),
      sequence(
        DIGIT,
        FRACTION,
        E,
        choice(
          sequence(
            optional(text('+')),
            choice(
              digits(1, 2),
              sequence(set([0x31, 0x32]), digits(2, 2)),
              sequence(text('30'), set([0x30, 0x37])),
            ),
          ),
          sequence(text('-'), digits(1, 3)),
        ),
      ),
    ),
  ),
);

/** The expression of a rule: masks of all such rules are shared, whatever the bounds. */
export const stringOfLength = (min: number, max: number | null): Expression => ({
  kind: 'counted',
  head: text('"'),
  item: ANY_JSON_CHARACTER,
  tail: text('"'),
  min,
  max,
});

/** A string of any characters. */
const STRING: Expression = stringOfLength(0, null);
/** The same from anywhere behind its opening quote. */
const STRING_REST: Expression = { ...STRING, head: EMPTY } as Expression;

/** Names of the rules that every JSON grammar has. */
export const ANY = {
  VALUE: 'any',
  OBJECT: 'any-object',
  ARRAY: 'any-array',
  STRING: 'string',
  STRING_REST: 'string-rest',
  NUMBER: 'number',
  INTEGER: 'integer',
} as const;

export const COMMA: Expression = sequence(text(','), SPACE);
export const COLON: Expression = sequence(text(':'), SPACE);

export const member = (key: Expression, value: Expression): Expression => sequence(key, COLON, value);

export const braces = (open: string, inner: Expression, close: string): Expression =>
  sequence(text(open), SPACE, inner, text(close));

/** A list that is not empty has a space of its own before it closes. */
export const list = (
  items: readonly { readonly item: Expression; readonly optional: boolean }[],
  more: Expression | null,
): Expression => ({
  kind: 'list',
  items: items.map(({ item, optional: may }) => ({ item: sequence(item, SPACE), optional: may })),
  more: more === null ? null : sequence(more, SPACE),
  separator: COMMA,
});

/** The rules that others may name. */
export const anyRules = (): [string, Expression][] => [
  [
    ANY.VALUE,
    choice(
      rule(ANY.OBJECT),
      rule(ANY.ARRAY),
      rule(ANY.STRING),
      rule(ANY.NUMBER),
      ...['true', 'false', 'null'].map(text),
    ),
  ],
  [ANY.OBJECT, braces('{', list([], member(rule(ANY.STRING), rule(ANY.VALUE))), '}')],
  [ANY.ARRAY, braces('[', list([], rule(ANY.VALUE)), ']')],
  [SPACE_RULE, WHITE],
  [ANY.STRING, STRING],
  [ANY.STRING_REST, STRING_REST],
  [ANY.NUMBER, NUMBER],
  [ANY.INTEGER, INTEGER],
];

/** A value that is known, with white space where others may have it. */
export function literal(value: unknown): Expression {
  if (Array.isArray(value))
    return braces(
      '[',
      list(
        value.map((item) => ({ item: literal(item), optional: false })),
        null,
      ),
      ']',
    );
  if (typeof value === 'object' && value !== null) {
    const members = Object.entries(value).map(([key, inner]) => ({
      item: member(text(JSON.stringify(key)), literal(inner)),
      optional: false,
    }));
    return braces('{', list(members, null), '}');
  }
  return text(JSON.stringify(value));
}
