/**
 * Arithmetic with integers that a number does not hold exactly. JavaScript does not mix bigints and numbers, so the
 * engine's own operators, filters and tests cannot be asked where one is a bigint.
 */
import { numberOf } from './python-values.js';
import { BooleanValue, FloatValue, integerValue, type Value } from './values.js';

/** More digits than these are no number that a template works with, and take long to compute. */
const MOST_BITS = 100_000;

const isBig = (value: Value): boolean => typeof value.value === 'bigint';

/**
 * `left operator right` where one of the two is a bigint and the other any number; undefined where that is not so, or
 * the operator is none of numbers.
 */
export function bigArithmetic(operator: string, left: Value, right: Value): Value | undefined {
  if (!isBig(left) && !isBig(right)) return undefined;
  const [a, b] = [numberOf(left), numberOf(right)];
  if (a === undefined || b === undefined) return undefined;
  switch (operator) {
    case '<':
      return new BooleanValue(a < b);
    case '<=':
      return new BooleanValue(a <= b);
    case '>':
      return new BooleanValue(a > b);
    case '>=':
      return new BooleanValue(a >= b);
    case '/':
      if (Number(b) === 0) throw new Error('division by zero');
      return new FloatValue(Number(a) / Number(b));
    default: {
      if (left.type === 'FloatValue' || right.type === 'FloatValue') {
        const result = floats(operator, Number(a), Number(b));
        return result === undefined ? undefined : new FloatValue(result);
      }
      if (operator === '**' && b < 0) return new FloatValue(Number(a) ** Number(b));
      const result = integers(operator, BigInt(a), BigInt(b));
      return result === undefined ? undefined : integerValue(result);
    }
  }
}

function integers(operator: string, a: bigint, b: bigint): bigint | undefined {
  switch (operator) {
    case '+':
      return a + b;
    case '-':
      return a - b;
    case '*':
      return a * b;
    case '//':
      return (a - floorRemainder(a, b)) / b;
    case '%':
      return floorRemainder(a, b);
    case '**':
      if (b * BigInt(a.toString(2).length) > MOST_BITS) throw new Error('the power is too large');
      return a ** b;
    default:
      return undefined;
  }
}

/** The remainder has the sign of the divisor. */
function floorRemainder(a: bigint, b: bigint): bigint {
  if (b === 0n) throw new Error('integer division or modulo by zero');
  const remainder = a % b;
  return remainder !== 0n && remainder < 0n !== b < 0n ? remainder + b : remainder;
}

function floats(operator: string, a: number, b: number): number | undefined {
  switch (operator) {
    case '+':
      return a + b;
    case '-':
      return a - b;
    case '*':
      return a * b;
    case '//':
      if (b === 0) throw new Error('float floor division by zero');
      return Math.floor(a / b);
    case '%': {
      if (b === 0) throw new Error('float modulo');
      const remainder = a % b;
      return remainder !== 0 && remainder < 0 !== b < 0 ? remainder + b : remainder;
    }
    case '**':
      return a ** b;
    default:
      return undefined;
  }
}

/** `+value`, `-value` of a bigint; undefined for anything else. */
export function bigSign(operator: string, value: Value): Value | undefined {
  if (typeof value.value !== 'bigint') return undefined;
  if (operator === '-') return integerValue(-value.value);
  return operator === '+' ? value : undefined;
}

/** Filters of numbers, of a bigint; undefined for other values and filters. */
export function bigFilter(name: string, value: Value): Value | undefined {
  if (typeof value.value !== 'bigint') return undefined;
  switch (name) {
    case 'abs':
      return integerValue(value.value < 0n ? -value.value : value.value);
    case 'int':
      return value;
    case 'float':
      return new FloatValue(Number(value.value));
    default:
      return undefined;
  }
}

/** The tests of numbers that count, of a bigint; undefined for other values and tests. */
export function bigTest(name: string, value: Value): boolean | undefined {
  if (typeof value.value !== 'bigint') return undefined;
  switch (name) {
    case 'odd':
      return value.value % 2n !== 0n;
    case 'even':
      return value.value % 2n === 0n;
    default:
      return undefined;
  }
}
