/**
 * Reads answers that are a row of messages, each with a header that says whose it is: thoughts, what is said, or a call. gpt-oss and Muse
 * Glimmer write so.
 */
import { StopMatcher } from '../stop-matcher.js';
import type { FrameReader, FrameReaderOptions, ToolCallParser, ToolPiece } from './tool-format.js';

/** How a format writes messages. */
export interface Messages {
  /** Begins a message, with the role behind it. */
  readonly start: string;
  /** Ends a header. */
  readonly message: string;
  /** What ends a message. */
  readonly ends: readonly string[];
  /** The last of these in a prompt begins the message that the answer goes on from. */
  readonly between: readonly string[];
  /** What may stand in a header, besides the role and the recipient. */
  readonly headerMarks: readonly string[];
  /** Recipients that are no tools. */
  readonly persons: ReadonlySet<string>;
  /** Whether a message with such a header is thought; of the beginning of one, as far as is known. */
  isThought(header: string): boolean;
  /** The tool that a recipient names. */
  calledName(recipient: string): string;
  /** What reads a message to a tool that is called so. Default: it holds the arguments alone. */
  calls?(tools: readonly unknown[], recipient: string): ToolCallParser;
}

/** Longer headers are none. */
const LONGEST_HEADER = 512;
const [ROLE, RECIPIENT] = ['assistant', 'to='];

type Kind = 'text' | 'reasoning' | 'arguments';

export class MessageReader implements FrameReader {
  readonly #messages: Messages;
  readonly #tools: readonly unknown[];
  readonly #reasoning: boolean;
  readonly #calls: boolean;
  readonly #ends: StopMatcher;
  /** Reads the call at hand, where a format writes more than its arguments. */
  #call: ToolCallParser | null = null;
  #out: ToolPiece[] = [];
  /** What has come of a header; null within a message. */
  #header: string | null = '';
  /** So much of it the prompt has. */
  #prompted = 0;
  #kind: Kind = 'text';
  /** The message at hand is given out as it was written, marks and all. */
  #raw = false;
  /** The message at hand has nothing in it yet. */
  #empty = true;
  /** Whether there was any of it in earlier messages. */
  readonly #had = { text: false, reasoning: false, arguments: false };

  constructor(messages: Messages, { promptEnd, reasoning, calls, tools }: FrameReaderOptions) {
    const { ends, between } = messages;
    this.#messages = messages;
    this.#tools = tools;
    this.#ends = new StopMatcher([...ends]);
    this.#reasoning = reasoning;
    this.#calls = calls;
    if (promptEnd === '') return;
    const begun = Math.max(...between.map((mark) => promptEnd.lastIndexOf(mark)));
    if (begun < 0) this.#header = null;
    else {
      this.push(promptEnd.slice(begun));
      this.#prompted = this.#header?.length ?? 0;
      this.#had.text = false;
      this.#had.reasoning = false;
    }
  }

  get thinking(): boolean {
    if (this.#header === null) return this.#kind === 'reasoning';
    return this.#reasoning && this.#messages.isThought(this.#header);
  }

  /** Where an answer to the prompt begins. */
  get place(): 'message' | 'thoughts' | 'text' {
    if (this.#header === null) return this.#kind === 'reasoning' ? 'thoughts' : 'text';
    return this.#header.endsWith(`${this.#messages.start}${ROLE}`) ? 'message' : 'text';
  }

  push(text: string): ToolPiece[] {
    this.#out = [];
    let rest = text;
    while (rest !== '') rest = this.#header === null ? this.#message(rest) : this.#heading(rest);
    return this.#out;
  }

  end(): ToolPiece[] {
    this.#out = [];
    if (this.#header === null) {
      this.#give(this.#ends.flush());
      this.#close('');
    } else {
      const { start, headerMarks } = this.#messages;
      if (![start, ...headerMarks].some((mark) => this.#header!.includes(mark))) this.#give(this.#header);
    }
    return this.#out;
  }

  /** Takes what belongs to the header; returns the rest. */
  #heading(piece: string): string {
    const before = this.#header!;
    const { start, message, persons } = this.#messages;
    // Longer ones are none: so much of the piece is looked at.
    const looked = piece.slice(0, LONGEST_HEADER + message.length);
    const header = before + looked;
    const at = header.indexOf(message);
    const own = at < 0 ? header : header.slice(0, at);
    if (own.length > LONGEST_HEADER || !mayBeHeader(own, this.#messages)) {
      this.#begin('text', '');
      // What it began with is text now, and begins no other.
      const written = this.#prompted === 0 && header.startsWith(start) ? start : '';
      const taken = this.#prompted + written.length;
      this.#prompted = 0;
      this.#empty = false;
      this.#give(written);
      return (before + piece).slice(taken);
    }
    if (at < 0) {
      this.#header = header;
      return '';
    }
    this.#prompted = 0;
    const recipient = /to=([^\s<]+)/.exec(own)?.[1];
    const called = recipient !== undefined && !persons.has(recipient);
    const thought = this.#messages.isThought(own);
    const written = own.replace(start, '').replace(/^assistant/, '') + message;
    if (called && this.#calls) {
      this.#begin('arguments', '');
      this.#call = this.#messages.calls?.(this.#tools, recipient) ?? null;
      if (this.#call === null)
        this.#out.push({ type: 'call', name: this.#messages.calledName(recipient), arguments: '' });
    } else if (called) this.#begin('text', written);
    else if (thought) this.#begin(this.#reasoning ? 'reasoning' : 'text', this.#reasoning ? '' : written);
    else this.#begin('text', '');
    return piece.slice(at + message.length - before.length);
  }

  /** `written`: the header, where the message is given out with it. */
  #begin(kind: Kind, written: string): void {
    this.#header = null;
    this.#kind = kind;
    this.#raw = written !== '';
    this.#empty = true;
    this.#give(written);
  }

  #message(piece: string): string {
    const held = this.#ends.heldLength;
    const { text: certain, match } = this.#ends.push(piece);
    this.#give(certain);
    if (match === undefined) return '';
    this.#ends.flush();
    this.#close(match.stop);
    const { start } = this.#messages;
    this.#header = match.stop === start ? start : '';
    return piece.slice(certain.length + match.stop.length - held);
  }

  #close(mark: string): void {
    if (this.#raw && mark !== this.#messages.start) this.#give(mark);
    if (this.#call !== null) {
      if (this.#empty) this.#out.push(...this.#call.push('{}'));
      this.#out.push(...this.#call.end());
    } else if (this.#kind === 'arguments' && this.#empty) this.#give('{}');
    this.#call = null;
    this.#had[this.#kind] ||= !this.#empty;
    this.#empty = true;
  }

  #give(text: string): void {
    if (text === '') return;
    const type = this.#kind;
    if (this.#call !== null) {
      this.#out.push(...this.#call.push(text));
      this.#empty = false;
      return;
    }
    // Messages of one kind are paragraphs.
    const between = this.#empty && type !== 'arguments' && this.#had[type] ? '\n\n' : '';
    this.#empty = false;
    const last = this.#out.at(-1);
    if (last?.type === 'call' && type === 'arguments')
      this.#out[this.#out.length - 1] = { ...last, arguments: last.arguments + text };
    else this.#out.push({ type, text: between + text });
  }
}

/** Whether a header may go on from this. Of a text of which this is false, it is of all longer ones. */
function mayBeHeader(source: string, { start, headerMarks }: Messages): boolean {
  if (start.startsWith(source)) return true;
  const behind = source.startsWith(start) ? source.slice(start.length) : source;
  const lead = /^[^<]*/.exec(behind)![0];
  const marked = behind
    .slice(lead.length)
    .split(/(?=<)/)
    .filter((part) => part !== '');
  const isMarked = (part: string, i: number): boolean =>
    headerMarks.some((mark) => part.startsWith(mark) || (i === marked.length - 1 && mark.startsWith(part)));
  if (source.includes('\n') || !marked.every(isMarked)) return false;
  const more = marked.length === 0;
  const begun = lead.trimStart();
  if (more && ROLE.startsWith(begun)) return true;
  return isRecipient(begun.startsWith(ROLE) ? begun.slice(ROLE.length).trimStart() : begun, more);
}

const isRecipient = (text: string, more: boolean): boolean =>
  text === '' || text.startsWith(RECIPIENT) || (more && RECIPIENT.startsWith(text));
