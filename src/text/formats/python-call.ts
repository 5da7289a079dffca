/** Reads calls written in Python, `f(a=1, b="x")`, and gives their arguments out as JSON while they come. */
import type { CallInput, Reading } from './call-input.js';
import { jsonCharacters } from './json-text.js';
import type { CallSink } from './marked-parser.js';

/** Deeper values are none that a tool takes. */
const DEEPEST = 100;

type Emit = (text: string) => void;

/**
 * `[f(a=1), g()]`, or without brackets one call behind another. A call is one from its first argument on, or when the bracket
 * behind its empty arguments is followed by another call or the end.
 *
 * @param closer without brackets: the mark behind the last call, which is not taken
 */
export function* pythonCalls(input: CallInput, sink: CallSink): Reading<string | null> {
  const bracket = (yield* input.next()) === '[';
  if (bracket) input.take();
  let any = false;
  for (;;) {
    input.keep();
    let char = yield* input.next();
    while (any && (char === ',' || char === ';')) {
      input.take();
      char = yield* input.next();
    }
    if (bracket && char === ']') {
      input.take();
      return any ? '' : null;
    }
    const over = any ? input.kept.replaceAll(/[,;]/g, '') : null;
    if (!/[A-Za-z_]/.test(char)) return over;
    input.keep();
    const name = yield* dotted(input);
    if (name === null || (yield* input.next()) !== '(') return any ? input.kept : null;
    input.take();
    const read = yield* keywords(input, sink, name, bracket);
    if (read === 'none') return any ? input.kept : null;
    any = true;
    if (read === 'broken') return '';
  }
}

/** The arguments, to the closing bracket. `none`: it is no call. `broken`: it is one that ends as the model left it. */
function* keywords(
  input: CallInput,
  sink: CallSink,
  name: string,
  bracket: boolean,
): Reading<'whole' | 'none' | 'broken'> {
  if ((yield* input.next()) === ')') {
    input.take();
    const after = yield* input.next();
    // What a list of calls may be made of, and nothing that is computed with one.
    if (bracket ? after !== ',' && after !== ']' && after !== '' : /[.+*/%=]/.test(after)) return 'none';
    sink.call(name);
    sink.args('{}');
    return 'whole';
  }
  const keys = new Set<string>();
  for (;;) {
    const key = yield* dotted(input);
    const first = keys.size === 0;
    if (key === null || keys.has(key) || (yield* input.next()) !== '=') return first ? 'none' : 'broken';
    input.take();
    const value = yield* input.next();
    if (value === '=' || value === '') return first ? 'none' : 'broken';
    keys.add(key);
    if (first) sink.call(name);
    sink.args(`${first ? '{' : ', '}"${jsonCharacters(key)}": `);
    if (!(yield* pythonValue(input, (text) => sink.args(text), 0))) return yield* rest(input, sink, bracket);
    const char = yield* input.next();
    if (char === ',') input.take();
    const after = char === ',' ? yield* input.next() : char;
    if (after === ')') {
      input.take();
      sink.args('}');
      return 'whole';
    }
    if (char !== ',') return yield* rest(input, sink, bracket);
  }
}

const [LIST_END, CALL_END] = [[')]'], [')']];

/** What the model wrote where no value could be read: the arguments end with it. */
function* rest(input: CallInput, sink: CallSink, bracket: boolean): Reading<'broken'> {
  yield* input.until(bracket ? LIST_END : CALL_END, (text) => sink.args(text));
  return 'broken';
}

function* dotted(input: CallInput): Reading<string | null> {
  let name = '';
  for (;;) {
    const char = yield* input.peek();
    if (char === '' || !/[\w.-]/.test(char)) break;
    if (name.length > 256) return null;
    name += input.take();
  }
  return isPythonName(name) ? name : null;
}

/** A name that calls in Python have, of a tool or an argument; dots and hyphens are taken for what others call so. */
export const isPythonName = (name: string): boolean => /^[A-Za-z_][\w.-]{0,256}$/.test(name);

/** A literal, given out as JSON. False where it is none, or is cut off. */
export function* pythonValue(input: CallInput, emit: Emit, depth: number): Reading<boolean> {
  const char = yield* input.next();
  if (depth > DEEPEST) return false;
  if (char === '"' || char === "'") return yield* pythonString(input, emit);
  if (char === '[' || char === '(') {
    const close = char === '[' ? ']' : ')';
    return yield* items(input, emit, close, ['[', ']'], function* () {
      return yield* pythonValue(input, emit, depth + 1);
    });
  }
  if (char === '{')
    return yield* items(input, emit, '}', ['{', '}'], function* () {
      if (!(yield* dictKey(input, emit))) return false;
      if ((yield* input.next()) !== ':') return false;
      input.take();
      emit(': ');
      return yield* pythonValue(input, emit, depth + 1);
    });
  if (/[-+.\d]/.test(char)) return yield* pythonNumber(input, emit);
  return yield* word(input, emit);
}

function* dictKey(input: CallInput, emit: Emit): Reading<boolean> {
  const char = yield* input.next();
  if (char === '"' || char === "'") return yield* pythonString(input, emit);
  let key = '';
  const read = /[-+.\d]/.test(char)
    ? yield* pythonNumber(input, (text) => {
        key += text;
      })
    : yield* word(input, (text) => {
        key += text;
      });
  emit(`"${key}"`);
  return read;
}

function* items(
  input: CallInput,
  emit: Emit,
  close: string,
  brackets: readonly [string, string],
  item: () => Reading<boolean>,
): Reading<boolean> {
  input.take();
  emit(brackets[0]);
  for (let first = true; ; first = false) {
    let char = yield* input.next();
    if (!first && char !== close) {
      if (char !== ',') return false;
      input.take();
      char = yield* input.next();
    }
    if (char === close) break;
    if (!first) emit(', ');
    if (!(yield* item())) return false;
  }
  input.take();
  emit(brackets[1]);
  return true;
}

const WORDS: Readonly<Record<string, string>> = {
  True: 'true',
  False: 'false',
  None: 'null',
  true: 'true',
  false: 'false',
  null: 'null',
};

function* word(input: CallInput, emit: Emit): Reading<boolean> {
  let name = '';
  for (;;) {
    const char = yield* input.peek();
    if (char === '' || !/\w/.test(char) || name.length > 8) break;
    name += input.take();
  }
  const json = Object.hasOwn(WORDS, name) ? WORDS[name] : undefined;
  emit(json ?? name);
  return json !== undefined;
}

const NUMBER = /^([-+]?)(\d*)(\.\d*)?(e[-+]?\d+)?$/i;

function* pythonNumber(input: CallInput, emit: Emit): Reading<boolean> {
  let source = '';
  for (;;) {
    const char = yield* input.peek();
    if (char === '' || !/[\w.+-]/.test(char) || source.length > 5000) break;
    source += input.take();
  }
  const plain = source.replaceAll(/(?<=\d)_(?=\d)/g, '');
  const [, sign, whole = '', fraction = '', exponent = ''] = NUMBER.exec(plain) ?? [];
  if (sign === undefined || (whole === '' && fraction.length < 2)) {
    emit(source);
    return false;
  }
  const digits = whole.replace(/^0+(?=\d)/, '') || '0';
  emit(`${sign === '-' ? '-' : ''}${digits}${fraction === '.' ? '.0' : fraction}${exponent}`);
  return true;
}

const ESCAPES: Readonly<Record<string, string>> = {
  n: '\n',
  t: '\t',
  r: '\r',
  b: '\b',
  f: '\f',
  v: '\v',
  a: '\x07',
  '0': '\0',
  '\\': '\\',
  "'": "'",
  '"': '"',
  // No escape of Python's, but of JSON's: those who write it mean that.
  '/': '/',
  '\n': '',
};
const HEX_DIGITS: Readonly<Record<string, number>> = { x: 2, u: 4, U: 8 };

/** A string in quotes of one or three; a line break may stand in any. */
function* pythonString(input: CallInput, emit: Emit): Reading<boolean> {
  const quote = input.take();
  let quotes = 1;
  while (quotes < 3 && (yield* input.peek()) === quote) {
    input.take();
    quotes++;
  }
  emit('"');
  if (quotes === 2) {
    emit('"');
    return true;
  }
  for (let closing = 0; ; ) {
    if (!input.ready && !(yield* input.more())) return false;
    const char = input.take();
    if (char === quote) {
      if (++closing < quotes) continue;
      emit('"');
      return true;
    }
    if (closing > 0) emit(jsonCharacters(quote.repeat(closing)));
    closing = 0;
    if (char !== '\\') {
      emit(jsonCharacters(char));
      continue;
    }
    if (!(yield* input.more())) return false;
    const escaped = input.take();
    const digits = HEX_DIGITS[escaped];
    if (digits === undefined) {
      emit(jsonCharacters(Object.hasOwn(ESCAPES, escaped) ? ESCAPES[escaped]! : `\\${escaped}`));
      continue;
    }
    let hex = '';
    while (hex.length < digits && /^[0-9a-fA-F]$/.test(yield* input.peek())) hex += input.take();
    const code = Number.parseInt(hex, 16);
    const whole = hex.length === digits && code <= 0x10ffff;
    emit(jsonCharacters(whole ? String.fromCodePoint(code) : `\\${escaped}${hex}`));
  }
}
