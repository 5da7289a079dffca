/** What Jinja's filters on sequences and mappings do: order, choose, group, cut and sum items. filters.ts names them. */
import { PythonError, typeError } from './errors.js';
import type { FilterContext } from './filter-context.js';
import { toIndex, toInteger } from './numbers.js';
import { arithmetic, equals, iterate, listOf, ordered, truth } from './operators.js';
import { repr, str } from './repr.js';
import { getItem } from './subscript.js';
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
  Range,
  Tuple,
  textOf,
  typeName,
  Undefined,
  type Value,
} from './values.js';

/** The items of a sequence from the last to the first. */
export function reversed(value: Value): Value[] {
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

export function reverse(value: Value): Value {
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
export function attributeGetter(attribute: Value, other: Value = null): (item: Value) => Value {
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
export function sortKeys(attribute: Value, sensitive: boolean): (item: Value) => Value {
  const text = textOf(attribute);
  const getters = (text === undefined ? [attribute] : text.split(',')).map((name) =>
    keyGetter(name, sensitive),
  );
  return (item) => getters.map((get) => get(item));
}

/** A stable sort. */
export function sorted(values: Value[], keyOf: (item: Value) => Value, backwards: boolean): Value[] {
  const keyed = values.map((value) => ({ value, key: keyOf(value) }));
  const sign = backwards ? -1 : 1;
  return keyed
    .sort((a, b) => (ordered('<', b.key, a.key) ? sign : ordered('<', a.key, b.key) ? -sign : 0))
    .map(({ value }) => value);
}

export function dictSort(value: Value, sensitive?: Value, by?: Value, backwards?: Value): Value {
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

export function* unique(value: Value, sensitive: Value, attribute: Value): Generator<Value> {
  const get = keyGetter(attribute, truth(sensitive));
  const seen = new Set<unknown>();
  for (const item of iterate(value)) {
    const key = hashKey(get(item));
    if (seen.has(key)) continue;
    seen.add(key);
    yield item;
  }
}

export function extreme(operator: '<' | '>', value: Value, sensitive: Value, attribute: Value): Value {
  const get = keyGetter(attribute, truth(sensitive));
  let best: { readonly item: Value; readonly key: Value } | undefined;
  for (const item of iterate(value)) {
    const key = get(item);
    if (best === undefined || ordered(operator, key, best.key)) best = { item, key };
  }
  return best === undefined ? new Undefined('No aggregated item, sequence was empty.') : best.item;
}

export function sum(value: Value, attribute?: Value, start?: Value): Value {
  if (textOf(start!) !== undefined) throw typeError("sum() can't sum strings [use ''.join(seq) instead]");
  const get = attributeGetter(attribute!);
  let total = start as Value;
  for (const item of iterate(value)) total = arithmetic('+', total, get(item));
  return total;
}

export function groupBy(value: Value, attribute?: Value, other?: Value, sensitive?: Value): Value {
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

export function* batch(value: Value, count: Value, fill: Value): Generator<Value> {
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

export function* slice(value: Value, count: Value, fill: Value): Generator<Value> {
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

export function* items(value: Value): Generator<Value> {
  if (value instanceof Undefined) return;
  if (!(value instanceof Dict)) throw typeError('Can only get item pairs from a mapping.');
  for (const entry of value.entries()) yield new Tuple(entry);
}

export function* map(value: Value, args: Arguments, context: FilterContext): Generator<Value> {
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

export function* selected(
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
