/** `value[key]`, `value.name` and the sandbox around them. */

import { dictMethod, listMethod, rangeMethod, tupleMethod } from './container-methods.js';
import { isPythonError, PythonError, typeError } from './errors.js';
import { markupOf } from './markup.js';
import { numberAttribute } from './number-methods.js';
import { toIndex } from './numbers.js';
import { sliceBounds, sliceIndices, sliceText } from './operators.js';
import { quote } from './quote.js';
import { repr } from './repr.js';
import { stringMethod } from './string-methods.js';
import { charactersOf } from './text.js';
import {
  Bytes,
  Callable,
  Dict,
  DictView,
  GroupTuple,
  integerOf,
  isList,
  Namespace,
  NativeObject,
  Range,
  Slice,
  Tuple,
  textOf,
  typeName,
  Undefined,
  type Value,
} from './values.js';

/** `value.name` in a template: an attribute if there is one, else an item. */
export function getAttribute(value: Value, name: string): Value {
  if (value instanceof Undefined) value.fail();
  const found = attribute(value, name);
  if (found !== undefined) return isSafe(value, name) ? found : unsafe(value, name);
  return itemOrUndefined(value, name);
}

/** `value[key]` in a template: an item if there is one, else an attribute. */
export function getItem(value: Value, key: Value): Value {
  if (value instanceof Undefined) value.fail();
  try {
    return item(value, key);
  } catch (error) {
    if (!isPythonError(error, 'TypeError', 'KeyError', 'IndexError')) throw error;
  }
  const name = textOf(key);
  const found = name === undefined ? undefined : attribute(value, name);
  if (found !== undefined) return isSafe(value, name!) ? found : unsafe(value, name!);
  return missing(value, key);
}

function itemOrUndefined(value: Value, name: string): Value {
  try {
    return item(value, name);
  } catch (error) {
    if (!isPythonError(error, 'TypeError', 'KeyError', 'IndexError')) throw error;
    return missing(value, name);
  }
}

function missing(value: Value, key: Value): Undefined {
  const name = textOf(key);
  const what = value === null ? 'None' : `${typeName(value)} object`;
  return new Undefined(
    name === undefined
      ? `${what} has no element ${repr(key)}`
      : `${quote(what)} has no attribute ${quote(name)}`,
  );
}

function unsafe(value: Value, name: string): Undefined {
  return new Undefined(`access to attribute ${quote(name)} of '${typeName(value)}' object is unsafe.`, true);
}

const LIST_CHANGES = new Set(['append', 'clear', 'pop', 'reverse', 'insert', 'sort', 'extend', 'remove']);
const DICT_CHANGES = new Set(['clear', 'pop', 'popitem', 'setdefault', 'update']);

function isSafe(value: Value, name: string): boolean {
  if (name.startsWith('_')) return false;
  if (isList(value)) return !LIST_CHANGES.has(name);
  return !(value instanceof Dict && DICT_CHANGES.has(name));
}

/** Attributes that every object has, none of them for templates. */
const OF_ALL = new Set(
  (
    '__class__ __delattr__ __dir__ __doc__ __eq__ __format__ __ge__ __getattribute__ __getstate__ __gt__ __hash__ ' +
    '__init__ __init_subclass__ __le__ __lt__ __ne__ __new__ __reduce__ __reduce_ex__ __repr__ __setattr__ __sizeof__ ' +
    '__str__ __subclasshook__'
  ).split(' '),
);
const OF_CONTAINERS = new Set(['__len__', '__getitem__', '__iter__', '__contains__', '__add__', '__mul__']);

/** `getattr(value, name)`, undefined where Python has an AttributeError. */
function attribute(value: Value, name: string): Value | undefined {
  if (value instanceof Namespace) return value.attributes.get(name);
  if (OF_ALL.has(name)) return null;
  if (textOf(value) !== undefined) return OF_CONTAINERS.has(name) ? null : stringMethod(value, name);
  if (value === null) return undefined;
  if (isList(value))
    return LIST_CHANGES.has(name) || OF_CONTAINERS.has(name) ? null : listMethod(value, name);
  if (value instanceof Dict)
    return DICT_CHANGES.has(name) || OF_CONTAINERS.has(name) ? null : dictMethod(value, name);
  if (value instanceof Tuple) {
    if (value instanceof GroupTuple && name === 'grouper') return value.items[0];
    if (value instanceof GroupTuple && name === 'list') return value.items[1];
    return tupleMethod(value, name);
  }
  if (value instanceof Range) return rangeMethod(value, name);
  if (value instanceof NativeObject) return value.attribute(name);
  if (value instanceof Callable) return value.attributes?.get(name);
  if (value instanceof DictView || value instanceof Bytes) return undefined;
  return numberAttribute(value, name);
}

/** `attr` filter: an attribute, never an item. */
export function attributeOnly(value: Value, name: string): Value {
  if (value instanceof Undefined) value.fail();
  const found = attribute(value, name);
  if (found === undefined) return missing(value, name);
  return isSafe(value, name) ? found : unsafe(value, name);
}

/** `value[key]` of Python. @throws PythonError TypeError, IndexError, KeyError */
export function item(value: Value, key: Value): Value {
  if (value instanceof Undefined) value.fail();
  if (value instanceof Dict) {
    const found = value.get(key);
    if (found === undefined) throw new PythonError('KeyError', repr(key));
    return found;
  }
  const text = textOf(value);
  if (text !== undefined) {
    if (key instanceof Slice) return markupOf(value, sliceText(text, key));
    const points = charactersOf(text);
    return markupOf(value, points[place(key, points.length, 'string')]!);
  }
  const items = isList(value) ? value : value instanceof Tuple ? value.items : undefined;
  if (items !== undefined) {
    if (key instanceof Slice) {
      const taken = sliceIndices(key, items.length).map((i) => items[i]!);
      return isList(value) ? taken : new Tuple(taken);
    }
    return items[place(key, items.length, isList(value) ? 'list' : 'tuple')]!;
  }
  if (value instanceof Range) {
    if (!(key instanceof Slice)) return value.at(place(key, value.length, 'range object'));
    const [start, stop, stride] = sliceBounds(key, value.length);
    return new Range(value.at(start), value.at(stop), value.step * stride);
  }
  if (value instanceof Bytes) {
    if (key instanceof Slice)
      return new Bytes(Uint8Array.from(sliceIndices(key, value.data.length), (i) => value.data[i]!));
    return BigInt(value.data[place(key, value.data.length, 'bytes')]!);
  }
  throw typeError(`'${typeName(value)}' object is not subscriptable`);
}

function place(key: Value, length: number, what: string): number {
  if (integerOf(key) === undefined) {
    throw typeError(`${what} indices must be integers or slices, not ${typeName(key)}`);
  }
  const index = toIndex(key);
  const at = index < 0 ? index + length : index;
  if (at < 0 || at >= length) throw new PythonError('IndexError', `${what} index out of range`);
  return at;
}
