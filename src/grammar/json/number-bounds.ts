/** What schemas say of a number: bounds, steps, and the ranges of OpenAPI's formats. */

import { type Expression, isNothing, NOTHING, rule } from '../expression.js';
import type { Budget } from '../limits.js';
import { regexWords } from '../regex.js';
import { hasNoWords, intersectWords, otherWords } from '../words.js';
import { type Bound, numberWords } from './numbers.js';
import { type Plain, wholeOnly } from './plain.js';
import { NOT_WHOLE, unsupported } from './schema-nodes.js';
import { ANY } from './terminals.js';

/** Steps, in units of the last digit that they have: the automaton keeps the remainder. */
const MAX_STEP = 1000;
/** And so many digits behind the point. */
const MAX_STEP_DIGITS = 12;

/** A step of `units` in the last of so many digits behind the point. */
interface Step {
  readonly units: number;
  readonly digits: number;
}

/** A number without a fraction, however it is written. */
const WHOLE_NUMBER = '-?\\d+(\\.0+)?';

const WHOLE: Step = { units: 1, digits: 0 };

interface Range {
  readonly low: Bound | null;
  readonly high: Bound | null;
}

function rangeOf(plain: Plain): Range {
  let low: Bound | null = null;
  let high: Bound | null = null;
  for (const { schema } of plain) {
    const { minimum, maximum, exclusiveMinimum, exclusiveMaximum } = schema as Record<
      string,
      number | undefined
    >;
    low = higher(higher(low, bound(minimum, false)), bound(exclusiveMinimum, true));
    high = lower(lower(high, bound(maximum, false)), bound(exclusiveMaximum, true));
  }
  return { low, high };
}

/** Whether there is no number of which all these hold. Errors: as of `numberExpression`. */
export function noNumbers(plain: Plain, budget: Budget): boolean {
  const { low, high } = rangeOf(plain);
  if (low === null || high === null) return false;
  if (low.value >= high.value) return low.value > high.value || low.exclusive || high.exclusive;
  const stepped = plain.some(
    ({ schema }) => schema.multipleOf !== undefined || schema[NOT_WHOLE] !== undefined,
  );
  return (stepped || wholeOnly(plain)) && isNothing(numberExpression(plain, budget));
}

/** Errors: `unsupported-schema`, `grammar-too-large`. */
export function numberExpression(plain: Plain, budget: Budget): Expression {
  const { low, high } = rangeOf(plain);
  let step: Step | null = wholeOnly(plain) ? WHOLE : null;
  for (const { schema, pointer } of plain) {
    const { multipleOf } = schema as Record<string, number | undefined>;
    if (multipleOf === undefined) continue;
    const own = stepOf(multipleOf);
    const both = own === null || step === null ? own : commonStep(step, own);
    if (both === null)
      throw unsupported(
        pointer,
        'multipleOf',
        `Steps have up to ${MAX_STEP} units of their last digit: 1000, 0.25, 0.001.`,
      );
    step = both;
  }
  const fractions = plain.some(({ schema }) => schema[NOT_WHOLE] !== undefined);
  if (low === null && high === null && !fractions) {
    if (step === null) return rule(ANY.NUMBER);
    if (step.units === 1 && step.digits === 0) return rule(ANY.INTEGER);
  }
  let words = numberWords({ low, high, step }, budget);
  if (fractions)
    words = intersectWords(words, otherWords(regexWords(WHOLE_NUMBER, false, budget), budget), budget);
  return hasNoWords(words) ? NOTHING : { kind: 'words', words, spelling: 'text' };
}

const bound = (value: number | undefined, exclusive: boolean): Bound | null =>
  value === undefined ? null : { value, exclusive };

function higher(a: Bound | null, b: Bound | null): Bound | null {
  if (a === null || b === null) return a ?? b;
  if (a.value !== b.value) return a.value > b.value ? a : b;
  return a.exclusive ? a : b;
}

function lower(a: Bound | null, b: Bound | null): Bound | null {
  if (a === null || b === null) return a ?? b;
  if (a.value !== b.value) return a.value < b.value ? a : b;
  return a.exclusive ? a : b;
}

/** Null for one that is too fine or too large. */
function stepOf(value: number): Step | null {
  for (let digits = 0, scale = 1; digits <= MAX_STEP_DIGITS; digits++, scale *= 10) {
    const units = Math.round(value * scale);
    if (units < 1 || Number(`${units}e-${digits}`) !== value) continue;
    return units <= MAX_STEP ? { units, digits } : null;
  }
  return null;
}

/** What is a multiple of both. */
function commonStep(a: Step, b: Step): Step | null {
  const digits = Math.max(a.digits, b.digits);
  const inLast = ({ units, digits: own }: Step): number => units * 10 ** (digits - own);
  const [x, y] = [inLast(a), inLast(b)];
  let common = (x / greatestCommonDivisor(x, y)) * y;
  let left = digits;
  while (left > 0 && common % 10 === 0) {
    common /= 10;
    left--;
  }
  return common <= MAX_STEP ? { units: common, digits: left } : null;
}

function greatestCommonDivisor(a: number, b: number): number {
  let [x, y] = [a, b];
  while (y > 0) [x, y] = [y, x % y];
  return x;
}
