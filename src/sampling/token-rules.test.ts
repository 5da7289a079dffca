import { describe, expect, it } from 'vitest';
import { BreakerFinder, type Speller } from './dry-breakers.js';
import type { SamplingOptions } from './options.js';
import { resolveSampling } from './params.js';
import { type TokenRules, tokenRules } from './token-rules.js';

/** Spells by the longest token that fits. */
const TOKENS = ['a', 'b', '\n', 'a\n', '#', '##', '###', 'x#', ' a', ' ', '\n\n', '€', 'ab', ' b', ':'];
const encoder = new TextEncoder();
const speller: Speller = {
  size: TOKENS.length,
  bytesOf: (id) => encoder.encode(TOKENS[id]!),
  spell: (text) => {
    const ids: number[] = [];
    for (let rest = text; rest.length > 0; ) {
      const fits = TOKENS.filter((token) => rest.startsWith(token)).sort((x, y) => y.length - x.length)[0]!;
      ids.push(TOKENS.indexOf(fits));
      rest = rest.slice(fits.length);
    }
    return ids;
  },
};
const text = { speller, breakers: new BreakerFinder(speller) };
const rules = (options: SamplingOptions): TokenRules => tokenRules(resolveSampling(options), text);
const named = (ids: Uint32Array): string[] => [...ids].map((token) => TOKENS[token]!);

describe('breakers of DRY', () => {
  const find = (...texts: string[]) => {
    const { ids, sequences } = text.breakers.find(texts);
    return { ids: named(ids), sequences: sequences.map(named) };
  };

  it('are every token that contains the text', () => {
    expect(find('\n')).toEqual({ ids: ['\n', 'a\n', '\n\n'], sequences: [] });
  });

  it('are tokens that end with a beginning of it, with the tokens of the rest', () => {
    expect(find('##')).toEqual({
      ids: ['##', '###'],
      sequences: [
        ['#', '#'],
        ['x#', '#'],
      ],
    });
    expect(find('###').sequences).toEqual([
      ['#', '##'],
      ['##', '#'],
      ['##', '##'],
      ['x#', '##'],
    ]);
  });

  it('leave out sequences that end with a breaker of its own', () => {
    expect(find('\n\n').sequences).toEqual([
      ['\n', '\n'],
      ['a\n', '\n'],
    ]);
    expect(find('\n', '\n\n')).toEqual({ ids: ['\n', 'a\n', '\n\n'], sequences: [] });
  });

  it('do not begin in the middle of a character', () => {
    expect(find('€€')).toEqual({ ids: [], sequences: [['€', '€']] });
  });

  it('are refused when they have too many spellings', () => {
    const many: Speller = { ...speller, size: 3000, bytesOf: () => encoder.encode('#') };
    expect(() => new BreakerFinder(many).find(['##'])).toThrowError(
      expect.objectContaining({ code: 'invalid-parameter', where: 'drySequenceBreakers' }),
    );
  });
});

describe('tokenRules', () => {
  it('are the same nothing for every request that says nothing', () => {
    expect(rules({ temperature: 0.5, minTokens: 4 })).toBe(rules({ repetitionPenalty: 1.2 }));
  });

  it('puts biases and suppressed ids in one ascending list; suppression wins', () => {
    const { biasIds, biasValues } = rules({ logitBias: { 5: 2, 3: -1 }, suppressTokens: [9, 5] });
    expect([...biasIds]).toEqual([3, 5, 9]);
    expect([...biasValues]).toEqual([-1, Number.NEGATIVE_INFINITY, Number.NEGATIVE_INFINITY]);
  });

  it('bans words as they stand and after a space: ids of one token, sequences of more', () => {
    const { biasIds, banned } = rules({ badWords: ['a', 'ba'] });
    expect(named(biasIds)).toEqual(['a', ' a']);
    expect(banned.map(named)).toEqual([
      ['b', 'a'],
      [' b', 'a'],
    ]);
  });

  it('brings the breakers of DRY, the default ones too', () => {
    expect(named(rules({ dryMultiplier: 1 }).breakers.ids)).toEqual(['\n', 'a\n', '\n\n', ':']);
    expect(rules({ dryMultiplier: 1, drySequenceBreakers: [] }).breakers.ids).toHaveLength(0);
  });

  it('refuses words too long, and words without a tokenizer', () => {
    expect(() => rules({ badWords: ['b'.repeat(33)] })).toThrowError(
      expect.objectContaining({ where: 'badWords', status: 400 }),
    );
    expect(() => tokenRules(resolveSampling({ badWords: ['a'] }), null)).toThrowError(
      expect.objectContaining({ code: 'tokenizer-missing', where: 'badWords' }),
    );
    expect(
      tokenRules(resolveSampling({ dryMultiplier: 1, suppressTokens: [1] }), null).breakers.ids,
    ).toHaveLength(0);
  });
});
