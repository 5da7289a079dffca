/** Jinja's filters, all of them. What those on texts do is in text-filters.ts, on sequences in sequence-filters.ts. */
import { bind, type Parameter, REQUIRED } from './arguments.js';
import { isPythonError, PythonError, typeError, valueError } from './errors.js';
import type { Filter } from './filter-context.js';
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
import { arithmetic, iterate, listOf, size, truth } from './operators.js';
import { prettyPrint } from './pretty-print.js';
import { formatPercent } from './printf.js';
import { str } from './repr.js';
import {
  attributeGetter,
  batch,
  dictSort,
  extreme,
  groupBy,
  items,
  map,
  reverse,
  reversed,
  selected,
  slice,
  sorted,
  sortKeys,
  sum,
  unique,
} from './sequence-filters.js';
import { attributeOnly, getItem } from './subscript.js';
import { TEXT_FILTERS } from './text-filters.js';
import {
  type Arguments,
  Dict,
  Iterator,
  integerOf,
  Markup,
  orElse,
  Tuple,
  textOf,
  typeName,
  Undefined,
  type Value,
} from './values.js';

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

/** `select` and its like. @param byAttribute the first argument names what is tested of an item */
function selecting(name: string, byAttribute: boolean, keep: boolean): readonly [string, Filter] {
  return [
    name,
    (value, args, context) => new Iterator('generator', selected(value, args, context, byAttribute, keep)),
  ];
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
