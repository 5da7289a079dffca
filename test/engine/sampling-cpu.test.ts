/** Sampling features on the real thing: the demo model on the CPU, bitwise. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Engine } from '../../src/engine/engine.js';
import type { EngineOptions, GenerateRequest, GenerationResult } from '../../src/engine/types.js';
import type { SamplingOptions } from '../../src/sampling/options.js';

const MODEL = new URL('../../models/demo-text', import.meta.url).pathname;
const PROMPTS = [
  'The capital of France is',
  'Once upon a time there was a small dog who lived by the sea. Every morning the dog',
  'one two three one two three one two three one two',
  'user: What is the currency of Japan?\nassistant:',
];

const WAYS: readonly SamplingOptions[] = [
  { temperature: 0 },
  { temperature: 0, repetitionPenalty: 1.4 },
  { temperature: 0.9, repetitionPenalty: 1.2, repetitionContextSize: 8 },
  { temperature: 0, frequencyPenalty: 0.8, presencePenalty: 0.4 },
  { temperature: 0, dryMultiplier: 1.5, dryAllowedLength: 1 },
  { temperature: 1, dryMultiplier: 0.8, dryPenaltyLastN: 20, drySequenceBreakers: [] },
  { temperature: 1, typicalP: 0.7 },
  { temperature: 1.4, topNSigma: 1 },
  { temperature: 1, xtcProbability: 0.7, xtcThreshold: 0.05 },
  { temperature: 1, mirostat: 2, mirostatTau: 3, mirostatEta: 0.2 },
  { temperature: 0.8, topK: 20, topP: 0.9, minP: 0.02, repetitionPenalty: 1.1, presencePenalty: 0.5 },
  { temperature: 0.7, badWords: [' the', ' was a'], logitBias: { 20: 3 }, minTokens: 15 },
  { temperature: 0, logprobs: true, topLogprobs: 3 },
  { temperature: 1, logprobs: true, logprobsMode: 'processed', frequencyPenalty: 1, minP: 0.05 },
];

const requests = (): GenerateRequest[] =>
  WAYS.map((way, i) => ({ seed: 50 + i, ...way, prompt: PROMPTS[i % 4]!, maxTokens: 12 + ((i * 5) % 17) }));

async function answer(engine: Engine, request: GenerateRequest): Promise<unknown> {
  const { text, tokenIds, finishReason, choices } = await engine.generate(request).result;
  return { text, tokenIds, finishReason, logprobs: choices[0]!.logprobs };
}

function load(options: EngineOptions): Promise<Engine> {
  return Engine.load(MODEL, { device: 'cpu', maxContext: 256, prefixCache: false, ...options });
}

async function untilFree(engine: Engine): Promise<void> {
  for (let i = 0; i < 200; i++) {
    const { slotsUsed, device } = await engine.stats();
    if (slotsUsed === 0) {
      expect(device.samplerBytes).toBe(0);
      return;
    }
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
  throw new Error('rows are held');
}

describe('sampling features with the demo model on the CPU', () => {
  let engine: Engine;
  let alone: unknown[];
  beforeAll(async () => {
    engine = await load({ maxRows: WAYS.length, maxBatchTokens: 64 });
    alone = [];
    for (const request of requests()) alone.push(await answer(engine, request));
  });
  afterAll(() => engine.close());

  it('a batch in which every row has other parameters equals each row alone', async () => {
    expect(await Promise.all(requests().map((request) => answer(engine, request)))).toEqual(alone);
    await untilFree(engine);
  });

  it('however the prompts are cut, and with rows that give way and come back', async () => {
    const block = engine.info.kv.bytesPerToken * 16;
    const small = await load({ maxRows: 6, maxBatchTokens: 9, maxContext: 64, kvMemory: 6 * block });
    expect(await Promise.all(requests().map((request) => answer(small, request)))).toEqual(alone);
    expect((await small.stats()).preemptions).toBeGreaterThan(0);
    await untilFree(small);
    await small.close();
  });

  it('repeats exactly under a seed, and the choices of n differ', async () => {
    const ask = async (): Promise<(readonly number[])[]> => {
      const { choices } = await engine.generate({
        prompt: PROMPTS[1]!,
        n: 4,
        seed: 9,
        temperature: 1,
        maxTokens: 16,
        xtcProbability: 0.5,
        xtcThreshold: 0.1,
        repetitionPenalty: 1.1,
      }).result;
      return choices.map(({ tokenIds }) => tokenIds);
    };
    const first = await ask();
    expect(await ask()).toEqual(first);
    expect(new Set(first.map((ids) => ids.join())).size).toBe(4);
  });

  it('gives the best of several: those of highest mean log-probability, the same ones again', async () => {
    const request = { prompt: PROMPTS[1]!, seed: 3, temperature: 1.3, maxTokens: 10 };
    const mean = ({ choices }: GenerationResult, i: number): number => {
      const logprobs = choices[i]!.logprobs!;
      return logprobs.reduce((sum, token) => sum + token.logprob, 0) / logprobs.length;
    };
    const all = await engine.generate({ ...request, n: 6, logprobs: true }).result;
    const order = [0, 1, 2, 3, 4, 5].sort((a, b) => mean(all, b) - mean(all, a));
    const best = engine.generate({ ...request, n: 2, bestOf: 6 });
    const deltas: number[][] = [[], []];
    for await (const { choice, tokenIds } of best) deltas[choice]!.push(...tokenIds);
    const { choices, usage } = await best.result;
    expect(choices.map(({ tokenIds }) => tokenIds)).toEqual(
      order.slice(0, 2).map((i) => all.choices[i]!.tokenIds),
    );
    expect(deltas).toEqual(choices.map(({ tokenIds }) => tokenIds));
    expect(choices[0]!.logprobs).toBeUndefined();
    // What was drawn was drawn.
    expect(usage.completionTokens).toBe(all.usage.completionTokens);
  });

  it('does what the words say: biases, bans, minima', async () => {
    const ask = (options: SamplingOptions) =>
      engine.generate({ prompt: PROMPTS[0]!, temperature: 0, maxTokens: 24, ...options }).result;
    const plain = await ask({});
    const [first] = plain.tokenIds;
    expect((await ask({ suppressTokens: [first!] })).tokenIds).not.toContain(first);
    expect((await ask({ logitBias: { 77: 100 }, maxTokens: 3 })).tokenIds).toEqual([77, 77, 77]);
    const word = plain.text.trim().split(' ')[0]!;
    expect((await ask({ badWords: [word] })).text).not.toContain(word);
    const long = await ask({ minTokens: 24 });
    expect([long.tokenIds.length, long.finishReason]).toEqual([24, 'length']);
    const stopped = await ask({ stopTokenIds: [plain.tokenIds[2]!] });
    expect([stopped.tokenIds, stopped.finishReason]).toEqual([plain.tokenIds.slice(0, 3), 'stop']);
  });

  it('gives log-probabilities that are the model’s, whatever the sampling', async () => {
    const greedy = await engine.generate({
      prompt: PROMPTS[0]!,
      temperature: 0,
      maxTokens: 8,
      logprobs: true,
      topLogprobs: 20,
    }).result;
    for (const [i, { id, logprob, rank, top }] of greedy.choices[0]!.logprobs!.entries()) {
      expect([id, rank, top[0]]).toEqual([greedy.tokenIds[i], 1, { id, logprob }]);
      expect(top).toHaveLength(20);
      const sum = top.reduce((mass, other) => mass + Math.exp(other.logprob), 0);
      expect(sum).toBeGreaterThan(0);
      expect(sum).toBeLessThan(1 + 1e-5);
      expect(top.every((other, j) => j === 0 || other.logprob <= top[j - 1]!.logprob)).toBe(true);
    }
    const biased = await engine.generate({
      prompt: PROMPTS[0]!,
      temperature: 0,
      maxTokens: 1,
      logprobs: true,
      topLogprobs: 20,
      logitBias: { 77: 100 },
    }).result;
    const raw = biased.choices[0]!.logprobs![0]!;
    expect(raw.id).toBe(77);
    expect(raw.rank).toBeGreaterThan(1);
    expect(raw.top).toEqual(greedy.choices[0]!.logprobs![0]!.top);
  });

  it('names what is wrong', async () => {
    const refusal = async (options: SamplingOptions): Promise<unknown> =>
      engine.generate({ prompt: [1], ...options }).accepted.catch((error: unknown) => error);
    const { vocabSize } = engine.info.model;
    expect(await refusal({ logitBias: { [vocabSize]: 1 } })).toMatchObject({
      code: 'token-unknown',
      where: 'logitBias',
    });
    expect(await refusal({ badWords: ['x'.repeat(200)] })).toMatchObject({ status: 400 });
    expect(await refusal({ mirostat: 2, topK: 4 })).toMatchObject({ code: 'conflicting-parameters' });
  });

  it('takes defaults of its own before the model’s', async () => {
    const own = await load({ maxRows: 1, sampling: { temperature: 0, repetitionPenalty: 1.4 } });
    expect(own.info.samplingDefaults).toMatchObject({ temperature: 0, repetitionPenalty: 1.4 });
    const { prompt, maxTokens } = requests()[1]!;
    expect(await answer(own, { prompt, maxTokens: maxTokens ?? 1 })).toEqual(alone[1]);
    await own.close();
    await expect(load({ sampling: { topP: 4 } })).rejects.toMatchObject({ where: 'topP', status: 400 });
  });
});
