import { describe, expect, it } from 'vitest';
import type { JsonObject } from '../json-file.js';
import { BpeModel } from './bpe.js';

function encode(model: JsonObject, piece: string): number[] {
  const ids: number[] = [];
  new BpeModel(model, new Map(Object.entries(model.vocab as Record<string, number>))).encode(piece, ids);
  return ids;
}

/** The rule taken at its word: again and again the pair of the lowest rank, the leftmost of them. */
function byTheRule(model: { vocab: Record<string, number>; merges: string[] }, piece: string): number[] {
  const symbols = [...piece];
  for (;;) {
    const ranks = symbols.slice(1).map((right, i) => model.merges.indexOf(`${symbols[i]!} ${right}`));
    const best = Math.min(...ranks.filter((rank) => rank >= 0));
    if (best === Infinity) return symbols.map((symbol) => model.vocab[symbol]!);
    const at = ranks.indexOf(best);
    symbols.splice(at, 2, symbols[at]! + symbols[at + 1]!);
  }
}

describe('BpeModel', () => {
  it('merges by rank in short words and in long ones', () => {
    const vocab: Record<string, number> = { a: 0, b: 1, c: 2 };
    const merges: string[] = [];
    let state = 7;
    const below = (limit: number): number => {
      state = (Math.imul(state, 1103515245) + 12345) >>> 0;
      return (state >>> 8) % limit;
    };
    while (merges.length < 60) {
      const known = Object.keys(vocab);
      const [left, right] = [known[below(known.length)]!, known[below(known.length)]!];
      if (left.length + right.length > 7 || merges.includes(`${left} ${right}`)) continue;
      merges.push(`${left} ${right}`);
      vocab[left + right] ??= Object.keys(vocab).length;
    }
    const model = { vocab, merges };
    const bpe = new BpeModel(model, new Map(Object.entries(vocab)));
    for (let round = 0; round < 300; round++) {
      const piece = Array.from({ length: 1 + below(round < 250 ? 30 : 200) }, () => 'abc'[below(3)]!).join(
        '',
      );
      const ids: number[] = [];
      bpe.encode(piece, ids);
      expect(ids, piece).toEqual(byTheRule(model, piece));
    }
  });

  it('puts unknown characters together where asked, and never across a piece', () => {
    const model = { vocab: { '<unk>': 0, a: 1 }, merges: [], unk_token: '<unk>' };
    expect(encode(model, '12a3')).toEqual([0, 0, 1, 0]);
    expect(encode({ ...model, fuse_unk: true }, '12a34')).toEqual([0, 1, 0]);
    expect(encode({ ...model, unk_token: null }, '1a2')).toEqual([1]);
  });

  it('spells in bytes what it does not know, if it knows all of them', () => {
    const vocab = { '<unk>': 0, '<0xC3>': 1, '<0xA9>': 2, a: 3 };
    const model = { vocab, merges: [], unk_token: '<unk>', byte_fallback: true };
    expect(encode(model, 'aéa')).toEqual([3, 1, 2, 3]);
    expect(encode(model, 'aña')).toEqual([3, 0, 3]);
  });

  it('marks what continues a word and what ends it', () => {
    const vocab = { a: 0, '##a': 1, '##a</w>': 2, aa: 3, 'a</w>': 4 };
    const model = {
      vocab,
      merges: [['a', '##a']],
      continuing_subword_prefix: '##',
      end_of_word_suffix: '</w>',
    };
    expect(encode(model, 'aaaa')).toEqual([3, 1, 2]);
    expect(encode(model, 'a')).toEqual([4]);
  });

  it('looks whole words up first where asked', () => {
    const model = { vocab: { a: 0, b: 1, ab: 2 }, merges: [] };
    expect(encode(model, 'ab')).toEqual([0, 1]);
    expect(encode({ ...model, ignore_merges: true }, 'ab')).toEqual([2]);
  });

  it('takes merges that hold spaces, and the first line of a file of merges', () => {
    const vocab = { ' ': 0, '  ': 1 };
    expect(encode({ vocab, merges: [[' ', ' ']] }, '   ')).toEqual([1, 0]);
    expect(encode({ vocab: { a: 0, aa: 1 }, merges: ['#version: 0.2', 'a a'] }, 'aa')).toEqual([1]);
  });

  it('refuses merges that do not fit the vocabulary', () => {
    expect(() => encode({ vocab: { a: 0, b: 1 }, merges: ['a b'] }, 'a')).toThrow('"ab"');
    expect(() => encode({ vocab: { a: 0 }, merges: ['a'] }, 'a')).toThrow('two tokens');
  });
});
