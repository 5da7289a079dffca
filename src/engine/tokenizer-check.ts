/** Whether a tokenizer that was given instead of a model's own is fit for it. */

import { KvantError } from '../errors.js';
import type { TextPlace } from './texts/text-origin.js';

/** A tokenizer of another model would make ids that the embedding has no rows for. */
export function checkGivenTokenizer({ tokenizer }: TextPlace, size: number, vocab: number): void {
  if (tokenizer === undefined || size <= vocab) return;
  throw new KvantError('tokenizer-mismatch', `${tokenizer} names ${size} tokens; the model has ${vocab}`, {
    kind: 'invalid-request',
    where: 'tokenizer',
    fix: 'Give the tokenizer of the model that these weights were made of.',
  });
}
