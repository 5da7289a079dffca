/**
 * Finds the tool calls in an answer: `<tool_call>{"name": …, "arguments": {…}}</tool_call>`, the form that Hermes and
 * Qwen models write.
 *
 * Text is given out as it comes; a call is held back until it is whole. What is not a well-formed call stays text,
 * tags and all. White space beside a call is dropped, unless text follows it. An answer that ends after a whole call
 * but before its closing tag has made the call. The pieces in which the text arrives make no difference.
 *
 * A closing tag within a JSON string does not end a call. Should the string turn out not to be one (JSON allows no
 * line break in it, nor an end of the answer), the first closing tag has ended the call after all; from then on
 * every closing tag does, so that no text is read more than twice.
 */
import { HeldSpace } from './held-space.js';
import { isJsonObject } from './json-file.js';
import { StopMatcher } from './stop-matcher.js';

const OPEN = '<tool_call>';
const CLOSE = '</tool_call>';
const [QUOTE, BACKSLASH, LESS_THAN, FIRST_PRINTABLE] = [0x22, 0x5c, 0x3c, 0x20];

export type ToolCallPiece =
  | { readonly type: 'text'; readonly text: string }
  | {
      readonly type: 'call';
      readonly name: string;
      /** JSON text of an object, as the model wrote it. */
      readonly arguments: string;
    };

/** The call that is being read: everything after its opening tag. */
class OpenCall {
  body = '';
  /** Characters of the closing tag that `body` ends with. */
  #tag = 0;
  #inString = false;
  #escaped = false;
  /** It can not become JSON any more. */
  #broken = false;
  /** End of the first closing tag that stood within a string; 0 if there is none. */
  doubtfulEnd = 0;

  /** Reads on. Returns where in `body` the call has ended, 0 if it has not, and how much of the text was read. */
  read(text: string, strings: boolean): { readonly end: number; readonly taken: number } {
    const before = this.body.length;
    const ended = (taken: number, end: number) => {
      this.body += text.slice(0, taken);
      return { end, taken };
    };
    for (let i = 0; i < text.length; i++) {
      const unit = text.charCodeAt(i);
      // The tag's first character stands nowhere else in it: after a mismatch only that one can begin it again.
      this.#tag = unit === CLOSE.charCodeAt(this.#tag) ? this.#tag + 1 : unit === LESS_THAN ? 1 : 0;
      if (this.#tag === CLOSE.length) {
        this.#tag = 0;
        if (!this.#inString || this.#broken || !strings) return ended(i + 1, before + i + 1);
        this.doubtfulEnd ||= before + i + 1;
      } else if (!this.#inString) {
        this.#inString = unit === QUOTE;
      } else if (this.#escaped) {
        this.#escaped = false;
      } else if (unit < FIRST_PRINTABLE) {
        this.#broken = true;
        if (this.doubtfulEnd > 0) return ended(i + 1, this.doubtfulEnd);
      } else {
        this.#escaped = unit === BACKSLASH;
        this.#inString = unit !== QUOTE;
      }
    }
    return ended(text.length, 0);
  }
}

export class ToolCallParser {
  readonly #opening = new StopMatcher([OPEN]);
  readonly #space = new HeldSpace();
  #call: OpenCall | null = null;
  #strings = true;
  #calls = 0;

  /** Calls found so far. */
  get calls(): number {
    return this.#calls;
  }

  push(text: string): ToolCallPiece[] {
    const out: ToolCallPiece[] = [];
    this.#read(text, out);
    return out;
  }

  /** The answer is over: what was held back. */
  end(): ToolCallPiece[] {
    const out: ToolCallPiece[] = [];
    while (this.#call !== null) {
      const { body, doubtfulEnd } = this.#call;
      this.#call = null;
      if (this.#deliver(body, out)) continue;
      if (doubtfulEnd === 0) {
        this.#text(OPEN + body, out);
      } else {
        this.#strings = false;
        this.#text(OPEN + body.slice(0, doubtfulEnd), out);
        this.#read(body.slice(doubtfulEnd), out);
      }
    }
    this.#text(this.#opening.flush(), out);
    const space = this.#space.take();
    if (this.#calls === 0 && space !== '') out.push({ type: 'text', text: space });
    return out;
  }

  #read(text: string, out: ToolCallPiece[]): void {
    let rest = text;
    while (rest !== '') {
      if (this.#call === null) {
        const heldBefore = this.#opening.heldLength;
        const { text: certain, match } = this.#opening.push(rest);
        this.#text(certain, out);
        if (match === undefined) return;
        this.#opening.flush();
        rest = rest.slice(certain.length + OPEN.length - heldBefore);
        this.#call = new OpenCall();
        continue;
      }
      const call = this.#call;
      const { end, taken } = call.read(rest, this.#strings);
      rest = rest.slice(taken);
      if (end === 0) return;
      this.#call = null;
      if (end < call.body.length) {
        this.#strings = false;
        this.#text(OPEN + call.body.slice(0, end), out);
        rest = call.body.slice(end) + rest;
      } else if (!this.#deliver(call.body.slice(0, -CLOSE.length), out)) {
        this.#text(OPEN + call.body, out);
      }
    }
  }

  #deliver(body: string, out: ToolCallPiece[]): boolean {
    const call = parseCall(body);
    if (call === null) return false;
    this.#space.take();
    this.#calls++;
    out.push({ type: 'call', ...call });
    return true;
  }

  #text(text: string, out: ToolCallPiece[]): void {
    const certain = this.#space.push(text);
    if (certain !== '') out.push({ type: 'text', text: certain });
  }
}

/** A call's JSON, or null if it is none. `arguments` may be left out, or be a text that holds the object. */
function parseCall(body: string): { readonly name: string; readonly arguments: string } | null {
  const call = parse(body);
  if (!isJsonObject(call) || typeof call.name !== 'string' || call.name === '') return null;
  const args = call.arguments;
  if (args === undefined) return { name: call.name, arguments: '{}' };
  if (typeof args === 'string')
    return isJsonObject(parse(args)) ? { name: call.name, arguments: args } : null;
  if (!isJsonObject(args)) return null;
  return { name: call.name, arguments: sourceOf(body, 'arguments') };
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/**
 * The text of a member's value, in the text of a valid JSON object that has it; of several members of that name the
 * last. Writing the parsed value again would spoil numbers that a double cannot hold.
 */
function sourceOf(json: string, key: string): string {
  let depth = 0;
  let name = '';
  let from = 0;
  let found = '';
  for (let i = 0; i < json.length; i++) {
    const char = json[i]!;
    if (char === '"') {
      const start = i++;
      while (json[i] !== '"') i += json[i] === '\\' ? 2 : 1;
      if (depth === 1 && from === 0) name = JSON.parse(json.slice(start, i + 1)) as string;
    } else if (char === ':' && depth === 1) {
      from = i + 1;
    } else if (depth === 1 && (char === ',' || char === '}')) {
      if (name === key && from > 0) found = json.slice(from, i).trim();
      from = 0;
      if (char === '}') depth--;
    } else if (char === '{' || char === '[') {
      depth++;
    } else if (char === '}' || char === ']') {
      depth--;
    }
  }
  return found;
}
