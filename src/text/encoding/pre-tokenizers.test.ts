import { describe, expect, it } from 'vitest';
import type { JsonObject } from '../json-file.js';
import { createPreTokenizer } from './pre-tokenizers.js';

const cut = (definition: JsonObject, text: string, atStart = true): readonly string[] =>
  createPreTokenizer(definition)({ pieces: [text], atStart }).pieces;

/** Expected pieces are what the Rust library gives. */
describe('createPreTokenizer', () => {
  it.each([
    [{ type: 'Digits', individual_digits: true }, 'a½②b１２٣', ['a', '½', '②', 'b', '１', '２', '٣']],
    [{ type: 'Digits', individual_digits: false }, 'a½②b１２٣', ['a', '½②', 'b', '１２٣']],
    [{ type: 'Punctuation' }, "a…b!?'c+$", ['a', '…', 'b', '!', '?', "'", 'c', '+', '$']],
    [{ type: 'Punctuation', behavior: 'MergedWithPrevious' }, 'a!!b', ['a!', '!', 'b']],
    [{ type: 'Punctuation', behavior: 'MergedWithNext' }, 'a!!b', ['a', '!', '!b']],
    [{ type: 'Punctuation', behavior: 'Contiguous' }, 'a!!b', ['a', '!!', 'b']],
    [{ type: 'Punctuation', behavior: 'Removed' }, 'a!!b', ['a', 'b']],
    [{ type: 'Whitespace' }, 'né à_1 — x\u0301?!', ['né', 'à_1', '—', 'x\u0301', '?!']],
    [{ type: 'WhitespaceSplit' }, ' a\u0085b\ufeffc\u3000', ['a', 'b\ufeffc']],
    [{ type: 'CharDelimiterSplit', delimiter: '.' }, '.a..b', ['a', 'b']],
    [{ type: 'FixedLength', length: 2 }, 'a😀b', ['a😀', 'b']],
    [{ type: 'UnicodeScripts' }, 'どこ、ab', ['どこ', '、', 'ab']],
    [{ type: 'ByteLevel', add_prefix_space: false }, "I'll  go", ['I', "'ll", 'Ġ', 'Ġgo']],
    [{ type: 'Metaspace', split: true }, 'a  b', ['▁a', '▁', '▁b']],
  ] as const)('%o cuts %j', (definition, text, pieces) => {
    expect(cut(definition, text)).toEqual(pieces);
  });

  it('puts the first mark before the very first piece alone', () => {
    const first = { type: 'Metaspace', prepend_scheme: 'first' };
    expect(cut(first, 'a')).toEqual(['▁a']);
    expect(cut(first, 'a', false)).toEqual(['a']);
    const words = { type: 'Sequence', pretokenizers: [{ type: 'WhitespaceSplit' }, first] };
    expect(cut(words, 'a b')).toEqual(['▁a', 'b']);
    expect(cut(words, ' a b')).toEqual(['a', 'b']);
  });

  it('names what it does not know', () => {
    expect(() => createPreTokenizer({ type: 'Nope' })).toThrow('"Nope"');
    expect(() => createPreTokenizer({ type: 'Punctuation', behavior: 'Nope' })).toThrow('"Nope"');
    expect(() => createPreTokenizer({ type: 'FixedLength', length: 0 })).toThrow('FixedLength');
    expect(() => createPreTokenizer({ type: 'Metaspace', prepend_scheme: 'Nope' })).toThrow('"Nope"');
  });
});
