/**
 * Reads answers whose calls begin with a mark, or at the very start of the answer. What stands between mark and end of a call is
 * read by the format's own reader; this gives out the text around it.
 *
 * Text is given out as it comes. White space beside a call is dropped, unless text follows it. What the reader takes for no call
 * stays text, mark and all.
 */
import { HeldSpace } from '../held-space.js';
import { StopMatcher } from '../stop-matcher.js';
import { CallInput, type Reading } from './call-input.js';
import type { ToolCallParser, ToolPiece } from './tool-format.js';

/** Takes what a reader has found. */
export interface CallSink {
  /** A call begins; from here on it is one, whatever follows. */
  call(name: string, id?: string): void;
  /** The next characters of its arguments. */
  args(text: string): void;
}

/**
 * Reads what follows a mark.
 *
 * @param mark which it was; empty for a call at the start of an answer, whose first character is not taken
 * @returns null if it is no call: then no call was given to the sink. Else what was taken beyond the end of the call, mostly nothing.
 */
export type CallReader = (input: CallInput, sink: CallSink, mark: string) => Reading<string | null>;

export interface CallSyntax {
  /** Texts that begin a call. */
  readonly marks: readonly string[];
  /** An answer that begins with one of these characters may begin with a call. */
  readonly starts?: string;
  /** Marks that are dropped once there was a call. */
  readonly closers?: readonly string[];
  /** Marks that are dropped wherever they stand outside of calls. */
  readonly dropped?: readonly string[];
  readonly read: CallReader;
}

export class MarkedParser implements ToolCallParser {
  readonly #syntax: CallSyntax;
  readonly #marks: StopMatcher;
  readonly #space = new HeldSpace();
  readonly #sink: CallSink;
  #out: ToolPiece[] = [];
  #input: CallInput | null = null;
  #reading: Reading<string | null> | null = null;
  #mark = '';
  /** Nothing but white space so far. */
  #atStart: boolean;
  #hasCalled = false;

  constructor(syntax: CallSyntax) {
    this.#syntax = syntax;
    this.#atStart = syntax.starts !== undefined;
    this.#marks = new StopMatcher([...syntax.marks, ...(syntax.closers ?? []), ...(syntax.dropped ?? [])]);
    this.#sink = {
      call: (name, id) => {
        this.#input!.begun();
        this.#space.take();
        this.#hasCalled = true;
        this.#out.push({ type: 'call', name, arguments: '', ...(id === undefined ? {} : { id }) });
      },
      args: (text) => {
        const last = this.#out.at(-1);
        if (text === '') return;
        if (last?.type === 'call')
          this.#out[this.#out.length - 1] = { ...last, arguments: last.arguments + text };
        else if (last?.type === 'arguments')
          this.#out[this.#out.length - 1] = { type: 'arguments', text: last.text + text };
        else this.#out.push({ type: 'arguments', text });
      },
    };
  }

  push(text: string): ToolPiece[] {
    this.#out = [];
    this.#read(text);
    return this.#out;
  }

  end(): ToolPiece[] {
    this.#out = [];
    while (this.#input !== null) {
      this.#input.end();
      this.#read(this.#resume(''));
    }
    this.#text(this.#marks.flush());
    const space = this.#space.take();
    if (!this.#hasCalled && space !== '') this.#out.push({ type: 'text', text: space });
    return this.#out;
  }

  #read(text: string): void {
    let rest = text;
    while (rest !== '') {
      if (this.#input !== null) {
        rest = this.#resume(rest);
        continue;
      }
      if (this.#atStart) {
        const begun = rest.trimStart();
        this.#text(rest.slice(0, rest.length - begun.length));
        rest = begun;
        if (begun === '') return;
        this.#atStart = false;
        if (this.#syntax.starts!.includes(begun[0]!)) {
          this.#begin('');
          continue;
        }
      }
      const held = this.#marks.heldLength;
      const { text: certain, match } = this.#marks.push(rest);
      this.#text(certain);
      if (match === undefined) return;
      this.#marks.flush();
      rest = rest.slice(certain.length + match.stop.length - held);
      const { marks, closers = [] } = this.#syntax;
      if (match.index < marks.length) this.#begin(match.stop);
      else if (match.index >= marks.length + closers.length) continue;
      else if (this.#hasCalled) this.#space.take();
      else this.#text(match.stop);
    }
  }

  #begin(mark: string): void {
    this.#mark = mark;
    this.#input = new CallInput();
    this.#reading = this.#syntax.read(this.#input, this.#sink, mark);
  }

  /** Lets the reader go on; returns what it leaves, once it is done. */
  #resume(text: string): string {
    const input = this.#input!;
    input.push(text);
    const { done, value } = this.#reading!.next();
    if (done !== true) return '';
    this.#input = null;
    this.#reading = null;
    if (value !== null) return value + input.unread;
    const { text: refused, rest } = input.refused;
    this.#text(this.#mark + refused);
    return rest;
  }

  #text(text: string): void {
    const certain = this.#space.push(text);
    if (certain === '') return;
    const last = this.#out.at(-1);
    if (last?.type === 'text') this.#out[this.#out.length - 1] = { type: 'text', text: last.text + certain };
    else this.#out.push({ type: 'text', text: certain });
  }
}
