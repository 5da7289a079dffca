/** Python's numbers: how they are written, read, rounded and divided. */
import { PythonError, typeError, valueError } from './errors.js';
import { quote } from './quote.js';
import { strip } from './text.js';
import { integerOf, isList, textOf, typeName, Undefined, type Value } from './values.js';

/** `repr` of a float: at least one decimal, an exponent of two digits, switching notation at 1e-4 and 1e16. */
export function floatRepr(value: number): string {
  if (Number.isNaN(value)) return 'nan';
  if (!Number.isFinite(value)) return value > 0 ? 'inf' : '-inf';
  if (Object.is(value, -0)) return '-0.0';
  const magnitude = Math.abs(value);
  if (magnitude !== 0 && (magnitude < 1e-4 || magnitude >= 1e16)) {
    const [digits, exponent] = value.toExponential().split('e') as [string, string];
    const sign = exponent.startsWith('-') ? '-' : '+';
    return `${digits}e${sign}${exponent.slice(1).padStart(2, '0')}`;
  }
  const text = String(value);
  return /[.e]/.test(text) ? text : `${text}.0`;
}

/** A finite float is exactly `numerator / denominator`. */
export function ratioOf(value: number): readonly [numerator: bigint, denominator: bigint] {
  const view = new DataView(new ArrayBuffer(8));
  view.setFloat64(0, value);
  const bits = view.getBigUint64(0);
  const biased = Number((bits >> 52n) & 0x7ffn);
  const fraction = bits & 0xfffffffffffffn;
  let mantissa = biased === 0 ? fraction : fraction | 0x10000000000000n;
  let exponent = Math.max(biased, 1) - 1075;
  while (mantissa !== 0n && (mantissa & 1n) === 0n && exponent < 0) {
    mantissa >>= 1n;
    exponent++;
  }
  if (mantissa === 0n) exponent = 0;
  const signed = value < 0 ? -mantissa : mantissa;
  return exponent >= 0 ? [signed << BigInt(exponent), 1n] : [signed, 1n << BigInt(-exponent)];
}

/** The quotient of two integers as the nearest integer, a half to the even one. */
function divideToEven(numerator: bigint, denominator: bigint): bigint {
  const quotient = floorDivide(numerator, denominator);
  const twice = 2n * (numerator - quotient * denominator);
  if (twice > denominator || (twice === denominator && (quotient & 1n) === 1n)) return quotient + 1n;
  return quotient;
}

/** `value * 10 ** places`, rounded to an integer, a half to the even one. */
export function scaled(value: number, places: number): bigint {
  const [numerator, denominator] = ratioOf(value);
  return places >= 0
    ? divideToEven(numerator * 10n ** BigInt(places), denominator)
    : divideToEven(numerator, denominator * 10n ** BigInt(-places));
}

/** The absolute value with `places` decimals, as `'%.*f'` writes it. */
export function fixed(value: number, places: number): string {
  const digits = String(scaled(Math.abs(value), places)).padStart(places + 1, '0');
  return places === 0 ? digits : `${digits.slice(0, -places)}.${digits.slice(-places)}`;
}

/** The absolute value as `d.ddd` with `places` decimals, and its exponent of ten. */
export function scientific(value: number, places: number): readonly [digits: string, exponent: number] {
  const magnitude = Math.abs(value);
  if (magnitude === 0) return ['0'.repeat(places + 1), 0];
  let exponent = Number(magnitude.toExponential().split('e')[1]);
  let digits = String(scaled(magnitude, places - exponent));
  if (digits.length > places + 1) {
    exponent++;
    digits = String(scaled(magnitude, places - exponent));
  }
  return [digits, exponent];
}

/** `round(value, places)` of a float: the nearest float to the decimal that is rounded exactly. */
export function roundFloat(value: number, places: number): number {
  if (!Number.isFinite(value) || value === 0 || places > 330) return value;
  if (places < -330) return value < 0 ? -0 : 0;
  const rounded = Number(`${scaled(Math.abs(value), places)}e${-places}`);
  if (!Number.isFinite(rounded))
    throw new PythonError('OverflowError', 'rounded value too large to represent');
  return value < 0 ? -rounded : rounded;
}

/** `round(value, places)` of an int: places before the point count, a half goes to the even one. */
export function roundInteger(value: bigint, places: bigint): bigint {
  if (places >= 0n) return value;
  if (places < -5000n) return 0n;
  const unit = 10n ** -places;
  return divideToEven(value, unit) * unit;
}

/** @param b not 0 */
export function floorDivide(a: bigint, b: bigint): bigint {
  const quotient = a / b;
  return a % b !== 0n && a < 0n !== b < 0n ? quotient - 1n : quotient;
}

/** The remainder has the sign of the divisor. @param b not 0 */
export function floorModulo(a: bigint, b: bigint): bigint {
  const remainder = a % b;
  return remainder !== 0n && remainder < 0n !== b < 0n ? remainder + b : remainder;
}

/** `divmod` of floats. @param b not 0 */
export function floatDivmod(a: number, b: number): readonly [quotient: number, remainder: number] {
  let remainder = a % b;
  let quotient = (a - remainder) / b;
  if (remainder !== 0) {
    if (b < 0 !== remainder < 0) {
      remainder += b;
      quotient -= 1;
    }
  } else {
    remainder = b < 0 ? -0 : 0;
  }
  if (quotient === 0) return [a / b < 0 || Object.is(a / b, -0) ? -0 : 0, remainder];
  const floor = Math.floor(quotient);
  return [quotient - floor > 0.5 ? floor + 1 : floor, remainder];
}

/** `int / int`: the nearest float, also where the integers are none. */
export function trueDivide(a: bigint, b: bigint): number {
  if (b === 0n) throw new PythonError('ZeroDivisionError', 'division by zero');
  const [x, y] = [Number(a), Number(b)];
  if (Number.isSafeInteger(x) && Number.isSafeInteger(y)) return x / y;
  // More bits than a float has are left in the quotient, and the last of them says whether anything was cut off.
  const negative = a < 0n !== b < 0n;
  const [top, bottom] = [a < 0n ? -a : a, b < 0n ? -b : b];
  const shift = BigInt(Math.max(0, 66 - (top.toString(2).length - bottom.toString(2).length)));
  let quotient = (top << shift) / bottom;
  if (quotient * bottom !== top << shift) quotient |= 1n;
  const result = toFloat(quotient) / 2 ** Number(shift);
  if (!Number.isFinite(result))
    throw new PythonError('OverflowError', 'integer division result too large for a float');
  return negative ? -result : result;
}

/** `float(int)` */
export function toFloat(value: bigint): number {
  const float = Number(value);
  if (!Number.isFinite(float)) throw new PythonError('OverflowError', 'int too large to convert to float');
  return float;
}

/** `int(float)` */
export function truncate(value: number): bigint {
  if (Number.isNaN(value)) throw valueError('cannot convert float NaN to integer');
  if (!Number.isFinite(value))
    throw new PythonError('OverflowError', 'cannot convert float infinity to integer');
  return BigInt(Math.trunc(value));
}

/** Digits of all scripts as those of ASCII: they lie in runs of ten, from a zero on. */
function asciiDigits(text: string): string {
  return text.replace(/\p{Nd}/gu, (digit) => {
    const code = digit.codePointAt(0)!;
    let before = 0;
    while (DECIMAL.test(String.fromCodePoint(code - before - 1))) before++;
    return String(before % 10);
  });
}

const DECIMAL = /^\p{Nd}$/u;

/**
 * `int(text, base)`
 *
 * @throws PythonError ValueError
 */
export function parseInteger(text: string, base = 10): bigint {
  const fail = (): PythonError => valueError(`invalid literal for int() with base ${base}: ${quote(text)}`);
  if (base !== 0 && (base < 2 || base > 36)) throw valueError('int() base must be >= 2 and <= 36, or 0');
  const match = /^([+-]?)(0[box])?(_?)([0-9a-z]+(?:_[0-9a-z]+)*)$/.exec(
    asciiDigits(strip(text)).toLowerCase(),
  );
  if (match === null) throw fail();
  let [, sign, prefix = '', underscore, digits] = match as unknown as [
    string,
    string,
    string | undefined,
    string,
    string,
  ];
  const prefixed = { '0b': 2, '0o': 8, '0x': 16 }[prefix];
  let radix = base;
  if (prefixed !== undefined && (base === 0 || base === prefixed)) {
    radix = prefixed;
  } else {
    if (underscore !== '') throw fail();
    digits = prefix + digits;
    if (base === 0) {
      if (/^0/.test(digits) && !/^0[0_]*$/.test(digits)) throw fail();
      radix = 10;
    }
  }
  let value = 0n;
  for (const digit of digits.replaceAll('_', '')) {
    const amount = Number.parseInt(digit, 36);
    if (amount >= radix) throw fail();
    value = value * BigInt(radix) + BigInt(amount);
  }
  return sign === '-' ? -value : value;
}

/**
 * `float(text)`
 *
 * @throws PythonError ValueError
 */
export function parseFloatText(text: string): number {
  const plain = asciiDigits(strip(text)).toLowerCase();
  const word = /^([+-]?)(inf|infinity|nan)$/.exec(plain);
  if (word !== null) {
    const value = word[2] === 'nan' ? Number.NaN : Number.POSITIVE_INFINITY;
    return word[1] === '-' ? -value : value;
  }
  const digits = '\\d+(?:_\\d+)*';
  const number = new RegExp(`^[+-]?(?:${digits}\\.?(?:${digits})?|\\.${digits})(?:e[+-]?${digits})?$`);
  if (!number.test(plain)) throw valueError(`could not convert string to float: ${quote(text)}`);
  return Number(plain.replaceAll('_', ''));
}

/** `int(value)`; a text has a base. */
export function toInteger(value: Value, base?: number): bigint {
  if (value instanceof Undefined) value.fail();
  const text = textOf(value);
  if (text !== undefined) return parseInteger(text, base);
  if (base !== undefined) throw typeError("int() can't convert non-string with explicit base");
  const integer = integerOf(value);
  if (integer !== undefined) return integer;
  if (typeof value === 'number') return truncate(value);
  throw typeError(
    `int() argument must be a string, a bytes-like object or a real number, not '${typeName(value)}'`,
  );
}

/** `float(value)` */
export function toReal(value: Value): number {
  if (value instanceof Undefined) value.fail();
  const text = textOf(value);
  if (text !== undefined) return parseFloatText(text);
  const integer = integerOf(value);
  if (integer !== undefined) return toFloat(integer);
  if (typeof value === 'number') return value;
  throw typeError(`float() argument must be a string or a real number, not '${typeName(value)}'`);
}

/** A number as a list index, a width or a count. @throws PythonError TypeError for what is no int */
export function toIndex(value: Value): number {
  if (value instanceof Undefined) value.fail();
  const integer = integerOf(value);
  if (integer === undefined) {
    const what = isList(value) ? 'list' : typeName(value);
    throw typeError(`'${what}' object cannot be interpreted as an integer`);
  }
  const number = Number(integer);
  if (!Number.isSafeInteger(number))
    throw new PythonError('OverflowError', 'Python int too large to convert to C ssize_t');
  return number;
}
