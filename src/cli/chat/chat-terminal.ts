/** Where a person, or a pipe, enters what is to be said: an editor of lines on a terminal, plain lines elsewhere. */
import { createInterface, type Interface } from 'node:readline';
import { type Readable, Writable } from 'node:stream';
import { type Entry, MessageLines } from './message-lines.js';
import { BRACKETED_PASTE, PasteInput } from './paste-input.js';
import { Styles } from './styles.js';

export interface ChatInput extends Readable {
  readonly isTTY?: boolean;
  setRawMode?(raw: boolean): unknown;
}

export interface ChatOutput extends Writable {
  readonly isTTY?: boolean;
  readonly columns?: number;
  hasColors?(env?: object): boolean;
}

export class ChatTerminal {
  /** A person types, and sees a prompt. */
  readonly interactive: boolean;
  readonly #input: ChatInput;
  readonly #screen: ChatOutput;
  readonly #styles: Styles;
  readonly #reader: Interface;
  readonly #paste: PasteInput | null;
  readonly #lines = new MessageLines();
  readonly #entries: Entry[] = [];
  #wake: (() => void) | null = null;
  #over = false;
  #closed = false;
  /** While an answer comes, what is typed is kept but not shown. */
  #silent = true;

  /**
   * `screen`: where prompts go. `onInterrupt`: Ctrl-C; true if there was something to stop. At a prompt with nothing on it Ctrl-C
   * ends the input, as Ctrl-D does; otherwise it clears what was begun.
   */
  constructor(input: ChatInput, screen: ChatOutput, onInterrupt: () => boolean) {
    this.#input = input;
    this.#screen = screen;
    this.#styles = new Styles(screen);
    this.interactive = input.isTTY === true && screen.isTTY === true;
    this.#paste = this.interactive ? new PasteInput(input) : null;
    this.#reader =
      this.#paste === null
        ? createInterface({ input, crlfDelay: Number.POSITIVE_INFINITY })
        : createInterface({ input: input.pipe(this.#paste), output: this.#editorScreen(), terminal: true });
    this.#reader.on('line', (line) => this.#enter(line));
    this.#reader.on('close', () => this.#end());
    this.#reader.on('SIGINT', () => {
      if (!onInterrupt()) this.#clear();
    });
    this.#markPastes(true);
    this.#reader.on('SIGCONT', () => this.#markPastes(true));
  }

  /** The next thing that was entered; null when there is no more. */
  async next(): Promise<Entry | null> {
    this.#silent = false;
    if (this.#entries.length === 0 && !this.#over) {
      this.#prompt();
      await new Promise<void>((resolve) => {
        this.#wake = resolve;
      });
    }
    this.#silent = true;
    return this.#entries.shift() ?? null;
  }

  /** Gives the terminal back as it was. */
  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    this.#reader.close();
    this.#markPastes(false);
    if (this.#paste !== null) this.#input.unpipe(this.#paste);
    this.#input.pause();
  }

  #enter(line: string): void {
    // A pasted block is more than one line to the eye, but one to the editor.
    const entry = this.#expanded(this.#lines.push(line));
    if (entry === null) {
      this.#prompt();
      return;
    }
    this.#entries.push(entry);
    this.#wakeUp();
  }

  #expanded(entry: Entry | null): Entry | null {
    if (entry === null || this.#paste === null) return entry;
    return { kind: entry.kind, text: this.#paste.expand(entry.text) };
  }

  #end(): void {
    if (this.#over) return;
    this.#over = true;
    const rest = this.#expanded(this.#lines.end());
    // A pipe that ends within a block has said all it has to say; a person who ends has thought better of it.
    if (rest !== null && !this.interactive) this.#entries.push(rest);
    if (this.interactive) this.#screen.write('\n');
    this.#wakeUp();
  }

  #clear(): void {
    if (!this.#lines.open && this.#reader.line === '') {
      this.#reader.close();
      return;
    }
    this.#lines.drop();
    this.#reader.write(null, { ctrl: true, name: 'e' });
    this.#reader.write(null, { ctrl: true, name: 'u' });
    this.#screen.write('\n');
    this.#prompt();
  }

  #prompt(): void {
    if (!this.interactive || this.#silent || this.#over) return;
    this.#reader.setPrompt(this.#styles.bold(this.#lines.open ? '… ' : '> '));
    this.#reader.prompt(true);
  }

  #wakeUp(): void {
    const wake = this.#wake;
    this.#wake = null;
    wake?.();
  }

  #markPastes(on: boolean): void {
    if (this.#paste === null || process.platform === 'win32' || process.env.TERM === 'dumb') return;
    this.#screen.write(on ? BRACKETED_PASTE.on : BRACKETED_PASTE.off);
  }

  /** What the editor draws, but for the time of an answer. */
  #editorScreen(): Writable {
    const screen = this.#screen;
    const shown = new Writable({
      write: (chunk, _, done) => {
        if (!this.#silent) screen.write(chunk);
        done();
      },
    });
    Object.defineProperty(shown, 'columns', { get: () => screen.columns });
    screen.on('resize', () => shown.emit('resize'));
    return shown;
  }
}
