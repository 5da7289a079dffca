/**
 * Lets a text pass but for the white space at its end, which is kept until it is known what follows: more text, which
 * it then precedes, or something that is delivered apart, beside which it means nothing.
 */
export class HeldSpace {
  #space = '';

  /** Takes the next piece; returns the text that may be given out now. */
  push(text: string): string {
    const kept = text.trimEnd();
    if (kept === '') {
      this.#space += text;
      return '';
    }
    const out = this.#space + kept;
    this.#space = text.slice(kept.length);
    return out;
  }

  /** Hands over the white space that is held; nothing is held then. */
  take(): string {
    const space = this.#space;
    this.#space = '';
    return space;
  }
}
