/** The `pre_tokenizer` of a tokenizer definition: cuts a text into the pieces that the model takes one by one. */
import { isJsonObject, type JsonObject } from '../json-file.js';
import { CLASSES } from './character-sets.js';
import { compilePattern, type SplitBehavior, splitBehavior, splitInto } from './expression.js';
import { toByteAlphabet } from './normalizers.js';
import { splitAtScripts } from './unicode-scripts.js';

/** Pieces of a text in order, none of them empty, and whether the first begins with the very first character. */
export interface Pieces {
  readonly pieces: readonly string[];
  readonly atStart: boolean;
}

export type PreTokenizer = (input: Pieces) => Pieces;

const GPT2 = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

/**
 * @param definition `null` where there is none
 * @throws Error for a step that is not known
 */
export function createPreTokenizer(definition: JsonObject | null): PreTokenizer {
  if (definition === null) return (input) => input;
  const { type } = definition;
  switch (type) {
    case 'Sequence': {
      const steps = Array.isArray(definition.pretokenizers) ? definition.pretokenizers : [];
      const all = steps.map((step: unknown) => {
        if (!isJsonObject(step)) throw new Error('a pre-tokenizer is not an object');
        return createPreTokenizer(step);
      });
      return (input) => all.reduce((done, step) => step(done), input);
    }
    case 'ByteLevel':
      return byteLevel(definition);
    case 'Metaspace':
      return metaspace(definition);
    case 'Split':
      return split(
        compilePattern(definition.pattern),
        splitBehavior(definition.behavior),
        definition.invert === true,
      );
    case 'Digits':
      return characters(CLASSES.numeric, definition.individual_digits === true ? 'Isolated' : 'Contiguous');
    case 'Punctuation':
      return characters(CLASSES.punctuation, splitBehavior(definition.behavior, 'Isolated'));
    case 'Whitespace':
      return split(
        new RegExp(`[${CLASSES.word}]+|[^${CLASSES.word}${CLASSES.space}]+`, 'gu'),
        'Removed',
        true,
      );
    case 'WhitespaceSplit':
      return characters(CLASSES.space, 'Removed');
    case 'BertPreTokenizer': {
      const words = characters(CLASSES.space, 'Removed');
      const signs = characters(CLASSES.punctuation, 'Isolated');
      return (input) => signs(words(input));
    }
    case 'CharDelimiterSplit':
      return split(compilePattern({ String: String(definition.delimiter ?? '') }), 'Removed');
    case 'FixedLength':
      return fixedLength(definition.length ?? 5);
    case 'UnicodeScripts':
      return each((text, pieces) => pieces.push(...splitAtScripts(text)));
    default:
      throw new Error(`the pre-tokenizer ${JSON.stringify(type)} is not known`);
  }
}

/** A step that cuts each piece by itself. */
function each(cut: (text: string, pieces: string[]) => void): PreTokenizer {
  return (input) => {
    const pieces: string[] = [];
    let atStart = input.atStart;
    input.pieces.forEach((text, i) => {
      cut(text, pieces);
      // Pieces keep their first character, unless it is dropped.
      if (i === 0) atStart &&= pieces.length > 0 && text.startsWith(pieces[0]!);
    });
    return { pieces, atStart };
  };
}

function split(expression: RegExp, behavior: SplitBehavior, invert = false): PreTokenizer {
  return each((text, pieces) => splitInto(pieces, text, expression, behavior, invert));
}

/** @param set the inside of a character class: each character of it is a delimiter */
function characters(set: string, behavior: SplitBehavior): PreTokenizer {
  return split(new RegExp(`[${set}]`, 'gu'), behavior);
}

function byteLevel(definition: JsonObject): PreTokenizer {
  const front = definition.add_prefix_space !== false;
  const expression = compilePattern({ Regex: GPT2 });
  const whole = definition.use_regex === false;
  return ({ pieces, atStart }) => {
    const cut: string[] = [];
    for (const piece of pieces) {
      const text = front && !piece.startsWith(' ') ? ` ${piece}` : piece;
      if (whole) cut.push(text);
      else splitInto(cut, text, expression, 'Isolated');
    }
    return { pieces: cut.map(toByteAlphabet), atStart };
  };
}

function metaspace(definition: JsonObject): PreTokenizer {
  const mark = typeof definition.replacement === 'string' ? definition.replacement : '\u2581';
  const scheme = prependScheme(definition);
  const cuts = definition.split !== false;
  const expression = compilePattern({ String: mark });
  return ({ pieces, atStart }) => {
    const cut: string[] = [];
    pieces.forEach((piece, i) => {
      let text = piece.replaceAll(' ', mark);
      const may = scheme === 'always' || (scheme === 'first' && i === 0 && atStart);
      if (may && !text.startsWith(mark)) text = mark + text;
      if (cuts) splitInto(cut, text, expression, 'MergedWithNext');
      else cut.push(text);
    });
    return { pieces: cut, atStart };
  };
}

/** Files from before `prepend_scheme` say the same with `add_prefix_space`. */
export function prependScheme(definition: JsonObject): 'always' | 'first' | 'never' {
  if (definition.add_prefix_space === false) return 'never';
  const scheme = definition.prepend_scheme ?? 'always';
  if (scheme === 'always' || scheme === 'first' || scheme === 'never') return scheme;
  throw new Error(`the prepend scheme ${JSON.stringify(scheme)} of Metaspace is not known`);
}

function fixedLength(length: unknown): PreTokenizer {
  if (typeof length !== 'number' || !Number.isInteger(length) || length < 1) {
    throw new Error('the length of FixedLength must be a positive integer');
  }
  return each((text, pieces) => {
    const all = [...text];
    for (let i = 0; i < all.length; i += length) pieces.push(all.slice(i, i + length).join(''));
  });
}
