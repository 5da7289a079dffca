/** How Python writes values: `str()` and `repr()`. */
import { floatRepr } from './numbers.js';
import { ESCAPES, escapeCode, quote } from './quote.js';
import {
  Bytes,
  Callable,
  Dict,
  DictView,
  Iterator,
  isList,
  Markup,
  Namespace,
  NativeObject,
  Range,
  Slice,
  Tuple,
  typeName,
  Undefined,
  type Value,
} from './values.js';

/** `str(value)`: what `{{ value }}` prints. */
export function str(value: Value): string {
  if (typeof value === 'string') return value;
  if (value instanceof Markup) return value.text;
  if (value instanceof Undefined) return '';
  return repr(value);
}

/** `repr(value)`: how a value shows inside a list or a dict. */
export function repr(value: Value): string {
  if (value === null) return 'None';
  switch (typeof value) {
    case 'string':
      return quote(value);
    case 'boolean':
      return value ? 'True' : 'False';
    case 'bigint':
      return String(value);
    case 'number':
      return floatRepr(value);
  }
  if (isList(value)) return `[${value.map(repr).join(', ')}]`;
  if (value instanceof Tuple)
    return value.items.length === 1 ? `(${repr(value.items[0]!)},)` : `(${list(value.items)})`;
  if (value instanceof Dict) return dictRepr(value.entries());
  if (value instanceof DictView) return `dict_${value.kind}([${list(value.items())}])`;
  if (value instanceof Range) {
    const step = value.step === 1n ? '' : `, ${value.step}`;
    return `range(${value.start}, ${value.stop}${step})`;
  }
  if (value instanceof Slice) return `slice(${list([value.start, value.stop, value.step])})`;
  if (value instanceof Markup) return `Markup(${quote(value.text)})`;
  if (value instanceof Bytes) return bytesRepr(value.data);
  if (value instanceof Undefined) return 'Undefined';
  if (value instanceof Namespace) return `<Namespace ${dictRepr([...value.attributes])}>`;
  if (value instanceof NativeObject) return value.repr();
  if (value instanceof Iterator) return `<${value.name} object at 0x0>`;
  if (value instanceof Callable && value.attributes !== undefined) return `<Macro ${quote(value.name)}>`;
  return `<${typeName(value)} ${value instanceof Callable ? value.name : ''} at 0x0>`;
}

const list = (items: readonly Value[]): string => items.map(repr).join(', ');

function dictRepr(entries: readonly (readonly [Value, Value])[]): string {
  return `{${entries.map(([key, value]) => `${repr(key)}: ${repr(value)}`).join(', ')}}`;
}

function bytesRepr(data: Uint8Array): string {
  const text = String.fromCharCode(...data);
  const mark = text.includes("'") && !text.includes('"') ? '"' : "'";
  let out = '';
  for (const character of text) {
    const known = ESCAPES[character];
    if (known !== undefined) out += known;
    else if (character === mark) out += `\\${mark}`;
    else if (character < ' ' || character > '~') out += escapeCode(character);
    else out += character;
  }
  return `b${mark}${out}${mark}`;
}
