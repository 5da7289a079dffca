/** The template engine's runtime values, as far as kvant makes and reads them. */
import { Environment as LibraryEnvironment, Interpreter as LibraryInterpreter } from '@huggingface/jinja';
import { orderedEntries, wholeFloatValue } from '../lossless-json.js';
import type { TemplateValue } from './python-values.js';

/** A node of the syntax tree. */
export interface Node {
  readonly type: string;
}

/** A value at run time. */
export type Value = TemplateValue;
type ValueClass<T> = new (value: T) => Value;

/** A scope of variables. */
export interface Scope {
  readonly variables: Map<string, Value>;
  readonly tests: ReadonlyMap<string, (...operands: Value[]) => boolean>;
  set(name: string, value: unknown): Value;
  setVariable(name: string, value: Value): Value;
}

// The engine's own declarations of these two do not resolve under Node's rules: they are declared here, as far
// as they are used.
export const Environment = LibraryEnvironment as unknown as new (parent?: Scope) => Scope;
export const Interpreter = LibraryInterpreter as unknown as new (
  scope: Scope,
) => {
  run(program: unknown): Value;
  evaluate(node: Node | undefined, scope: Scope): Value;
};

// The value classes are not exported; every environment makes values of them.
const maker = new Environment();
const classOf = <T>(name: string, sample: unknown): ValueClass<T> =>
  maker.set(name, sample).constructor as ValueClass<T>;
export const StringValue = classOf<string>('string', '');
/** A bigint where a number would not hold it exactly: see {@link integerValue}. */
export const IntegerValue = classOf<number | bigint>('integer', 0);
export const FloatValue = classOf<number>('float', 0.5);
export const BooleanValue = classOf<boolean>('boolean', true);
export const ArrayValue = classOf<readonly Value[]>('array', []);
export const ObjectValue = classOf<ReadonlyMap<string, Value>>('object', {});
const NullValue = classOf<null>('null', null);
export const UndefinedValue = classOf<undefined>('undefined', undefined);
export const FunctionValue = classOf<(args: Value[], scope: Scope) => Value>('function', () => null);

/** An integer, held exactly. */
export function integerValue(value: number | bigint): Value {
  const small = Number(value);
  return new IntegerValue(Number.isSafeInteger(small) ? small : BigInt(value));
}

/** From here on JavaScript writes a whole number with an exponent, and Python reads it as a float. */
const FIRST_WRITTEN_AS_FLOAT = 1e21;

/**
 * A plain value as the engine's: what Python would have, had it read the value's JSON.
 *
 * A whole number is an integer, a bigint too; a float is any other number and what lossless-json.ts makes of `1.0`.
 * As with `JSON.stringify`, members that are undefined are left out and `toJSON` is asked.
 */
export function toValue(plain: unknown): Value {
  switch (typeof plain) {
    case 'number':
      return Number.isInteger(plain) && Math.abs(plain) < FIRST_WRITTEN_AS_FLOAT
        ? integerValue(plain)
        : new FloatValue(plain);
    case 'bigint':
      return integerValue(plain);
    case 'string':
      return new StringValue(plain);
    case 'boolean':
      return new BooleanValue(plain);
    case 'object':
      return plain === null ? new NullValue(null) : objectValue(plain);
    default:
      return new Environment().set('value', plain);
  }
}

function objectValue(plain: object): Value {
  const float = wholeFloatValue(plain);
  if (float !== undefined) return new FloatValue(float);
  if (Array.isArray(plain)) {
    const items: Value[] = [];
    for (const item of plain as unknown[]) items.push(toValue(item));
    return new ArrayValue(items);
  }
  const { toJSON } = plain as { toJSON?: unknown };
  if (typeof toJSON === 'function') return toValue((toJSON as () => unknown).call(plain));
  const members = new Map<string, Value>();
  const entries =
    plain instanceof Map
      ? (plain as Map<string, unknown>)
      : orderedEntries(plain as Readonly<Record<string, unknown>>);
  for (const [key, value] of entries) if (value !== undefined) members.set(String(key), toValue(value));
  return new ObjectValue(members);
}

/** The value of a mapping's key, undefined where it has none or is no mapping. */
export function fieldOf(value: Value, key: string): Value {
  const field = value.value instanceof Map ? (value.value as Map<string, Value>).get(key) : undefined;
  return field ?? new UndefinedValue(undefined);
}

/** The items of a list or tuple; none for anything else. */
export function elements(value: Value): readonly Value[] {
  return Array.isArray(value.value) ? (value.value as readonly Value[]) : [];
}

/**
 * What Python iterates over: items, the characters of a string, the keys of a mapping, nothing for undefined.
 *
 * @throws Error for what cannot be iterated
 */
export function iterate(value: Value): readonly Value[] {
  switch (value.type) {
    case 'ArrayValue':
    case 'TupleValue':
      return elements(value);
    case 'StringValue':
      return [...String(value.value)].map((character) => new StringValue(character));
    case 'ObjectValue':
      return [...(value.value as Map<string, Value>).keys()].map((key) => new StringValue(key));
    case 'UndefinedValue':
      return [];
    default:
      throw new Error(`a ${value.type} cannot be iterated`);
  }
}

/** Arguments of a filter or method. */
export interface Arguments {
  readonly positional: readonly Value[];
  readonly keywords: ReadonlyMap<string, Value>;
}

/** Takes apart what the engine passes to a function: keywords come last, as one value. */
export function readArguments(args: readonly Value[]): Arguments {
  const last = args.at(-1);
  if (last?.type !== 'KeywordArgumentsValue') return { positional: args, keywords: new Map() };
  return { positional: args.slice(0, -1), keywords: last.value as Map<string, Value> };
}

/** An argument by position or name; `none` counts as absent, as it is the default of all that are read here. */
export function argument(args: Arguments, position: number, name: string): Value | undefined {
  const value = args.positional[position] ?? args.keywords.get(name);
  return value === undefined || value.type === 'NullValue' ? undefined : value;
}

export function textArgument(args: Arguments, position: number, name: string): string | undefined {
  const value = argument(args, position, name);
  if (value === undefined) return undefined;
  if (value.type !== 'StringValue') throw new Error(`${name} must be a string, not ${value.type}`);
  return String(value.value);
}

export function needText(args: Arguments, position: number, name: string): string {
  const text = textArgument(args, position, name);
  if (text === undefined) throw new Error(`${name} is missing`);
  return text;
}

export function integerArgument(args: Arguments, position: number, name: string): number | undefined {
  const value = argument(args, position, name);
  if (value === undefined) return undefined;
  if (value.type !== 'IntegerValue') throw new Error(`${name} must be an integer, not ${value.type}`);
  return Number(value.value);
}
