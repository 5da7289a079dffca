import { describe, expect, it } from 'vitest';
import type { JsonObject } from '../json-file.js';
import { createNormalizer } from './normalizers.js';

const normalize = (definition: JsonObject, text: string) =>
  createNormalizer(definition)({ text, atStart: true });

/** Expected texts are what the Rust library gives. */
describe('createNormalizer', () => {
  it.each([
    [{ type: 'Lowercase' }, 'ΟΔΟΣ İ', 'οδοσ i\u0307'],
    [{ type: 'NFKC' }, 'ﬁ②\u32ff', 'fi2\u32ff'],
    [{ type: 'StripAccents' }, 'e\u0301é\u20dd', 'eé'],
    [{ type: 'Strip', strip_left: true, strip_right: false }, '\u0085\u3000a\ufeff ', 'a\ufeff '],
    [{ type: 'Strip', strip_left: true, strip_right: true }, ' \n ', ''],
    [{ type: 'Prepend', prepend: '▁' }, '', ''],
    [{ type: 'Replace', pattern: { Regex: '(a)|x*' }, content: '$1\\1' }, 'ab', '$1\\1b$1\\1'],
    [{ type: 'BertNormalizer' }, 'Ça\u0000\u200b漢\t𠀀', 'ca 漢   𠀀 '],
    [{ type: 'ByteLevel' }, 'é a', 'Ã©Ġa'],
  ])('%o of %j', (definition, text, expected) => {
    expect(normalize(definition, text).text).toBe(expected);
  });

  it('strips a long run of spaces in no time to speak of', () => {
    const text = `a${' '.repeat(200_000)}b`;
    expect(normalize({ type: 'Strip', strip_left: true, strip_right: true }, text).text).toBe(text);
  });

  it('refuses a heap of marks that would keep the engine busy for minutes, and no other text', () => {
    const heap = `xy${'\u0301\u0316'.repeat(450_000)}`;
    for (const type of ['NFC', 'NFD', 'NFKC', 'NFKD', 'BertNormalizer'])
      expect(() => normalize({ type }, heap), type).toThrow('900000 marks stand on the character at 1');
    const many = `e${'\u0301\u0316'.repeat(512)}`.repeat(3);
    expect(normalize({ type: 'NFC' }, many).text).toBe(many.normalize('NFC'));
  });

  it('knows whether the first character is still there', () => {
    const strip = { type: 'Strip', strip_left: true, strip_right: true };
    expect(normalize(strip, 'a ').atStart).toBe(true);
    expect(normalize(strip, ' a').atStart).toBe(false);
    const replace = { type: 'Replace', pattern: { Regex: ' +' }, content: '▁' };
    expect(normalize(replace, ' a').atStart).toBe(true);
    expect(normalize(replace, '  a').atStart).toBe(false);
  });

  it('names what it does not know', () => {
    expect(() => createNormalizer({ type: 'Nope' })).toThrow('"Nope"');
    expect(() => createNormalizer({ type: 'Precompiled', precompiled_charsmap: 'AAAB' })).toThrow(
      'cut short',
    );
  });
});
