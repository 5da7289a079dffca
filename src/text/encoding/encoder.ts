/**
 * Text to token ids, step by step as the Rust library tokenizers does it: added tokens are cut out, the rest is
 * normalised, cut into pieces, and the model writes each piece in ids.
 *
 * All steps are here and not those of `@huggingface/tokenizers`, of which only the translation of expressions is used:
 * of 93 kinds of definition it gave the ids of the reference for 6 (2,000 random texts each, `tokenizer-kinds.test.ts`).
 */
import type { JsonObject } from '../json-file.js';
import { type AddedToken, AddedTokenMatcher } from './added-tokens.js';
import { BpeModel } from './bpe.js';
import type { Model } from './model.js';
import { createNormalizer, type Normalizer } from './normalizers.js';
import { readPostProcessor, type Surroundings } from './post-processors.js';
import { createPreTokenizer, type PreTokenizer } from './pre-tokenizers.js';
import { UnigramModel } from './unigram.js';
import { WordPieceModel } from './word-piece.js';

/** An entry of `added_tokens`. */
export interface AddedTokenEntry extends JsonObject {
  readonly id: number;
  readonly content: string;
  readonly special: boolean;
}

/** The parts of tokenizer.json, `null` where one is absent. */
export interface EncoderDefinition {
  readonly modelType: 'BPE' | 'Unigram' | 'WordPiece';
  readonly model: JsonObject;
  readonly normalizer: JsonObject | null;
  readonly preTokenizer: JsonObject | null;
  readonly postProcessor: JsonObject | null;
  readonly addedTokens: readonly AddedTokenEntry[];
}

/** New ids after which whoever watches is told of them. */
const TOLD_EVERY = 1024;

export class Encoder {
  readonly #model: Model;
  readonly #normalize: Normalizer;
  readonly #cut: PreTokenizer;
  readonly #surroundings: Surroundings;
  /** Tokens found in the text as it comes, and those found in the normalised text. */
  readonly #plain: AddedTokenMatcher;
  readonly #normalized: AddedTokenMatcher;

  /** @throws Error for a part that is not known or broken */
  constructor(definition: EncoderDefinition) {
    const { model, modelType, addedTokens } = definition;
    this.#normalize = createNormalizer(definition.normalizer);
    this.#cut = createPreTokenizer(definition.preTokenizer);
    const vocab = modelType === 'Unigram' ? new Map<string, number>() : vocabOf(model);
    this.#model =
      modelType === 'BPE'
        ? new BpeModel(model, vocab)
        : modelType === 'Unigram'
          ? new UnigramModel(model)
          : new WordPieceModel(model, vocab);
    const plain: [string, AddedToken][] = [];
    const normalized: [string, AddedToken][] = [];
    for (const entry of addedTokens) {
      const token: AddedToken = {
        id: entry.id,
        singleWord: entry.single_word === true,
        lstrip: entry.lstrip === true,
        rstrip: entry.rstrip === true,
      };
      if (isNormalized(entry)) normalized.push([this.normalizedContent(entry), token]);
      else plain.push([entry.content, token]);
    }
    this.#plain = new AddedTokenMatcher(plain);
    this.#normalized = new AddedTokenMatcher(normalized);
    const idOf = (content: string): number | undefined =>
      addedTokens.find((token) => token.content === content)?.id ?? vocab.get(content);
    this.#surroundings = readPostProcessor(definition.postProcessor, idOf);
  }

  /** An added token as it stands in normalised text, which is also how the decoder is given it. */
  normalizedContent(entry: AddedTokenEntry): string {
    if (!isNormalized(entry)) return entry.content;
    return this.#normalize({ text: entry.content, atStart: true }).text;
  }

  /**
   * The ids of a text.
   *
   * @param surround with what the post-processor puts around a text; `undefined` in the result stands for a token of it
   *   that the vocabulary lacks
   * @param onTokens told after every few pieces how many ids there are; may throw, which ends it
   * @throws Error for a text that the model cannot write
   */
  encode(text: string, surround: boolean, onTokens?: (count: number) => void): (number | undefined)[] {
    const ids = this.#ids(text, onTokens);
    const { before, after } = this.#surroundings;
    return surround && before.length + after.length > 0 ? [...before, ...ids, ...after] : ids;
  }

  /**
   * The ids of two texts that are read as a pair, with what the post-processor puts around them. `most`: the second is cut at its end, as far
   * as there are more in all. Null where the post-processor says nothing of pairs.
   */
  encodePair(
    first: string,
    second: string,
    most: number,
    onTokens?: (count: number) => void,
  ): { readonly ids: (number | undefined)[]; readonly all: number } | null {
    const { pair } = this.#surroundings;
    if (pair === null) return null;
    const { before, between, after } = pair;
    const [a, b] = [this.#ids(first, onTokens), this.#ids(second, onTokens)];
    const all = before.length + a.length + between.length + b.length + after.length;
    const kept = Math.max(0, b.length - Math.max(0, all - most));
    return { ids: [...before, ...a, ...between, ...b.slice(0, kept), ...after], all };
  }

  #ids(text: string, onTokens?: (count: number) => void): number[] {
    const ids: number[] = [];
    this.#plain.split(
      text.isWellFormed() ? text : text.toWellFormed(),
      (start, end) => {
        this.#encodeNormalized(
          this.#normalize({ text: text.slice(start, end), atStart: start === 0 }),
          ids,
          onTokens,
        );
      },
      (token) => ids.push(token.id),
    );
    return ids;
  }

  #encodeNormalized(
    { text, atStart }: { text: string; atStart: boolean },
    ids: number[],
    onTokens?: (count: number) => void,
  ): void {
    onTokens?.(ids.length);
    let told = ids.length;
    this.#normalized.split(
      text,
      (start, end) => {
        const whole = { pieces: [text.slice(start, end)], atStart: atStart && start === 0 };
        for (const piece of this.#cut(whole).pieces) {
          this.#model.encode(piece, ids);
          if (onTokens === undefined || ids.length - told < TOLD_EVERY) continue;
          told = ids.length;
          onTokens(told);
        }
      },
      (token) => ids.push(token.id),
    );
  }
}

/** By default ordinary tokens are looked for in the normalised text, special ones in the text as it comes. */
function isNormalized(entry: AddedTokenEntry): boolean {
  return typeof entry.normalized === 'boolean' ? entry.normalized : !entry.special;
}

function vocabOf(model: JsonObject): Map<string, number> {
  return new Map(Object.entries(model.vocab as Record<string, number>));
}
