/**
 * gpt-oss: an answer is a row of messages, each on a channel: `<|channel|>analysis<|message|>…<|end|>` holds thoughts, `final` what is said,
 * `commentary` what is said before a call, and the call itself, whose message has a recipient:
 * `<|channel|>commentary to=functions.f <|constrain|>json<|message|>{…}<|call|>`. Another message begins with `<|start|>assistant`.
 */
import { choice, optional, sequence, text } from '../../grammar/expression.js';
import { freeText } from '../../grammar/triggered.js';
import { StopMatcher } from '../stop-matcher.js';
import { anyTool } from './call-grammar.js';
import type { AnswerFrame, FrameReader, FrameReaderOptions, ToolFormat, ToolPiece } from './tool-format.js';

const [START, CHANNEL, CONSTRAIN, MESSAGE] = ['<|start|>', '<|channel|>', '<|constrain|>', '<|message|>'];
const [END, CALL, RETURN] = ['<|end|>', '<|call|>', '<|return|>'];
/** What ends a message. */
const ENDS = [END, CALL, RETURN, START];
const HEADER_MARKS = [CHANNEL, CONSTRAIN, MESSAGE];
/** Longer headers are none. */
const LONGEST_HEADER = 512;
const [ROLE, RECIPIENT] = ['assistant', 'to='];
const FUNCTIONS = 'functions.';
/** Recipients that are no tools. */
const PERSONS = new Set(['user', 'assistant', 'all']);

type Kind = 'text' | 'reasoning' | 'arguments';

const FRAME: AnswerFrame = {
  thoughts: {
    open: `${CHANNEL}analysis${MESSAGE}`,
    close: END,
    tokens: [CHANNEL, MESSAGE, END, START],
    behind: `${START}${ROLE}`,
  },
  begins(promptEnd) {
    const reader = new HarmonyReader({ promptEnd, reasoning: true, calls: true });
    return reader.place;
  },
  reader: (options) => new HarmonyReader(options),
  answer({ mark, calls, said, free, budget }) {
    if (calls !== null && said === null && !free) return calls;
    const content = said ?? freeText(ENDS, budget);
    const final = sequence(mark(CHANNEL), text('final'), mark(MESSAGE), content);
    if (calls === null) return final;
    const before = sequence(
      mark(CHANNEL),
      text('commentary'),
      mark(MESSAGE),
      freeText(ENDS, budget),
      mark(END),
      mark(START),
      text(ROLE),
    );
    // Where what is said has a form, nothing is said besides.
    return sequence(...(said === null ? [optional(before)] : []), choice(calls, final));
  },
};

export const HARMONY: ToolFormat = {
  name: 'harmony',
  tokens: [START, CHANNEL, CONSTRAIN, MESSAGE, END, CALL],
  detect: ({ template, hasToken }) =>
    (template.includes(CHANNEL) && template.includes(MESSAGE)) || (hasToken(CHANNEL) && hasToken(RETURN)),
  frame: FRAME,
  grammar: {
    values: 'json',
    triggers: [CHANNEL],
    // The end of a call ends the answer: there is one in each.
    calls: (kit) =>
      anyTool(kit, ({ name, object }) => {
        const to = ` ${RECIPIENT}${FUNCTIONS}${name}`;
        const json = choice(text(' json'), sequence(text(' '), kit.mark(CONSTRAIN), text('json')));
        const headed = choice(
          sequence(kit.mark(CHANNEL), text(`commentary${to}`), optional(json)),
          sequence(text(to), kit.mark(CHANNEL), text('commentary'), optional(json)),
        );
        return sequence(headed, kit.mark(MESSAGE), object);
      }),
  },
  parser: () => new HarmonyReader({ promptEnd: '', reasoning: false, calls: true }),
};

class HarmonyReader implements FrameReader {
  readonly #reasoning: boolean;
  readonly #calls: boolean;
  readonly #ends = new StopMatcher(ENDS);
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

  constructor({ promptEnd, reasoning, calls }: FrameReaderOptions) {
    this.#reasoning = reasoning;
    this.#calls = calls;
    if (promptEnd === '') return;
    const begun = Math.max(promptEnd.lastIndexOf(START), promptEnd.lastIndexOf(END));
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
    return this.#reasoning && this.#header.includes(`${CHANNEL}analysis`);
  }

  /** Where an answer to the prompt begins. */
  get place(): 'message' | 'thoughts' | 'text' {
    if (this.#header === null) return this.#kind === 'reasoning' ? 'thoughts' : 'text';
    return this.#header.endsWith(`${START}${ROLE}`) ? 'message' : 'text';
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
    } else if (![START, ...HEADER_MARKS].some((mark) => this.#header!.includes(mark)))
      this.#give(this.#header);
    return this.#out;
  }

  /** Takes what belongs to the header; returns the rest. */
  #heading(piece: string): string {
    const before = this.#header!;
    // Longer ones are none: so much of the piece is looked at.
    const looked = piece.slice(0, LONGEST_HEADER + MESSAGE.length);
    const header = before + looked;
    const at = header.indexOf(MESSAGE);
    const own = at < 0 ? header : header.slice(0, at);
    if (own.length > LONGEST_HEADER || !mayBeHeader(own)) {
      this.#begin('text', '');
      // What it began with is text now, and begins no other.
      const written = this.#prompted === 0 && header.startsWith(START) ? START : '';
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
    const called = recipient !== undefined && !PERSONS.has(recipient);
    const thought = /<\|channel\|>\s*analysis/.test(own);
    const written = own.replace(START, '').replace(/^assistant/, '') + MESSAGE;
    if (called && this.#calls) {
      const name = recipient.startsWith(FUNCTIONS) ? recipient.slice(FUNCTIONS.length) : recipient;
      this.#begin('arguments', '');
      this.#out.push({ type: 'call', name, arguments: '' });
    } else if (called) this.#begin('text', written);
    else if (thought) this.#begin(this.#reasoning ? 'reasoning' : 'text', this.#reasoning ? '' : written);
    else this.#begin('text', '');
    return piece.slice(at + MESSAGE.length - before.length);
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
    this.#header = match.stop === START ? START : '';
    return piece.slice(certain.length + match.stop.length - held);
  }

  #close(mark: string): void {
    if (this.#raw && mark !== START) this.#give(mark);
    if (this.#kind === 'arguments' && this.#empty) this.#give('{}');
    this.#had[this.#kind] ||= !this.#empty;
    this.#empty = true;
  }

  #give(text: string): void {
    if (text === '') return;
    const type = this.#kind;
    // Messages of one kind are paragraphs.
    const between = this.#empty && type !== 'arguments' && this.#had[type] ? '\n\n' : '';
    this.#empty = false;
    const last = this.#out.at(-1);
    if (last?.type === 'call')
      this.#out[this.#out.length - 1] = { ...last, arguments: last.arguments + text };
    else this.#out.push({ type, text: between + text });
  }
}

/** Whether a header may go on from this. Of a text of which this is false, it is of all longer ones. */
function mayBeHeader(source: string): boolean {
  if (START.startsWith(source)) return true;
  const behind = source.startsWith(START) ? source.slice(START.length) : source;
  const lead = /^[^<]*/.exec(behind)![0];
  const marked = behind
    .slice(lead.length)
    .split(/(?=<)/)
    .filter((part) => part !== '');
  const isMarked = (part: string, i: number): boolean =>
    HEADER_MARKS.some((mark) => part.startsWith(mark) || (i === marked.length - 1 && mark.startsWith(part)));
  if (source.includes('\n') || !marked.every(isMarked)) return false;
  const more = marked.length === 0;
  const begun = lead.trimStart();
  if (more && ROLE.startsWith(begun)) return true;
  return isRecipient(begun.startsWith(ROLE) ? begun.slice(ROLE.length).trimStart() : begun, more);
}

const isRecipient = (text: string, more: boolean): boolean =>
  text === '' || text.startsWith(RECIPIENT) || (more && RECIPIENT.startsWith(text));
