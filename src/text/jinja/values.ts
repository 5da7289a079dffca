/**
 * The values that a template works on, as Python has them.
 *
 * None is `null`, an int a `bigint`, a float a `number`, a str a `string`, a list an array that nothing changes; the
 * other types have a class each.
 */
import { orderedEntries, wholeFloatValue } from '../lossless-json.js';
import { PythonError, typeError } from './errors.js';

export type Value =
  | null
  | boolean
  | bigint
  | number
  | string
  | readonly Value[]
  | Tuple
  | Dict
  | DictView
  | Range
  | Slice
  | Iterator
  | Markup
  | Bytes
  | Undefined
  | Namespace
  | NativeObject
  | Callable;

export class Tuple {
  readonly items: readonly Value[];

  constructor(items: readonly Value[]) {
    this.items = items;
  }
}

/** What `groupby` gives: a tuple whose items have names. */
export class GroupTuple extends Tuple {}

/** A str that is HTML already: `escape` and `safe` make one, and what is added to it is escaped. */
export class Markup {
  readonly text: string;

  constructor(text: string) {
    this.text = text;
  }
}

export class Bytes {
  readonly data: Uint8Array;

  constructor(data: Uint8Array) {
    this.data = data;
  }
}

export class Slice {
  readonly start: Value;
  readonly stop: Value;
  readonly step: Value;

  constructor(start: Value, stop: Value, step: Value) {
    this.start = start;
    this.stop = stop;
    this.step = step;
  }
}

/** A dict: keys that are equal in Python (1, 1.0 and True) are one, in the order in which they came. */
export class Dict {
  readonly #entries = new Map<unknown, readonly [Value, Value]>();

  constructor(entries: Iterable<readonly [Value, Value]> = []) {
    for (const [key, value] of entries) this.set(key, value);
  }

  get size(): number {
    return this.#entries.size;
  }

  get(key: Value): Value | undefined {
    return this.#entries.get(hashKey(key))?.[1];
  }

  has(key: Value): boolean {
    return this.#entries.has(hashKey(key));
  }

  /** For the making of a dict: a template changes none. */
  set(key: Value, value: Value): void {
    const hash = hashKey(key);
    const known = this.#entries.get(hash);
    this.#entries.set(hash, [known === undefined ? key : known[0], value]);
  }

  entries(): readonly (readonly [Value, Value])[] {
    return [...this.#entries.values()];
  }

  keys(): Value[] {
    return this.entries().map(([key]) => key);
  }

  values(): Value[] {
    return this.entries().map(([, value]) => value);
  }
}

export const DICT_VIEWS = ['keys', 'values', 'items'] as const;

/** What `d.keys()`, `d.values()` and `d.items()` give. */
export class DictView {
  readonly kind: (typeof DICT_VIEWS)[number];
  readonly dict: Dict;

  constructor(kind: (typeof DICT_VIEWS)[number], dict: Dict) {
    this.kind = kind;
    this.dict = dict;
  }

  items(): readonly Value[] {
    if (this.kind === 'keys') return this.dict.keys();
    if (this.kind === 'values') return this.dict.values();
    return this.dict.entries().map((entry) => new Tuple(entry));
  }
}

export class Range {
  readonly start: bigint;
  readonly stop: bigint;
  readonly step: bigint;
  readonly length: number;

  /** @throws PythonError for a step of 0 and for more than 100,000 numbers, as the sandbox has it */
  constructor(start: bigint, stop: bigint, step: bigint) {
    if (step === 0n) throw new PythonError('ValueError', 'range() arg 3 must not be zero');
    this.start = start;
    this.stop = stop;
    this.step = step;
    const span = step > 0n ? stop - start + step - 1n : start - stop - step - 1n;
    const count = span / (step > 0n ? step : -step);
    if (count > 100_000n) {
      throw new PythonError('OverflowError', 'Range too big. The sandbox blocks ranges larger than 100000.');
    }
    this.length = count > 0n ? Number(count) : 0;
  }

  at(index: number): bigint {
    return this.start + BigInt(index) * this.step;
  }
}

/** A generator or another iterator: what is taken from it is gone. */
export class Iterator {
  /** Its type in Python. */
  readonly name: string;
  readonly #source: globalThis.Iterator<Value>;

  constructor(name: string, source: Iterable<Value>) {
    this.name = name;
    this.#source = source[Symbol.iterator]();
  }

  /** The next value, undefined at the end. */
  next(): Value | undefined {
    const step = this.#source.next();
    return step.done === true ? undefined : step.value;
  }
}

/** A variable, key or attribute that is not there: it prints as nothing, and fails where more is asked of it. */
export class Undefined {
  readonly message: string;
  readonly security: boolean;

  /** @param security the thing is there, but not for templates */
  constructor(message: string, security = false) {
    this.message = message;
    this.security = security;
  }

  fail(): never {
    throw new PythonError(this.security ? 'SecurityError' : 'UndefinedError', this.message);
  }
}

/** What `namespace()` makes: the one thing whose attributes a template may set. */
export class Namespace {
  readonly attributes: Map<string, Value>;

  constructor(attributes: Map<string, Value>) {
    this.attributes = attributes;
  }
}

/** An object of Jinja's own: a loop, a cycler. */
export abstract class NativeObject {
  abstract readonly typeName: string;
  abstract attribute(name: string): Value | undefined;
  abstract repr(): string;
  /** How many items `len` counts, undefined where it has no length. */
  length(): number | undefined {
    return undefined;
  }
  /** Undefined where it cannot be called. */
  readonly call: ((args: Arguments) => Value) | undefined = undefined;
}

export interface Arguments {
  readonly positional: readonly Value[];
  readonly keywords: ReadonlyMap<string, Value>;
}

export class Callable {
  readonly name: string;
  readonly call: (args: Arguments) => Value;
  /** What a macro tells of itself. */
  readonly attributes: ReadonlyMap<string, Value> | undefined;

  constructor(name: string, call: (args: Arguments) => Value, attributes?: ReadonlyMap<string, Value>) {
    this.name = name;
    this.call = call;
    this.attributes = attributes;
  }
}

/** A key of a JavaScript map that is one for values that are equal as keys in Python. */
export function hashKey(value: Value): unknown {
  if (typeof value === 'string') return value;
  if (value instanceof Markup) return value.text;
  if (typeof value === 'boolean') return value ? 1n : 0n;
  if (typeof value === 'number') return Number.isInteger(value) ? BigInt(value) : value;
  if (typeof value === 'bigint' || value === null) return value;
  if (value instanceof Tuple) return tupleKey(value);
  if (value instanceof Undefined) return Undefined;
  if (
    Array.isArray(value) ||
    value instanceof Dict ||
    (value instanceof DictView && value.kind !== 'values')
  ) {
    throw typeError(`unhashable type: '${typeName(value)}'`);
  }
  return value;
}

/** Tuples are told apart by their items: a tree of maps leads to one object for each. */
const tuples: KeyTree = { next: new Map(), key: {} };
interface KeyTree {
  readonly next: Map<unknown, KeyTree>;
  readonly key: object;
}

function tupleKey(tuple: Tuple): object {
  let node = tuples;
  for (const item of tuple.items) {
    const hash = hashKey(item);
    let child = node.next.get(hash);
    if (child === undefined) {
      child = { next: new Map(), key: {} };
      node.next.set(hash, child);
    }
    node = child;
  }
  return node.key;
}

/** `type(value).__name__` */
export function typeName(value: Value): string {
  if (value === null) return 'NoneType';
  switch (typeof value) {
    case 'boolean':
      return 'bool';
    case 'bigint':
      return 'int';
    case 'number':
      return 'float';
    case 'string':
      return 'str';
  }
  if (Array.isArray(value)) return 'list';
  if (value instanceof Tuple) return 'tuple';
  if (value instanceof Dict) return 'dict';
  if (value instanceof DictView) return `dict_${value.kind}`;
  if (value instanceof Range) return 'range';
  if (value instanceof Slice) return 'slice';
  if (value instanceof Iterator) return value.name;
  if (value instanceof Markup) return 'Markup';
  if (value instanceof Bytes) return 'bytes';
  if (value instanceof Undefined) return 'Undefined';
  if (value instanceof Namespace) return 'TemplateNamespace';
  if (value instanceof NativeObject) return value.typeName;
  return value instanceof Callable && value.attributes !== undefined ? 'Macro' : 'function';
}

/** A value, or another where there is none; None is one, so `??` would not do. */
export function orElse(value: Value | undefined, other: Value): Value {
  return value === undefined ? other : value;
}

/** The text of a str, undefined for anything else. */
export function textOf(value: Value): string | undefined {
  if (typeof value === 'string') return value;
  return value instanceof Markup ? value.text : undefined;
}

/** The integer that an int or a bool is, undefined for anything else. */
export function integerOf(value: Value): bigint | undefined {
  if (typeof value === 'bigint') return value;
  return typeof value === 'boolean' ? BigInt(value) : undefined;
}

export function isList(value: Value): value is readonly Value[] {
  return Array.isArray(value);
}

/** From here on JavaScript writes a whole number with an exponent, and Python reads it as a float. */
const FIRST_WRITTEN_AS_FLOAT = 1e21;

/**
 * A plain value as a template sees it: what Python would have, had it read the value's JSON.
 *
 * A whole number is an int, a bigint too; a float is any other number and what lossless-json.ts makes of `1.0`. As with
 * `JSON.stringify`, members that are undefined are left out and `toJSON` is asked.
 */
export function fromPlain(plain: unknown): Value {
  switch (typeof plain) {
    case 'string':
    case 'boolean':
    case 'bigint':
      return plain;
    case 'number':
      return Number.isInteger(plain) && Math.abs(plain) < FIRST_WRITTEN_AS_FLOAT ? BigInt(plain) : plain;
    case 'undefined':
      return new Undefined('a value is undefined');
  }
  if (plain === null) return null;
  const float = wholeFloatValue(plain);
  if (float !== undefined) return float;
  if (Array.isArray(plain)) return Array.from(plain, fromPlain);
  const { toJSON } = plain as { toJSON?: unknown };
  if (typeof toJSON === 'function') return fromPlain((toJSON as () => unknown).call(plain));
  const entries =
    plain instanceof Map
      ? (plain as ReadonlyMap<unknown, unknown>)
      : orderedEntries(plain as { readonly [key: string]: unknown });
  const dict = new Dict();
  for (const [key, value] of entries) if (value !== undefined) dict.set(String(key), fromPlain(value));
  return dict;
}
