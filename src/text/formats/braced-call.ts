/** Calls in the notation of Gemma's families, `call:f{city:"Rome",days:2}`, whose texts stand between marks of their own. */
import { sequence, text } from '../../grammar/expression.js';
import { anyTool, several } from './call-grammar.js';
import type { CallInput, Reading } from './call-input.js';
import { jsonString } from './json-call.js';
import { jsonCharacters } from './json-text.js';
import { type CallSink, MarkedParser } from './marked-parser.js';
import type { ToolFormat } from './tool-format.js';

/** What the notation's marks are in a family. */
export interface BracedStyle {
  readonly open: string;
  readonly close: string;
  /** At either end of a text, in which nothing is escaped. */
  readonly quote: string;
}

/** Deeper values are none that a tool takes. */
const DEEPEST = 100;
const LONGEST_NAME = 256;

type Emit = (text: string) => void;

/** A format of these marks. */
export function bracedFormat(name: string, { open, close, quote }: BracedStyle): ToolFormat {
  return {
    name,
    tokens: [open, close, quote],
    detect: ({ template }) => template.includes(open),
    grammar: {
      values: 'json',
      names: (name) => /^[\w.$-]{1,256}$/.test(name),
      quote,
      triggers: [open],
      calls: (kit) =>
        several(
          kit,
          anyTool(kit, (tool) =>
            sequence(kit.mark(open), text(`call:${tool.name}`), tool.object, kit.mark(close)),
          ),
          sequence(),
        ),
    },
    parser: () => {
      const reader = new BracedReader(quote, close);
      return new MarkedParser({
        marks: [open],
        closers: [close],
        read: (input, sink) => reader.call(input, sink),
      });
    },
  };
}

class BracedReader {
  readonly #quote: string;
  readonly #quotes: readonly string[];
  readonly #ends: readonly string[];

  constructor(quote: string, close: string) {
    this.#quote = quote;
    this.#quotes = [quote];
    this.#ends = [close];
  }

  *call(input: CallInput, sink: CallSink): Reading<string | null> {
    yield* input.gap();
    if (!(yield* input.literal('call:'))) return null;
    const name = yield* word(input);
    if (name === '' || (yield* input.next()) !== '{') return null;
    sink.call(name);
    const emit: Emit = (more) => sink.args(more);
    // What the model wrote where no value could be read: the arguments end with it.
    if (!(yield* this.#object(input, emit, 0))) yield* input.until(this.#ends, emit);
    return '';
  }

  /** A value, given out as JSON. False where it is none, or is cut off. */
  *#value(input: CallInput, emit: Emit, depth: number): Reading<boolean> {
    const char = yield* input.next();
    if (char === '' || depth > DEEPEST) return false;
    if (char === '{') return yield* this.#object(input, emit, depth);
    if (char === '[') return yield* this.#list(input, emit, depth);
    if (char === this.#quote[0]) return yield* this.#text(input, emit);
    if (char === '"') return yield* quoted(input, emit);
    return yield* bare(input, emit);
  }

  *#object(input: CallInput, emit: Emit, depth: number): Reading<boolean> {
    input.take();
    emit('{');
    for (let first = true; ; first = false) {
      let char = yield* input.next();
      if (!first && char === ',') {
        input.take();
        char = yield* input.next();
      } else if (!first && char !== '}') return false;
      if (char === '}') break;
      if (!first) emit(', ');
      if (!(yield* this.#key(input, emit)) || (yield* input.next()) !== ':') return false;
      input.take();
      emit(': ');
      if (!(yield* this.#value(input, emit, depth + 1))) return false;
    }
    input.take();
    emit('}');
    return true;
  }

  *#list(input: CallInput, emit: Emit, depth: number): Reading<boolean> {
    input.take();
    emit('[');
    for (let first = true; ; first = false) {
      let char = yield* input.next();
      if (!first && char === ',') {
        input.take();
        char = yield* input.next();
      } else if (!first && char !== ']') return false;
      if (char === ']') break;
      if (!first) emit(', ');
      if (!(yield* this.#value(input, emit, depth + 1))) return false;
    }
    input.take();
    emit(']');
    return true;
  }

  *#key(input: CallInput, emit: Emit): Reading<boolean> {
    const char = yield* input.peek();
    if (char === this.#quote[0]) return yield* this.#text(input, emit);
    if (char === '"') return yield* quoted(input, emit);
    const name = yield* word(input);
    if (name === '') return false;
    emit(JSON.stringify(name));
    return true;
  }

  /** A text between its marks. */
  *#text(input: CallInput, emit: Emit): Reading<boolean> {
    if (!(yield* input.literal(this.#quote))) return false;
    emit('"');
    const ended = yield* input.until(this.#quotes, (more) => emit(jsonCharacters(more)));
    if (ended !== null) emit('"');
    return ended !== null;
  }
}

/** A name without quotes; empty where there is none. */
function* word(input: CallInput): Reading<string> {
  let name = '';
  while (/^[\w.$-]$/.test(yield* input.peek()) && name.length <= LONGEST_NAME) name += input.take();
  return name.length > LONGEST_NAME ? '' : name;
}

/** A string as JSON has it, which models slip into. */
function* quoted(input: CallInput, emit: Emit): Reading<boolean> {
  const value = yield* jsonString(input);
  if (value === null) return false;
  emit(JSON.stringify(value));
  return true;
}

/** A value without marks: a number or a word of JSON, else it is a text. */
function* bare(input: CallInput, emit: Emit): Reading<boolean> {
  let source = '';
  for (;;) {
    const char = yield* input.peek();
    if (char === '') return false;
    if (/[,}\]]/.test(char)) break;
    source += input.take();
  }
  const value = source.trim();
  if (value === '') return false;
  emit(
    /^(true|false|null|-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?)$/.test(value) ? value : JSON.stringify(value),
  );
  return true;
}
