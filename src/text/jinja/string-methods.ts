import { pythonSplitLines, pythonSplitWhitespace, pythonStr, pythonStrip } from './python-values.js';
import {
  type Arguments,
  ArrayValue,
  argument,
  IntegerValue,
  integerArgument,
  iterate,
  needText,
  StringValue,
  textArgument,
  type Value,
} from './values.js';

const strings = (texts: readonly string[]): Value =>
  new ArrayValue(texts.map((text) => new StringValue(text)));

export type StringMethod = (text: string, args: Arguments) => Value;

/** `str` methods that the engine lacks or gives another meaning. */
export const STRING_METHODS: ReadonlyMap<string, StringMethod> = new Map<string, StringMethod>([
  ['strip', (text, args) => new StringValue(pythonStrip(text, textArgument(args, 0, 'chars')))],
  ['lstrip', (text, args) => new StringValue(pythonStrip(text, textArgument(args, 0, 'chars'), 'left'))],
  ['rstrip', (text, args) => new StringValue(pythonStrip(text, textArgument(args, 0, 'chars'), 'right'))],
  ['split', (text, args) => strings(split(text, args))],
  ['rsplit', (text, args) => strings(rsplit(text, args))],
  ['splitlines', (text) => strings(pythonSplitLines(text))],
  ['find', (text, args) => new IntegerValue(characterIndex(text, text.indexOf(needText(args, 0, 'sub'))))],
  ['count', (text, args) => new IntegerValue(countOf(text, needText(args, 0, 'sub')))],
  [
    'removeprefix',
    (text, args) => {
      const prefix = needText(args, 0, 'prefix');
      return new StringValue(text.startsWith(prefix) ? text.slice(prefix.length) : text);
    },
  ],
  [
    'removesuffix',
    (text, args) => {
      const suffix = needText(args, 0, 'suffix');
      const ends = suffix !== '' && text.endsWith(suffix);
      return new StringValue(ends ? text.slice(0, -suffix.length) : text);
    },
  ],
  [
    'join',
    (text, args) => {
      const list = argument(args, 0, 'iterable');
      return new StringValue((list === undefined ? [] : iterate(list)).map(pythonStr).join(text));
    },
  ],
]);

function split(text: string, args: Arguments): string[] {
  const separator = textArgument(args, 0, 'sep');
  const most = integerArgument(args, 1, 'maxsplit') ?? -1;
  if (separator === undefined) {
    const words = pythonSplitWhitespace(text);
    if (most < 0 || words.length <= most + 1) return words;
    let rest = pythonStrip(text, undefined, 'left');
    const head = words.slice(0, most);
    for (const word of head) rest = pythonStrip(rest.slice(word.length), undefined, 'left');
    return [...head, rest];
  }
  if (separator === '') throw new Error('empty separator');
  const parts = text.split(separator);
  return most < 0 || parts.length <= most + 1
    ? parts
    : [...parts.slice(0, most), parts.slice(most).join(separator)];
}

function rsplit(text: string, args: Arguments): string[] {
  const separator = textArgument(args, 0, 'sep');
  const most = integerArgument(args, 1, 'maxsplit') ?? -1;
  if (separator === undefined) {
    if (most >= 0) throw new Error('rsplit() with maxsplit wants a separator');
    return pythonSplitWhitespace(text);
  }
  if (separator === '') throw new Error('empty separator');
  const parts = text.split(separator);
  const joined = parts.length - most;
  return most < 0 || joined <= 1 ? parts : [parts.slice(0, joined).join(separator), ...parts.slice(joined)];
}

function countOf(text: string, part: string): number {
  return part === '' ? [...text].length + 1 : text.split(part).length - 1;
}

/** A position in UTF-16 units as one in characters. */
function characterIndex(text: string, unit: number): number {
  return unit < 0 ? -1 : [...text.slice(0, unit)].length;
}
