/** What a person enters: commands, and messages of one line or of several between `"""` and `"""`. */

export interface Entry {
  /** Begins with a slash: something to do. What is in quotes is a message, whatever it begins with. */
  readonly kind: 'command' | 'message';
  readonly text: string;
}

const QUOTES = '"""';
/** A block may be the text of a command, as in `/system """`. */
const OPENING = /^(\s*(?:\/\S+\s+)?)"""/;

export class MessageLines {
  #begun: { readonly before: string; readonly lines: string[] } | null = null;

  /** Within a block. */
  get open(): boolean {
    return this.#begun !== null;
  }

  /** The entry that the line completes; null while more is to come. */
  push(line: string): Entry | null {
    let rest = line;
    if (this.#begun === null) {
      const before = OPENING.exec(line)?.[1];
      if (before === undefined) return entry('', line);
      rest = line.slice(before.length + QUOTES.length);
      this.#begun = { before: before.trimStart(), lines: [] };
    }
    const end = rest.trimEnd();
    const closes = end.endsWith(QUOTES);
    this.#begun.lines.push(closes ? end.slice(0, -QUOTES.length) : rest);
    return closes ? this.end() : null;
  }

  /** The input is over: what there is of a block, if one was begun. */
  end(): Entry | null {
    if (this.#begun === null) return null;
    const { before, lines } = this.#begun;
    this.#begun = null;
    // The line breaks behind the opening and before the closing quotes belong to the quotes.
    if (lines.length > 1 && lines[0]!.trim() === '') lines.shift();
    if (lines.length > 1 && lines.at(-1)!.trim() === '') lines.pop();
    const text = lines.join('\n');
    return before === '' ? { kind: 'message', text } : entry(before, text);
  }

  /** Forgets what has been begun. */
  drop(): void {
    this.#begun = null;
  }
}

const entry = (before: string, text: string): Entry => ({
  kind: (before === '' ? text : before).startsWith('/') ? 'command' : 'message',
  text: before + text,
});
