/** Readers of calls that are JSON. Arguments are given out as they come, once the name is known. */
import type { CallInput, Reading } from './call-input.js';
import type { CallSink } from './marked-parser.js';
import { callsOf } from './whole-calls.js';

/** Keys of an object that may be a call where no mark says so. */
const CALL_KEYS = new Set(['name', 'arguments', 'parameters', 'type', 'id', 'function']);

export interface JsonCallOptions {
  /** An object with other keys than a call has is none: for answers that begin with a JSON object. Default false. */
  readonly strict?: boolean;
}

/** `{"name": …, "arguments": …}`, or a list of such. */
export function* jsonCalls(input: CallInput, sink: CallSink): Reading<string | null> {
  const first = yield* input.next();
  if (first === '{') return (yield* jsonCall(input, sink)) ? '' : null;
  if (first !== '[') return null;
  input.take();
  let any = false;
  for (;;) {
    const char = yield* input.next();
    if (char === ']') {
      input.take();
      return any ? '' : null;
    }
    if (char === ',') input.take();
    else if (char !== '{') return any ? '' : null;
    else if (yield* jsonCall(input, sink)) any = true;
    else return any ? input.kept : null;
  }
}

/** One object; the next character is its bracket. False if it is no call: what was taken of it is kept. */
export function* jsonCall(
  input: CallInput,
  sink: CallSink,
  { strict = false }: JsonCallOptions = {},
): Reading<boolean> {
  input.keep();
  input.take();
  let name: string | null = null;
  let begun = false;
  for (;;) {
    const char = yield* input.next();
    if (char === '}') break;
    if (char === ',') {
      input.take();
      continue;
    }
    const key = char === '"' ? yield* jsonString(input) : null;
    if (key === null || (strict && !CALL_KEYS.has(key))) return begun;
    if ((yield* input.next()) !== ':') return begun;
    input.take();
    const value = yield* input.next();
    if ((key === 'name' || key === 'tool_name') && value === '"') {
      name = yield* jsonString(input);
    } else if (!begun && value === '{' && isArguments(key) && name !== null && name !== '') {
      begun = true;
      sink.call(name);
      if (!(yield* jsonObject(input, (text) => sink.args(text)))) return true;
    } else if (!(yield* skipValue(input))) return begun;
  }
  input.take();
  if (begun) return true;
  const text = input.kept;
  if (strict && !/"(arguments|parameters)"/.test(text)) return false;
  const calls = callsOf(text);
  for (const call of calls ?? []) {
    sink.call(call.name);
    sink.args(call.arguments);
  }
  return calls !== null;
}

const isArguments = (key: string): boolean => key === 'arguments' || key === 'parameters';

/**
 * An object, or a list, to the bracket that closes it, given out as it comes. What is within need not be JSON, as models write line breaks into
 * strings. False where the answer ends before.
 */
export function* jsonObject(input: CallInput, emit: (text: string) => void): Reading<boolean> {
  let depth = 0;
  let quoted = false;
  let escaped = false;
  for (;;) {
    if (!input.ready && !(yield* input.more())) return false;
    const char = input.take();
    emit(char);
    if (quoted) {
      if (escaped) escaped = false;
      else if (char === '\\') escaped = true;
      else if (char === '"') quoted = false;
    } else if (char === '"') quoted = true;
    else if (char === '{' || char === '[') depth++;
    else if ((char === '}' || char === ']') && --depth === 0) return true;
  }
}

/** A string; the next character is its quote. Null if it is none. */
export function* jsonString(input: CallInput): Reading<string | null> {
  let source = input.take();
  let escaped = false;
  for (;;) {
    if (!input.ready && !(yield* input.more())) return null;
    const char = input.take();
    source += char;
    if (escaped) escaped = false;
    else if (char === '\\') escaped = true;
    else if (char === '"') break;
  }
  try {
    return JSON.parse(source) as string;
  } catch {
    return null;
  }
}

/** Any value. False where the answer ends before it does. */
function* skipValue(input: CallInput): Reading<boolean> {
  const first = yield* input.peek();
  if (first === '{' || first === '[') return yield* jsonObject(input, () => {});
  if (first === '"') return (yield* jsonString(input)) !== null;
  for (;;) {
    const char = yield* input.peek();
    if (char === '') return false;
    if (/[\s,}\]]/.test(char)) return true;
    if (!/[\w+.-]/.test(char)) return false;
    input.take();
  }
}
