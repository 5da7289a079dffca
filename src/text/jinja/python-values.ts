/**
 * How Python writes values, for chat templates: they are Jinja templates made for Python, and a prompt has to
 * come out byte for byte as it did when the model was trained.
 */

/** The parts of a template engine's runtime value that are read here. */
export interface TemplateValue {
  readonly type: string;
  readonly value: unknown;
}

function isValue(value: unknown): value is TemplateValue {
  return typeof value === 'object' && value !== null && 'type' in value && 'value' in value;
}

function items(value: TemplateValue): TemplateValue[] {
  return Array.isArray(value.value) ? value.value.filter(isValue) : [];
}

function entries(value: TemplateValue): [string, TemplateValue][] {
  return value.value instanceof Map
    ? [...(value.value as Map<unknown, unknown>)]
        .flatMap(([k, v]) => (isValue(v) ? [[String(k), v] as const] : []))
        .map(([k, v]) => [k, v])
    : [];
}

/** `repr` of a float: at least one decimal, an exponent of two digits, switching notation at 1e-4 and 1e16. */
export function pythonFloat(value: number): string {
  if (Number.isNaN(value)) return 'nan';
  if (!Number.isFinite(value)) return value > 0 ? 'inf' : '-inf';
  if (Object.is(value, -0)) return '-0.0';
  const magnitude = Math.abs(value);
  if (magnitude !== 0 && (magnitude < 1e-4 || magnitude >= 1e16)) {
    const [digits, exponent] = value.toExponential().split('e') as [string, string];
    const sign = exponent.startsWith('-') ? '-' : '+';
    return `${digits}e${sign}${exponent.slice(1).padStart(2, '0')}`;
  }
  const text = String(value);
  return /[.e]/.test(text) ? text : `${text}.0`;
}

/** An integer with all its digits: a number writes from 1e21 on with an exponent. */
function pythonInteger(value: unknown): string {
  if (typeof value === 'bigint' || Number.isSafeInteger(value)) return String(value);
  return Number.isInteger(value) ? String(BigInt(value as number)) : pythonFloat(Number(value));
}

/** A float as `json` writes it. */
function jsonFloat(value: number): string {
  if (Number.isNaN(value)) return 'NaN';
  if (!Number.isFinite(value)) return value > 0 ? 'Infinity' : '-Infinity';
  return pythonFloat(value);
}

/** `str(value)`: what `{{ value }}` prints. */
export function pythonStr(value: TemplateValue): string {
  if (value.type === 'StringValue') return String(value.value);
  if (value.type === 'UndefinedValue') return '';
  return pythonRepr(value);
}

/** `repr(value)`: how a value shows inside a list or a dictionary. */
export function pythonRepr(value: TemplateValue): string {
  switch (value.type) {
    case 'StringValue':
      return quote(String(value.value));
    case 'IntegerValue':
      return pythonInteger(value.value);
    case 'FloatValue':
      return pythonFloat(Number(value.value));
    case 'BooleanValue':
      return value.value === true ? 'True' : 'False';
    case 'NullValue':
      return 'None';
    case 'UndefinedValue':
      return 'Undefined';
    case 'ArrayValue':
      return `[${items(value).map(pythonRepr).join(', ')}]`;
    case 'TupleValue': {
      const parts = items(value).map(pythonRepr);
      return parts.length === 1 ? `(${parts[0]},)` : `(${parts.join(', ')})`;
    }
    case 'ObjectValue':
    case 'NamespaceValue':
    case 'KeywordArgumentsValue':
      return `{${entries(value)
        .map(([key, entry]) => `${quote(key)}: ${pythonRepr(entry)}`)
        .join(', ')}}`;
    default:
      return `<${value.type}>`;
  }
}

const ESCAPES: Readonly<Record<string, string>> = { '\\': '\\\\', '\n': '\\n', '\r': '\\r', '\t': '\\t' };

/** Single quotes, unless only double quotes save escaping; characters that do not print are escaped. */
function quote(text: string): string {
  const mark = text.includes("'") && !text.includes('"') ? '"' : "'";
  let out = '';
  for (const character of text) {
    const known = ESCAPES[character];
    if (known !== undefined) out += known;
    else if (character === mark) out += `\\${mark}`;
    else if (character !== ' ' && /[\p{C}\p{Z}]/u.test(character)) out += escapeCode(character);
    else out += character;
  }
  return mark + out + mark;
}

function escapeCode(character: string): string {
  const code = character.codePointAt(0)!;
  if (code < 0x100) return `\\x${code.toString(16).padStart(2, '0')}`;
  if (code < 0x10000) return `\\u${code.toString(16).padStart(4, '0')}`;
  return `\\U${code.toString(16).padStart(8, '0')}`;
}

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
 * @throws Error for a value that JSON cannot hold
 */
export function pythonJson(value: TemplateValue, options: PythonJsonOptions = {}): string {
  const indent = typeof options.indent === 'number' ? ' '.repeat(options.indent) : options.indent;
  const [comma, colon] = options.separators ?? [indent === undefined ? ', ' : ',', ': '];
  const string = (text: string): string => jsonString(text, options.ensureAscii === true);

  const block = (open: string, parts: string[], close: string, depth: number): string => {
    if (parts.length === 0) return open + close;
    if (indent === undefined) return open + parts.join(comma) + close;
    const inner = `\n${indent.repeat(depth + 1)}`;
    return `${open}${inner}${parts.join(comma + inner)}\n${indent.repeat(depth)}${close}`;
  };
  const write = (item: TemplateValue, depth: number): string => {
    switch (item.type) {
      case 'StringValue':
        return string(String(item.value));
      case 'IntegerValue':
        return pythonInteger(item.value);
      case 'FloatValue':
        return jsonFloat(Number(item.value));
      case 'BooleanValue':
        return item.value === true ? 'true' : 'false';
      case 'NullValue':
        return 'null';
      case 'ArrayValue':
      case 'TupleValue':
        return block(
          '[',
          items(item).map((part) => write(part, depth + 1)),
          ']',
          depth,
        );
      case 'ObjectValue':
      case 'KeywordArgumentsValue': {
        const pairs = entries(item);
        if (options.sortKeys === true) pairs.sort(([a], [b]) => (a < b ? -1 : a > b ? 1 : 0));
        return block(
          '{',
          pairs.map(([key, part]) => string(key) + colon + write(part, depth + 1)),
          '}',
          depth,
        );
      }
      case 'UndefinedValue':
        throw new Error('an undefined value cannot be written as JSON');
      default:
        throw new Error(`a ${item.type} cannot be written as JSON`);
    }
  };
  return write(value, 0);
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

/** The value of a number or boolean, which Python takes for one; undefined for anything else. */
export function numberOf(value: TemplateValue): number | bigint | undefined {
  switch (value.type) {
    case 'IntegerValue':
    case 'FloatValue':
      return value.value as number | bigint;
    case 'BooleanValue':
      return value.value === true ? 1 : 0;
    default:
      return undefined;
  }
}

/** `a == b`: containers by content, numbers by value, and no other conversions. */
export function pythonEquals(a: TemplateValue, b: TemplateValue): boolean {
  const x = numberOf(a);
  const y = numberOf(b);
  // Between a number and a bigint only this comparison goes by value.
  // biome-ignore lint/suspicious/noDoubleEquals: see above.
  if (x !== undefined || y !== undefined) return x !== undefined && y !== undefined && x == y;
  if (a.type !== b.type) return false;
  switch (a.type) {
    case 'StringValue':
      return a.value === b.value;
    case 'NullValue':
    case 'UndefinedValue':
      return true;
    case 'ArrayValue':
    case 'TupleValue': {
      const left = items(a);
      const right = items(b);
      return left.length === right.length && left.every((item, i) => pythonEquals(item, right[i]!));
    }
    case 'ObjectValue': {
      const left = entries(a);
      const right = new Map(entries(b));
      return (
        left.length === right.size &&
        left.every(([key, item]) => {
          const other = right.get(key);
          return other !== undefined && pythonEquals(item, other);
        })
      );
    }
    default:
      return a === b;
  }
}

/** What `str.strip()` removes: Unicode whitespace and the four separators of ASCII. */
const WHITESPACE = new Set(
  '\t\n\v\f\r\x1c\x1d\x1e\x1f \x85\u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000',
);

/** `text.strip(characters)` and its one-sided forms. */
export function pythonStrip(
  text: string,
  characters?: string,
  side: 'both' | 'left' | 'right' = 'both',
): string {
  const set = characters === undefined ? WHITESPACE : new Set(characters);
  const points = [...text];
  let from = 0;
  let to = points.length;
  if (side !== 'right') while (from < to && set.has(points[from]!)) from++;
  if (side !== 'left') while (to > from && set.has(points[to - 1]!)) to--;
  return points.slice(from, to).join('');
}

/** `text.split()` without a separator: runs of whitespace separate, none at the ends. */
export function pythonSplitWhitespace(text: string): string[] {
  const words: string[] = [];
  let word = '';
  for (const character of text) {
    if (!WHITESPACE.has(character)) word += character;
    else if (word !== '') {
      words.push(word);
      word = '';
    }
  }
  if (word !== '') words.push(word);
  return words;
}

/** `text.splitlines()`. */
export function pythonSplitLines(text: string): string[] {
  // biome-ignore lint/suspicious/noControlCharactersInRegex: the ASCII separators end lines in Python.
  const lines = text.split(/\r\n|[\n\v\f\r\x1c\x1d\x1e\x85\u2028\u2029]/);
  if (lines.at(-1) === '') lines.pop();
  return lines;
}
