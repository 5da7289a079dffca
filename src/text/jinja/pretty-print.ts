import { repr } from './repr.js';
import { compareTexts } from './text.js';
import { Dict, isList, Tuple, textOf, type Value } from './values.js';

const WIDTH = 80;

/** `pprint.pformat(value)`: as repr with the keys of dicts in order, over several lines where one is too short. */
export function prettyPrint(value: Value): string {
  return write(value, 0, 0);
}

function flat(value: Value): string {
  if (value instanceof Dict) {
    return `{${inOrder(value)
      .map(([key, item]) => `${flat(key)}: ${flat(item)}`)
      .join(', ')}}`;
  }
  if (isList(value)) return `[${value.map(flat).join(', ')}]`;
  if (value instanceof Tuple)
    return `(${value.items.map(flat).join(', ')}${value.items.length === 1 ? ',' : ''})`;
  return repr(value);
}

function inOrder(dict: Dict): (readonly [Value, Value])[] {
  return [...dict.entries()].sort(([a], [b]) => {
    const [left, right] = [textOf(a), textOf(b)];
    if (left !== undefined && right !== undefined) return compareTexts(left, right);
    return left === undefined && right === undefined ? Number(a) - Number(b) : left === undefined ? -1 : 1;
  });
}

/** @param indent where the value stands @param after how much follows it in its line */
function write(value: Value, indent: number, after: number): string {
  const line = flat(value);
  if (line.length <= WIDTH - indent - after) return line;
  const block = (open: string, parts: readonly ((after: number) => string)[], close: string): string => {
    const lines = parts.map((part, i) => part(i === parts.length - 1 ? after + close.length : 1));
    return open + lines.join(`,\n${' '.repeat(indent + 1)}`) + close;
  };
  if (value instanceof Dict) {
    return block(
      '{',
      inOrder(value).map(([key, item]) => (rest) => {
        const front = `${flat(key)}: `;
        return front + write(item, indent + 1 + front.length, rest);
      }),
      '}',
    );
  }
  const items = isList(value) ? value : value instanceof Tuple ? value.items : undefined;
  if (items === undefined || items.length === 0) return line;
  const [open, close] = isList(value) ? ['[', ']'] : ['(', items.length === 1 ? ',)' : ')'];
  return block(
    open,
    items.map((item) => (rest) => write(item, indent + 1, rest)),
    close,
  );
}
