import { KvantError } from '../errors.js';
import type { AddedTokenEntry, EncoderDefinition } from './encoding/encoder.js';
import { isJsonObject, type JsonObject } from './json-file.js';

/** What kvant needs of `tokenizer.json`, checked. */
export interface TokenizerDefinition extends EncoderDefinition {
  /** Token text by id, without the added tokens; ids without a token are holes. */
  readonly vocab: readonly (string | undefined)[];
  readonly decoder: JsonObject | null;
}

const UNSUPPORTED_FIX =
  'kvant reads BPE, Unigram and WordPiece tokenizers in the tokenizer.json format, as Llama, Mistral and Qwen publish them.';

function broken(where: string, what: string): KvantError {
  return new KvantError('tokenizer-broken', `The tokenizer is broken: ${what}`, {
    kind: 'model',
    where,
    fix: 'Fetch the model again; if it was converted, convert it again with a current version of the tool.',
  });
}

/**
 * Checks a parsed tokenizer.json and takes out what kvant uses.
 *
 * @param config the parsed tokenizer_config.json: added tokens that only it names are taken over
 * @param where the file, for errors
 * @throws KvantError `tokenizer-broken`, `tokenizer-unsupported`
 */
export function readTokenizerDefinition(
  json: JsonObject,
  config: JsonObject,
  where: string,
): TokenizerDefinition {
  const model = json.model;
  if (!isJsonObject(model)) throw broken(where, '"model" is missing');
  const modelType = modelTypeOf(model);
  if (modelType !== 'BPE' && modelType !== 'Unigram' && modelType !== 'WordPiece') {
    throw new KvantError('tokenizer-unsupported', `Tokenizer model "${modelType}" is not supported`, {
      kind: 'unsupported',
      where,
      fix: UNSUPPORTED_FIX,
    });
  }
  const vocab = modelType === 'Unigram' ? listVocab(model, where) : recordVocab(model, where);
  if (modelType === 'BPE' && !Array.isArray(model.merges)) {
    throw broken(where, '"model.merges" must be a list');
  }
  const part = (name: string): JsonObject | null => {
    const value = json[name] ?? null;
    if (value !== null && !isJsonObject(value)) throw broken(where, `"${name}" must be an object`);
    return value;
  };

  const addedTokens = readAddedTokens(json.added_tokens, where);
  for (const token of configAddedTokens(config)) {
    const known = addedTokens.some((other) => other.content === token.content || other.id === token.id);
    if (!known) addedTokens.push(token);
  }

  return {
    modelType,
    model,
    vocab,
    addedTokens,
    normalizer: part('normalizer'),
    preTokenizer: preTokenizer(part('pre_tokenizer'), modelType, model, vocab),
    postProcessor: part('post_processor'),
    decoder: part('decoder'),
  };
}

const MARK = '\u2581';
/** Whether a text runs from a word into the mark of the next. */
const crosses = (text: string): boolean => /[^\u2581]\u2581/.test(text);

/**
 * The pre-tokenizer, with a cut before each word added where sentencepiece conversions give the whole text to the
 * model as one word: that takes seconds for a megabyte, and the cut changes nothing as long as no piece of the
 * vocabulary lies across a cut.
 */
function preTokenizer(
  step: JsonObject | null,
  modelType: string,
  model: JsonObject,
  vocab: readonly (string | undefined)[],
): JsonObject | null {
  // Unigram adds up scores: from another start they would round, and ties fall, in another way.
  if (modelType !== 'BPE') return step;
  const whole = step === null || (step.type === 'Metaspace' && step.split === false);
  if (!whole || model.ignore_merges === true || !vocab.includes(MARK)) return step;
  if (step !== null && step.replacement !== MARK) return step;
  const merges: readonly unknown[] = Array.isArray(model.merges) ? model.merges : [];
  if (vocab.some((token) => token !== undefined && crosses(token))) return step;
  if (merges.some((merge) => crosses(mergedText(merge)))) return step;
  const cut = {
    type: 'Split',
    pattern: { Regex: `${MARK}*[^${MARK}]+|${MARK}+` },
    behavior: 'Isolated',
    invert: false,
  };
  return step === null ? cut : { type: 'Sequence', pretokenizers: [step, cut] };
}

/** Merges are written `"a b"` or `["a", "b"]`. */
function mergedText(merge: unknown): string {
  return Array.isArray(merge) ? merge.join('') : String(merge).replace(' ', '');
}

/** Old files leave `model.type` out; the vocabulary's form tells it. */
function modelTypeOf(model: JsonObject): string {
  if (typeof model.type === 'string') return model.type;
  if (Array.isArray(model.vocab)) return 'Unigram';
  return 'merges' in model ? 'BPE' : 'unknown';
}

function recordVocab(model: JsonObject, where: string): (string | undefined)[] {
  const source = model.vocab;
  if (!isJsonObject(source)) throw broken(where, '"model.vocab" must map tokens to ids');
  const vocab: (string | undefined)[] = [];
  for (const [token, id] of Object.entries(source)) {
    if (!isTokenId(id)) throw broken(where, `the token ${JSON.stringify(token)} has no valid id`);
    vocab[id] = token;
  }
  if (vocab.length === 0) throw broken(where, '"model.vocab" is empty');
  return vocab;
}

function listVocab(model: JsonObject, where: string): (string | undefined)[] {
  const source = model.vocab;
  if (!Array.isArray(source) || source.length === 0) {
    throw broken(where, '"model.vocab" must be a list of [token, score]');
  }
  return source.map((entry: unknown, id) => {
    if (!Array.isArray(entry) || typeof entry[0] !== 'string' || typeof entry[1] !== 'number') {
      throw broken(where, `entry ${id} of "model.vocab" is not [token, score]`);
    }
    return entry[0];
  });
}

function readAddedTokens(source: unknown, where: string): AddedTokenEntry[] {
  if (source === undefined || source === null) return [];
  if (!Array.isArray(source)) throw broken(where, '"added_tokens" must be a list');
  return source.map((entry: unknown, i) => {
    if (!isJsonObject(entry) || !isTokenId(entry.id) || typeof entry.content !== 'string') {
      throw broken(where, `entry ${i} of "added_tokens" needs an id and a content`);
    }
    return { ...entry, id: entry.id, content: entry.content, special: entry.special === true };
  });
}

function configAddedTokens(config: JsonObject): AddedTokenEntry[] {
  const source = config.added_tokens_decoder;
  if (!isJsonObject(source)) return [];
  return Object.entries(source).flatMap(([key, entry]) => {
    const id = Number(key);
    if (!isJsonObject(entry) || !isTokenId(id) || typeof entry.content !== 'string') return [];
    return [{ ...entry, id, content: entry.content, special: entry.special === true }];
  });
}

/** Ids above this are taken for damage: the tables are as long as the highest id. */
const MAX_TOKEN_ID = 1 << 24;

function isTokenId(value: unknown): value is number {
  return typeof value === 'number' && Number.isInteger(value) && value >= 0 && value < MAX_TOKEN_ID;
}
