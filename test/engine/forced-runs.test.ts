/** Forced runs of a real model: what a schema leaves no choice about is taken in chunks. */
import { Ajv2020 } from 'ajv/dist/2020.js';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Engine } from '../../src/engine/engine.js';
import type { EngineOptions } from '../../src/engine/types.js';
import { MODEL } from './engine-harness.js';

const SCHEMA = {
  type: 'object',
  properties: {
    temperature_celsius: { type: 'integer', minimum: 0, maximum: 99 },
    description_of_weather: { enum: ['mostly sunny intervals', 'thunderstorms expected'] },
    größenordnung: { type: 'boolean' },
  },
  required: ['temperature_celsius', 'description_of_weather', 'größenordnung'],
  additionalProperties: false,
};
const messages = [{ role: 'user', content: 'Tell me of the weather.' }];
const PLAIN = { messages, schema: SCHEMA, maxTokens: 160, parseReasoning: false } as const;
const COMMON: EngineOptions = { device: 'cpu', threads: 2, maxContext: 512, worker: false };

describe('forced runs', () => {
  let engine: Engine;
  const validate = new Ajv2020({ strict: false }).compile(SCHEMA);
  beforeAll(async () => {
    engine = await Engine.load(MODEL, { ...COMMON, maxRows: 8 });
  });
  afterAll(() => engine.close());

  const steps = async (request: object): Promise<{ steps: number; ids: readonly number[]; text: string }> => {
    const before = (await engine.stats()).steps;
    const { text, tokenIds, finishReason } = await engine.chat({ ...PLAIN, temperature: 0, ...request })
      .result;
    expect([finishReason, validate(JSON.parse(text)), text]).toEqual(['stop', true, text]);
    return { steps: (await engine.stats()).steps - before, ids: tokenIds, text };
  };

  it('save steps, and tell the same as where each token is drawn', async () => {
    const taken = await steps({});
    // Log-probabilities are told of every token, and a suppressed token could be one of a run.
    const drawn = await steps({ logprobs: true });
    const free = await steps({ suppressTokens: [engine.tokenize('~', { addSpecialTokens: false })[0]!] });
    expect(taken.ids).toEqual(drawn.ids);
    expect(drawn.steps).toBeGreaterThanOrEqual(drawn.ids.length);
    expect(taken.steps).toBeLessThan(0.75 * drawn.steps);
    // How it is written before it is drawn: as the tokenizer would.
    expect(taken.ids.length).toBeLessThan(free.ids.length);
    expect(free.steps).toBeGreaterThanOrEqual(free.ids.length);
  });

  it('give what is drawn one by one, with each seed, choice and penalty', async () => {
    for (const extra of [
      { n: 3 },
      { frequencyPenalty: 0.5, repetitionPenalty: 1.1 },
      { mirostat: 2 },
      { topK: 5 },
    ]) {
      const request = { ...PLAIN, temperature: 1.2, seed: 11, ...extra } as const;
      const [taken, drawn] = await Promise.all([
        engine.chat(request).result,
        engine.chat({ ...request, logprobs: true }).result,
      ]);
      expect(taken.choices.map(({ tokenIds }) => tokenIds)).toEqual(
        drawn.choices.map(({ tokenIds }) => tokenIds),
      );
      expect(taken.usage).toEqual(drawn.usage);
      for (const { logprobs, tokenIds } of drawn.choices) expect(logprobs).toHaveLength(tokenIds.length);
    }
  });

  it('are streamed as they are told whole, and cut where the answer is', async () => {
    const request = { ...PLAIN, temperature: 0 } as const;
    const whole = await engine.chat(request).result;
    const generation = engine.chat(request);
    let text = '';
    const ids: number[] = [];
    for await (const delta of generation) {
      text += delta.text;
      ids.push(...delta.tokenIds);
    }
    expect([text, ids]).toEqual([whole.text, whole.tokenIds]);
    for (const maxTokens of [2, 3, 4, 12]) {
      const { tokenIds, finishReason, usage } = await engine.chat({ ...request, maxTokens }).result;
      expect([tokenIds, finishReason]).toEqual([whole.tokenIds.slice(0, maxTokens), 'length']);
      expect(usage.completionTokens).toBe(maxTokens);
    }
    for (const stop of ['rature_c', 'celsius', 'n_of_w']) {
      const cut = await engine.chat({ ...request, stop: [stop] }).result;
      expect([cut.text, cut.finishReason]).toEqual([whole.text.slice(0, whole.text.indexOf(stop)), 'stop']);
    }
    const leaving = engine.chat(request);
    for await (const delta of leaving) if (delta.text !== '') break;
    leaving.cancel();
    expect((await leaving.result).finishReason).toBe('cancelled');
  });

  it('come out to the bit whatever the chunks, the company and the cache are', async () => {
    const ask = (one: Engine, seed: number) => one.chat({ ...PLAIN, temperature: 1, seed }).result;
    const seeds = [1, 2, 3, 4, 5, 6];
    const alone: string[] = [];
    for (const seed of seeds) alone.push(JSON.stringify((await ask(engine, seed)).tokenIds));
    const company = await Promise.all(seeds.map((seed) => ask(engine, seed)));
    expect(company.map(({ tokenIds }) => JSON.stringify(tokenIds))).toEqual(alone);
    let preemptions = 0;
    // Two tokens a step; and blocks for so few rows that they give way to each other in the middle.
    for (const options of [
      { maxBatchTokens: 2, maxRows: 2 },
      { maxRows: 6, maxContext: 192, kvMemory: 240 * engine.info.kv.bytesPerToken },
    ]) {
      const other = await Engine.load(MODEL, { ...COMMON, ...options });
      const answers = await Promise.all(seeds.map((seed) => ask(other, seed)));
      expect(answers.map(({ tokenIds }) => JSON.stringify(tokenIds))).toEqual(alone);
      preemptions += (await other.stats()).preemptions;
      await other.close();
    }
    expect(preemptions).toBeGreaterThan(0);
  });
});
