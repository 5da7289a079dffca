import { contains } from './operators.js';
import { pythonEquals, pythonJson, pythonStr, pythonStrip } from './python-values.js';
import {
  type Arguments,
  ArrayValue,
  argument,
  elements,
  fieldOf,
  IntegerValue,
  iterate,
  StringValue,
  textArgument,
  UndefinedValue,
  type Value,
} from './values.js';

export type Test = (...operands: Value[]) => boolean;

/** What a filter may ask of the run it is part of. */
export interface FilterContext {
  /** @throws Error for an unknown name */
  test(name: string): Test;
  /** Applies another filter by name. */
  apply(name: string, operand: Value): Value;
  truth(value: Value): boolean;
}

type Filter = (operand: Value, args: Arguments, context: FilterContext) => Value;

/** Filters that the engine lacks or gives another meaning. */
export const FILTERS: ReadonlyMap<string, Filter> = new Map<string, Filter>([
  ['string', (operand) => new StringValue(pythonStr(operand))],
  [
    'trim',
    (operand, args) => new StringValue(pythonStrip(pythonStr(operand), textArgument(args, 0, 'chars'))),
  ],
  ['length', lengthOf],
  ['count', lengthOf],
  ['list', (operand) => new ArrayValue(iterate(operand))],
  ['first', (operand) => iterate(operand)[0] ?? new UndefinedValue(undefined)],
  ['last', (operand) => iterate(operand).at(-1) ?? new UndefinedValue(undefined)],
  ['join', join],
  ['tojson', toJson],
  ['map', map],
  ['select', (operand, args, context) => select(operand, args, context, false, true)],
  ['reject', (operand, args, context) => select(operand, args, context, false, false)],
  ['selectattr', (operand, args, context) => select(operand, args, context, true, true)],
  ['rejectattr', (operand, args, context) => select(operand, args, context, true, false)],
]);

/** Tests that the engine lacks or gives another meaning. */
export const TESTS: ReadonlyMap<string, Test> = new Map<string, Test>([
  ['in', (item, container) => container !== undefined && contains(container, item!)],
  ['eq', (a, b) => equal(a, b)],
  ['equalto', (a, b) => equal(a, b)],
  ['==', (a, b) => equal(a, b)],
  ['ne', (a, b) => !equal(a, b)],
  ['!=', (a, b) => !equal(a, b)],
  ['float', (value) => value?.type === 'FloatValue'],
]);

function equal(a: Value | undefined, b: Value | undefined): boolean {
  return a !== undefined && b !== undefined && pythonEquals(a, b);
}

function lengthOf(operand: Value): Value {
  return new IntegerValue(iterate(operand).length);
}

function attribute(item: Value, path: string): Value {
  return path.split('.').reduce((value, key) => {
    const index = Number(key);
    if (Number.isInteger(index) && value.type === 'ArrayValue') {
      return elements(value)[index] ?? new UndefinedValue(undefined);
    }
    return fieldOf(value, key);
  }, item);
}

function join(operand: Value, args: Arguments): Value {
  const path = textArgument(args, 1, 'attribute');
  const items = iterate(operand).map((item) => (path === undefined ? item : attribute(item, path)));
  return new StringValue(items.map(pythonStr).join(textArgument(args, 0, 'd') ?? ''));
}

function map(operand: Value, args: Arguments, context: FilterContext): Value {
  const path = args.keywords.get('attribute');
  if (path !== undefined) {
    const fallback = args.keywords.get('default');
    const picked = iterate(operand).map((item) => {
      const value = attribute(item, pythonStr(path));
      return value.type === 'UndefinedValue' && fallback !== undefined ? fallback : value;
    });
    return new ArrayValue(picked);
  }
  const name = textArgument(args, 0, 'filter');
  if (name === undefined || args.positional.length > 1)
    throw new Error('map wants an attribute or one filter');
  return new ArrayValue(iterate(operand).map((item) => context.apply(name, item)));
}

function select(
  operand: Value,
  args: Arguments,
  context: FilterContext,
  byAttribute: boolean,
  keep: boolean,
): Value {
  const path = byAttribute ? textArgument(args, 0, 'attribute') : undefined;
  const rest = args.positional.slice(byAttribute ? 1 : 0);
  const name = rest[0] === undefined ? undefined : pythonStr(rest[0]);
  const test = name === undefined ? context.truth : context.test(name);
  const chosen = iterate(operand).filter((item) => {
    const subject = path === undefined ? item : attribute(item, path);
    return test(subject, ...rest.slice(1)) === keep;
  });
  return new ArrayValue(chosen);
}

/** `tojson(ensure_ascii=False, indent=None, separators=None, sort_keys=False)`, as transformers defines it. */
function toJson(operand: Value, args: Arguments): Value {
  const flag = (position: number, name: string): boolean => argument(args, position, name)?.value === true;
  const indent = argument(args, 1, 'indent');
  const pair = argument(args, 2, 'separators');
  const [comma, colon] = pair === undefined ? [] : elements(pair);
  return new StringValue(
    pythonJson(operand, {
      ensureAscii: flag(0, 'ensure_ascii'),
      indent: indent?.type === 'IntegerValue' ? Number(indent.value) : indent && pythonStr(indent),
      separators:
        comma === undefined || colon === undefined ? undefined : [pythonStr(comma), pythonStr(colon)],
      sortKeys: flag(3, 'sort_keys'),
    }),
  );
}
