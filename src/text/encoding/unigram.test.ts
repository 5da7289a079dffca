import { expect, it } from 'vitest';
import { UnigramModel } from './unigram.js';

function encode(model: UnigramModel, piece: string): number[] {
  const ids: number[] = [];
  model.encode(piece, ids);
  return ids;
}

/** The pieces and the result of the Rust library's own example. */
it('takes the way of the highest score, unknown characters as one', () => {
  const vocab = [
    ['<unk>', 0],
    ['a', 0],
    ['b', 0],
    ['c', 0],
    ['d', 0],
    ['cd', 1],
    ['ab', 2],
    ['abc', 5],
    ['abcd', 10],
  ];
  const model = new UnigramModel({ vocab, unk_id: 0 });
  expect(encode(model, 'abcdacdxx')).toEqual([8, 1, 5, 0]);
  expect(encode(model, 'xx\u{1f600}axb')).toEqual([0, 1, 0, 2]);
  expect(encode(model, '')).toEqual([]);
});

it('spells unknown characters in bytes, if it has all of them', () => {
  const vocab = [
    ['<unk>', 0],
    ['a', -1],
    ['<0xC3>', 0],
    ['<0xA9>', 0],
  ];
  const model = new UnigramModel({ vocab, unk_id: 0, byte_fallback: true });
  expect(encode(model, 'aééa')).toEqual([1, 2, 3, 2, 3, 1]);
  expect(encode(model, 'añé')).toEqual([1, 0]);
});

it('says what it cannot do', () => {
  const vocab = [['a', 0]];
  expect(() => encode(new UnigramModel({ vocab }), 'b')).toThrow('no token for unknown characters');
  expect(() => new UnigramModel({ vocab, unk_id: 1 })).toThrow('beyond the vocabulary');
});

it('takes a text of a million characters', () => {
  const model = new UnigramModel({
    vocab: [
      ['<unk>', 0],
      ['a', -1],
      ['aa', -1.5],
    ],
    unk_id: 0,
  });
  expect(encode(model, 'a'.repeat(1_000_001))).toHaveLength(500_001);
});
