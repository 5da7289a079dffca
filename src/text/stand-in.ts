/**
 * A tokenizer and a chat template for weights that come without: for benchmarks of made-up weights through everything that has
 * to do with text. A text is read byte by byte; ids from 256 on, which no text is read as, are words of a few letters, so that
 * what such a model says is as long as what others say.
 */
import { ChatTemplate } from './chat-template.js';
import { byteAlphabet } from './encoding/byte-alphabet.js';
import type { JsonObject } from './json-file.js';
import { Tokenizer } from './tokenizer.js';

const WHERE = 'the stand-in tokenizer';
const ONSETS = 'b c d f g h k l m n p r s t v w'.split(' ');
const VOWELS = 'a e i o u'.split(' ');

/** Every id below `vocab` has a token; a text needs the first 256. */
export function standInTokenizer(vocab: number): Tokenizer {
  return Tokenizer.fromJson(standInDefinition(vocab), {}, WHERE);
}

/** The same as tokenizer.json has it. */
export function standInDefinition(vocab: number): JsonObject {
  const [...letters] = byteAlphabet().keys();
  const space = letters[0x20]!;
  const entries: [string, number][] = [];
  for (let id = 0; id < vocab; id++)
    entries.push([id < letters.length ? letters[id]! : space + word(id - letters.length), id]);
  const byteLevel = { type: 'ByteLevel', add_prefix_space: false, trim_offsets: false, use_regex: true };
  return {
    model: { type: 'BPE', vocab: Object.fromEntries(entries), merges: [] },
    pre_tokenizer: byteLevel,
    decoder: byteLevel,
    added_tokens: [],
  };
}

/** No two alike: syllables as digits. The first syllable is said only where the number is that long. */
function word(number: number): string {
  const base = ONSETS.length * VOWELS.length;
  const digit = number % base;
  const syllable = ONSETS[digit % ONSETS.length]! + VOWELS[Math.floor(digit / ONSETS.length)]!;
  return number < base ? syllable : word(Math.floor(number / base) - 1) + syllable;
}

/** Turns one after another, each with its role. */
export const STAND_IN_TEMPLATE =
  "{% for message in messages %}{{ message.role + ': ' + message.content + '\\n' }}{% endfor %}" +
  "{% if add_generation_prompt %}{{ 'assistant:' }}{% endif %}";

export function standInTemplate(): ChatTemplate {
  return new ChatTemplate(STAND_IN_TEMPLATE, {}, WHERE);
}
