/**
 * Mistral's own tokenizers (`tekken.json`): tokens as bytes, whose place in the list is their rank, behind special ones that have the first ids.
 *
 * Source: the format as mistral-common reads it.
 */

import { isJsonObject, type JsonObject } from '../json-file.js';
import { bytePairTokenizer, type Ranks, ranksOf, tokenOf } from './byte-pairs.js';

/** Special tokens of files that do not list them: all up to version 7. */
const UNLISTED = (
  '<unk> <s> </s> [INST] [/INST] [AVAILABLE_TOOLS] [/AVAILABLE_TOOLS] [TOOL_RESULTS] [/TOOL_RESULTS] [TOOL_CALLS] [IMG] <pad> ' +
  '[IMG_BREAK] [IMG_END] [PREFIX] [MIDDLE] [SUFFIX] [SYSTEM_PROMPT] [/SYSTEM_PROMPT] [TOOL_CONTENT]'
).split(' ');
const LAST_UNLISTED = 7;

/** @throws RangeError for a file that makes no sense */
export function tekkenTokenizer(json: JsonObject): JsonObject {
  const config = isJsonObject(json.config) ? json.config : {};
  const { pattern } = config;
  if (typeof pattern !== 'string') throw new RangeError('"config" has no pattern');
  const reserved = count(config, 'default_num_special_tokens');
  const kept = count(config, 'default_vocab_size') - reserved;
  const special = specialTokens(json, String(config.version), reserved);
  const { vocab, merges } = ranks(json.vocab, kept);
  const ids = Object.entries(vocab).map(([token, rank]) => [token, rank + reserved] as const);
  const preTokenizer = {
    type: 'Sequence',
    pretokenizers: [
      { type: 'Split', pattern: { Regex: pattern }, behavior: 'Isolated', invert: false },
      { type: 'ByteLevel', add_prefix_space: false, trim_offsets: true, use_regex: false },
    ],
  };
  const words = { preTokenizer, normalizer: null, ignoreMerges: true };
  return {
    ...bytePairTokenizer(Object.fromEntries(ids), merges, words, false),
    added_tokens: special.map((content, id) => ({ id, content, normalized: false, special: true })),
  };
}

function count(config: JsonObject, name: string): number {
  const value = config[name];
  if (typeof value !== 'number' || !Number.isSafeInteger(value) || value < 0 || value > 1 << 24)
    throw new RangeError(`"config" has no ${name}`);
  return value;
}

/** By id. Those without a name have one of their number. */
function specialTokens(json: JsonObject, version: string, reserved: number): string[] {
  const listed = json.special_tokens ?? null;
  const names = Array.from({ length: reserved }, (_, id) => `<SPECIAL_${id}>`);
  if (listed === null) {
    if (!(Number(/^v(\d+)$/.exec(version)?.[1]) <= LAST_UNLISTED))
      throw new RangeError(`no special_tokens, which version ${version} has`);
    UNLISTED.slice(0, reserved).forEach((name, id) => {
      names[id] = name;
    });
    return names;
  }
  if (!Array.isArray(listed)) throw new RangeError('"special_tokens" is no list');
  for (const token of listed as unknown[]) {
    const { rank, token_str: name } = isJsonObject(token) ? token : {};
    if (typeof rank !== 'number' || names[rank] === undefined || typeof name !== 'string')
      throw new RangeError(`"special_tokens" has ${JSON.stringify(token)}`);
    names[rank] = name;
  }
  return names;
}

/** Of the first `kept` tokens: the others are not the model's. */
function ranks(vocab: unknown, kept: number): Ranks {
  if (!Array.isArray(vocab) || kept < 1 || vocab.length < kept)
    throw new RangeError(`"vocab" does not list ${kept} tokens`);
  return ranksOf(
    (vocab as unknown[]).slice(0, kept).map((entry, at) => {
      const { rank, token_bytes: base64 } = isJsonObject(entry) ? entry : {};
      const token = rank === at && typeof base64 === 'string' ? tokenOf(base64) : '';
      if (token === '') throw new RangeError(`entry ${at} of "vocab" is no token of rank ${at}`);
      return token;
    }),
  );
}
