/** Methods of str. */
import { bind, method, needText, type Parameter, REQUIRED, textOrNone } from './arguments.js';
import {
  all,
  capitalize,
  caseFold,
  isAlphabetic,
  isAlphanumeric,
  isCase,
  isDecimal,
  isDigit,
  isNumeric,
  isTitle,
  swapCase,
  toTitle,
} from './characters.js';
import { PythonError, typeError, valueError } from './errors.js';
import { formatMethod } from './format.js';
import { escapeHtml, stripTags, unescapeHtml } from './markup.js';
import { toIndex } from './numbers.js';
import { iterate, truth } from './operators.js';
import { isPrintable } from './quote.js';
import { str } from './repr.js';
import {
  countOf,
  isSpace,
  lengthOf,
  replaceText,
  rsplitWhitespace,
  splitLines,
  splitWhitespace,
  strip,
  toCharacters,
  toUnits,
} from './text.js';
import {
  Bytes,
  Callable,
  Dict,
  integerOf,
  isList,
  Markup,
  Tuple,
  textOf,
  typeName,
  type Value,
} from './values.js';

const NONE: readonly Parameter[] = [];
const CHARS: readonly Parameter[] = [['/chars', null]];
const SPLIT: readonly Parameter[] = [
  ['sep', null],
  ['maxsplit', -1n],
];
const PART: readonly Parameter[] = [['/sep', REQUIRED]];
const PAD: readonly Parameter[] = [
  ['/width', REQUIRED],
  ['/fillchar', ' '],
];
const SEARCH: readonly Parameter[] = [
  ['/sub', REQUIRED],
  ['/start', null],
  ['/end', null],
];

/** What a method makes of the text and its arguments. */
type Run = (text: string, args: readonly Value[], origin: Value) => Value;

const changed = (change: (text: string) => string): readonly [readonly Parameter[], Run] => [
  NONE,
  (text) => change(text),
];
const asked = (ask: (text: string) => boolean): readonly [readonly Parameter[], Run] => [NONE, ask];

const METHODS: Readonly<Record<string, readonly [readonly Parameter[], Run]>> = {
  upper: changed((text) => text.toUpperCase()),
  lower: changed((text) => text.toLowerCase()),
  capitalize: changed(capitalize),
  title: changed(toTitle),
  swapcase: changed(swapCase),
  casefold: changed(caseFold),
  isalnum: asked((text) => all(text, isAlphanumeric)),
  isalpha: asked((text) => all(text, isAlphabetic)),
  isascii: asked((text) => /^[\0-\x7f]*$/.test(text)),
  isdecimal: asked((text) => all(text, isDecimal)),
  isdigit: asked((text) => all(text, isDigit)),
  isnumeric: asked((text) => all(text, isNumeric)),
  isidentifier: asked((text) => /^[\p{XID_Start}_]\p{XID_Continue}*$/u.test(text)),
  islower: asked((text) => isCase(text, 'lower')),
  isupper: asked((text) => isCase(text, 'upper')),
  istitle: asked(isTitle),
  isprintable: asked((text) => text === '' || all(text, isPrintable)),
  isspace: asked((text) => all(text, isSpace)),
  strip: [CHARS, (text, [chars]) => strip(text, textOrNone(chars!, 'strip arg'))],
  lstrip: [CHARS, (text, [chars]) => strip(text, textOrNone(chars!, 'lstrip arg'), 'left')],
  rstrip: [CHARS, (text, [chars]) => strip(text, textOrNone(chars!, 'rstrip arg'), 'right')],
  split: [SPLIT, (text, [separator, most]) => split(text, separator!, most!)],
  rsplit: [SPLIT, (text, [separator, most]) => rsplit(text, separator!, most!)],
  splitlines: [[['keepends', false]], (text, [keep]) => splitLines(text, truth(keep!))],
  partition: [
    PART,
    (text, [separator]) => partition(text, needPart(separator!), text.indexOf(needPart(separator!)), 0),
  ],
  rpartition: [
    PART,
    (text, [separator]) => partition(text, needPart(separator!), text.lastIndexOf(needPart(separator!)), 2),
  ],
  find: [SEARCH, (text, args) => BigInt(search(text, args, 'indexOf'))],
  rfind: [SEARCH, (text, args) => BigInt(search(text, args, 'lastIndexOf'))],
  index: [SEARCH, (text, args) => found(search(text, args, 'indexOf'))],
  rindex: [SEARCH, (text, args) => found(search(text, args, 'lastIndexOf'))],
  count: [SEARCH, (text, args) => BigInt(count(text, args))],
  startswith: [SEARCH, (text, args) => begins(text, args, 'startsWith')],
  endswith: [SEARCH, (text, args) => begins(text, args, 'endsWith')],
  removeprefix: [
    [['/prefix', REQUIRED]],
    (text, [prefix]) => {
      const front = needText(prefix!, 'removeprefix() argument');
      return text.startsWith(front) ? text.slice(front.length) : text;
    },
  ],
  removesuffix: [
    [['/suffix', REQUIRED]],
    (text, [suffix]) => {
      const back = needText(suffix!, 'removesuffix() argument');
      return back !== '' && text.endsWith(back) ? text.slice(0, -back.length) : text;
    },
  ],
  replace: [
    [
      ['/old', REQUIRED],
      ['/new', REQUIRED],
      ['/count', -1n],
    ],
    (text, [old, replacement, most], origin) => {
      const into =
        origin instanceof Markup ? escapeHtml(replacement!) : needText(replacement!, 'replace() argument 2');
      return replaceText(text, needText(old!, 'replace() argument 1'), into, toIndex(most!));
    },
  ],
  join: [[['/iterable', REQUIRED]], (text, [items], origin) => join(text, items!, origin)],
  center: [PAD, (text, [width, fill]) => pad(text, width!, fill!, 'both')],
  ljust: [PAD, (text, [width, fill]) => pad(text, width!, fill!, 'right')],
  rjust: [PAD, (text, [width, fill]) => pad(text, width!, fill!, 'left')],
  zfill: [[['/width', REQUIRED]], (text, [width]) => zeroFill(text, toIndex(width!))],
  expandtabs: [[['tabsize', 8n]], (text, [size]) => expandTabs(text, toIndex(size!))],
  translate: [[['/table', REQUIRED]], (text, [table]) => translate(text, table!)],
  maketrans: [
    [
      ['/x', REQUIRED],
      ['/y', null],
      ['/z', null],
    ],
    (_text, [x, y, z]) => makeTable(x!, y!, z!),
  ],
  encode: [
    [
      ['encoding', 'utf-8'],
      ['errors', 'strict'],
    ],
    (text, [encoding]) => encode(text, needText(encoding!, 'encode() argument')),
  ],
};

/** A method of a text, undefined where str has none of that name. What Markup makes is Markup. */
export function stringMethod(origin: Value, name: string): Callable | undefined {
  const text = textOf(origin)!;
  if (name === 'format' || name === 'format_map') return formatMethod(origin, text, name);
  if (origin instanceof Markup) {
    if (name === 'striptags') return method(name, NONE, () => stripTags(text));
    if (name === 'unescape') return method(name, NONE, () => unescapeHtml(text));
  }
  if (!Object.hasOwn(METHODS, name)) return undefined;
  const [parameters, run] = METHODS[name]!;
  return new Callable(name, (args) => {
    const result = run(text, bind(name, parameters, args), origin);
    return origin instanceof Markup ? asMarkup(result) : result;
  });
}

function asMarkup(value: Value): Value {
  if (typeof value === 'string') return new Markup(value);
  if (isList(value)) return value.map(asMarkup);
  return value instanceof Tuple ? new Tuple(value.items.map(asMarkup)) : value;
}

function needPart(value: Value): string {
  const separator = needText(value, 'separator');
  if (separator === '') throw valueError('empty separator');
  return separator;
}

function split(text: string, separator: Value, most: Value): string[] {
  const limit = toIndex(most);
  if (separator === null) return splitWhitespace(text, limit);
  const parts = text.split(needPart(separator));
  if (limit < 0 || parts.length <= limit + 1) return parts;
  return [...parts.slice(0, limit), parts.slice(limit).join(str(separator))];
}

function rsplit(text: string, separator: Value, most: Value): string[] {
  const limit = toIndex(most);
  if (separator === null) return rsplitWhitespace(text, limit);
  const parts: string[] = [];
  const by = needPart(separator);
  let end = text.length;
  while (limit < 0 || parts.length < limit) {
    const at = end < by.length ? -1 : text.lastIndexOf(by, end - by.length);
    if (at < 0) break;
    parts.push(text.slice(at + by.length, end));
    end = at;
  }
  return [...parts, text.slice(0, end)].reverse();
}

function partition(text: string, separator: string, at: number, whole: 0 | 2): Tuple {
  if (at < 0) return new Tuple(whole === 0 ? [text, '', ''] : ['', '', text]);
  return new Tuple([text.slice(0, at), separator, text.slice(at + separator.length)]);
}

/** The part of a text between two places, and where it starts, in characters. */
function window(
  text: string,
  start: Value,
  end: Value,
): readonly [part: string, from: number, empty: boolean] {
  if (start === null && end === null) return [text, 0, false];
  const length = lengthOf(text);
  const place = (value: Value, fallback: number): number => {
    if (value === null) return fallback;
    if (integerOf(value) === undefined) {
      throw typeError('slice indices must be integers or None or have an __index__ method');
    }
    const at = toIndex(value);
    return at < 0 ? Math.max(0, at + length) : at;
  };
  const from = place(start, 0);
  const to = Math.min(place(end, length), length);
  // Behind the end not even nothing is found.
  if (from > length || from > to) return ['', from, true];
  return [text.slice(toUnits(text, from), toUnits(text, to)), from, false];
}

function search(text: string, [sub, start, end]: readonly Value[], way: 'indexOf' | 'lastIndexOf'): number {
  const part = needText(sub!, 'argument');
  const [inside, from, empty] = window(text, start!, end!);
  const at = empty ? -1 : inside[way](part);
  return at < 0 ? -1 : from + toCharacters(inside, at);
}

function found(at: number): bigint {
  if (at < 0) throw valueError('substring not found');
  return BigInt(at);
}

function count(text: string, [sub, start, end]: readonly Value[]): number {
  const part = needText(sub!, 'argument');
  const [inside, , empty] = window(text, start!, end!);
  return empty ? 0 : countOf(inside, part);
}

function begins(text: string, [what, start, end]: readonly Value[], way: 'startsWith' | 'endsWith'): boolean {
  const parts = what instanceof Tuple ? what.items : [what!];
  const name = way.toLowerCase();
  const [inside, , empty] = window(text, start!, end!);
  for (const part of parts) {
    const text = textOf(part);
    if (text === undefined) {
      throw typeError(`${name} first arg must be str or a tuple of str, not ${typeName(part)}`);
    }
    if (!empty && inside[way](text)) return true;
  }
  return false;
}

function join(text: string, items: Value, origin: Value): string {
  const parts: string[] = [];
  let at = 0;
  for (const item of iterate(items)) {
    const part = textOf(item);
    if (part === undefined && !(origin instanceof Markup)) {
      throw typeError(`sequence item ${at}: expected str instance, ${typeName(item)} found`);
    }
    parts.push(origin instanceof Markup ? escapeHtml(item) : part!);
    at++;
  }
  return parts.join(text);
}

function pad(text: string, width: Value, fill: Value, side: 'left' | 'right' | 'both'): string {
  const missing = toIndex(width) - lengthOf(text);
  const character = needText(fill, 'The fill character');
  if (lengthOf(character) !== 1) throw typeError('The fill character must be exactly one character long');
  if (missing <= 0) return text;
  if (missing > 1 << 26) throw new PythonError('MemoryError', 'the result is too long');
  // Of an odd number of characters the one too many stands on the left where the width is odd.
  const left =
    side === 'left' ? missing : side === 'right' ? 0 : (missing >> 1) + (missing & toIndex(width) & 1);
  return character.repeat(left) + text + character.repeat(missing - left);
}

function zeroFill(text: string, width: number): string {
  const missing = '0'.repeat(Math.max(0, Math.min(width, 1 << 26) - lengthOf(text)));
  return /^[+-]/.test(text) ? text[0]! + missing + text.slice(1) : missing + text;
}

function expandTabs(text: string, size: number): string {
  let out = '';
  let column = 0;
  for (const character of text) {
    if (character === '\t') {
      const spaces = size > 0 ? size - (column % size) : 0;
      out += ' '.repeat(spaces);
      column += spaces;
    } else {
      out += character;
      column = character === '\n' || character === '\r' ? 0 : column + 1;
    }
  }
  return out;
}

function translate(text: string, table: Value): string {
  if (!(table instanceof Dict)) throw typeError(`'${typeName(table)}' object is not subscriptable`);
  let out = '';
  for (const character of text) {
    const put = table.get(BigInt(character.codePointAt(0)!));
    const code = put === undefined ? undefined : integerOf(put);
    if (put === undefined) out += character;
    else if (code !== undefined) out += String.fromCodePoint(Number(code));
    else if (put !== null) out += needText(put, 'character mapping');
  }
  return out;
}

function makeTable(x: Value, y: Value, z: Value): Dict {
  const table = new Dict();
  if (y === null) {
    if (!(x instanceof Dict)) throw typeError('if you give only one argument to maketrans it must be a dict');
    for (const [key, value] of x.entries()) {
      const text = textOf(key);
      if (text !== undefined && lengthOf(text) !== 1)
        throw valueError('string keys in translate table must be of length 1');
      table.set(text === undefined ? key : BigInt(text.codePointAt(0)!), value);
    }
    return table;
  }
  const [from, to] = [[...needText(x, 'maketrans() argument 1')], [...needText(y, 'maketrans() argument 2')]];
  if (from.length !== to.length) throw valueError('the first two maketrans arguments must have equal length');
  from.forEach((character, i) => {
    table.set(BigInt(character.codePointAt(0)!), BigInt(to[i]!.codePointAt(0)!));
  });
  for (const character of z === null ? '' : needText(z, 'maketrans() argument 3')) {
    table.set(BigInt(character.codePointAt(0)!), null);
  }
  return table;
}

function encode(text: string, encoding: string): Bytes {
  const name = encoding.toLowerCase().replace(/[^a-z0-9]/g, '');
  if (name === 'utf8' || name === 'u8') return new Bytes(new TextEncoder().encode(text));
  const limit = { ascii: 0x80, usascii: 0x80, latin1: 0x100, iso88591: 0x100 }[name];
  if (limit === undefined) throw new PythonError('UnicodeError', `unknown encoding: ${encoding}`);
  return new Bytes(
    Uint8Array.from([...text], (character) => {
      const code = character.codePointAt(0)!;
      if (code >= limit)
        throw new PythonError('UnicodeError', `'${encoding}' codec can't encode a character`);
      return code;
    }),
  );
}
