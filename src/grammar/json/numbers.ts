/** Numbers within bounds, digit by digit. They have no exponent. */

import type { Budget } from '../limits.js';
import { explore, type Words } from '../words.js';
import { MAX_FRACTION_DIGITS, MAX_INTEGER_DIGITS } from './terminals.js';

export interface Bound {
  readonly value: number;
  readonly exclusive: boolean;
}

export interface NumberBounds {
  readonly low: Bound | null;
  readonly high: Bound | null;
  /** Of what they are multiples: so many units of the last of so many digits behind the point. Null for any. */
  readonly step: { readonly units: number; readonly digits: number } | null;
}

/** A number without its sign: digits before the point, and behind it. */
interface Decimal {
  readonly whole: string;
  readonly fraction: string;
}

/** How a number that is being read stands to a bound so far. */
type Relation = -1 | 0 | 1;

interface Reading {
  readonly sign: 'none' | 'plus' | 'minus';
  /** Digits before the point so far. */
  readonly whole: number;
  /** The only digit before the point is 0. */
  readonly zero: boolean;
  /** Digits behind the point, −1 before it. */
  readonly fraction: number;
  readonly low: Relation;
  readonly high: Relation;
  readonly remainder: number;
  /** Some digit was not 0. */
  readonly something: boolean;
}

/** Errors: `grammar-too-large`. */
export function numberWords(bounds: NumberBounds, budget: Budget): Words {
  const { low, high, step } = bounds;
  const units = step?.units ?? 1;
  const plus = { low: magnitude(low), high: magnitude(high) };
  const minus = { low: magnitude(negated(high)), high: magnitude(negated(low)) };
  const limitsOf = (sign: Reading['sign']): typeof plus => (sign === 'minus' ? minus : plus);
  const longest = (part: (decimal: Decimal) => string): number =>
    Math.max(
      0,
      ...[plus.low, plus.high, minus.low, minus.high].map((limit) =>
        limit === null ? 0 : part(limit).length,
      ),
    );
  const wholeDigits = Math.max(
    MAX_INTEGER_DIGITS,
    longest(({ whole }) => whole),
  );
  const fractionDigits =
    step?.digits ??
    Math.max(
      MAX_FRACTION_DIGITS,
      longest(({ fraction }) => fraction),
    );

  const digit = (at: Reading, d: number): Reading | null => {
    const sign = at.sign === 'none' ? 'plus' : at.sign;
    const { low, high } = limitsOf(sign);
    const isWhole = at.fraction < 0;
    if (isWhole ? at.zero || at.whole === wholeDigits : at.fraction === fractionDigits) return null;
    const compared = (limit: Decimal | null, relation: Relation): Relation => {
      if (limit === null || relation !== 0) return relation;
      if (!isWhole) return relationOf(d, digitOf(limit.fraction, at.fraction));
      return at.whole >= limit.whole.length ? relation : relationOf(d, digitOf(limit.whole, at.whole));
    };
    return {
      sign,
      whole: isWhole ? at.whole + 1 : at.whole,
      zero: isWhole ? at.whole === 0 && d === 0 : at.zero,
      fraction: isWhole ? at.fraction : at.fraction + 1,
      low: compared(low, at.low),
      high: compared(high, at.high),
      remainder: (at.remainder * 10 + d) % units,
      something: at.something || d > 0,
    };
  };
  /** The last of the digits from `d` on that lead where it does. */
  const lastLike = (at: Reading, d: number): number => {
    if (d === 0 || units > 1) return d;
    const { low, high } = limitsOf(at.sign === 'none' ? 'plus' : at.sign);
    const before = (limit: Decimal | null, relation: Relation): number => {
      if (limit === null || relation !== 0) return 9;
      const own = at.fraction < 0 ? digitOf(limit.whole, at.whole) : digitOf(limit.fraction, at.fraction);
      return d < own ? own - 1 : d === own ? d : 9;
    };
    return Math.min(before(low, at.low), before(high, at.high));
  };
  /** The digits before the point are over: more of them is a larger number. */
  const pointed = (at: Reading): Reading => {
    const { low, high } = limitsOf(at.sign);
    const settled = (limit: Decimal | null, relation: Relation): Relation =>
      limit === null || at.whole === limit.whole.length ? relation : relationOf(at.whole, limit.whole.length);
    const { sign, whole, zero, remainder, something } = at;
    return {
      sign,
      whole,
      zero,
      fraction: 0,
      low: settled(low, at.low),
      high: settled(high, at.high),
      remainder,
      something,
    };
  };
  /** With the digits that it might still have as zeros. */
  const isMultiple = ({ remainder, fraction }: Reading): boolean => {
    let rest = remainder;
    if (step !== null)
      for (let i = Math.max(0, fraction); i < step.digits && rest > 0; i++) rest = (rest * 10) % units;
    return rest === 0;
  };
  const fits = (reading: Reading): boolean => {
    const { sign, whole, fraction, something } = reading;
    if (whole === 0 || fraction === 0) return false;
    const at = fraction < 0 ? pointed(reading) : reading;
    if (sign === 'minus' && !something) return false;
    if (!isMultiple(at)) return false;
    const limits = limitsOf(sign);
    const more = (limit: Decimal): boolean => limit.fraction.length > Math.max(0, fraction);
    const exclusiveLow = (sign === 'minus' ? high : low)?.exclusive ?? false;
    const exclusiveHigh = (sign === 'minus' ? low : high)?.exclusive ?? false;
    const lowBound = sign === 'minus' ? negated(high) : low;
    const highBound = sign === 'minus' ? negated(low) : high;
    if (lowBound !== null && lowBound.value >= 0) {
      const relation: Relation = at.low === 0 && more(limits.low!) ? -1 : at.low;
      if (relation < 0 || (relation === 0 && exclusiveLow)) return false;
    }
    if (highBound === null) return true;
    if (highBound.value < 0) return false;
    const relation: Relation = at.high === 0 && more(limits.high!) ? -1 : at.high;
    return relation < 0 || (relation === 0 && !exclusiveHigh);
  };
  const signs: readonly Reading['sign'][] = ['none', 'plus', 'minus'];
  const keyOf = (at: Reading): number => {
    let key = signs.indexOf(at.sign) * (wholeDigits + 1) + at.whole;
    key = key * (fractionDigits + 2) + at.fraction + 1;
    key = (key * 3 + at.low + 1) * 3 + at.high + 1;
    return (key * units + at.remainder) * 4 + (at.zero ? 2 : 0) + (at.something ? 1 : 0);
  };
  const start: Reading = {
    sign: 'none',
    whole: 0,
    zero: false,
    fraction: -1,
    low: 0,
    high: 0,
    remainder: 0,
    something: false,
  };
  return explore<Reading>(
    start,
    keyOf,
    fits,
    (at) => {
      const edges: { low: number; high: number; to: Reading }[] = [];
      const add = (low: number, high: number, to: Reading | null): void => {
        if (to !== null) edges.push({ low, high, to });
      };
      if (at.sign === 'none') add(MINUS, MINUS, { ...at, sign: 'minus' });
      if (at.whole > 0 && at.fraction < 0 && fractionDigits > 0) add(POINT, POINT, pointed(at));
      for (let d = 0; d <= 9; ) {
        const last = lastLike(at, d);
        add(ZERO + d, ZERO + last, digit(at, d));
        d = last + 1;
      }
      return edges;
    },
    budget,
  );
}

const [MINUS, POINT, ZERO] = [0x2d, 0x2e, 0x30];

/** 0 behind the last. */
const digitOf = (digits: string, i: number): number => (i < digits.length ? digits.charCodeAt(i) - ZERO : 0);

const relationOf = (a: number, b: number): Relation => (a < b ? -1 : a > b ? 1 : 0);

const negated = (bound: Bound | null): Bound | null =>
  bound === null ? null : { ...bound, value: -bound.value };

/** Null for a bound below 0, which numbers from 0 on do not meet. */
function magnitude(bound: Bound | null): Decimal | null {
  if (bound === null || bound.value < 0) return null;
  const [mantissa, exponent = '0'] = String(bound.value).split('e');
  const [whole = '', fraction = ''] = mantissa!.split('.');
  const shift = Number(exponent);
  const digits = whole + fraction;
  const point = whole.length + shift;
  const padded = digits.padEnd(point, '0').padStart(digits.length + Math.max(0, -point), '0');
  const at = Math.max(0, point);
  return {
    whole: padded.slice(0, at).replace(/^0+/, '') || '0',
    fraction: padded.slice(at).replace(/0+$/, ''),
  };
}
