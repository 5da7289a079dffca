import { describe, expect, it } from 'vitest';
import { byteAlphabet } from './encoding/byte-alphabet.js';
import type { JsonObject } from './json-file.js';
import { Tokenizer } from './tokenizer.js';

const BYTE_LEVEL = { type: 'ByteLevel', add_prefix_space: false, trim_offsets: false, use_regex: false };
const letters = [...byteAlphabet().keys()];
const space = letters[0x20]!;

/** Byte-level, with tokens of 2, 4, … 128 spaces. */
function spaces(
  more: Partial<Record<'normalizer' | 'pre_tokenizer', unknown>> = {},
  model: JsonObject = {},
): JsonObject {
  const runs = [1, 2, 4, 8, 16, 32, 64].map((n) => space.repeat(n));
  const vocab = Object.fromEntries(
    [...letters, ...runs.map((run) => run + run)].map((token, id) => [token, id]),
  );
  return {
    model: { type: 'BPE', vocab, merges: runs.map((run) => [run, run]), ...model },
    normalizer: null,
    pre_tokenizer: BYTE_LEVEL,
    decoder: BYTE_LEVEL,
    added_tokens: [],
    ...more,
  };
}

/** A vocabulary of some characters and their pairs. */
function characters(
  model: JsonObject,
  pieces: readonly string[] = ['<unk>', 'a', 'b', 'aa', 'aaaa'],
): JsonObject {
  return {
    model: {
      type: 'BPE',
      vocab: Object.fromEntries(pieces.map((piece, id) => [piece, id])),
      merges: [
        ['a', 'a'],
        ['aa', 'aa'],
      ],
      unk_token: '<unk>',
      ...model,
    },
    decoder: { type: 'Fuse' },
    added_tokens: [],
  };
}

const fewest = (definition: JsonObject, text: string): number =>
  Tokenizer.fromJson(definition).fewestTokens(text);

describe('fewestTokens', () => {
  it('is the number that a text of the longest token has', () => {
    for (const text of [' '.repeat(128 * 50), ' '.repeat(128 * 50 + 1)]) {
      const tokenizer = Tokenizer.fromJson(spaces());
      expect(tokenizer.encode(text)).toHaveLength(tokenizer.fewestTokens(text));
    }
    // The longest is the name of the unknown token, though no text is made of it.
    expect(fewest(characters({}), 'a'.repeat(400))).toBe(80);
    expect(fewest(characters({}), 'zz'.repeat(500))).toBe(200);
  });

  it('is never more than there are', () => {
    const tokenizer = Tokenizer.fromJson(spaces({ normalizer: { type: 'NFC' } }));
    for (const text of [
      '\u03b1\u0313\u0300\u0345'.repeat(40),
      '\u1112\u1161\u11ab'.repeat(40),
      'e\u0301 a'.repeat(40),
    ]) {
      const fewest = tokenizer.fewestTokens(text);
      expect(fewest).toBeGreaterThan(0);
      expect(fewest).toBeLessThanOrEqual(tokenizer.encode(text).length);
    }
  });

  const nul = { type: 'Replace', pattern: { String: '\0' }, content: '' };
  const shorter = { type: 'Replace', pattern: { Regex: ' +' }, content: ' ' };
  const strip = { type: 'Strip', strip_left: true, strip_right: true };
  const split = (behavior: string, invert = false) => ({
    type: 'Sequence',
    pretokenizers: [{ type: 'Split', pattern: { String: ' ' }, behavior, invert }, BYTE_LEVEL],
  });
  it.each<[string, JsonObject]>([
    ['unknowns become one', characters({ fuse_unk: true })],
    ['unknowns are left out', characters({ unk_token: null })],
    ['bytes are missing', characters({ byte_fallback: true, fuse_unk: true })],
    ['a byte is missing and nothing stands for it', spaces({}, { vocab: { a: 0 }, merges: [] })],
    ['a character is left out', spaces({ normalizer: nul })],
    ['runs are written shorter', spaces({ normalizer: { type: 'Sequence', normalizers: [shorter] } })],
    ['ends are stripped', spaces({ normalizer: strip })],
    ['accents are stripped', spaces({ normalizer: { type: 'StripAccents' } })],
    ['compatible characters are folded', spaces({ normalizer: { type: 'NFKC' } })],
    ['what separates is left out', spaces({ pre_tokenizer: split('Removed') })],
    ['what does not match is left out', spaces({ pre_tokenizer: split('Removed', true) })],
    ['white space is left out', spaces({ pre_tokenizer: { type: 'Whitespace' } })],
    [
      'an added token takes the white space before it',
      { ...spaces(), added_tokens: [{ id: 300, content: '<x>', lstrip: true }] },
    ],
    [
      'and the white space after it',
      { ...spaces(), added_tokens: [{ id: 300, content: '<x>', rstrip: true }] },
    ],
  ])('is 0 where tokens have no longest text: %s', (_, definition) => {
    expect(fewest(definition, ' '.repeat(100_000))).toBe(0);
  });

  it.each<[string, JsonObject, number]>([
    ['pieces that are kept', spaces({ pre_tokenizer: split('Isolated') }), 10],
    ['those that do not match too', spaces({ pre_tokenizer: split('Isolated', true) }), 10],
    [
      'a space written as a mark',
      spaces({ normalizer: { type: 'Replace', pattern: { String: ' ' }, content: '\u2581' } }),
      10,
    ],
    ['a mark before the text', spaces({ normalizer: { type: 'Prepend', prepend: '\u2581' } }), 10],
    [
      'an added token, where it is the longest',
      { ...spaces(), added_tokens: [{ id: 300, content: 'x'.repeat(256) }] },
      5,
    ],
    ['all bytes as tokens', characters({ byte_fallback: true, fuse_unk: true }, bytes()), 214],
  ])('knows tokenizers that keep all: %s', (_, definition, tokens) => {
    expect(fewest(definition, ' '.repeat(1280))).toBe(tokens);
  });

  it('takes what NFC makes of a text at the most that there is', () => {
    // Whatever becomes one unit: the letters of its decomposition, each as the longest that decomposes to it alone.
    const singles = new Map<string, number>();
    const all: string[] = [];
    for (let code = 0; code < 0x30000; code++)
      if (code < 0xd800 || code > 0xdfff) all.push(String.fromCodePoint(code));
    for (const letter of all) {
      const canonical = letter.normalize('NFD');
      if ([...canonical].length === 1)
        singles.set(canonical, Math.max(singles.get(canonical) ?? 0, letter.length));
    }
    let most = 0;
    for (const letter of all) {
      const made = letter.normalize('NFC');
      const from = [...letter.normalize('NFD')].reduce(
        (sum, part) => sum + (singles.get(part) ?? part.length),
        0,
      );
      most = Math.max(most, from / made.length);
    }
    expect(most).toBe(4);
  });
});

/** `<unk>`, a letter, and the 256 tokens of a byte. */
function bytes(): string[] {
  const names = Array.from(
    { length: 256 },
    (_, byte) => `<0x${byte.toString(16).toUpperCase().padStart(2, '0')}>`,
  );
  return ['<unk>', 'a', 'aa', 'aaaa', ...names];
}
