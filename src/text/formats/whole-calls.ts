/** Calls as JSON, read when their text is whole. */
import { isJsonObject } from '../json-file.js';
import { partsOf } from '../json-source.js';
import { JsonTracker } from '../json-tracker.js';

export interface Call {
  readonly name: string;
  /** JSON text of an object, as the model wrote it. */
  readonly arguments: string;
}

/**
 * The calls of a body that is whole, null if it is none: `{"name", "arguments"}`, with `parameters` for `arguments`, within a
 * `function`, a list of such, or several one after another. Arguments may be left out, null, empty, or a text that holds the object.
 */
export function callsOf(body: string): readonly Call[] | null {
  const value = parse(body);
  if (value === undefined) return severalCalls(body);
  const texts = Array.isArray(value) ? partsOf(body).map(({ text }) => text) : [body];
  const calls = (Array.isArray(value) ? (value as unknown[]) : [value]).map((item, i) =>
    callOf(texts[i]!, item),
  );
  return calls.length > 0 && calls.every((call) => call !== null) ? calls : null;
}

/** Calls one after another, a comma, semicolon or nothing between them. */
export function severalCalls(body: string): readonly Call[] | null {
  const calls: Call[] = [];
  let tracker = new JsonTracker();
  let from = 0;
  for (let i = 0; i < body.length; i++) {
    const char = body[i]!;
    if (from === i && /[\s,;]/.test(char)) {
      from = i + 1;
      continue;
    }
    const { depth } = tracker;
    tracker.push(char);
    if (tracker.broken) return null;
    if (depth !== 1 || tracker.depth !== 0) continue;
    const text = body.slice(from, i + 1);
    const call = callOf(text, parse(text));
    if (call === null) return null;
    calls.push(call);
    from = i + 1;
    tracker = new JsonTracker();
  }
  return from === body.length && calls.length > 0 ? calls : null;
}

function callOf(json: string, call: unknown): Call | null {
  if (!isJsonObject(call)) return null;
  const source = new Map(partsOf(json).map(({ key, text }) => [key, text]));
  const given = argumentsOf(call, source);
  if (given === null) return null;
  if (isJsonObject(call.function)) {
    const inner = callOf(source.get('function')!, call.function);
    return inner === null ? null : { name: inner.name, arguments: given ?? inner.arguments };
  }
  const name = call.name ?? call.function;
  if (typeof name !== 'string' || name === '') return null;
  return { name, arguments: given ?? '{}' };
}

/** The text of a call's arguments; undefined if it has none, null if they are no object. */
function argumentsOf(
  call: Readonly<Record<string, unknown>>,
  source: ReadonlyMap<string, string>,
): string | undefined | null {
  for (const key of ['arguments', 'parameters']) {
    const value = call[key];
    if (value === undefined || value === null || isEmpty(value)) continue;
    if (isJsonObject(value)) return source.get(key)!;
    if (typeof value !== 'string') return null;
    const read = parse(value);
    if (read === null || isEmpty(read)) continue;
    return isJsonObject(read) ? value : null;
  }
  return undefined;
}

/** An empty text, or an empty list for an empty object. */
const isEmpty = (value: unknown): boolean =>
  (typeof value === 'string' && value.trim() === '') || (Array.isArray(value) && value.length === 0);

function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
