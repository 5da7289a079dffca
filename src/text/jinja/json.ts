import { typeError } from './errors.js';
import { floatRepr } from './numbers.js';
import { compareTexts } from './text.js';
import { Dict, isList, Tuple, textOf, typeName, type Value } from './values.js';

export interface PythonJsonOptions {
  readonly indent?: number | string | undefined;
  readonly ensureAscii?: boolean | undefined;
  readonly sortKeys?: boolean | undefined;
  /** Between items, and between a key and its value. */
  readonly separators?: readonly [string, string] | undefined;
}

/**
 * `json.dumps(value, ensure_ascii=False, …)`: a space after commas and colons, floats as Python writes them.
 *
 * @throws PythonError TypeError for a value that JSON cannot hold
 */
export function pythonJson(value: Value, options: PythonJsonOptions = {}): string {
  const indent =
    typeof options.indent === 'number' ? ' '.repeat(Math.max(0, options.indent)) : options.indent;
  const [comma, colon] = options.separators ?? [indent === undefined ? ', ' : ',', ': '];
  const string = (text: string): string => jsonString(text, options.ensureAscii === true);

  const block = (open: string, parts: string[], close: string, depth: number): string => {
    if (parts.length === 0) return open + close;
    if (indent === undefined) return open + parts.join(comma) + close;
    const inner = `\n${indent.repeat(depth + 1)}`;
    return `${open}${inner}${parts.join(comma + inner)}\n${indent.repeat(depth)}${close}`;
  };
  const write = (item: Value, depth: number): string => {
    const text = textOf(item);
    if (text !== undefined) return string(text);
    if (item === null) return 'null';
    if (typeof item === 'boolean') return item ? 'true' : 'false';
    if (typeof item === 'bigint') return String(item);
    if (typeof item === 'number') return jsonFloat(item);
    if (isList(item) || item instanceof Tuple) {
      const items = item instanceof Tuple ? item.items : item;
      return block(
        '[',
        items.map((part) => write(part, depth + 1)),
        ']',
        depth,
      );
    }
    if (item instanceof Dict) {
      const pairs = options.sortKeys === true ? sorted(item.entries()) : item.entries();
      return block(
        '{',
        pairs.map(([key, part]) => string(keyText(key)) + colon + write(part, depth + 1)),
        '}',
        depth,
      );
    }
    throw typeError(`Object of type ${typeName(item)} is not JSON serializable`);
  };
  return write(value, 0);
}

function jsonFloat(value: number): string {
  if (Number.isNaN(value)) return 'NaN';
  if (!Number.isFinite(value)) return value > 0 ? 'Infinity' : '-Infinity';
  return floatRepr(value);
}

function keyText(key: Value): string {
  const text = textOf(key);
  if (text !== undefined) return text;
  if (key === null) return 'null';
  if (typeof key === 'boolean') return key ? 'true' : 'false';
  if (typeof key === 'bigint') return String(key);
  if (typeof key === 'number') return jsonFloat(key);
  throw typeError(`keys must be str, int, float, bool or None, not ${typeName(key)}`);
}

function sorted(entries: readonly (readonly [Value, Value])[]): (readonly [Value, Value])[] {
  return [...entries].sort(([a], [b]) => {
    const [left, right] = [textOf(a), textOf(b)];
    if (left !== undefined && right !== undefined) return compareTexts(left, right);
    if (left === undefined && right === undefined && a !== null && b !== null) return Number(a) - Number(b);
    throw typeError(`'<' not supported between instances of '${typeName(b)}' and '${typeName(a)}'`);
  });
}

function jsonString(text: string, ascii: boolean): string {
  const quoted = ascii || !/\p{Surrogate}/u.test(text) ? JSON.stringify(text) : quoteWithSurrogates(text);
  // U+007F is ASCII, but Python escapes it with the rest.
  return ascii
    ? quoted.replace(/[\u007f-\uffff]/g, (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`)
    : quoted;
}

/** Half a surrogate pair stays as it is, where JSON.stringify would escape it. */
function quoteWithSurrogates(text: string): string {
  const parts = text.split(/(\p{Surrogate})/u);
  return `"${parts.map((part, i) => (i % 2 === 1 ? part : JSON.stringify(part).slice(1, -1))).join('')}"`;
}
