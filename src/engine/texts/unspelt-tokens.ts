/**
 * Image tokens that a tokenizer does not have: GGUF files of LLaVA hold the language model's own vocabulary. A text has a mark in their
 * place, which nobody can type, and is cut there.
 */

import { randomBytes } from 'node:crypto';
import type { PictureTokens } from './placeholders.js';

/** What LLaVA's own code writes for a picture. */
const SHOWN = '<image>';
/** A row of the embedding that there always is: what is seen takes its place. */
const ROW = 0;

export function unspelt(kind: PictureTokens): PictureTokens {
  const { placeholder, asText, rowToken } = kind;
  return {
    ...kind,
    placeholder: placeholder ?? SHOWN,
    asText: asText ?? `${SHOWN}\n`,
    rowToken: rowToken ?? ROW,
  };
}

export class UnspeltTokens {
  // Private characters, and no text can foresee them.
  readonly #secret = randomBytes(8).toString('hex');
  readonly #tokens = new Map<string, number>();

  markOf(token: number): string {
    const mark = `\u{e0f1}${token} ${this.#secret}\u{e0f2}`;
    this.#tokens.set(mark, token);
    return mark;
  }

  /** A text in parts, with tokens where marks were. */
  cut(text: string): (string | number)[] {
    let parts: (string | number)[] = [text];
    for (const [mark, token] of this.#tokens)
      parts = parts.flatMap((part) =>
        typeof part === 'number'
          ? [part]
          : part
              .split(mark)
              .flatMap((piece, i) => [...(i > 0 ? [token] : []), ...(piece === '' ? [] : [piece])]),
      );
    return parts;
  }
}
