import { describe, expect, it } from 'vitest';
import { KvantError } from '../errors.js';
import { checkDraws } from './draws-left.js';
import type { SamplingOptions } from './options.js';
import { inWireNames, resolveSampling } from './params.js';
import { RowSampling } from './row-sampling.js';
import { tokenRules } from './token-rules.js';

const VOCAB = 8;
const EOS = [7];
/** Every letter is an id, a to h. */
const speller = {
  size: VOCAB,
  bytesOf: (id: number) => Uint8Array.of(97 + id),
  spell: (text: string) => [...text.trim()].map((letter) => letter.charCodeAt(0) - 97),
};
const rulesOf = (options: SamplingOptions) =>
  tokenRules(resolveSampling(options), { speller, breakers: null as never });
const all = [...Array(VOCAB).keys()];

function refusal(options: SamplingOptions, eos: readonly number[] = EOS): KvantError | null {
  const params = resolveSampling(options);
  try {
    checkDraws(params, rulesOf(options), eos, VOCAB);
    return null;
  } catch (error) {
    if (error instanceof KvantError) return error;
    throw error;
  }
}

describe('checkDraws', () => {
  it.each<[string, SamplingOptions, string]>([
    ['everything suppressed', { suppressTokens: all }, 'suppress_tokens'],
    ['everything suppressed, some twice', { suppressTokens: [...all, ...all] }, 'suppress_tokens'],
    ['everything as words', { badWords: [...'abcdefgh'] }, 'bad_words'],
    ['words and ids', { suppressTokens: [4, 5, 6, 7], badWords: [...'abcd'] }, 'suppress_tokens'],
    ['a bias does not bring it back', { suppressTokens: all, logitBias: { 3: 100 } }, 'suppress_tokens'],
    [
      'all but EOS, which may not come yet',
      { suppressTokens: all.slice(0, -1), minTokens: 1 },
      'suppress_tokens',
    ],
    [
      'all but a stop id',
      { suppressTokens: all.slice(1), stopTokenIds: [0], minTokens: 2 },
      'suppress_tokens',
    ],
    ['all stop ids', { stopTokenIds: all, minTokens: 1 }, 'stop_token_ids'],
    ['words and stop ids', { badWords: [...'abcd'], stopTokenIds: [4, 5, 6], minTokens: 1 }, 'bad_words'],
  ])('refuses what leaves nothing to draw: %s', (_, options, field) => {
    const error = refusal(options);
    expect(error).toMatchObject({ code: 'no-token-left', kind: 'invalid-request' });
    const wire = inWireNames(error!);
    expect(wire).toMatchObject({ where: field, status: 400 });
    expect(wire.message).toContain(`\`${field}\``);
    expect(wire.message + wire.fix).not.toMatch(/[a-z][A-Z]/);
  });

  it.each<[string, SamplingOptions]>([
    ['one id is left', { suppressTokens: all.slice(1) }],
    ['EOS is left, and may come', { suppressTokens: all.slice(0, -1) }],
    ['EOS ends nothing', { suppressTokens: all.slice(0, -1), minTokens: 3, ignoreEos: true }],
    ['biases are finite', { logitBias: Object.fromEntries(all.map((id) => [id, -100])) }],
    ['every id ends the answer', { stopTokenIds: all }],
    ['words of several tokens', { badWords: ['ab', 'cd'], minTokens: 4 }],
    ['nothing is asked', {}],
  ])('takes what leaves something: %s', (_, options) => {
    expect(refusal(options)).toBeNull();
  });

  it('does not count ends that the model does not have', () => {
    expect(refusal({ suppressTokens: all.slice(1), minTokens: 1 }, [-1, 99])).toBeNull();
  });
});

describe('forbidsAll', () => {
  const row = (options: SamplingOptions) =>
    new RowSampling(resolveSampling(options), rulesOf(options), [...EOS, 99], false);
  const closed = (options: SamplingOptions, history: number[], generated: number) =>
    row(options).forbidsAll(Int32Array.from(history), generated, VOCAB);

  it('counts what words forbid after the tokens there are', () => {
    const options = { suppressTokens: all.slice(2), badWords: ['aa', 'ab', 'ba'] };
    expect(closed(options, [0], 1)).toBe(true);
    expect(closed(options, [1], 1)).toBe(false);
    expect(closed(options, [0, 1], 2)).toBe(false);
    expect(closed(options, [], 0)).toBe(false);
  });

  it('counts the ends of an answer as long as they are withheld', () => {
    const options = { suppressTokens: all.slice(1, -1), badWords: ['aaa'], minTokens: 3 };
    expect(closed(options, [0, 0], 2)).toBe(true);
    expect(closed(options, [0, 0], 3)).toBe(false);
    expect(closed(options, [3, 0], 2)).toBe(false);
  });
});
