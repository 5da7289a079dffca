/** How characters stand in a JSON string. */

import { ANY_CODE_POINT, type CodePointRange, intersectRanges, invertRanges } from './code-points.js';
import { choice, type Expression, lasts, sequence, set, text } from './expression.js';

const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const LAST_CONTROL = 0x1f;

/** What stands for itself. */
const PLAIN: readonly CodePointRange[] = invertRanges([
  [0, LAST_CONTROL],
  [QUOTE, QUOTE],
  [BACKSLASH, BACKSLASH],
]);

/** Those of a range that stand for themselves. */
export const JSON_PLAIN = (low: number, high: number): CodePointRange[] =>
  intersectRanges([[low, high]], PLAIN);

/** Those of a range that cannot, each in the one spelling that `JSON.stringify` has for it. */
export const jsonEscapes = (low: number, high: number): string[] =>
  ESCAPED.filter((code) => low <= code && code <= high).map((code) => ESCAPES.get(code)!);

const ESCAPED: readonly number[] = [
  ...Array.from({ length: LAST_CONTROL + 1 }, (_, code) => code),
  QUOTE,
  BACKSLASH,
];
const ESCAPES = new Map(
  ESCAPED.map((code) => [code, JSON.stringify(String.fromCharCode(code)).slice(1, -1)]),
);

const hex = (...ranges: string[]): Expression =>
  set(...ranges.map((range) => [range.charCodeAt(0), range.charCodeAt(range.length - 1)] as const));
const DIGIT = hex('09', 'AF', 'af');

/** Any one character of a string, in any of its spellings. One of two halves is escaped as both. */
export const ANY_JSON_CHARACTER: Expression = lasts(
  choice(
    set(...intersectRanges(PLAIN, ANY_CODE_POINT)),
    sequence(
      text('\\'),
      set(
        ...[...'"/\\bfnrt']
          .map((c) => [c.charCodeAt(0), c.charCodeAt(0)] as const)
          .sort((a, b) => a[0] - b[0]),
      ),
    ),
    sequence(
      text('\\u'),
      choice(
        sequence(hex('09', 'AC', 'EF', 'ac', 'ef'), DIGIT, DIGIT, DIGIT),
        sequence(hex('D', 'd'), hex('07'), DIGIT, DIGIT),
        sequence(
          hex('D', 'd'),
          hex('89', 'AB', 'ab'),
          DIGIT,
          DIGIT,
          text('\\u'),
          hex('D', 'd'),
          hex('CF', 'cf'),
          DIGIT,
          DIGIT,
        ),
      ),
    ),
  ),
);
