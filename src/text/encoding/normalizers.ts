/** The `normalizer` of a tokenizer definition: from text to the text that is cut and looked up. */
import { isJsonObject, type JsonObject } from '../json-file.js';
import { byteAlphabet } from './byte-alphabet.js';
import { CLASSES } from './character-sets.js';
import { compilePattern, replaceAll } from './expression.js';
import { Charsmap } from './precompiled.js';

/** A text on its way, and whether its first character was the first of all: a mark may be put before that alone. */
export interface Normalized {
  readonly text: string;
  readonly atStart: boolean;
}

export type Normalizer = (input: Normalized) => Normalized;

/**
 * @param definition `null` where there is none
 * @throws Error for a step that is not known
 */
export function createNormalizer(definition: JsonObject | null): Normalizer {
  if (definition === null) return (input) => input;
  switch (definition.type) {
    case 'Sequence': {
      const steps = Array.isArray(definition.normalizers) ? definition.normalizers : [];
      const all = steps.map((step: unknown) => {
        if (!isJsonObject(step)) throw new Error('a normalizer is not an object');
        return createNormalizer(step);
      });
      return (input) => all.reduce((done, step) => step(done), input);
    }
    case 'NFC':
    case 'NFD':
    case 'NFKC':
    case 'NFKD':
      return textOnly(normalForm(definition.type));
    case 'Lowercase':
      return textOnly(lowercase);
    case 'StripAccents':
      return removing(CLASSES.combiningMarks);
    case 'Strip':
      return strip(definition.strip_left === true, definition.strip_right === true);
    case 'Nmt':
      return nmt();
    case 'BertNormalizer':
      return bert(definition);
    case 'Prepend': {
      const front = String(definition.prepend ?? '');
      return textOnly((text) => (text === '' ? '' : front + text));
    }
    case 'Replace':
      return replace(definition);
    case 'Precompiled': {
      const charsmap = new Charsmap(String(definition.precompiled_charsmap ?? ''));
      return textOnly((text) => charsmap.normalize(text));
    }
    case 'ByteLevel':
      return textOnly(toByteAlphabet);
    default:
      throw new Error(`the normalizer ${JSON.stringify(definition.type)} is not known`);
  }
}

/** A step after which the first character still stands for the first one. */
function textOnly(change: (text: string) => string): Normalizer {
  return ({ text, atStart }) => ({ text: change(text), atStart });
}

/** @param set the inside of a character class */
function removing(set: string): Normalizer {
  const all = new RegExp(`[${set}]+`, 'gu');
  const front = new RegExp(`^[${set}]`, 'u');
  return ({ text, atStart }) => ({ text: text.replace(all, ''), atStart: atStart && !front.test(text) });
}

const FOREIGN = new RegExp(`([${CLASSES.foreignToNormalForms}]+)`, 'u');

/**
 * Marks on one letter. Putting them in order takes the engine time that grows with their square, and nothing stops it on the way: of
 * 100,000 it would be a minute. No writing has more than a few.
 */
const MOST_MARKS = 1024;

function refuseMarks(text: string): void {
  if (text.length <= MOST_MARKS) return;
  for (const { 0: marks, index } of text.matchAll(/\p{M}+/gu))
    if (marks.length > MOST_MARKS)
      throw new Error(
        `${marks.length} marks stand on the character at ${index - 1}, more than ${MOST_MARKS}`,
      );
}

/** Normal forms leave alone what the reference's version of Unicode does not know; so nothing joins across it. */
function normalForm(form: 'NFC' | 'NFD' | 'NFKC' | 'NFKD'): (text: string) => string {
  return (text) => {
    refuseMarks(text);
    if (!FOREIGN.test(text)) return text.normalize(form);
    return text
      .split(FOREIGN)
      .map((part, i) => (i % 2 === 1 ? part : part.normalize(form)))
      .join('');
  };
}

/** Each character by itself: a sigma at the end of a word is one like any other. */
function lowercase(text: string): string {
  return text.replaceAll('Σ', 'σ').toLowerCase();
}

function strip(left: boolean, right: boolean): Normalizer {
  const front = new RegExp(`^[${CLASSES.space}]+`, 'u');
  const back = new RegExp(`[${CLASSES.space}]$`, 'u');
  return ({ text, atStart }) => {
    let kept = left ? text.replace(front, '') : text;
    const fromStart = kept.length === text.length;
    // Space by space, as an expression that is anchored at the end alone takes quadratic time.
    let end = kept.length;
    if (right) while (end > 0 && back.test(kept.slice(end - 1, end))) end--;
    kept = kept.slice(0, end);
    return { text: kept, atStart: atStart && fromStart };
  };
}

/** The rules of neural machine translation that sentencepiece begins with. */
function nmt(): Normalizer {
  const remove = removing('\\u{1}-\\u{8}\\u{b}\\u{e}-\\u{1f}\\u{7f}\\u{8f}\\u{9f}');
  const spaces = /[\t\n\f\r\u1680\u200b-\u200f\u2028\u2029\u2581\ufeff\ufffd]/g;
  return (input) => {
    const { text, atStart } = remove(input);
    return { text: text.replace(spaces, ' '), atStart };
  };
}

function bert(definition: JsonObject): Normalizer {
  const steps: Normalizer[] = [];
  const lower = definition.lowercase !== false;
  if (definition.clean_text !== false) {
    const spaces = new RegExp(`[${CLASSES.space}]`, 'gu');
    steps.push(removing(CLASSES.controls));
    steps.push(textOnly((text) => text.replace(spaces, ' ')));
  }
  if (definition.handle_chinese_chars !== false) {
    const chinese = new RegExp(`[${CLASSES.chinese}]`, 'gu');
    steps.push(textOnly((text) => text.replace(chinese, ' $& ')));
  }
  if (definition.strip_accents === true || (definition.strip_accents !== false && lower)) {
    steps.push(textOnly(normalForm('NFD')), removing(CLASSES.nonspacingMarks));
  }
  if (lower) steps.push(textOnly(lowercase));
  return (input) => steps.reduce((done, step) => step(done), input);
}

function replace(definition: JsonObject): Normalizer {
  const pattern = compilePattern(definition.pattern);
  const content = String(definition.content ?? '');
  return ({ text, atStart }) => {
    const changed = replaceAll(pattern, text, content);
    if (changed === text) return { text, atStart };
    pattern.lastIndex = 0;
    const first = pattern.exec(text);
    pattern.lastIndex = 0;
    if (first === null || first.index > 0 || first[0] === '') return { text: changed, atStart };
    // What replaces several characters counts as the last of them.
    return { text: changed, atStart: atStart && content !== '' && [...first[0]].length === 1 };
  };
}

const BYTE_CHARACTERS = [...byteAlphabet()].sort(([, a], [, b]) => a - b).map(([character]) => character);
const encoder = new TextEncoder();

/** Each byte of the text as the character that stands for it in GPT-2's alphabet. */
export function toByteAlphabet(text: string): string {
  let out = '';
  for (const byte of encoder.encode(text)) out += BYTE_CHARACTERS[byte]!;
  return out;
}
