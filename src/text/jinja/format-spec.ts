/** `format(value, spec)`: Python's mini-language for one value. */
import { PythonError, typeError, valueError } from './errors.js';
import { fixed, floatRepr, scientific, toFloat } from './numbers.js';
import { repr, str } from './repr.js';
import { charactersOf, lengthOf } from './text.js';
import { integerOf, textOf, typeName, type Value } from './values.js';

interface Spec {
  readonly fill: string;
  readonly align: '<' | '>' | '=' | '^' | undefined;
  readonly sign: '+' | '-' | ' ' | undefined;
  /** A negative zero is written without its sign. */
  readonly coerceZero: boolean;
  readonly alternate: boolean;
  readonly width: number;
  readonly grouping: ',' | '_' | undefined;
  readonly precision: number | undefined;
  readonly type: string;
}

const SPEC = /^(?:(.)?([<>=^]))?([-+ ])?(z)?(#)?(0)?(\d+)?([,_])?(?:\.(\d+))?(.)?$/su;
/** More than this is a mistake, or worse. */
const LARGEST = 1 << 20;

/**
 * @param spec what stands after the colon
 * @throws PythonError ValueError for a specification that does not fit the value
 */
export function formatValue(value: Value, spec: string): string {
  const text = textOf(value);
  const integer = integerOf(value);
  if (spec === '') return typeof value === 'boolean' ? str(value) : (text ?? str(value));
  if (text === undefined && integer === undefined && typeof value !== 'number') {
    throw typeError(`unsupported format string passed to ${typeName(value)}.__format__`);
  }
  const parsed = readSpec(spec);
  if (text !== undefined) return formatText(text, parsed);
  // A bool is written as an int as soon as anything is asked of it.
  return integer === undefined ? formatFloat(value as number, parsed, '') : formatInteger(integer, parsed);
}

function readSpec(spec: string): Spec {
  const match = SPEC.exec(spec);
  if (match === null) throw valueError('Invalid format specifier');
  const [, fill, align, sign, coerce, alternate, zero, width, grouping, precision, type = ''] = match;
  const size = (digits: string | undefined): number => {
    const number = Number(digits ?? 0);
    if (number > LARGEST) throw valueError('Too many decimal digits in format string');
    return number;
  };
  return {
    fill: fill ?? (zero !== undefined ? '0' : ' '),
    align: (align ?? (zero !== undefined ? '=' : undefined)) as Spec['align'],
    sign: sign as Spec['sign'],
    coerceZero: coerce !== undefined,
    alternate: alternate !== undefined,
    width: size(width),
    grouping: grouping as Spec['grouping'],
    precision: precision === undefined ? undefined : size(precision),
    type,
  };
}

function formatText(text: string, spec: Spec): string {
  if (spec.type !== '' && spec.type !== 's') throw unknownType(spec.type, 'str');
  if (spec.sign !== undefined) throw valueError('Sign not allowed in string format specifier');
  if (spec.coerceZero) throw valueError('Negative zero coercion (z) not allowed in string format specifier');
  if (spec.alternate) throw valueError('Alternate form (#) not allowed in string format specifier');
  if (spec.grouping !== undefined) throw valueError(`Cannot specify '${spec.grouping}' with 's'.`);
  if (spec.align === '=') {
    // A zero before the width means so for numbers alone; spelt out it is a mistake.
    if (spec.fill !== '0') throw valueError("'=' alignment not allowed in string format specifier");
    return pad(cut(text, spec.precision), { ...spec, align: '<' });
  }
  return pad(cut(text, spec.precision), { ...spec, align: spec.align ?? '<' });
}

function cut(text: string, length: number | undefined): string {
  if (length === undefined) return text;
  const points = charactersOf(text);
  return typeof points === 'string'
    ? points.slice(0, length)
    : (points as string[]).slice(0, length).join('');
}

function unknownType(type: string, what: string): PythonError {
  return valueError(`Unknown format code '${type}' for object of type '${what}'`);
}

function formatInteger(value: bigint, spec: Spec): string {
  const { type } = spec;
  if ('eEfFgG%'.includes(type) && type !== '') return formatFloat(toFloat(value), spec, '');
  if (spec.precision !== undefined) throw valueError('Precision not allowed in integer format specifier');
  if (spec.coerceZero)
    throw valueError('Negative zero coercion (z) not allowed in format specifier with integer format code');
  const radix = { '': 10, d: 10, n: 10, b: 2, o: 8, x: 16, X: 16, c: 0 }[type];
  if (radix === undefined) throw unknownType(type, 'int');
  if (radix === 0) return formatCharacter(value, spec);
  if (spec.grouping === ',' && radix !== 10) throw valueError(`Cannot specify ',' with '${type}'.`);
  if (spec.grouping !== undefined && type === 'n')
    throw valueError(`Cannot specify '${spec.grouping}' with 'n'.`);
  let digits = (value < 0n ? -value : value).toString(radix);
  let prefix = spec.alternate && radix !== 10 ? `0${type.toLowerCase()}` : '';
  if (type === 'X') {
    digits = digits.toUpperCase();
    prefix = prefix.toUpperCase();
  }
  return signedNumber(value < 0n, prefix, digits, '', spec, radix === 10 ? 3 : 4);
}

function formatCharacter(value: bigint, spec: Spec): string {
  if (spec.sign !== undefined) throw valueError("Sign not allowed with integer format specifier 'c'");
  if (spec.alternate) throw valueError("Alternate form (#) not allowed with integer format specifier 'c'");
  if (spec.grouping !== undefined) throw valueError(`Cannot specify '${spec.grouping}' with 'c'.`);
  if (value < 0n || value > 0x10ffffn)
    throw new PythonError('OverflowError', '%c arg not in range(0x110000)');
  return pad(String.fromCodePoint(Number(value)), { ...spec, align: spec.align ?? '<' });
}

/** @param fallback the type where the specification names none: `''` of `format`, `'r'` for none at all */
function formatFloat(value: number, spec: Spec, fallback: string): string {
  const type = spec.type === '' ? fallback : spec.type;
  if (spec.type !== '' && !'eEfFgGn%'.includes(spec.type)) throw unknownType(spec.type, 'float');
  if (spec.grouping !== undefined && type === 'n')
    throw valueError(`Cannot specify '${spec.grouping}' with 'n'.`);
  let negative = value < 0 || Object.is(value, -0);
  const body = floatBody(value, type, spec.precision, spec.alternate);
  if (spec.coerceZero && negative && !/[1-9]/.test(body.split(/[eE%]/)[0]!) && Number.isFinite(value))
    negative = false;
  if (Number.isNaN(value)) negative = false;
  const match = /^(\d*)(.*)$/s.exec(body)!;
  return signedNumber(negative, '', match[1]!, match[2]!, spec, 3);
}

/** The absolute value of a float by a type of the mini-language or of `%`. */
export function floatBody(
  value: number,
  type: string,
  precision: number | undefined,
  alternate: boolean,
): string {
  const upper = type !== '' && 'EFG'.includes(type);
  const text = lowerBody(value, type.toLowerCase(), precision, alternate);
  return upper ? text.toUpperCase() : text;
}

function lowerBody(value: number, type: string, precision: number | undefined, alternate: boolean): string {
  const size = Math.abs(value);
  if (!Number.isFinite(value)) return (Number.isNaN(value) ? 'nan' : 'inf') + (type === '%' ? '%' : '');
  switch (type) {
    case 'f':
      return withPoint(fixed(size, precision ?? 6), alternate);
    case '%':
      return `${percent(size, precision ?? 6, alternate)}%`;
    case 'e':
      return exponential(...scientific(size, precision ?? 6), alternate);
    case 'g':
    case 'n':
      return general(size, precision ?? 6, alternate, -4, false);
    default:
      // As repr without a precision, and as `g` with one, but with a decimal at least.
      return precision === undefined ? floatRepr(size) : general(size, precision, alternate, -4, true);
  }
}

function percent(size: number, places: number, alternate: boolean): string {
  const hundredfold = size * 100;
  return Number.isFinite(hundredfold) ? withPoint(fixed(hundredfold, places), alternate) : 'inf';
}

function withPoint(digits: string, alternate: boolean): string {
  return alternate && !digits.includes('.') ? `${digits}.` : digits;
}

function exponential(digits: string, exponent: number, alternate: boolean): string {
  const mantissa = digits.length > 1 ? `${digits[0]}.${digits.slice(1)}` : withPoint(digits, alternate);
  return `${mantissa}e${exponent < 0 ? '-' : '+'}${String(Math.abs(exponent)).padStart(2, '0')}`;
}

function general(
  size: number,
  precision: number,
  alternate: boolean,
  least: number,
  decimal: boolean,
): string {
  const places = Math.max(1, precision);
  const [digits, exponent] = scientific(size, places - 1);
  const significant = alternate ? digits : digits.replace(/0+$/, '') || '0';
  // Without a type, a number that just fits is written with an exponent, for its decimal would be one digit too many.
  if (exponent < least || exponent >= places - (decimal ? 1 : 0)) {
    if (!(decimal && exponent < places - 1 && exponent >= least))
      return exponential(significant, exponent, alternate);
  }
  let text: string;
  if (exponent < 0) text = `0.${'0'.repeat(-exponent - 1)}${significant}`;
  else {
    const whole = significant.slice(0, exponent + 1).padEnd(exponent + 1, '0');
    const rest = significant.slice(exponent + 1);
    text = rest === '' ? whole : `${whole}.${rest}`;
  }
  if (decimal && !text.includes('.')) return `${text}.0`;
  return withPoint(text, alternate);
}

/** Sign, prefix, digits in groups, the rest; filled up to the width. */
function signedNumber(
  negative: boolean,
  prefix: string,
  digits: string,
  rest: string,
  spec: Spec,
  groupSize: number,
): string {
  const sign = negative ? '-' : spec.sign === '+' || spec.sign === ' ' ? spec.sign : '';
  const front = sign + prefix;
  const align = spec.align ?? '>';
  let body = spec.grouping === undefined ? digits : grouped(digits, groupSize, spec.grouping);
  if (align === '=' && spec.fill === '0' && spec.grouping !== undefined && digits !== '') {
    // Zeros that fill up are grouped too, and never begin with a separator.
    let filled = digits;
    while (front.length + body.length + rest.length < spec.width) {
      filled = `0${filled}`;
      body = grouped(filled, groupSize, spec.grouping);
    }
    return front + body + rest;
  }
  if (align === '=') {
    const missing = Math.max(0, spec.width - front.length - body.length - rest.length);
    return front + spec.fill.repeat(missing) + body + rest;
  }
  return pad(front + body + rest, { ...spec, align });
}

function grouped(digits: string, size: number, separator: string): string {
  const parts: string[] = [];
  for (let end = digits.length; end > 0; end -= size)
    parts.unshift(digits.slice(Math.max(0, end - size), end));
  return parts.join(separator);
}

function pad(text: string, spec: Spec): string {
  const missing = spec.width - lengthOf(text);
  if (missing <= 0) return text;
  const left = spec.align === '<' ? 0 : spec.align === '^' ? Math.floor(missing / 2) : missing;
  return spec.fill.repeat(left) + text + spec.fill.repeat(missing - left);
}

/** `!r`, `!s` and `!a` of a field. */
export function convert(value: Value, conversion: string, ascii: (value: Value) => string): string {
  if (conversion === 'r') return repr(value);
  if (conversion === 's') return str(value);
  if (conversion === 'a') return ascii(value);
  throw valueError(`Unknown conversion specifier ${conversion}`);
}
