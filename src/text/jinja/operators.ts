/** What Python's operators do between values. */
import { PythonError, typeError } from './errors.js';
import { escapeHtml, markupOf } from './markup.js';
import { floatDivmod, floorDivide, floorModulo, toFloat, toIndex, trueDivide } from './numbers.js';
import { formatPercent } from './printf.js';
import { charactersOf, compareTexts, lengthOf } from './text.js';
import {
  Bytes,
  Dict,
  DictView,
  Iterator,
  integerOf,
  isList,
  Markup,
  NativeObject,
  Range,
  type Slice,
  Tuple,
  textOf,
  typeName,
  Undefined,
  type Value,
} from './values.js';

/** Texts and lists that a template multiplies may not be longer. */
const LONGEST = 1 << 26;
/** Nor may integers have more bits. */
const MOST_BITS = 1 << 20;

/** `bool(value)` */
export function truth(value: Value): boolean {
  if (value === null || value instanceof Undefined) return false;
  if (typeof value === 'object') {
    if (isList(value)) return value.length > 0;
    if (value instanceof Tuple) return value.items.length > 0;
    if (value instanceof Dict) return value.size > 0;
    if (value instanceof DictView) return value.dict.size > 0;
    if (value instanceof Range) return value.length > 0;
    if (value instanceof Markup) return value.text !== '';
    if (value instanceof Bytes) return value.data.length > 0;
    if (value instanceof NativeObject) return (value.length() ?? 1) > 0;
    return true;
  }
  return Boolean(value);
}

/** `len(value)` */
export function size(value: Value): number {
  const text = textOf(value);
  if (text !== undefined) return lengthOf(text);
  if (isList(value)) return value.length;
  if (value instanceof Tuple) return value.items.length;
  if (value instanceof Dict) return value.size;
  if (value instanceof DictView) return value.dict.size;
  if (value instanceof Range) return value.length;
  if (value instanceof Bytes) return value.data.length;
  if (value instanceof Undefined) return 0;
  const length = value instanceof NativeObject ? value.length() : undefined;
  if (length !== undefined) return length;
  throw typeError(`object of type '${typeName(value)}' has no len()`);
}

/** `iter(value)`: items, the characters of a text, the keys of a dict, nothing for undefined. */
export function* iterate(value: Value): Generator<Value, void, undefined> {
  const text = textOf(value);
  if (text !== undefined) yield* text;
  else if (isList(value)) yield* value;
  else if (value instanceof Tuple) yield* value.items;
  else if (value instanceof Dict) yield* value.keys();
  else if (value instanceof DictView) yield* value.items();
  else if (value instanceof Range) for (let i = 0; i < value.length; i++) yield value.at(i);
  else if (value instanceof Bytes) for (const byte of value.data) yield BigInt(byte);
  else if (value instanceof Iterator)
    for (let item = value.next(); item !== undefined; item = value.next()) yield item;
  else if (!(value instanceof Undefined)) throw typeError(`'${typeName(value)}' object is not iterable`);
}

/** Whether `iter(value)` would work. */
export function isIterable(value: Value): boolean {
  return (
    textOf(value) !== undefined ||
    isList(value) ||
    value instanceof Tuple ||
    value instanceof Dict ||
    value instanceof DictView ||
    value instanceof Range ||
    value instanceof Bytes ||
    value instanceof Iterator ||
    value instanceof Undefined
  );
}

/** `list(value)` */
export function listOf(value: Value): Value[] {
  return [...iterate(value)];
}

/** `a == b`: containers by content, numbers by value, and no other conversions. */
export function equals(a: Value, b: Value): boolean {
  const [x, y] = [numberOf(a), numberOf(b)];
  // JavaScript compares a bigint with a number by their values.
  // biome-ignore lint/suspicious/noDoubleEquals: the types differ.
  if (x !== undefined || y !== undefined) return x !== undefined && y !== undefined && x == y;
  const [left, right] = [textOf(a), textOf(b)];
  if (left !== undefined || right !== undefined) return left === right;
  if (a instanceof Undefined) return b instanceof Undefined;
  if (isList(a)) return isList(b) && sameItems(a, b);
  if (a instanceof Tuple) return b instanceof Tuple && sameItems(a.items, b.items);
  if (a instanceof Range && b instanceof Range) {
    return (
      a.length === b.length &&
      (a.length === 0 || (a.start === b.start && (a.length === 1 || a.step === b.step)))
    );
  }
  if (a instanceof Dict) {
    if (!(b instanceof Dict) || a.size !== b.size) return false;
    return a.entries().every(([key, value]) => {
      const other = b.get(key);
      return other !== undefined && same(value, other);
    });
  }
  if (a instanceof DictView && a.kind !== 'values') {
    return (
      b instanceof DictView &&
      b.kind === a.kind &&
      a.dict.size === b.dict.size &&
      a.items().every((item) => contains(b, item))
    );
  }
  if (a instanceof Bytes) {
    return (
      b instanceof Bytes && a.data.length === b.data.length && a.data.every((byte, i) => byte === b.data[i])
    );
  }
  return a === b;
}

/** What containers ask of their items: a NaN is equal to itself there. */
function same(a: Value, b: Value): boolean {
  return Object.is(a, b) || equals(a, b);
}

function sameItems(a: readonly Value[], b: readonly Value[]): boolean {
  return a.length === b.length && a.every((item, i) => same(item, b[i]!));
}

function numberOf(value: Value): bigint | number | undefined {
  return typeof value === 'number' ? value : integerOf(value);
}

export type Comparison = '<' | '<=' | '>' | '>=';

/** `a < b` and the like. @throws PythonError TypeError where the two have no order */
export function ordered(operator: Comparison, a: Value, b: Value): boolean {
  if (a instanceof Undefined) a.fail();
  if (b instanceof Undefined) b.fail();
  const [x, y] = [numberOf(a), numberOf(b)];
  if (x !== undefined && y !== undefined) {
    // With NaN all of them are false.
    return operator === '<' ? x < y : operator === '<=' ? x <= y : operator === '>' ? x > y : x >= y;
  }
  const [left, right] = [textOf(a), textOf(b)];
  if (left !== undefined && right !== undefined) return holds(operator, compareTexts(left, right));
  const lists = isList(a) && isList(b) ? ([a, b] as const) : undefined;
  const tuples = a instanceof Tuple && b instanceof Tuple ? ([a.items, b.items] as const) : undefined;
  const pair = lists ?? tuples;
  if (pair !== undefined) {
    const at = pair[0].findIndex((item, i) => i >= pair[1].length || !same(item, pair[1][i]!));
    if (at >= 0 && at < pair[1].length) return ordered(operator, pair[0][at]!, pair[1][at]!);
    return holds(operator, pair[0].length - pair[1].length);
  }
  throw typeError(`'${operator}' not supported between instances of '${typeName(a)}' and '${typeName(b)}'`);
}

function holds(operator: Comparison, sign: number): boolean {
  return operator === '<'
    ? sign < 0
    : operator === '<='
      ? sign <= 0
      : operator === '>'
        ? sign > 0
        : sign >= 0;
}

/** `item in container` */
export function contains(container: Value, item: Value): boolean {
  const text = textOf(container);
  if (text !== undefined) {
    const part = textOf(item);
    if (part !== undefined) return text.includes(part);
    throw typeError(`'in <string>' requires string as left operand, not ${typeName(item)}`);
  }
  if (container instanceof Dict) return container.has(item);
  if (container instanceof DictView && container.kind === 'keys') return container.dict.has(item);
  if (!isIterable(container)) throw typeError(`argument of type '${typeName(container)}' is not iterable`);
  for (const element of iterate(container)) if (same(element, item)) return true;
  return false;
}

export type BinaryOperator = '+' | '-' | '*' | '/' | '//' | '%' | '**';

/** `left operator right` */
export function arithmetic(operator: BinaryOperator, left: Value, right: Value): Value {
  if (operator === '%' && textOf(left) !== undefined) return formatPercent(left as string | Markup, right);
  if (left instanceof Undefined) left.fail();
  if (right instanceof Undefined) right.fail();
  const [a, b] = [integerOf(left), integerOf(right)];
  if (a !== undefined && b !== undefined) return integers(operator, a, b);
  const [x, y] = [numberOf(left), numberOf(right)];
  if (x !== undefined && y !== undefined) return floats(operator, asFloat(x), asFloat(y));
  const joined =
    operator === '+' ? concatenated(left, right) : operator === '*' ? repeated(left, right) : undefined;
  if (joined !== undefined) return joined;
  if (operator === '+' && textOf(left) !== undefined) {
    throw typeError(`can only concatenate str (not "${typeName(right)}") to str`);
  }
  const shown = operator === '**' ? '** or pow()' : operator;
  throw typeError(`unsupported operand type(s) for ${shown}: '${typeName(left)}' and '${typeName(right)}'`);
}

function asFloat(value: bigint | number): number {
  return typeof value === 'bigint' ? toFloat(value) : value;
}

function integers(operator: BinaryOperator, a: bigint, b: bigint): Value {
  switch (operator) {
    case '+':
      return a + b;
    case '-':
      return a - b;
    case '*':
      checkBits(bits(a) + bits(b));
      return a * b;
    case '/':
      return trueDivide(a, b);
    case '//':
      if (b === 0n) throw new PythonError('ZeroDivisionError', 'integer division or modulo by zero');
      return floorDivide(a, b);
    case '%':
      if (b === 0n) throw new PythonError('ZeroDivisionError', 'integer modulo by zero');
      return floorModulo(a, b);
    case '**':
      if (b < 0n) return floats('**', toFloat(a), toFloat(b));
      checkBits(bits(a) * Number(b));
      return a ** b;
  }
}

function bits(value: bigint): number {
  return value === 0n || value === 1n || value === -1n ? 0 : value.toString(16).length * 4;
}

function checkBits(count: number): void {
  if (count > MOST_BITS) throw new PythonError('MemoryError', 'the integer is too large');
}

function floats(operator: BinaryOperator, a: number, b: number): number {
  if (b === 0 && (operator === '/' || operator === '//' || operator === '%')) {
    throw new PythonError(
      'ZeroDivisionError',
      operator === '/' ? 'float division by zero' : 'float floor division by zero',
    );
  }
  switch (operator) {
    case '+':
      return a + b;
    case '-':
      return a - b;
    case '*':
      return a * b;
    case '/':
      return a / b;
    case '//':
      return floatDivmod(a, b)[0];
    case '%':
      return floatDivmod(a, b)[1];
    case '**':
      return power(a, b);
  }
}

function power(a: number, b: number): number {
  // Here C and JavaScript differ.
  if (a === 1 || b === 0) return 1;
  if (a === -1 && !Number.isFinite(b) && !Number.isNaN(b)) return 1;
  if (a === 0 && b < 0)
    throw new PythonError('ZeroDivisionError', '0.0 cannot be raised to a negative power');
  if (a < 0 && Number.isFinite(a) && Number.isFinite(b) && !Number.isInteger(b)) {
    throw new PythonError('ValueError', 'a negative number has no such power among the real ones');
  }
  const result = a ** b;
  if (!Number.isFinite(result) && Number.isFinite(a) && Number.isFinite(b)) {
    throw new PythonError('OverflowError', "(34, 'Numerical result out of range')");
  }
  return result;
}

function concatenated(left: Value, right: Value): Value | undefined {
  const [a, b] = [textOf(left), textOf(right)];
  if (a !== undefined && b !== undefined) {
    if (left instanceof Markup) return new Markup(a + escapeHtml(right));
    if (right instanceof Markup) return new Markup(escapeHtml(left) + b);
    return a + b;
  }
  if (isList(left) && isList(right)) return [...left, ...right];
  if (left instanceof Tuple && right instanceof Tuple) return new Tuple([...left.items, ...right.items]);
  return undefined;
}

function repeated(left: Value, right: Value): Value | undefined {
  const [times, what] = integerOf(left) === undefined ? [right, left] : [left, right];
  const text = textOf(what);
  const items = isList(what) ? what : what instanceof Tuple ? what.items : undefined;
  if (text === undefined && items === undefined) return undefined;
  if (integerOf(times) === undefined) {
    throw typeError(`can't multiply sequence by non-int of type '${typeName(times)}'`);
  }
  const count = Math.max(0, toIndex(times));
  if (count * (text ?? items!).length > LONGEST)
    throw new PythonError('MemoryError', 'the result is too long');
  if (text !== undefined) return markupOf(what, text.repeat(count));
  const all = Array.from({ length: count }, () => items!).flat();
  return isList(what) ? all : new Tuple(all);
}

/** `-value` and `+value` */
export function signed(operator: '-' | '+', value: Value): Value {
  if (value instanceof Undefined) value.fail();
  const integer = integerOf(value);
  if (integer !== undefined) return operator === '-' ? -integer : integer;
  if (typeof value === 'number') return operator === '-' ? -value : value;
  throw typeError(`bad operand type for unary ${operator}: '${typeName(value)}'`);
}

/** `slice.indices(length)`: where a slice of a sequence starts and stops, and its stride. */
export function sliceBounds(
  slice: Slice,
  length: number,
): readonly [start: number, stop: number, stride: bigint] {
  const integer = (value: Value): bigint => {
    const whole = integerOf(value);
    if (whole !== undefined) return whole;
    throw typeError('slice indices must be integers or None or have an __index__ method');
  };
  const stride = slice.step === null ? 1n : integer(slice.step);
  if (stride === 0n) throw new PythonError('ValueError', 'slice step cannot be zero');
  const forwards = stride > 0n;
  const [least, most] = forwards ? [0, length] : [-1, length - 1];
  const bound = (value: Value, fallback: number): number => {
    if (value === null) return fallback;
    const whole = integer(value);
    const at = whole < 0n ? whole + BigInt(length) : whole;
    return at < BigInt(least) ? least : at > BigInt(most) ? most : Number(at);
  };
  return [bound(slice.start, forwards ? 0 : length - 1), bound(slice.stop, forwards ? length : -1), stride];
}

/** Which items of a sequence a slice takes, in order. */
export function sliceIndices(slice: Slice, length: number): number[] {
  const [start, stop, step] = sliceBounds(slice, length);
  const stride = Number(step);
  const indices: number[] = [];
  for (let i = start; stride > 0 ? i < stop : i > stop; i += stride) indices.push(i);
  return indices;
}

/** The characters of a text that a slice takes. */
export function sliceText(text: string, slice: Slice): string {
  const points = charactersOf(text);
  const indices = sliceIndices(slice, points.length);
  let out = '';
  for (const i of indices) out += points[i]!;
  return out;
}
