/** Tokenizers of bytes that are stored as a vocabulary with merges (`vocab.json`, `merges.txt`), or as ranks (tiktoken). */

import { byteAlphabet } from '../encoding/byte-alphabet.js';
import { mergesOfScores } from '../gguf/score-merges.js';
import type { SplitPattern } from '../gguf/split-patterns.js';
import type { JsonObject } from '../json-file.js';

/** `"a b"` a line, the best first. A line that begins with `#version` says nothing. */
export function readMerges(text: string): [string, string][] {
  return text.split(/\r?\n/).flatMap((line, index): [string, string][] => {
    if (line === '' || (index === 0 && line.startsWith('#version'))) return [];
    const at = line.indexOf(' ', 1);
    if (at < 0) throw new RangeError(`line ${index + 1} is no pair`);
    return [[line.slice(0, at), line.slice(at + 1)]];
  });
}

/** Tokens in the alphabet of bytes by their rank, which is their id. */
export interface Ranks {
  readonly vocab: Readonly<Record<string, number>>;
  /** Two tokens become a third wherever there is such one, the lowest rank first. */
  readonly merges: readonly (readonly [string, string])[];
}

const ALPHABET: string[] = [];
for (const [character, byte] of byteAlphabet()) ALPHABET[byte] = character;

/** A token, given as its bytes in base64, in the alphabet of bytes. */
export function tokenOf(base64: string): string {
  return Array.from(Buffer.from(base64, 'base64'), (byte) => ALPHABET[byte]).join('');
}

/** `tokens`: by rank. There may be holes. */
export function ranksOf(tokens: readonly string[]): Ranks {
  const known = tokens.flatMap((token, id) => [[token, id] as const]);
  const [texts, ids] = [known.map(([token]) => token), known.map(([, id]) => id)];
  return {
    vocab: Object.fromEntries(known),
    merges: mergesOfScores(
      texts,
      ids.map((id) => -id),
      () => true,
    ),
  };
}

/** Lines of a token's bytes in base64 and its rank (tiktoken). */
export function readRanks(text: string): Ranks {
  const tokens: string[] = [];
  text.split(/\r?\n/).forEach((line, index) => {
    if (line === '') return;
    const [base64, rank] = line.split(' ');
    const id = Number(rank);
    const token = tokenOf(base64!);
    if (rank === undefined || !Number.isSafeInteger(id) || id < 0 || id > 1 << 24 || token === '')
      throw new RangeError(`line ${index + 1} is no token and rank`);
    tokens[id] = token;
  });
  return ranksOf(tokens);
}

/** `vocab`: tokens in the alphabet of bytes. */
export function bytePairTokenizer(
  vocab: JsonObject,
  merges: readonly (readonly [string, string])[],
  pattern: Pick<SplitPattern, 'preTokenizer' | 'normalizer' | 'ignoreMerges'>,
  prefix: boolean,
): JsonObject {
  return {
    version: '1.0',
    added_tokens: [],
    normalizer: pattern.normalizer,
    pre_tokenizer: prefix ? { ...pattern.preTokenizer, add_prefix_space: true } : pattern.preTokenizer,
    post_processor: null,
    decoder: { type: 'ByteLevel', add_prefix_space: true, trim_offsets: true, use_regex: true },
    model: {
      type: 'BPE',
      unk_token: null,
      byte_fallback: false,
      fuse_unk: false,
      ignore_merges: pattern.ignoreMerges,
      vocab,
      merges,
    },
  };
}
