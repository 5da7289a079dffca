import { join } from 'node:path';
import { KvantError } from '../errors.js';
import { convertTokenizer } from './conversion/convert.js';
import { Detokenizer, type DetokenizerOptions } from './detokenizer.js';
import { BrokenDefinition } from './encoding/broken-definition.js';
import { Encoder } from './encoding/encoder.js';
import { isJsonObject, type JsonObject, readJsonObject } from './json-file.js';
import { buildTokenTable, type TokenTable } from './token-bytes.js';
import { mostTextOfToken } from './token-cover.js';
import { readTokenizerDefinition, type TokenizerDefinition } from './tokenizer-definition.js';

export interface EncodeOptions {
  /**
   * Add what the model expects around a text of its own (a BOS token, mostly). A rendered chat template holds
   * these already: encode it with `false`. Default true.
   */
  readonly addSpecialTokens?: boolean;
  /** Told now and then how many tokens there are so far. May throw, which ends it: a long text takes seconds. */
  readonly onTokens?: (count: number) => void;
}

const SPECIAL_ROLES = ['bos_token', 'eos_token', 'unk_token', 'pad_token'] as const;
export type SpecialRole = (typeof SPECIAL_ROLES)[number];

/** Text to token ids and back, from a `tokenizer.json`, or what stands in its place, and `tokenizer_config.json`. */
export class Tokenizer {
  /** Rows that a table indexed by token id needs: the highest id plus one. The model's own may be larger. */
  readonly vocabSize: number;
  /** The texts of bos, eos, unk and pad where the configuration names them. */
  readonly specialTokens: Readonly<Partial<Record<SpecialRole, string>>>;
  /** Ids of all special tokens, those that decoding leaves out unless asked. */
  readonly specialIds: ReadonlySet<number>;
  /** The parsed tokenizer_config.json (an empty object where there is none). */
  readonly config: JsonObject;

  readonly #encoder: Encoder;
  readonly #definition: TokenizerDefinition;
  readonly #ids: ReadonlyMap<string, number>;
  readonly #tokens: readonly (string | undefined)[];
  readonly #where: string;
  #table: TokenTable | undefined;
  /** UTF-16 units that one token may stand for. */
  #cover: number | undefined;

  private constructor(json: JsonObject, config: JsonObject, where: string) {
    const definition = readTokenizerDefinition(json, config, where);
    this.#definition = definition;
    this.#where = where;
    this.config = config;
    try {
      this.#encoder = new Encoder(definition);
    } catch (cause) {
      const broken = cause instanceof BrokenDefinition;
      const reason = (cause as Error).message;
      throw new KvantError(
        broken ? 'tokenizer-broken' : 'tokenizer-unsupported',
        broken ? `The tokenizer is broken: ${reason}` : `Cannot use the tokenizer: ${reason}`,
        {
          kind: broken ? 'model' : 'unsupported',
          where,
          fix: broken
            ? 'Fetch the model again; if it was converted, convert it again with a current version of the tool.'
            : 'The tokenizer uses a part that kvant does not know. Check that the file is whole, or use another model.',
          cause,
        },
      );
    }

    const tokens = [...definition.vocab];
    for (const token of definition.addedTokens) tokens[token.id] = token.content;
    const ids = new Map<string, number>();
    tokens.forEach((token, id) => {
      if (token !== undefined) ids.set(token, id);
    });
    this.#tokens = tokens;
    this.#ids = ids;
    this.vocabSize = tokens.length;

    const special: Partial<Record<SpecialRole, string>> = {};
    for (const role of SPECIAL_ROLES) {
      const content = tokenContent(config[role]);
      if (content !== undefined) special[role] = content;
    }
    this.specialTokens = special;
    this.specialIds = specialIdsOf(definition, config, ids);
  }

  /**
   * Loads `tokenizer.json`, or what older checkpoints have in its place (conversion/convert.ts), and, where present,
   * `tokenizer_config.json` from a model folder. `lazily`: what decoding needs is made
   * when something is decoded.
   *
   * @throws KvantError `tokenizer-missing`, `tokenizer-broken`, `tokenizer-unsupported`
   */
  static async load(folder: string, options: { readonly lazily?: boolean } = {}): Promise<Tokenizer> {
    const json = await readJsonObject(folder, 'tokenizer.json', 'tokenizer-broken');
    const config = await readConfig(folder);
    const made =
      json === undefined
        ? await convertTokenizer(folder, config)
        : { tokenizer: json, config, where: join(folder, 'tokenizer.json') };
    if (made === undefined) throw missing(folder);
    const tokenizer = new Tokenizer(made.tokenizer, made.config, made.where);
    // A tokenizer that cannot decode is refused now, not at the first token of the first request.
    if (options.lazily !== true) void tokenizer.tokenTable;
    return tokenizer;
  }

  /** Builds a tokenizer from the parsed files. */
  static fromJson(json: JsonObject, config: JsonObject = {}, where = 'tokenizer.json'): Tokenizer {
    return new Tokenizer(json, config, where);
  }

  /**
   * The ids of a text: `[tokens]`. Half a surrogate pair is read as U+FFFD.
   *
   * @throws KvantError `tokenizer-failed` for a text the tokenizer cannot take, `tokenizer-broken`
   */
  encode(text: string, options: EncodeOptions = {}): Int32Array {
    const addSpecial = options.addSpecialTokens ?? true;
    const ids = this.#watched(text.length, options.onTokens, (watch) =>
      this.#encoder.encode(text, addSpecial, watch),
    );
    const bos = addSpecial && this.config.add_bos_token === true ? this.idOfSpecial('bos_token') : undefined;
    const prepend = bos !== undefined && ids[0] !== bos ? 1 : 0;
    const result = new Int32Array(ids.length + prepend);
    if (prepend === 1) result[0] = bos!;
    result.set(this.#whole(ids), prepend);
    return result;
  }

  /**
   * The ids of two texts that are read as a pair, special ones included, and how many there were before the second was cut to leave `most`
   * in all. Null where the definition says nothing of pairs.
   *
   * @throws KvantError `tokenizer-failed`, `tokenizer-broken`
   */
  encodePair(
    first: string,
    second: string,
    most: number,
    onTokens?: (count: number) => void,
  ): { readonly ids: Int32Array; readonly all: number } | null {
    const made = this.#watched(first.length + second.length, onTokens, (watch) =>
      this.#encoder.encodePair(first, second, most, watch),
    );
    return made && { ids: this.#whole(made.ids), all: made.all };
  }

  /** Errors: `tokenizer-broken`. */
  #whole(ids: readonly (number | undefined)[]): Int32Array {
    const result = new Int32Array(ids.length);
    for (let i = 0; i < ids.length; i++) {
      const id = ids[i];
      if (id === undefined) {
        throw new KvantError('tokenizer-broken', 'The tokenizer has no token for a part of the text', {
          kind: 'model',
          where: this.#where,
          fix: 'Fetch the model again; its vocabulary lacks a token that its own rules produce.',
        });
      }
      result[i] = id;
    }
    return result;
  }

  /** Errors: `tokenizer-failed`, what `onTokens` throws. */
  #watched<T>(
    characters: number,
    onTokens: ((count: number) => void) | undefined,
    encode: (watch?: (count: number) => void) => T,
  ): T {
    let stopped: unknown;
    const watch = (count: number): void => {
      try {
        onTokens?.(count);
      } catch (reason) {
        stopped = reason;
        throw reason;
      }
    };
    try {
      return encode(onTokens === undefined ? undefined : watch);
    } catch (cause) {
      if (stopped !== undefined && cause === stopped) throw cause;
      throw new KvantError(
        'tokenizer-failed',
        `The tokenizer cannot take this text of ${characters} characters: ${(cause as Error).message}`,
        {
          kind: 'invalid-request',
          fix: 'Leave those characters out.',
          cause,
        },
      );
    }
  }

  /**
   * So many tokens a text has at least, as its length alone tells: the longest token goes into it so often. 0 for a tokenizer whose
   * tokens may stand for any amount of text.
   */
  fewestTokens(text: string): number {
    this.#cover ??= mostTextOfToken(this.#definition) ?? Number.POSITIVE_INFINITY;
    return Math.ceil(text.length / this.#cover);
  }

  /** The whole text of `ids`; for a stream use a {@link Detokenizer}. */
  decode(ids: Iterable<number>, options: DetokenizerOptions = {}): string {
    const detokenizer = new Detokenizer(this.tokenTable, options);
    let text = '';
    for (const id of ids) text += detokenizer.push(id);
    return text + detokenizer.flush();
  }

  /** The id of a token by its exact text in the vocabulary, `undefined` where there is none. */
  idOf(token: string): number | undefined {
    return this.#ids.get(token);
  }

  /** The token's text as the vocabulary spells it (not its decoded text). */
  tokenOf(id: number): string | undefined {
    return this.#tokens[id];
  }

  idOfSpecial(role: SpecialRole): number | undefined {
    const token = this.specialTokens[role];
    return token === undefined ? undefined : this.#ids.get(token);
  }

  /**
   * The bytes of every token, in shared memory; made on first use.
   *
   * @throws KvantError `tokenizer-unsupported` for a decoder that has no bytes per token
   */
  get tokenTable(): TokenTable {
    this.#table ??= buildTokenTable(
      this.#definition,
      this.specialIds,
      (token) => this.#encoder.normalizedContent(token),
      this.#where,
    );
    return this.#table;
  }
}

/** tokenizer_config.json. Older ones leave special tokens to special_tokens_map.json: those that list added tokens do not. */
async function readConfig(folder: string): Promise<JsonObject> {
  const config = (await readJsonObject(folder, 'tokenizer_config.json', 'tokenizer-broken')) ?? {};
  if (isJsonObject(config.added_tokens_decoder)) return config;
  const special = await readJsonObject(folder, 'special_tokens_map.json', 'tokenizer-broken');
  return { ...special, ...config };
}

/** A special token is written as a string or as an object with a `content`. */
function tokenContent(value: unknown): string | undefined {
  if (typeof value === 'string') return value;
  if (isJsonObject(value) && typeof value.content === 'string') return value.content;
  return undefined;
}

function specialIdsOf(
  definition: TokenizerDefinition,
  config: JsonObject,
  ids: ReadonlyMap<string, number>,
): Set<number> {
  const special = new Set<number>();
  for (const token of definition.addedTokens) if (token.special) special.add(token.id);
  const additional = config.additional_special_tokens;
  for (const entry of Array.isArray(additional) ? additional : []) {
    const content = tokenContent(entry);
    const id = content === undefined ? undefined : ids.get(content);
    if (id !== undefined) special.add(id);
  }
  return special;
}

function missing(folder: string): KvantError {
  return new KvantError('tokenizer-missing', `There is no tokenizer.json in ${folder}`, {
    kind: 'model',
    where: join(folder, 'tokenizer.json'),
    fix: 'Fetch the whole model, not the weights alone; the file stands beside config.json on the hub.',
  });
}
