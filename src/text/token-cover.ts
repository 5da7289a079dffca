/**
 * How much text one token may stand for, by the tokenizer's own definition: what is longer than that many times the context cannot
 * fit it, and need not be tokenised to know. Only where every step keeps what it is given. A tokenizer that makes one token of any
 * number of unknown characters, leaves characters out, strips white space or writes shorter has no such bound.
 */

import { byteAlphabet } from './encoding/byte-alphabet.js';
import { isJsonObject } from './json-file.js';
import type { TokenizerDefinition } from './tokenizer-definition.js';

/** UTF-16 units that NFC makes one of, at most: Greek letters with three marks. */
const NFC_SHRINKS = 4;

/** UTF-16 units of the text as it comes that one token stands for at most; null where there is no bound. */
export function mostTextOfToken(definition: TokenizerDefinition): number | null {
  const { vocab, addedTokens } = definition;
  // They take white space on their sides with them, any amount of it.
  if (addedTokens.some((token) => token.lstrip === true || token.rstrip === true)) return null;
  const shrinks = normalizerShrinks(definition.normalizer);
  if (shrinks === null || !preTokenizerKeeps(definition.preTokenizer)) return null;
  if (!modelKeeps(definition)) return null;
  let longest = 1;
  for (const token of vocab) longest = Math.max(longest, token?.length ?? 0);
  for (const { content } of addedTokens) longest = Math.max(longest, content.length);
  return longest * shrinks;
}

/** How many units of a text a unit of what it becomes stands for at most; null for steps that leave out or are not known. */
function normalizerShrinks(step: unknown): number | null {
  if (step === null || step === undefined) return 1;
  if (!isJsonObject(step)) return null;
  switch (step.type) {
    case 'NFC':
      return NFC_SHRINKS;
    case 'Prepend':
    case 'ByteLevel':
      return 1;
    case 'Replace': {
      const pattern = isJsonObject(step.pattern) ? step.pattern.String : undefined;
      if (typeof pattern !== 'string' || typeof step.content !== 'string') return null;
      return pattern !== '' && step.content.length >= pattern.length ? 1 : null;
    }
    case 'Sequence': {
      const steps: readonly unknown[] = Array.isArray(step.normalizers) ? step.normalizers : [];
      return steps.reduce<number | null>((product, inner) => {
        const shrinks = normalizerShrinks(inner);
        return product === null || shrinks === null ? null : product * shrinks;
      }, 1);
    }
    default:
      return null;
  }
}

/** Whether all of a text is in its pieces. */
function preTokenizerKeeps(step: unknown): boolean {
  if (step === null || step === undefined) return true;
  if (!isJsonObject(step)) return false;
  switch (step.type) {
    case 'ByteLevel':
    case 'Digits':
    case 'FixedLength':
    case 'Metaspace':
    case 'UnicodeScripts':
      return true;
    case 'Split':
    case 'Punctuation':
      return String(step.behavior).toLowerCase() !== 'removed';
    case 'Sequence':
      return Array.isArray(step.pretokenizers) && step.pretokenizers.every(preTokenizerKeeps);
    default:
      return false;
  }
}

/** Whether the model spells every character: as tokens, as bytes, or each as an unknown of its own. */
function modelKeeps({ modelType, model, normalizer, preTokenizer, vocab }: TokenizerDefinition): boolean {
  if (modelType !== 'BPE') return false;
  const known = new Set(vocab);
  const all = (names: Iterable<string>): boolean => [...names].every((name) => known.has(name));
  const bytes = Array.from({ length: 256 }, (_, byte) => hexByte(byte));
  if (model.byte_fallback === true && all(bytes)) return true;
  if ((isByteLevel(preTokenizer) || isByteLevel(normalizer)) && all(byteAlphabet().keys())) return true;
  return typeof model.unk_token === 'string' && known.has(model.unk_token) && model.fuse_unk !== true;
}

const hexByte = (byte: number): string => `<0x${byte.toString(16).toUpperCase().padStart(2, '0')}>`;

function isByteLevel(step: unknown): boolean {
  if (!isJsonObject(step)) return false;
  const steps = step.pretokenizers ?? step.normalizers;
  const inner: readonly unknown[] = Array.isArray(steps) ? steps : [];
  return step.type === 'ByteLevel' || (step.type === 'Sequence' && inner.some(isByteLevel));
}
