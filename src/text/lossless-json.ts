/**
 * JSON read so that it can be written again as Python's `json` would write it.
 *
 * `JSON.parse` makes one kind of number of `1`, `1.0` and `9223372036854775807`, and sorts keys such as "2" and "1". A
 * chat template prints what it is given, so all of that would show in the prompt. Here
 *
 * - an integer is a number where one holds it exactly, else a bigint;
 * - a float is a number, or a {@link wholeFloat} where a number would look like an integer (`1.0`, `1e5`, `-0.0`);
 * - an object is a plain object, which remembers the order of its keys where JavaScript would change it
 *   ({@link orderedEntries});
 * - of equal keys the last value counts, in the place of the first; `__proto__` is a key like any other.
 *
 * Nothing here recurses: the depth of a text costs no stack. Packages that read numbers losslessly lose the order of keys,
 * recurse, and read a long string character by character.
 */
import { checkArgument, TEXT } from '../arguments.js';
import { KvantError } from '../errors.js';

/** Objects whose keys JavaScript would sort carry the order in which they were written under this key. */
const KEY_ORDER = Symbol('key order');

type OrderedObject = Record<string, unknown> & { [KEY_ORDER]?: string[] };

/** Keys that JavaScript sorts before all others. */
const INTEGER_KEY = /^(?:0|[1-9]\d{0,9})$/;

/** More digits than Python reads into an integer: converting many takes time that grows with their square. */
const MOST_DIGITS = 4300;

export interface LosslessOptions {
  /** Take `NaN`, `Infinity` and `-Infinity`, which Python writes although JSON does not know them. Default false. */
  readonly constants?: boolean;
}

/**
 * Reads a JSON text.
 *
 * @throws SyntaxError saying what is wrong and where
 * @example
 * parseLossless('{"id": 1234567890123456789}'); // { id: 1234567890123456789n }
 */
export function parseLossless(text: string, options: LosslessOptions = {}): unknown {
  return new Reader(text, options.constants === true).read();
}

/**
 * JSON for a chat template: messages, tools, template options.
 *
 * Integers that a number would poison are bigints; `1.0` stays a float (a boxed number); keys keep their order in the prompt.
 *
 * @throws KvantError `invalid-json`, `invalid-parameter`
 * @example
 * const tools = parseJson(await readFile('tools.json', 'utf8')) as unknown[];
 */
export function parseJson(text: string): unknown {
  checkArgument('text', text, TEXT);
  try {
    return parseLossless(text);
  } catch (cause) {
    throw new KvantError('invalid-json', `This is not JSON: ${(cause as Error).message}.`, {
      kind: 'invalid-request',
      fix: 'Check it with a JSON linter.',
      cause,
    });
  }
}

/**
 * A float that prints as one although its value is whole: a boxed number, so that it survives `structuredClone` and
 * `JSON.stringify`.
 */
export function wholeFloat(value: number): object {
  return Object(value) as object;
}

/** The value of a {@link wholeFloat}, undefined for anything else. */
export function wholeFloatValue(value: unknown): number | undefined {
  return value instanceof Number ? value.valueOf() : undefined;
}

/** The members of an object in the order in which they were written. */
export function orderedEntries(object: { readonly [key: string]: unknown }): [string, unknown][] {
  const entries = Object.entries(object);
  const order = (object as OrderedObject)[KEY_ORDER];
  if (order === undefined) return entries;
  // The object may have been copied and changed since.
  const place = new Map(order.map((key, i) => [key, i]));
  const placeOf = (key: string): number => place.get(key) ?? order.length;
  return entries.sort(([a], [b]) => placeOf(a) - placeOf(b));
}

/** An object of members that keeps their order. */
export function objectOf(entries: Iterable<readonly [string, unknown]>): { [key: string]: unknown } {
  const object: OrderedObject = {};
  for (const [key, value] of entries) setMember(object, key, value);
  return object;
}

function setMember(object: OrderedObject, key: string, value: unknown): void {
  const order = object[KEY_ORDER];
  if (order !== undefined) {
    if (!Object.hasOwn(object, key)) order.push(key);
  } else if (INTEGER_KEY.test(key)) {
    object[KEY_ORDER] = [...Object.keys(object), key];
  }
  if (key === '__proto__') {
    Object.defineProperty(object, key, { value, writable: true, enumerable: true, configurable: true });
  } else {
    object[key] = value;
  }
}

/**
 * Whether what `JSON.parse` made of a text may differ from what stands there: it holds numbers, or keys out of order.
 */
export function mayBeLossy(parsed: unknown): boolean {
  const rest: unknown[] = [parsed];
  while (rest.length > 0) {
    const value = rest.pop();
    if (typeof value === 'number') return true;
    if (typeof value !== 'object' || value === null) continue;
    if (Array.isArray(value)) {
      for (const item of value) rest.push(item);
      continue;
    }
    for (const key in value) {
      if (INTEGER_KEY.test(key)) return true;
      rest.push((value as OrderedObject)[key]);
    }
  }
  return false;
}

const [QUOTE, BACKSLASH, COMMA, COLON] = [0x22, 0x5c, 0x2c, 0x3a];
const [OPEN_LIST, CLOSE_LIST, OPEN_OBJECT, CLOSE_OBJECT] = [0x5b, 0x5d, 0x7b, 0x7d];

const SPACE = /[ \t\n\r]*/y;
const NUMBER = /-?(?:0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?/y;
/** Characters that a string's text does not hold as they are. */
// biome-ignore lint/suspicious/noControlCharactersInRegex: JSON allows none of them in a string.
const NOT_PLAIN = /[\\\u0000-\u001f]/;

const WORDS: readonly (readonly [string, unknown])[] = [
  ['true', true],
  ['false', false],
  ['null', null],
];
const CONSTANTS: readonly (readonly [string, unknown])[] = [
  ['NaN', Number.NaN],
  ['Infinity', Number.POSITIVE_INFINITY],
  ['-Infinity', Number.NEGATIVE_INFINITY],
];

/** A list or object that is being read; `key`: the member whose value comes next. */
type Open = { readonly list: unknown[] } | { readonly object: OrderedObject; key: string };

class Reader {
  readonly #text: string;
  readonly #words: readonly (readonly [string, unknown])[];
  #at = 0;

  constructor(text: string, constants: boolean) {
    this.#text = text;
    this.#words = constants ? [...WORDS, ...CONSTANTS] : WORDS;
  }

  read(): unknown {
    const open: Open[] = [];
    for (;;) {
      let value: unknown;
      const unit = this.#skipSpace();
      if (unit === OPEN_LIST) {
        this.#at++;
        const list: unknown[] = [];
        if (this.#skipSpace() !== CLOSE_LIST) {
          open.push({ list });
          continue;
        }
        this.#at++;
        value = list;
      } else if (unit === OPEN_OBJECT) {
        this.#at++;
        const object: OrderedObject = {};
        if (this.#skipSpace() !== CLOSE_OBJECT) {
          open.push({ object, key: this.#key() });
          continue;
        }
        this.#at++;
        value = object;
      } else {
        value = this.#scalar(unit);
      }
      // The value is whole: it goes where it belongs, and may be the last of what it is in.
      for (;;) {
        const within = open.at(-1);
        const next = this.#skipSpace();
        if (within === undefined) {
          if (this.#at < this.#text.length) this.#fail('the end');
          return value;
        }
        if ('list' in within) within.list.push(value);
        else setMember(within.object, within.key, value);
        if (next === COMMA) {
          this.#at++;
          if ('object' in within) within.key = this.#key();
          break;
        }
        if (next !== ('list' in within ? CLOSE_LIST : CLOSE_OBJECT))
          this.#fail('list' in within ? '"," or "]"' : '"," or "}"');
        this.#at++;
        open.pop();
        value = 'list' in within ? within.list : within.object;
      }
    }
  }

  /** The code unit that comes next, NaN at the end. */
  #skipSpace(): number {
    const unit = this.#text.charCodeAt(this.#at);
    if (unit > 0x20) return unit;
    SPACE.lastIndex = this.#at;
    SPACE.test(this.#text);
    this.#at = SPACE.lastIndex;
    return this.#text.charCodeAt(this.#at);
  }

  /** A key and its colon. */
  #key(): string {
    if (this.#skipSpace() !== QUOTE) this.#fail('a key in double quotes');
    const key = this.#string();
    if (this.#skipSpace() !== COLON) this.#fail('":"');
    this.#at++;
    return key;
  }

  #scalar(unit: number): unknown {
    if (unit === QUOTE) return this.#string();
    for (const [word, value] of this.#words) {
      if (unit !== word.charCodeAt(0) || !this.#text.startsWith(word, this.#at)) continue;
      this.#at += word.length;
      return value;
    }
    NUMBER.lastIndex = this.#at;
    const found = NUMBER.exec(this.#text);
    if (found === null) return this.#fail('a value');
    const [source, fraction, exponent] = found;
    const isInteger = fraction === undefined && exponent === undefined;
    if (isInteger && source.length > MOST_DIGITS + (source.startsWith('-') ? 1 : 0))
      this.#fail(`an integer of at most ${MOST_DIGITS} digits`);
    this.#at = NUMBER.lastIndex;
    return isInteger ? integerOf(source) : floatOf(source);
  }

  #string(): string {
    const text = this.#text;
    const start = this.#at;
    let end = start;
    for (;;) {
      end = text.indexOf('"', end + 1);
      if (end < 0) return this.#fail('a string that ends');
      let first = end;
      while (text.charCodeAt(first - 1) === BACKSLASH) first--;
      if ((end - first) % 2 === 0) break;
    }
    const inside = text.slice(start + 1, end);
    this.#at = end + 1;
    if (!NOT_PLAIN.test(inside)) return inside;
    try {
      return JSON.parse(text.slice(start, end + 1)) as string;
    } catch {
      this.#at = start;
      return this.#fail('a string with no bad escape or control character');
    }
  }

  #fail(wanted: string): never {
    const at = this.#at;
    const got = at < this.#text.length ? JSON.stringify(this.#text.slice(at, at + 12)) : 'the end';
    throw new SyntaxError(`expected ${wanted} at position ${at}, got ${got}`);
  }
}

function integerOf(source: string): number | bigint {
  const value = Number(source);
  if (Number.isSafeInteger(value)) return value === 0 ? 0 : value;
  return BigInt(source);
}

function floatOf(source: string): unknown {
  const value = Number(source);
  return Number.isInteger(value) ? wholeFloat(value) : value;
}
