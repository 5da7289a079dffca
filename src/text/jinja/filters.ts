/** Jinja's filters, all of them. Those on texts alone are in text-filters.ts. */
import { bind, type Parameter, REQUIRED } from './arguments.js';
import { isPythonError, PythonError, typeError, valueError } from './errors.js';
import { pythonJson } from './json.js';
import { escapeHtml } from './markup.js';
import {
  roundFloat,
  roundInteger,
  scaled,
  toIndex,
  toInteger,
  toReal,
  trueDivide,
  truncate,
} from './numbers.js';
import { arithmetic, equals, iterate, listOf, ordered, size, truth } from './operators.js';
import { prettyPrint } from './pretty-print.js';
import { formatPercent } from './printf.js';
import { repr, str } from './repr.js';
import { attributeOnly, getItem } from './subscript.js';
import { TEXT_FILTERS } from './text-filters.js';
import {
  type Arguments,
  Dict,
  DictView,
  GroupTuple,
  hashKey,
  Iterator,
  integerOf,
  isList,
  Markup,
  orElse,
  Range,
  Tuple,
  textOf,
  typeName,
  Undefined,
  type Value,
} from './values.js';

/** What a filter may ask of the run it is part of. */
export interface FilterContext {
  /** Applies a filter, or a test, by name. @throws PythonError for an unknown name */
  filter(name: string, value: Value, args: Arguments): Value;
  test(name: string, value: Value, args: Arguments): boolean;
}

export type Filter = (value: Value, args: Arguments, context: FilterContext) => Value;

/** A filter with parameters. */
function filter(
  name: string,
  parameters: readonly Parameter[],
  run: (value: Value, ...args: Value[]) => Value,
): readonly [string, Filter] {
  return [name, (value, args) => run(value, ...bind(name, parameters, args))];
}

const ORDER: readonly Parameter[] = [
  ['case_sensitive', false],
  ['attribute', null],
];

const length = (name: string): readonly [string, Filter] => filter(name, [], (value) => BigInt(size(value)));
const fallback = (name: string): readonly [string, Filter] =>
  filter(
    name,
    [
      ['default_value', ''],
      ['boolean', false],
    ],
    (value, other, boolean) =>
      value instanceof Undefined || (truth(boolean!) && !truth(value)) ? other! : value,
  );
const escaping = (name: string): readonly [string, Filter] =>
  filter(name, [], (value) => new Markup(escapeHtml(value)));

export const FILTERS: ReadonlyMap<string, Filter> = new Map<string, Filter>([
  ...TEXT_FILTERS,
  length('length'),
  length('count'),
  fallback('default'),
  fallback('d'),
  escaping('escape'),
  escaping('e'),
  filter('forceescape', [], (value) => new Markup(escapeHtml(str(value)))),
  filter('safe', [], (value) => new Markup(str(value))),
  filter('string', [], (value) => (textOf(value) === undefined ? str(value) : value)),
  filter('list', [], listOf),
  filter('abs', [], absolute),
  filter('attr', [['name', REQUIRED]], (value, name) => attributeOnly(value, str(name!))),
  filter(
    'int',
    [
      ['default', 0n],
      ['base', 10n],
    ],
    toInt,
  ),
  filter('float', [['default', 0]], (value, other) => {
    try {
      return toReal(value);
    } catch (error) {
      if (isPythonError(error, 'TypeError', 'ValueError')) return other!;
      throw error;
    }
  }),
  filter(
    'round',
    [
      ['precision', 0n],
      ['method', 'common'],
    ],
    round,
  ),
  ['format', format],
  filter('first', [], (value) => {
    for (const item of iterate(value)) return item;
    return new Undefined('No first item, sequence was empty.');
  }),
  filter('last', [], (value) =>
    orElse(reversed(value)[0], new Undefined('No last item, sequence was empty.')),
  ),
  filter('random', [], (value) => {
    const length = size(value);
    if (length === 0) return new Undefined('No random item, sequence was empty.');
    return getItem(value, BigInt(Math.floor(Math.random() * length)));
  }),
  filter('reverse', [], reverse),
  filter(
    'join',
    [
      ['d', ''],
      ['attribute', null],
    ],
    (value, separator, attribute) => {
      const get = attributeGetter(attribute!);
      const items = attribute === null ? listOf(value) : listOf(value).map(get);
      return items.map(str).join(str(separator!));
    },
  ),
  filter(
    'sort',
    [
      ['reverse', false],
      ['case_sensitive', false],
      ['attribute', null],
    ],
    (value, backwards, sensitive, attribute) =>
      sorted(listOf(value), sortKeys(attribute!, truth(sensitive!)), truth(backwards!)),
  ),
  filter(
    'dictsort',
    [
      ['case_sensitive', false],
      ['by', 'key'],
      ['reverse', false],
    ],
    dictSort,
  ),
  filter(
    'unique',
    ORDER,
    (value, sensitive, attribute) => new Iterator('generator', unique(value, sensitive!, attribute!)),
  ),
  filter('min', ORDER, (value, sensitive, attribute) => extreme('<', value, sensitive!, attribute!)),
  filter('max', ORDER, (value, sensitive, attribute) => extreme('>', value, sensitive!, attribute!)),
  filter(
    'sum',
    [
      ['attribute', null],
      ['start', 0n],
    ],
    sum,
  ),
  filter(
    'groupby',
    [
      ['attribute', REQUIRED],
      ['default', null],
      ['case_sensitive', false],
    ],
    groupBy,
  ),
  filter(
    'batch',
    [
      ['linecount', REQUIRED],
      ['fill_with', null],
    ],
    (value, count, fill) => new Iterator('generator', batch(value, count!, fill!)),
  ),
  filter(
    'slice',
    [
      ['slices', REQUIRED],
      ['fill_with', null],
    ],
    (value, count, fill) => new Iterator('generator', slice(value, count!, fill!)),
  ),
  filter('items', [], (value) => new Iterator('generator', items(value))),
  ['map', (value, args, context) => new Iterator('generator', map(value, args, context))],
  selecting('select', false, true),
  selecting('reject', false, false),
  selecting('selectattr', true, true),
  selecting('rejectattr', true, false),
  filter(
    'tojson',
    [
      ['ensure_ascii', false],
      ['indent', null],
      ['separators', null],
      ['sort_keys', false],
    ],
    toJson,
  ),
  filter('pprint', [], (value) => prettyPrint(value)),
]);

function absolute(value: Value): Value {
  const integer = integerOf(value);
  if (integer !== undefined) return integer < 0n ? -integer : integer;
  if (typeof value === 'number') return Math.abs(value);
  if (value instanceof Undefined) value.fail();
  throw typeError(`bad operand type for abs(): '${typeName(value)}'`);
}

/** `"42.23"|int` is 42, and what is no number at all the default. */
function toInt(value: Value, other?: Value, base?: Value): Value {
  try {
    return textOf(value) === undefined ? toInteger(value) : toInteger(value, toIndex(base!));
  } catch (error) {
    if (!isPythonError(error, 'TypeError', 'ValueError')) throw error;
  }
  try {
    return truncate(toReal(value));
  } catch (error) {
    if (isPythonError(error, 'TypeError', 'ValueError', 'OverflowError')) return other!;
    throw error;
  }
}

function round(value: Value, precision?: Value, method?: Value): Value {
  const how = str(method!);
  if (!['common', 'ceil', 'floor'].includes(how)) {
    throw new PythonError('FilterArgumentError', 'method must be common, ceil or floor');
  }
  if (value instanceof Undefined) value.fail();
  const integer = integerOf(value);
  if (how === 'common') {
    if (precision === null) {
      // To a whole number, which is an int then.
      if (integer !== undefined) return integer;
      if (typeof value === 'number') return Number.isFinite(value) ? scaled(value, 0) : truncate(value);
    }
    const places = toIndex(precision!);
    if (integer !== undefined) return roundInteger(integer, BigInt(places));
    if (typeof value === 'number') return roundFloat(value, places);
    throw typeError(`type ${typeName(value)} doesn't define __round__ method`);
  }
  const unit = arithmetic('**', 10n, precision!);
  const product = arithmetic('*', value, unit);
  const real = typeof product === 'bigint' ? undefined : toReal(product);
  if (real !== undefined && textOf(product) !== undefined) throw typeError('must be real number, not str');
  const whole =
    real === undefined ? (product as bigint) : truncate(how === 'ceil' ? Math.ceil(real) : Math.floor(real));
  return typeof unit === 'bigint' ? trueDivide(whole, unit) : arithmetic('/', whole, unit);
}

function format(value: Value, { positional: args, keywords }: Arguments): Value {
  if (args.length > 0 && keywords.size > 0) {
    throw new PythonError(
      'FilterArgumentError',
      "can't handle positional and keyword arguments at the same time",
    );
  }
  const values = keywords.size > 0 ? new Dict(keywords) : new Tuple(args);
  return formatPercent(textOf(value) === undefined ? str(value) : (value as string | Markup), values);
}

/** The items of a sequence from the last to the first. */
function reversed(value: Value): Value[] {
  if (
    textOf(value) !== undefined ||
    isList(value) ||
    value instanceof Tuple ||
    value instanceof Range ||
    value instanceof Dict ||
    value instanceof DictView ||
    value instanceof Undefined
  ) {
    return listOf(value).reverse();
  }
  throw typeError(`'${typeName(value)}' object is not reversible`);
}

function reverse(value: Value): Value {
  const text = textOf(value);
  if (text !== undefined) {
    const turned = [...text].reverse().join('');
    return value instanceof Markup ? new Markup(turned) : turned;
  }
  if (value instanceof Iterator) return listOf(value).reverse();
  const name = isList(value) ? 'list_reverseiterator' : 'reversed';
  return new Iterator(name, reversed(value));
}

/** Reads `a.b.0` of an item, by the rules of `[]`. */
function attributeGetter(attribute: Value, other: Value = null): (item: Value) => Value {
  const text = textOf(attribute);
  const parts: Value[] =
    attribute === null
      ? []
      : text === undefined
        ? [attribute]
        : text.split('.').map((part) => (/^\p{Nd}+$/u.test(part) ? toInteger(part) : part));
  return (item) => {
    let value = item;
    for (const part of parts) {
      value = getItem(value, part);
      if (other !== null && value instanceof Undefined) value = other;
    }
    return value;
  };
}

function ignoreCase(value: Value): Value {
  return textOf(value)?.toLowerCase() ?? value;
}

/** A key for comparing: texts of either case are alike unless told otherwise. */
function keyGetter(attribute: Value, sensitive: boolean, other: Value = null): (item: Value) => Value {
  const get = attributeGetter(attribute, other);
  return sensitive ? get : (item) => ignoreCase(get(item));
}

/** The keys of `sort`: several attributes may be named, with commas. */
function sortKeys(attribute: Value, sensitive: boolean): (item: Value) => Value {
  const text = textOf(attribute);
  const getters = (text === undefined ? [attribute] : text.split(',')).map((name) =>
    keyGetter(name, sensitive),
  );
  return (item) => getters.map((get) => get(item));
}

/** A stable sort. */
function sorted(values: Value[], keyOf: (item: Value) => Value, backwards: boolean): Value[] {
  const keyed = values.map((value) => ({ value, key: keyOf(value) }));
  const sign = backwards ? -1 : 1;
  return keyed
    .sort((a, b) => (ordered('<', b.key, a.key) ? sign : ordered('<', a.key, b.key) ? -sign : 0))
    .map(({ value }) => value);
}

function dictSort(value: Value, sensitive?: Value, by?: Value, backwards?: Value): Value {
  const at = ['key', 'value'].indexOf(str(by!));
  if (at < 0) {
    throw new PythonError('FilterArgumentError', 'You can only sort by either "key" or "value"');
  }
  if (!(value instanceof Dict)) {
    if (value instanceof Undefined) value.fail();
    throw new PythonError('AttributeError', `'${typeName(value)}' object has no attribute 'items'`);
  }
  const pairs = value.entries().map((entry) => new Tuple(entry));
  return sorted(
    pairs,
    (pair) => (truth(sensitive!) ? (pair as Tuple).items[at]! : ignoreCase((pair as Tuple).items[at]!)),
    truth(backwards!),
  );
}

function* unique(value: Value, sensitive: Value, attribute: Value): Generator<Value> {
  const get = keyGetter(attribute, truth(sensitive));
  const seen = new Set<unknown>();
  for (const item of iterate(value)) {
    const key = hashKey(get(item));
    if (seen.has(key)) continue;
    seen.add(key);
    yield item;
  }
}

function extreme(operator: '<' | '>', value: Value, sensitive: Value, attribute: Value): Value {
  const get = keyGetter(attribute, truth(sensitive));
  let best: { readonly item: Value; readonly key: Value } | undefined;
  for (const item of iterate(value)) {
    const key = get(item);
    if (best === undefined || ordered(operator, key, best.key)) best = { item, key };
  }
  return best === undefined ? new Undefined('No aggregated item, sequence was empty.') : best.item;
}

function sum(value: Value, attribute?: Value, start?: Value): Value {
  if (textOf(start!) !== undefined) throw typeError("sum() can't sum strings [use ''.join(seq) instead]");
  const get = attributeGetter(attribute!);
  let total = start as Value;
  for (const item of iterate(value)) total = arithmetic('+', total, get(item));
  return total;
}

function groupBy(value: Value, attribute?: Value, other?: Value, sensitive?: Value): Value {
  const get = keyGetter(attribute!, truth(sensitive!), other);
  const plain = attributeGetter(attribute!, other);
  const groups: { readonly key: Value; readonly items: Value[] }[] = [];
  for (const item of sorted(listOf(value), get, false)) {
    const key = get(item);
    const last = groups.at(-1);
    if (last !== undefined && equals(last.key, key)) last.items.push(item);
    else groups.push({ key, items: [item] });
  }
  // Where case does not count, a group has the name of its first item.
  return groups.map(({ key, items }) => new GroupTuple([truth(sensitive!) ? key : plain(items[0]!), items]));
}

function* batch(value: Value, count: Value, fill: Value): Generator<Value> {
  let row: Value[] = [];
  for (const item of iterate(value)) {
    if (integerOf(count) !== undefined && row.length === toIndex(count)) {
      yield row;
      row = [];
    }
    row.push(item);
  }
  if (row.length === 0) return;
  if (fill !== null) for (let left = toIndex(count) - row.length; left > 0; left--) row.push(fill);
  yield row;
}

function* slice(value: Value, count: Value, fill: Value): Generator<Value> {
  const all = listOf(value);
  const slices = toIndex(count);
  if (slices === 0) throw new PythonError('ZeroDivisionError', 'integer division or modulo by zero');
  const each = Math.floor(all.length / slices);
  const longer = all.length - each * slices;
  let start = 0;
  for (let i = 0; i < slices; i++) {
    const end = start + each + (i < longer ? 1 : 0);
    const part = all.slice(start, end);
    yield fill !== null && i >= longer ? [...part, fill] : part;
    start = end;
  }
}

function* items(value: Value): Generator<Value> {
  if (value instanceof Undefined) return;
  if (!(value instanceof Dict)) throw typeError('Can only get item pairs from a mapping.');
  for (const entry of value.entries()) yield new Tuple(entry);
}

function* map(value: Value, args: Arguments, context: FilterContext): Generator<Value> {
  if (!truth(value)) return;
  const { positional: given, keywords } = args;
  if (given.length === 0 && keywords.has('attribute')) {
    const other = keywords.get('default') ?? null;
    for (const name of keywords.keys()) {
      if (name === 'attribute' || name === 'default') continue;
      throw new PythonError('FilterArgumentError', `Unexpected keyword argument ${repr(name)}`);
    }
    const get = attributeGetter(keywords.get('attribute')!, other);
    for (const item of iterate(value)) yield get(item);
    return;
  }
  const [name, ...rest] = given;
  if (name === undefined) throw new PythonError('FilterArgumentError', 'map requires a filter argument');
  for (const item of iterate(value)) yield context.filter(str(name), item, { positional: rest, keywords });
}

/** `select` and its like. @param byAttribute the first argument names what is tested of an item */
function selecting(name: string, byAttribute: boolean, keep: boolean): readonly [string, Filter] {
  return [
    name,
    (value, args, context) => new Iterator('generator', selected(value, args, context, byAttribute, keep)),
  ];
}

function* selected(
  value: Value,
  { positional: given, keywords }: Arguments,
  context: FilterContext,
  byAttribute: boolean,
  keep: boolean,
): Generator<Value> {
  if (!truth(value)) return;
  if (byAttribute && given.length === 0) {
    throw new PythonError('FilterArgumentError', 'Missing parameter for attribute name');
  }
  const get = byAttribute ? attributeGetter(given[0]!) : (item: Value): Value => item;
  const [test, ...rest] = given.slice(byAttribute ? 1 : 0);
  for (const item of iterate(value)) {
    const subject = get(item);
    const holds =
      test === undefined ? truth(subject) : context.test(str(test), subject, { positional: rest, keywords });
    if (holds === keep) yield item;
  }
}

/** `tojson(ensure_ascii=False, indent=None, separators=None, sort_keys=False)`, as transformers defines it. */
function toJson(value: Value, ascii?: Value, indent?: Value, separators?: Value, sortKeys?: Value): Value {
  const pair = separators === null ? undefined : listOf(separators!);
  if (pair !== undefined && pair.length !== 2)
    throw valueError(`not enough values to unpack (expected 2, got ${pair.length})`);
  return pythonJson(value, {
    ensureAscii: truth(ascii!),
    indent: indent === null ? undefined : (textOf(indent!) ?? toIndex(indent!)),
    separators: pair && [str(pair[0]!), str(pair[1]!)],
    sortKeys: truth(sortKeys!),
  });
}
