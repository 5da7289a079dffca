/**
 * Whether a request leaves any token to draw. One that forbids them all is its sender's mistake: it is refused before it costs
 * anything, naming the field, and does not look like a fault of the model.
 */

import { KvantError } from '../errors.js';
import type { SamplingParams } from './options.js';
import type { SamplingField } from './schema.js';
import type { TokenRules } from './token-rules.js';

/**
 * `eosIds`: what ends an answer of the model. Errors: `no-token-left` (400), naming the field that forbids, where every id is
 * suppressed, or every one but those that end the answer while `minTokens` forbids an end.
 */
export function checkDraws(
  params: SamplingParams,
  rules: TokenRules,
  eosIds: readonly number[],
  vocabSize: number,
): void {
  const suppressed = suppressedIds(rules);
  if (suppressed.size >= vocabSize)
    throw noTokenLeft(params, `forbids all ${vocabSize} ids of the model: there is no token left to draw`);
  if (params.minTokens === 0) return;
  const ends = new Set([...(params.ignoreEos ? [] : eosIds), ...params.stopTokenIds]);
  let left = vocabSize - suppressed.size;
  for (const id of ends) if (id >= 0 && id < vocabSize && !suppressed.has(id)) left--;
  if (left > 0) return;
  if (suppressed.size === 0) {
    throw new KvantError(
      'no-token-left',
      `\`stopTokenIds\` names all ${vocabSize} ids of the model, and \`minTokens\` is ${params.minTokens}: no token is left for the first draw.`,
      { kind: 'invalid-request', where: 'stopTokenIds', fix: 'Send fewer ids, or leave `minTokens` out.' },
    );
  }
  throw noTokenLeft(
    params,
    `leaves only ids that end the answer, and \`minTokens\` is ${params.minTokens}: no token is left for the first draw`,
    ', or leave `minTokens` out',
  );
}

/** For a row that had nothing to draw from because of what was asked: see {@link RowSampling.forbidsAll}. */
export function noTokenLeft(
  params: SamplingParams,
  what = 'forbids every token that could come next',
  or = '',
): KvantError {
  const field = forbidder(params);
  return new KvantError('no-token-left', `\`${field}\` ${what}.`, {
    kind: 'invalid-request',
    where: field,
    fix: `Forbid fewer tokens${or}.`,
  });
}

/** The field that forbids tokens; where two do, the one that names ids. */
function forbidder({ suppressTokens, badWords }: SamplingParams): SamplingField {
  return suppressTokens.length > 0 || badWords.length === 0 ? 'suppressTokens' : 'badWords';
}

/** Ids that no draw of the request may give. */
export function suppressedIds({ biasIds, biasValues }: TokenRules): Set<number> {
  const ids = new Set<number>();
  for (let i = 0; i < biasIds.length; i++)
    if (biasValues[i] === Number.NEGATIVE_INFINITY) ids.add(biasIds[i]!);
  return ids;
}
