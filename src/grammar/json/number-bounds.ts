/** What schemas say of a number: bounds, steps, and the ranges of OpenAPI's formats. */

import { type Expression, isNothing, NOTHING, rule } from '../expression.js';
import type { Budget } from '../limits.js';
import { regexWords } from '../regex.js';
import { hasNoWords, intersectWords, otherWords } from '../words.js';
import { type Bound, type NumberBounds, numberWords } from './numbers.js';
import { type Plain, wholeOnly } from './plain.js';
import { NOT_WHOLE, unsupported } from './schema-nodes.js';
import { ANY, FEW_STATES } from './terminals.js';

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

/** What it asks of the reader of schemas. */
interface Defines {
  readonly budget: Budget;
  /** Makes a rule, of a name that no other has. */
  define(kind: string, expression: Expression): Expression;
}

/**
 * Numbers of a schema: those of which the same is said are one expression. Those that take many digits are rules of their own, as long
 * strings are.
 */
export class NumberExpressions {
  readonly #budget: Budget;
  readonly #define: Defines['define'];
  readonly #known = new Map<string, Expression>();

  constructor({ budget, define }: Defines) {
    this.#budget = budget;
    this.#define = define;
  }

  /** Whether there is no number of which all these hold. Errors: as of `of`. */
  hasNone(plain: Plain): boolean {
    const { low, high } = rangeOf(plain);
    if (low === null || high === null) return false;
    if (low.value >= high.value) return low.value > high.value || low.exclusive || high.exclusive;
    const stepped = plain.some(
      ({ schema }) => schema.multipleOf !== undefined || schema[NOT_WHOLE] !== undefined,
    );
    return (stepped || wholeOnly(plain)) && isNothing(this.of(plain));
  }

  /** Errors: `unsupported-schema`, `grammar-too-large`. */
  of(plain: Plain): Expression {
    const { low, high } = rangeOf(plain);
    const step = commonStepOf(plain);
    const fractions = plain.some(({ schema }) => schema[NOT_WHOLE] !== undefined);
    if (low === null && high === null && !fractions) {
      if (step === null) return rule(ANY.NUMBER);
      if (step.units === 1 && step.digits === 0) return rule(ANY.INTEGER);
    }
    const key = JSON.stringify([low, high, step, fractions]);
    let known = this.#known.get(key);
    if (known === undefined) {
      known = this.#make({ low, high, step }, fractions);
      this.#known.set(key, known);
    }
    return known;
  }

  #make(bounds: NumberBounds, fractions: boolean): Expression {
    const budget = this.#budget;
    let words = numberWords(bounds, budget);
    if (fractions)
      words = intersectWords(words, otherWords(regexWords(WHOLE_NUMBER, false, budget), budget), budget);
    if (hasNoWords(words)) return NOTHING;
    const number: Expression = { kind: 'words', words, spelling: 'text' };
    return words.edges.length > FEW_STATES ? this.#define('number', number) : number;
  }
}

/** Null where any number will do. Errors: `unsupported-schema`. */
function commonStepOf(plain: Plain): Step | null {
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
  return step;
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
