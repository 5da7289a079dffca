import { describe, expect, it } from 'vitest';
import { KvantError } from '../errors.js';
import type { SamplingOptions } from './options.js';
import { checkIds, inWireNames, KNOWN_WIRE_FIELDS, resolveSampling, samplingFromWire } from './params.js';
import { drawSeed, seedWords } from './seed.js';

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
      typicalP: 1,
      topNSigma: 0,
      xtc: null,
      mirostat: null,
      repetitionPenalty: 1,
      repetitionContextSize: 0,
      frequencyPenalty: 0,
      presencePenalty: 0,
      dry: null,
      logitBias: [],
      badWords: [],
      suppressTokens: [],
      minTokens: 0,
      stopTokenIds: [],
      seed: 7,
      maxTokens: null,
      stop: [],
      n: 1,
      bestOf: 1,
      ignoreEos: false,
      logprobs: null,
      logprobsMode: 'raw',
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
    ['typicalP', 0],
    ['typicalP', 1.1],
    ['topNSigma', -0.5],
    ['topNSigma', Number.NaN],
    ['xtcProbability', 1.5],
    ['xtcThreshold', -1],
    ['mirostat', 1],
    ['mirostatTau', 0],
    ['mirostatEta', 2],
    ['repetitionPenalty', 0],
    ['repetitionPenalty', 1e-300],
    ['repetitionPenalty', Number.POSITIVE_INFINITY],
    ['repetitionContextSize', -2],
    ['frequencyPenalty', 2.1],
    ['presencePenalty', -2.1],
    ['presencePenalty', '1'],
    ['dryMultiplier', -1],
    ['dryBase', 0.5],
    ['dryAllowedLength', 0],
    ['dryPenaltyLastN', 1.5],
    ['drySequenceBreakers', ['']],
    ['drySequenceBreakers', 'x'],
    ['logitBias', { 5: 101 }],
    ['logitBias', { hello: 1 }],
    ['logitBias', { '-5': 1 }],
    ['logitBias', { 5: Number.NaN }],
    ['logitBias', [5]],
    ['badWords', 'word'],
    ['badWords', ['']],
    ['suppressTokens', [-1]],
    ['suppressTokens', [1.5]],
    ['minTokens', -1],
    ['stopTokenIds', ['5']],
    ['bestOf', 0],
    ['logprobs', 1],
    ['topLogprobs', 21],
    ['logprobsMode', 'cooked'],
  ];
  it.each(bad)('refuses %s: %j, naming it', (field, value) => {
    const error = refusal(() => resolveSampling({ [field]: value } as SamplingOptions));
    expect(error).toMatchObject({ code: 'invalid-parameter', where: field, status: 400 });
    expect(error.message).toContain(`\`${field}\``);
    expect(error.fix).toContain(field);
  });

  it('refuses what it does not have, unless the value asks for nothing', () => {
    const error = refusal(() => resolveSampling({ lengthPenalty: 0.5 } as SamplingOptions));
    expect(error).toMatchObject({ code: 'unsupported-parameter', where: 'lengthPenalty', status: 400 });
    expect(resolveSampling({ lengthPenalty: 1, logitBias: {}, seed: 1 } as SamplingOptions).seed).toBe(1);
  });

  it('refuses unknown and misspelt fields, but takes those the caller names', () => {
    expect(refusal(() => resolveSampling({ top_p: 0.5 } as SamplingOptions))).toMatchObject({
      where: 'top_p',
      fix: 'Did you mean `topP`?',
    });
    for (const name of ['response_format', 'frequency_penalty', 'constructor'])
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

  it('takes the names that users know from elsewhere', () => {
    const wire = {
      repeat_penalty: 1.1,
      repeat_last_n: 64,
      typ_p: 0.9,
      mirostat_mode: 0,
      logprobs_mode: 'processed_logprobs',
      max_completion_tokens: 5,
      logit_bias: { '5': -100 },
    };
    expect(samplingFromWire(wire)).toEqual({
      repetitionPenalty: 1.1,
      repetitionContextSize: 64,
      typicalP: 0.9,
      mirostat: 0,
      logprobsMode: 'processed',
      maxTokens: 5,
      logitBias: { '5': -100 },
    });
    for (const name of Object.keys(wire)) expect(KNOWN_WIRE_FIELDS).toContain(name);
    expect(samplingFromWire({ repeat_penalty: 1.1, repeat_last_n: 0 })).toEqual({ repetitionPenalty: 1 });
    const both = refusal(() => samplingFromWire({ repeat_penalty: 1.1, repetition_penalty: 1.2 }));
    expect(both).toMatchObject({ where: 'repeat_penalty', status: 400 });
  });

  it('reads log-probabilities as each route spells them', () => {
    expect(samplingFromWire({ logprobs: true, top_logprobs: 4 })).toEqual({ logprobs: true, topLogprobs: 4 });
    expect(samplingFromWire({ logprobs: 4 }, 'text')).toEqual({ logprobs: true, topLogprobs: 4 });
    expect(samplingFromWire({ logprobs: 0 }, 'text')).toEqual({ logprobs: true, topLogprobs: 0 });
    expect(refusal(() => samplingFromWire({ logprobs: 4 })).where).toBe('logprobs');
    expect(refusal(() => samplingFromWire({ logprobs: 21 }, 'text')).message).toContain('0 to 20, got 21');
    expect(refusal(() => samplingFromWire({ top_logprobs: 4 }))).toMatchObject({
      code: 'conflicting-parameters',
      where: 'top_logprobs',
    });
  });

  const unsupported: [string, unknown][] = [
    ['use_beam_search', true],
    ['no_repeat_ngram_size', 3],
  ];
  it.each(unsupported)('refuses %s: %j', (field, value) => {
    const error = refusal(() => samplingFromWire({ [field]: value }));
    expect(error).toMatchObject({ code: 'unsupported-parameter', where: field, status: 400 });
  });

  it('takes neutral values of what it does not have', () => {
    const neutral = { logit_bias: null, use_beam_search: false, n: 2 };
    expect(samplingFromWire(neutral)).toEqual({ n: 2 });
  });
});

describe('what contradicts itself', () => {
  const conflicts: [string, SamplingOptions, SamplingOptions?][] = [
    ['topLogprobs', { topLogprobs: 3 }],
    ['topLogprobs', { topLogprobs: 3, logprobs: false }],
    ['bestOf', { n: 3, bestOf: 2 }],
    ['minTokens', { minTokens: 9, maxTokens: 8 }],
    ['minTokens', { minTokens: 9 }, { maxTokens: 8 }],
    ['topK', { mirostat: 2, topK: 5 }],
    ['topP', { topP: 0.9 }, { mirostat: 2 }],
    ['xtcProbability', { mirostat: 2, xtcProbability: 0.5 }],
  ];
  it.each(conflicts)('is refused, naming %s: %j', (where, request, defaults) => {
    expect(refusal(() => resolveSampling(request, defaults))).toMatchObject({
      code: 'conflicting-parameters',
      where,
      status: 400,
    });
  });

  it('is settled where one side is only a default', () => {
    const params = resolveSampling({ mirostat: 2, topK: 0, topP: 1 }, { topK: 20, topP: 0.9, minP: 0.1 });
    expect(params).toMatchObject({ mirostat: { tau: 5, eta: 0.1 }, topK: 0, topP: 1, minP: 0 });
  });
});

describe('parameters of several values', () => {
  it('come with the rest of their kind', () => {
    expect(resolveSampling({ dryMultiplier: 0.8 }).dry).toEqual({
      multiplier: 0.8,
      base: 1.75,
      allowedLength: 2,
      window: 0,
      breakers: ['\n', ':', '"', '*'],
    });
    expect(resolveSampling({ dryMultiplier: 0.8, dryPenaltyLastN: 0 }).dry).toBeNull();
    expect(resolveSampling({ dryMultiplier: 0, dryBase: 3 }).dry).toBeNull();
    expect(resolveSampling({ xtcProbability: 0.5 }).xtc).toEqual({ probability: 0.5, threshold: 0.1 });
    expect(resolveSampling({ logprobs: true }).logprobs).toBe(0);
    expect(resolveSampling({ logprobs: true, topLogprobs: 5 }).logprobs).toBe(5);
    expect(resolveSampling({ n: 3 }).bestOf).toBe(3);
    expect(resolveSampling({}, { repetitionPenalty: 1.05 }).repetitionPenalty).toBe(1.05);
  });

  it('put biases in the order of ids and leave out those that do nothing', () => {
    expect(resolveSampling({ logitBias: { 30: 1, 4: -2, 7: 0 } }).logitBias).toEqual([
      [4, -2],
      [30, 1],
    ]);
  });

  it('name no ids that the model does not have', () => {
    for (const [field, value] of [
      ['logitBias', { 100: 1 }],
      ['suppressTokens', [5, 100]],
      ['stopTokenIds', [100]],
    ] as const) {
      const params = resolveSampling({ [field]: value });
      expect(() => checkIds(params, 101)).not.toThrow();
      const error = refusal(() => checkIds(params, 100));
      expect(error).toMatchObject({ code: 'token-unknown', where: field, status: 400 });
      const wire = field.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
      expect(inWireNames(error)).toMatchObject({ code: 'token-unknown', where: wire });
      expect(inWireNames(error).message).toContain(`\`${wire}\``);
    }
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
