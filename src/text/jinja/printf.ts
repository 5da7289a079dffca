/** `text % values`: formatting in the manner of C. */
import { PythonError, typeError, valueError } from './errors.js';
import { floatBody } from './format-spec.js';
import { escapeHtml } from './markup.js';
import { toIndex, toReal, truncate } from './numbers.js';
import { escapeCode } from './quote.js';
import { repr, str } from './repr.js';
import { charactersOf, lengthOf } from './text.js';
import {
  Dict,
  integerOf,
  isList,
  Markup,
  Range,
  Tuple,
  textOf,
  typeName,
  Undefined,
  type Value,
} from './values.js';

const FIELD = /%(?:\(([^)]*)\))?([-+ #0]*)(\*|\d+)?(?:(\.)(\*|\d+)?)?[hlL]?(.)?/gsu;
const LARGEST = 1 << 20;

/** @throws PythonError where the values do not fit the text */
export function formatPercent(origin: string | Markup, right: Value): string | Markup {
  const text = textOf(origin)!;
  const html = origin instanceof Markup;
  const values = right instanceof Tuple ? right.items : [right];
  const mapping = right instanceof Dict ? right : undefined;
  let next = 0;
  const take = (): Value => {
    const value = values[next++];
    if (value === undefined) throw typeError('not enough arguments for format string');
    return value;
  };
  let out = '';
  let from = 0;
  for (const match of text.matchAll(FIELD)) {
    const [whole, key, flags = '', width, point, precision, type] = match;
    out += text.slice(from, match.index);
    from = match.index + whole.length;
    if (type === undefined) throw valueError('incomplete format');
    if (key !== undefined && mapping === undefined) throw typeError('format requires a mapping');
    const size = (given: string | undefined): number | undefined => {
      const number = given === '*' ? starred(take()) : given === undefined ? undefined : Number(given);
      if (number !== undefined && Math.abs(number) > LARGEST) throw valueError('width too big');
      return number;
    };
    const wide = size(width);
    // A point alone is a precision of 0.
    const exact = point === undefined ? undefined : (size(precision) ?? 0);
    if (type === '%' && whole !== '%%') throw valueError("unsupported format character '%'");
    if (type === '%') {
      out += '%';
      continue;
    }
    let value: Value;
    if (key === undefined) {
      value = take();
    } else {
      const found = mapping!.get(key);
      if (found === undefined) throw new PythonError('KeyError', repr(key));
      value = found;
    }
    out += field(value, flags, wide, exact, type, html);
  }
  if (next < values.length && !mayBeMapping(right)) {
    throw typeError('not all arguments converted during string formatting');
  }
  out += text.slice(from);
  return html ? new Markup(out) : out;
}

/** Values that nothing asks for are no mistake where they could be a mapping: where they have items. */
function mayBeMapping(right: Value): boolean {
  return [isList(right), right instanceof Dict, right instanceof Range, right instanceof Undefined].includes(
    true,
  );
}

function starred(value: Value): number {
  if (integerOf(value) === undefined) throw typeError('* wants int');
  return toIndex(value);
}

function field(
  value: Value,
  flags: string,
  wide: number | undefined,
  precision: number | undefined,
  type: string,
  html: boolean,
): string {
  const left = flags.includes('-') || (wide !== undefined && wide < 0);
  const width = Math.abs(wide ?? 0);
  const pad = (text: string): string => {
    const missing = ' '.repeat(Math.max(0, width - lengthOf(text)));
    return left ? text + missing : missing + text;
  };
  const cut = (text: string): string => {
    if (precision === undefined) return text;
    const points = charactersOf(text);
    return typeof points === 'string'
      ? points.slice(0, precision)
      : (points as string[]).slice(0, precision).join('');
  };
  const shown = (text: string): string => (html ? escapeHtml(text) : text);
  switch (type) {
    case 's':
      return pad(cut(html ? escapeHtml(value) : str(value)));
    case 'r':
      return pad(cut(shown(repr(value))));
    case 'a':
      return pad(cut(shown(repr(value).replace(/[^\0-\x7f]/gu, escapeCode))));
    case 'c':
      return pad(shown(character(value)));
    case 'd':
    case 'i':
    case 'u':
    case 'o':
    case 'x':
    case 'X': {
      const integer = wholeNumber(value, type);
      const radix = type === 'o' ? 8 : type === 'x' || type === 'X' ? 16 : 10;
      let digits = (integer < 0n ? -integer : integer).toString(radix).padStart(precision ?? 0, '0');
      if (type === 'X') digits = digits.toUpperCase();
      const prefix = flags.includes('#') && radix !== 10 ? `0${type}` : '';
      return numeric(integer < 0n, prefix, digits, flags, width, left);
    }
    case 'e':
    case 'E':
    case 'f':
    case 'F':
    case 'g':
    case 'G': {
      const real = realNumber(value);
      const body = floatBody(real, type, precision ?? 6, flags.includes('#'));
      return numeric(!Number.isNaN(real) && (real < 0 || Object.is(real, -0)), '', body, flags, width, left);
    }
    default:
      throw valueError(`unsupported format character '${type}'`);
  }
}

function numeric(
  negative: boolean,
  prefix: string,
  digits: string,
  flags: string,
  width: number,
  left: boolean,
): string {
  const sign = negative ? '-' : flags.includes('+') ? '+' : flags.includes(' ') ? ' ' : '';
  const front = sign + prefix;
  const missing = Math.max(0, width - front.length - digits.length);
  if (left) return front + digits + ' '.repeat(missing);
  return flags.includes('0') ? front + '0'.repeat(missing) + digits : ' '.repeat(missing) + front + digits;
}

function wholeNumber(value: Value, type: string): bigint {
  const integer = integerOf(value);
  if (integer !== undefined) return integer;
  if (typeof value === 'number' && 'diu'.includes(type)) return truncate(value);
  const wanted = 'diu'.includes(type) ? 'a real number' : 'an integer';
  throw typeError(`%${type} format: ${wanted} is required, not ${typeName(value)}`);
}

function realNumber(value: Value): number {
  if (textOf(value) !== undefined || (integerOf(value) === undefined && typeof value !== 'number')) {
    throw typeError(`must be real number, not ${typeName(value)}`);
  }
  return toReal(value);
}

function character(value: Value): string {
  const text = textOf(value);
  if (text !== undefined && lengthOf(text) === 1) return text;
  const code = integerOf(value);
  if (code === undefined) throw typeError('%c requires int or char');
  if (code < 0n || code > 0x10ffffn) throw new PythonError('OverflowError', '%c arg not in range(0x110000)');
  return String.fromCodePoint(Number(code));
}
