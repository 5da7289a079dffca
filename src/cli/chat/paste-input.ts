/**
 * Keeps pasted text together. A terminal that is asked to (`BRACKETED_PASTE`) puts marks around what is pasted. Here a short text
 * of one line goes on as if it were typed; of any other the line editor sees a name, which `expand` turns into the text when the
 * line is entered. So a paste of many lines is one message, and a long one costs the editor nothing.
 */

import { Transform, type TransformCallback } from 'node:stream';
import { StringDecoder } from 'node:string_decoder';

/** What a terminal is sent to mark pasted text, and to stop that. */
export const BRACKETED_PASTE = { on: '\x1b[?2004h', off: '\x1b[?2004l' } as const;

const START = '\x1b[200~';
const END = '\x1b[201~';
/** Of one line, and so short, it is edited like typed text. */
const LONGEST_TYPED = 1000;

/** Stands between a terminal and `readline`, which sets it raw. */
export class PasteInput extends Transform {
  readonly isTTY = true;
  readonly #terminal: { setRawMode?(raw: boolean): unknown };
  readonly #decoder = new StringDecoder('utf8');
  readonly #pastes = new Map<string, string>();
  /** What has come of a paste that has not ended. */
  #pasting: string | null = null;
  #held = '';

  constructor(terminal: { setRawMode?(raw: boolean): unknown }) {
    super();
    this.#terminal = terminal;
  }

  setRawMode(raw: boolean): this {
    this.#terminal.setRawMode?.(raw);
    return this;
  }

  /** The line with the texts that its names stand for. */
  expand(line: string): string {
    return line.replaceAll(/\[paste \d+: [^\]]*\]/g, (name) => this.#pastes.get(name) ?? name);
  }

  override _transform(chunk: Buffer | string, _: BufferEncoding, done: TransformCallback): void {
    let text = this.#held + (typeof chunk === 'string' ? chunk : this.#decoder.write(chunk));
    this.#held = '';
    for (;;) {
      const mark = this.#pasting === null ? START : END;
      const at = text.indexOf(mark);
      if (at < 0) break;
      this.#take(text.slice(0, at));
      text = text.slice(at + mark.length);
      if (this.#pasting === null) this.#pasting = '';
      else this.#endPaste();
    }
    const held = this.#partOfMark(text);
    this.#held = text.slice(text.length - held);
    this.#take(text.slice(0, text.length - held));
    done();
  }

  override _flush(done: TransformCallback): void {
    this.#take(this.#held + this.#decoder.end());
    if (this.#pasting !== null) this.#endPaste();
    done();
  }

  #take(text: string): void {
    if (this.#pasting !== null) this.#pasting += text;
    else if (text !== '') this.push(text);
  }

  #endPaste(): void {
    const pasted = cleaned(this.#pasting!);
    this.#pasting = null;
    if (pasted === '') return;
    if (!pasted.includes('\n') && pasted.length <= LONGEST_TYPED) {
      this.push(pasted);
      return;
    }
    const lines = pasted.split('\n').length;
    const name = `[paste ${this.#pastes.size + 1}: ${lines} line${lines === 1 ? '' : 's'}, ${pasted.length} characters]`;
    this.#pastes.set(name, pasted);
    this.push(name);
  }

  /** Characters at the end with which a mark may begin. A key's own escape, alone or just begun, goes on at once. */
  #partOfMark(text: string): number {
    const [mark, least] = this.#pasting === null ? [START, 3] : [END, 1];
    for (let length = mark.length - 1; length >= least; length--)
      if (text.endsWith(mark.slice(0, length))) return length;
    return 0;
  }
}

/** Line breaks of one kind, none at the end, and no character that a key would be. */
function cleaned(text: string): string {
  const lines = text.replaceAll(/\r\n?/g, '\n').replace(/\n+$/, '');
  // biome-ignore lint/suspicious/noControlCharactersInRegex: they are what is taken out
  return lines.replaceAll(/[\0-\x08\x0b-\x1f\x7f]/g, '');
}
