/**
 * Tool calls as Hermes and Qwen models write them: `<tool_call>{"name": …, "arguments": {…}}</tool_call>`.
 *
 * Text is given out as it comes, and so are the arguments of a call once they have begun. What is no well-formed call stays
 * text, tags and all, unless its arguments were well-formed for a while: then it is a call whose arguments are what the model
 * wrote. White space beside a call is dropped, unless text follows it. An answer that ends after a whole call
 * but before its closing tag has made the call.
 */
import { sequence } from '../../grammar/expression.js';
import { SPACE } from '../../grammar/json/terminals.js';
import { HeldSpace } from '../held-space.js';
import { StopMatcher } from '../stop-matcher.js';
import { jsonCallOf, several } from './call-grammar.js';
import { CLOSE, OpenCall } from './hermes-call.js';
import type { ToolCallParser, ToolFormat, ToolPiece } from './tool-format.js';
import { callsOf } from './whole-calls.js';

const OPEN = '<tool_call>';

export const HERMES: ToolFormat = {
  name: 'hermes',
  tokens: [OPEN, CLOSE],
  detect: ({ template }) => template.includes(OPEN),
  grammar: {
    values: 'json',
    triggers: [OPEN],
    calls: (kit) =>
      several(kit, sequence(kit.mark(OPEN), SPACE, jsonCallOf(kit), SPACE, kit.mark(CLOSE)), SPACE),
  },
  parser: () => new HermesParser(),
};

class HermesParser implements ToolCallParser {
  readonly #opening = new StopMatcher([OPEN]);
  readonly #space = new HeldSpace();
  #call: OpenCall | null = null;
  /** The call at hand was announced. */
  #announced = false;
  /** A closing tag within a string ends no call; false once a string was none, so that no text is read more than twice. */
  #strings = true;
  #hasCalled = false;

  push(text: string): ToolPiece[] {
    const out: ToolPiece[] = [];
    this.#read(text, out);
    return out;
  }

  end(): ToolPiece[] {
    const out: ToolPiece[] = [];
    while (this.#call !== null) {
      const call = this.#call;
      const { body, doubtfulEnd } = call;
      if (doubtfulEnd > 0 && (call.begun || callsOf(body) === null)) {
        this.#close(call, doubtfulEnd, out);
        this.#strings = false;
        this.#read(body.slice(doubtfulEnd), out);
      } else if (call.begun) {
        this.#close(call, body.length + CLOSE.length, out);
      } else {
        this.#call = null;
        if (!this.#deliver(body, out)) this.#text(OPEN + body, out);
      }
    }
    this.#text(this.#opening.flush(), out);
    const space = this.#space.take();
    if (!this.#hasCalled && space !== '') out.push({ type: 'text', text: space });
    return out;
  }

  #read(text: string, out: ToolPiece[]): void {
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
      if (call.begun) this.#arguments(call, call.take(), out);
      if (end === 0) return;
      // It ended at a tag that seemed to be within a string: what was read since is read again.
      if (end < call.body.length) {
        this.#strings = false;
        rest = call.body.slice(end) + rest;
      }
      this.#close(call, end, out);
    }
  }

  /** The call is over. `end`: of its body, with the closing tag. */
  #close(call: OpenCall, end: number, out: ToolPiece[]): void {
    this.#call = null;
    const inside = end - CLOSE.length;
    if (call.begun) {
      this.#arguments(call, call.rest(inside), out);
      for (const further of call.further(inside)) this.#calls(out, further);
    } else if (!this.#deliver(call.body.slice(0, inside), out))
      this.#text(OPEN + call.body.slice(0, end), out);
    this.#announced = false;
  }

  #arguments(call: OpenCall, text: string, out: ToolPiece[]): void {
    if (this.#announced) {
      if (text !== '') out.push({ type: 'arguments', text });
      return;
    }
    this.#announced = true;
    this.#calls(out, { name: call.name, arguments: text });
  }

  #deliver(body: string, out: ToolPiece[]): boolean {
    const calls = callsOf(body);
    for (const call of calls ?? []) this.#calls(out, call);
    return calls !== null;
  }

  #calls(out: ToolPiece[], call: { readonly name: string; readonly arguments: string }): void {
    this.#space.take();
    this.#hasCalled = true;
    out.push({ type: 'call', ...call });
  }

  #text(text: string, out: ToolPiece[]): void {
    const certain = this.#space.push(text);
    if (certain !== '') out.push({ type: 'text', text: certain });
  }
}
