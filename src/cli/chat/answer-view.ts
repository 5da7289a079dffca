/** An answer as it is printed: thoughts apart from what is said, and at its end how fast it came. */
import type { Delta, GenerationResult } from '../../engine/types.js';
import type { Styles } from './styles.js';

export class AnswerView {
  readonly #write: (text: string) => void;
  readonly #styles: Styles;
  readonly #terminal: boolean;
  #thinks = false;
  #lineEnded = true;

  /** `terminal`: control characters of the model must not reach it. */
  constructor(write: (text: string) => void, styles: Styles, terminal: boolean) {
    this.#write = write;
    this.#styles = styles;
    this.#terminal = terminal;
  }

  show({ reasoning = '', text }: Pick<Delta, 'reasoning' | 'text'>): void {
    if (reasoning !== '') {
      if (!this.#thinks && !this.#styles.on) this.#print('Thinking …\n');
      this.#thinks = true;
      this.#print(reasoning, true);
    }
    if (text === '') return;
    this.#endThoughts();
    this.#print(text);
  }

  /** Whatever ended it: what comes next stands on a line of its own. */
  end(): void {
    this.#endThoughts();
    if (!this.#lineEnded) this.#write('\n');
    this.#lineEnded = true;
  }

  #endThoughts(): void {
    if (!this.#thinks) return;
    this.#thinks = false;
    if (!this.#lineEnded) this.#print('\n');
    this.#print(this.#styles.on ? '\n' : '… done thinking.\n\n');
  }

  #print(text: string, dim = false): void {
    const clean = this.#terminal ? withoutControls(text) : text;
    if (clean === '') return;
    this.#lineEnded = clean.endsWith('\n');
    this.#write(dim ? this.#styles.dim(clean) : clean);
  }
}

/** Line breaks and tabs stay; what would move the cursor or change the terminal is spelled out. */
function withoutControls(text: string): string {
  // biome-ignore lint/suspicious/noControlCharactersInRegex: they are what is looked for
  return text.replaceAll(/[\0-\x08\x0b-\x1f\x7f-\x9f]/g, (found) =>
    found === '\r' ? '' : `\\u${found.charCodeAt(0).toString(16).padStart(4, '0')}`,
  );
}

/** `12 tokens, first after 80 ms, 45.2 tok/s`, and why it ended where that is not of itself. */
export function rateLine({ usage, timings, finishReason }: GenerationResult): string {
  const parts = [
    `${usage.completionTokens} token${usage.completionTokens === 1 ? '' : 's'}`,
    `first after ${Math.round(timings.ttftMs)} ms`,
    `${timings.decodeTokensPerSecond.toFixed(1)} tok/s`,
  ];
  if (finishReason === 'length') parts.push('cut at the limit of tokens');
  if (finishReason === 'cancelled') parts.push('stopped');
  return parts.join(', ');
}
