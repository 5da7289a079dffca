import { describe, expect, it } from 'vitest';
import { KvantError } from '../errors.js';
import { drawSeed, resolveSampling, type SamplingOptions, samplingFromWire, seedWords } from './params.js';

function refusal(run: () => unknown): KvantError {
  try {
    run();
  } catch (error) {
    if (error instanceof KvantError) return error;
    throw error;
  }
  throw new Error('was not refused');
}

describe('resolveSampling', () => {
  it('fills in defaults: the request first, then the model, then off', () => {
    const params = resolveSampling({ topK: 5, seed: 7 }, { temperature: 0.7, topK: 20, topP: 0.95 });
    expect(params).toEqual({
      temperature: 0.7,
      topK: 5,
      topP: 0.95,
      minP: 0,
      seed: 7,
      maxTokens: null,
      stop: [],
      n: 1,
      ignoreEos: false,
    });
    expect(resolveSampling({ seed: 1 })).toMatchObject({ temperature: 1, topK: 0, topP: 1 });
  });

  it('takes null and undefined as not said', () => {
    const params = resolveSampling({ temperature: null, stop: null, n: null, seed: 3 } as SamplingOptions, {
      temperature: 0.5,
    });
    expect(params).toMatchObject({ temperature: 0.5, stop: [], n: 1 });
  });

  it('knows the values that mean off or greedy', () => {
    expect(resolveSampling({ topK: -1 }).topK).toBe(0);
    expect(resolveSampling({ temperature: 1e-9 }).temperature).toBe(0);
    expect(resolveSampling({ topP: 0 })).toMatchObject({ topK: 1, topP: 1 });
    expect(resolveSampling({ stop: 'x' }).stop).toEqual(['x']);
  });

  it('draws a seed when none is given, a safe integer, not twice the same', () => {
    const seeds = new Set(Array.from({ length: 50 }, () => resolveSampling({}).seed));
    expect(seeds.size).toBe(50);
    for (const seed of seeds) expect(Number.isSafeInteger(seed)).toBe(true);
    expect(drawSeed()).toBeGreaterThanOrEqual(0);
  });

  const bad: [string, unknown][] = [
    ['temperature', Number.NaN],
    ['temperature', Number.POSITIVE_INFINITY],
    ['temperature', -0.1],
    ['temperature', '0.5'],
    ['temperature', 101],
    ['topP', 1.01],
    ['topP', -1],
    ['topP', Number.NaN],
    ['topK', 1.5],
    ['topK', -2],
    ['topK', 2 ** 31],
    ['minP', 2],
    ['seed', 1.5],
    ['seed', 2 ** 60],
    ['seed', 'abc'],
    ['maxTokens', 0],
    ['maxTokens', -5],
    ['maxTokens', 2.5],
    ['stop', ''],
    ['stop', ['a', '']],
    ['stop', Array.from({ length: 17 }, () => 'a')],
    ['stop', 'a'.repeat(1025)],
    ['stop', 5],
    ['n', 0],
    ['n', 129],
    ['n', 1.5],
    ['ignoreEos', 'yes'],
  ];
  it.each(bad)('refuses %s: %j, naming it', (field, value) => {
    const error = refusal(() => resolveSampling({ [field]: value } as SamplingOptions));
    expect(error).toMatchObject({ code: 'invalid-parameter', where: field, status: 400 });
    expect(error.message).toContain(`\`${field}\``);
    expect(error.fix).toContain(field);
  });

  it('refuses what it does not have, unless the value asks for nothing', () => {
    const error = refusal(() => resolveSampling({ frequencyPenalty: 0.5 } as SamplingOptions));
    expect(error).toMatchObject({ code: 'unsupported-parameter', where: 'frequencyPenalty', status: 400 });
    expect(resolveSampling({ frequencyPenalty: 0, logitBias: {}, seed: 1 } as SamplingOptions).seed).toBe(1);
  });

  it('refuses unknown and misspelt fields, but takes those the caller names', () => {
    expect(refusal(() => resolveSampling({ top_p: 0.5 } as SamplingOptions))).toMatchObject({
      where: 'top_p',
      fix: 'Write `topP`.',
    });
    for (const name of ['frequency_penalty', 'logit_bias', 'constructor'])
      expect(refusal(() => resolveSampling({ [name]: 1 } as SamplingOptions))).toMatchObject({
        code: 'unknown-parameter',
        where: name,
      });
    expect(refusal(() => resolveSampling({ tempratur: 1 } as SamplingOptions)).where).toBe('tempratur');
    expect(resolveSampling({ prompt: 'x', seed: 4 } as SamplingOptions, {}, ['prompt']).seed).toBe(4);
  });
});

describe('samplingFromWire', () => {
  it('reads snake case and leaves other fields alone', () => {
    const options = samplingFromWire({
      model: 'm',
      top_p: 0.5,
      top_k: 3,
      max_completion_tokens: 9,
      stop: ['a'],
    });
    expect(options).toEqual({ topP: 0.5, topK: 3, maxTokens: 9, stop: ['a'] });
  });

  it('names the wire field', () => {
    expect(refusal(() => samplingFromWire({ top_p: 3 }))).toMatchObject({ where: 'top_p', status: 400 });
    expect(refusal(() => samplingFromWire({ max_completion_tokens: 0 })).where).toBe('max_completion_tokens');
    expect(refusal(() => samplingFromWire({ max_tokens: 1, max_completion_tokens: 2 })).status).toBe(400);
  });

  const unsupported: [string, unknown][] = [
    ['frequency_penalty', 0.1],
    ['presence_penalty', -1],
    ['repetition_penalty', 1.1],
    ['logit_bias', { 5: 10 }],
    ['logprobs', true],
    ['logprobs', 5],
    ['top_logprobs', 3],
    ['response_format', { type: 'json_object' }],
    ['best_of', 3],
    ['min_tokens', 4],
    ['dry_multiplier', 0.8],
  ];
  it.each(unsupported)('refuses %s: %j', (field, value) => {
    const error = refusal(() => samplingFromWire({ [field]: value }));
    expect(error).toMatchObject({ code: 'unsupported-parameter', where: field, status: 400 });
  });

  it('takes neutral values of what it does not have', () => {
    const neutral = {
      frequency_penalty: 0,
      presence_penalty: 0,
      logit_bias: null,
      logprobs: false,
      response_format: { type: 'text' },
      best_of: 2,
      n: 2,
    };
    expect(samplingFromWire(neutral)).toEqual({ n: 2 });
  });
});

describe('seedWords', () => {
  it('is the two words of the 64-bit number', () => {
    expect(seedWords(1)).toEqual({ low: 1, high: 0 });
    expect(seedWords(2 ** 32 + 5)).toEqual({ low: 5, high: 1 });
    expect(seedWords(-1)).toEqual({ low: 0xffff_ffff, high: 0xffff_ffff });
    expect(seedWords(Number.MAX_SAFE_INTEGER)).toEqual({ low: 0xffff_ffff, high: 0x1f_ffff });
  });
});
