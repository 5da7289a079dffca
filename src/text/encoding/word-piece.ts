import type { JsonObject } from '../json-file.js';
import type { Model } from './model.js';

/** WordPiece: from the front, always the longest piece that the vocabulary has; a word that does not work out is unknown. */
export class WordPieceModel implements Model {
  readonly #vocab: ReadonlyMap<string, number>;
  readonly #unknown: string;
  readonly #prefix: string;
  readonly #longest: number;

  constructor(model: JsonObject, vocab: ReadonlyMap<string, number>) {
    this.#vocab = vocab;
    this.#unknown = typeof model.unk_token === 'string' ? model.unk_token : '[UNK]';
    this.#prefix =
      typeof model.continuing_subword_prefix === 'string' ? model.continuing_subword_prefix : '##';
    this.#longest = typeof model.max_input_chars_per_word === 'number' ? model.max_input_chars_per_word : 100;
  }

  encode(piece: string, ids: number[]): void {
    const characters = [...piece];
    const found: number[] = [];
    let start = characters.length > this.#longest ? -1 : 0;
    while (start >= 0 && start < characters.length) {
      let end = characters.length;
      let id: number | undefined;
      for (; end > start && id === undefined; end--) {
        const text = characters.slice(start, end).join('');
        id = this.#vocab.get(start > 0 ? this.#prefix + text : text);
        if (id !== undefined) break;
      }
      if (id === undefined) {
        start = -1;
      } else {
        found.push(id);
        start = end;
      }
    }
    if (start >= 0) {
      ids.push(...found);
      return;
    }
    const unknown = this.#vocab.get(this.#unknown);
    if (unknown === undefined) throw new Error('the vocabulary lacks the token for unknown words');
    ids.push(unknown);
  }
}
