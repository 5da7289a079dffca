/** Reads one call of the Hermes format: what stands between `<tool_call>` and `</tool_call>`. */
import { JsonTracker } from '../json-tracker.js';
import { type Call, severalCalls } from './whole-calls.js';

export const CLOSE = '</tool_call>';
const [QUOTE, BACKSLASH, LESS_THAN, FIRST_PRINTABLE] = [0x22, 0x5c, 0x3c, 0x20];

/**
 * The call that is being read.
 *
 * Of `{"name": …, "arguments": {…}}` the arguments are given out as they come, from where their first value has begun: what
 * follows is a call then, whatever becomes of it. All other spellings are read when they are whole.
 *
 * A closing tag within a JSON string does not end a call. Should the string turn out not to be one (JSON allows no
 * line break in it, nor an end of the answer), the first closing tag has ended the call after all.
 */
export class OpenCall {
  body = '';
  /** Start and end of the first closing tag that stood within a string; ends are 0 if there is none. */
  #doubtfulStart = 0;
  #doubtfulEnd = 0;

  /** Characters of the closing tag that `body` ends with. */
  #tag = 0;
  #inString = false;
  #escaped = false;
  /** A string had a character that no string has. */
  #badString = false;

  readonly #json = new JsonTracker();
  #stringStart = 0;
  #key = '';
  #name = '';
  #argumentsStart = -1;
  #argumentsEnd = -1;
  #brokenAt = -1;
  /** Where the first JSON value of the body ends, 0 if it has not. */
  #valueEnd = 0;
  #begun = false;
  /** Up to here the arguments were given out, and what was read since: so that nobody looks into `body` for each token. */
  #given = 0;
  #pending = '';

  /** It is a call, and its arguments are given out as they come. */
  get begun(): boolean {
    return this.#begun;
  }

  get name(): string {
    return this.#name;
  }

  get doubtfulEnd(): number {
    return this.#doubtfulEnd;
  }

  /**
   * Reads on.
   *
   * @param strings false: any closing tag ends the call
   * @returns where in `body` the call has ended, 0 if it has not, and how much of the text was read
   */
  read(text: string, strings: boolean): { readonly end: number; readonly taken: number } {
    const before = this.body.length;
    const ended = (taken: number, end: number) => {
      this.body += text.slice(0, taken);
      const from = Math.max(this.#argumentsStart - before, 0);
      if (this.#argumentsStart >= 0) this.#pending += text.slice(from, taken);
      return { end, taken };
    };
    const stringAt = (start: number, end: number): string => {
      const source =
        start >= before
          ? text.slice(start - before, end - before)
          : this.body.slice(start) + text.slice(0, end - before);
      return JSON.parse(source) as string;
    };
    for (let i = 0; i < text.length; i++) {
      const unit = text.charCodeAt(i);
      // The tag's first character stands nowhere else in it: after a mismatch only that one can begin it again.
      this.#tag = unit === CLOSE.charCodeAt(this.#tag) ? this.#tag + 1 : unit === LESS_THAN ? 1 : 0;
      const at = before + i;
      if (!this.#json.broken) this.#follow(text[i]!, at, stringAt);
      if (this.#begun && this.#brokenAt === at && this.#doubtfulEnd > 0)
        return ended(i + 1, this.#doubtfulEnd);
      if (this.#tag === CLOSE.length) {
        this.#tag = 0;
        const within = this.#inString && !this.#badString && !(this.#begun && this.#json.broken);
        if (!within || !strings) return ended(i + 1, at + 1);
        if (this.#doubtfulEnd === 0) {
          this.#doubtfulStart = at + 1 - CLOSE.length;
          this.#doubtfulEnd = at + 1;
        }
      } else if (!this.#inString) {
        this.#inString = unit === QUOTE;
      } else if (this.#escaped) {
        this.#escaped = false;
      } else if (unit < FIRST_PRINTABLE) {
        this.#badString = true;
        if (this.#doubtfulEnd > 0) return ended(i + 1, this.#doubtfulEnd);
      } else {
        this.#escaped = unit === BACKSLASH;
        this.#inString = unit !== QUOTE;
      }
    }
    return ended(text.length, 0);
  }

  /** Of a call that has begun: the arguments that are new. */
  take(): string {
    let end = this.body.length - this.#tag;
    if (this.#doubtfulEnd > 0) end = this.#doubtfulStart;
    if (this.#brokenAt >= 0) end = Math.min(end, this.#brokenAt);
    if (this.#argumentsEnd >= 0) end = this.#argumentsEnd;
    return this.#give(end);
  }

  /**
   * Of a call that has begun, and is over: what was held back of its arguments. Those that are broken end with the call, but for
   * the bracket that closes it.
   *
   * @param end where in `body` the call ends, without its closing tag
   */
  rest(end: number): string {
    if (this.#argumentsEnd >= 0) return this.#give(this.#argumentsEnd);
    if (this.#brokenAt < 0 || this.#brokenAt >= end) return this.#give(end);
    const sound = this.#give(this.#brokenAt);
    const broken = this.#give(end).trimEnd();
    return sound + (broken.endsWith('}') ? broken.slice(0, -1).trimEnd() : broken);
  }

  /**
   * Of a call that has begun, and is over: the calls that stand behind it between the same tags. What is no call there, such as one
   * bracket too many, means nothing.
   */
  further(end: number): readonly Call[] {
    const rest = this.#valueEnd > 0 ? this.body.slice(this.#valueEnd, end).trim() : '';
    return rest === '' ? [] : (severalCalls(rest) ?? []);
  }

  #give(end: number): string {
    if (end <= this.#given) return '';
    const text = this.#pending.slice(0, end - this.#given);
    this.#pending = this.#pending.slice(end - this.#given);
    this.#given = end;
    return text;
  }

  /** Looks for the name and the arguments in the outermost object. */
  #follow(char: string, at: number, stringAt: (start: number, end: number) => string): void {
    const json = this.#json;
    const { depth, inString, beforeValue } = json;
    json.push(char);
    if (json.broken) {
      this.#brokenAt = at;
      return;
    }
    if (depth === 1 && json.depth === 1 && inString !== json.inString) {
      if (json.inString) this.#stringStart = at;
      else if (json.isKey) this.#key = stringAt(this.#stringStart, at + 1);
      else if (this.#key === 'name' && this.#name === '') this.#name = stringAt(this.#stringStart, at + 1);
    }
    // Whole JSON: what closing tags it holds are within strings.
    if (json.depth === 0 && depth === 1) {
      this.#doubtfulEnd = 0;
      this.#valueEnd = at + 1;
    }
    if (this.#argumentsStart < 0) {
      const opens = char === '{' && depth === 1 && json.depth === 2;
      if (!opens || this.#key !== 'arguments' || this.#name === '') return;
      this.#argumentsStart = at;
      this.#given = at;
      return;
    }
    if (this.#argumentsEnd >= 0) return;
    if (json.depth === 1) {
      this.#argumentsEnd = at + 1;
      this.#doubtfulEnd = 0;
      this.#begun = true;
    } else if (beforeValue && !json.beforeValue) {
      this.#begun = true;
    }
  }
}
