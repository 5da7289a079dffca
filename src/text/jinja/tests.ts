/** Jinja's tests, all of them: what may stand after `is`. */
import { bind, type Parameter, REQUIRED } from './arguments.js';
import { isCase } from './characters.js';
import { isPythonError } from './errors.js';
import { FILTERS } from './filters.js';
import { arithmetic, contains, equals, isIterable, ordered, size } from './operators.js';
import { str } from './repr.js';
import {
  type Arguments,
  Bytes,
  Callable,
  Dict,
  hashKey,
  integerOf,
  isList,
  Markup,
  NativeObject,
  Range,
  Tuple,
  textOf,
  Undefined,
  type Value,
} from './values.js';

export type Test = (value: Value, args: Arguments) => boolean;

const OTHER: readonly Parameter[] = [['/other', REQUIRED]];

function test(
  names: string,
  parameters: readonly Parameter[],
  run: (value: Value, other: Value) => boolean,
): (readonly [string, Test])[] {
  return names
    .split(' ')
    .map((name) => [name, (value, args) => run(value, bind(name, parameters, args)[0] ?? null)] as const);
}

const plain = (names: string, run: (value: Value) => boolean): (readonly [string, Test])[] =>
  test(names, [], run);

export const TESTS: ReadonlyMap<string, Test> = new Map<string, Test>([
  ...plain('odd', (value) => equals(arithmetic('%', value, 2n), 1n)),
  ...plain('even', (value) => equals(arithmetic('%', value, 2n), 0n)),
  ...test('divisibleby', [['num', REQUIRED]], (value, other) => equals(arithmetic('%', value, other), 0n)),
  ...plain('defined', (value) => !(value instanceof Undefined)),
  ...plain('undefined', (value) => value instanceof Undefined),
  ...plain('filter', (value) => FILTERS.has(String(hashKey(value)))),
  ...plain('test', (value) => TESTS.has(String(hashKey(value)))),
  ...plain('none', (value) => value === null),
  ...plain('boolean', (value) => typeof value === 'boolean'),
  ...plain('true', (value) => value === true),
  ...plain('false', (value) => value === false),
  ...plain('integer', (value) => typeof value === 'bigint'),
  ...plain('float', (value) => typeof value === 'number'),
  ...plain('number', (value) => typeof value === 'number' || integerOf(value) !== undefined),
  ...plain('string', (value) => textOf(value) !== undefined),
  ...plain('lower', (value) => isCase(str(value), 'lower')),
  ...plain('upper', (value) => isCase(str(value), 'upper')),
  ...plain('mapping', (value) => value instanceof Dict),
  ...plain('sequence', isSequence),
  ...plain('iterable', isIterable),
  ...plain('callable', (value) => {
    return (
      value instanceof Callable ||
      value instanceof Undefined ||
      (value instanceof NativeObject && value.call !== undefined)
    );
  }),
  ...test('sameas', [['other', REQUIRED]], isSame),
  ...plain('escaped', (value) => value instanceof Markup),
  ...test('in', [['seq', REQUIRED]], (value, seq) => contains(seq, value)),
  ...test('== eq equalto', OTHER, equals),
  ...test('!= ne', OTHER, (a, b) => !equals(a, b)),
  ...test('> gt greaterthan', OTHER, (a, b) => ordered('>', a, b)),
  ...test('>= ge', OTHER, (a, b) => ordered('>=', a, b)),
  ...test('< lt lessthan', OTHER, (a, b) => ordered('<', a, b)),
  ...test('<= le', OTHER, (a, b) => ordered('<=', a, b)),
]);

function isSequence(value: Value): boolean {
  if (
    textOf(value) === undefined &&
    !isList(value) &&
    !(
      value instanceof Tuple ||
      value instanceof Dict ||
      value instanceof Range ||
      value instanceof Bytes ||
      value instanceof Undefined
    )
  ) {
    return false;
  }
  try {
    size(value);
    return true;
  } catch (error) {
    if (isPythonError(error, 'TypeError')) return false;
    throw error;
  }
}

/** `a is b`, as far as templates can tell: equal constants of one type are one object. */
function isSame(a: Value, b: Value): boolean {
  if (typeof a !== typeof b) return false;
  return a === b;
}
