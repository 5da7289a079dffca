/** What a request says about tokens, in ids: biases, bans and breakers. Plain data: it is posted with the request. */

import { type DryBreakers, MAX_SEQUENCE, MAX_SEQUENCE_TOKENS } from '../device/sampling.js';
import { KvantError } from '../errors.js';
import { type BreakerFinder, NO_BREAKERS, type Speller } from './dry-breakers.js';
import type { SamplingParams } from './options.js';

export interface TokenRules {
  /** Ascending. */
  readonly biasIds: Uint32Array;
  /** −∞ suppresses. */
  readonly biasValues: Float32Array;
  /** Sequences of two ids and more whose last one is not to follow the others. */
  readonly banned: readonly Uint32Array[];
  readonly breakers: DryBreakers;
}

export const NO_RULES: TokenRules = {
  biasIds: new Uint32Array(0),
  biasValues: new Float32Array(0),
  banned: [],
  breakers: NO_BREAKERS,
};

/**
 * `text` spells words and breakers; null for weights without a tokenizer.
 * Errors: `invalid-parameter` for words too long, and for words and texts where there is no tokenizer.
 */
export function tokenRules(
  params: SamplingParams,
  text: { readonly speller: Speller; readonly breakers: BreakerFinder } | null,
): TokenRules {
  const { logitBias, badWords, suppressTokens, dry } = params;
  if (logitBias.length + badWords.length + suppressTokens.length === 0 && dry === null) return NO_RULES;
  const biases = new Map(logitBias);
  for (const id of suppressTokens) biases.set(id, Number.NEGATIVE_INFINITY);
  const banned: Uint32Array[] = [];
  for (const word of badWords) {
    if (text === null) throw wordless('badWords');
    for (const ids of spellings(word, text.speller)) {
      if (ids.length === 1) biases.set(ids[0]!, Number.NEGATIVE_INFINITY);
      else banned.push(ids);
    }
  }
  const tokens = banned.reduce((sum, ids) => sum + ids.length, 0);
  if (tokens > MAX_SEQUENCE_TOKENS || banned.some((ids) => ids.length > MAX_SEQUENCE))
    throw new KvantError(
      'invalid-parameter',
      `\`badWords\` takes words of up to ${MAX_SEQUENCE} tokens, ${MAX_SEQUENCE_TOKENS} in all; these have ${tokens}.`,
      { kind: 'invalid-request', where: 'badWords', fix: 'Send fewer or shorter words.' },
    );
  // Sorted as numbers by the engine itself: a request may suppress a whole vocabulary.
  const biasIds = Uint32Array.from(biases.keys()).sort();
  return {
    biasIds,
    biasValues: Float32Array.from(biasIds, (id) => biases.get(id)!),
    banned,
    breakers: dry === null ? NO_BREAKERS : breakersOf(dry.breakers, text?.breakers ?? null),
  };
}

/** As it stands and as it comes after a space, for tokenizers spell them differently. */
function spellings(word: string, speller: Speller): Uint32Array[] {
  const found = new Map<string, Uint32Array>();
  for (const text of [word, ` ${word.trimStart()}`]) {
    const ids = Uint32Array.from(speller.spell(text));
    if (ids.length > 0) found.set(ids.join(), ids);
  }
  return [...found.values()];
}

/** Without a tokenizer there are no texts to break at: the default breakers then are none. */
function breakersOf(texts: readonly string[], finder: BreakerFinder | null): DryBreakers {
  return finder === null ? NO_BREAKERS : finder.find(texts);
}

function wordless(where: string): KvantError {
  return new KvantError('tokenizer-missing', 'These weights have no tokenizer to spell words with.', {
    kind: 'invalid-request',
    where,
    fix: 'Send ids in `suppressTokens`.',
  });
}
