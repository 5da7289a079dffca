/** The engine's API, on this thread and on the oracle device, with the demo model's tokenizer and template. */
import { getEventListeners } from 'node:events';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Engine } from '../../src/engine/engine.js';
import type { Delta } from '../../src/engine/types.js';
import { EOS, loadOracle, model, read, refusal } from './engine-harness.js';
import type { OracleDevice } from './oracle-device.js';
import { oracle } from './oracle-model.js';

describe('Engine', () => {
  let engine: Engine;
  let device: OracleDevice;
  beforeAll(async () => {
    ({ engine, device } = await loadOracle());
  });
  afterAll(() => engine.close());

  it('streams deltas that add up to the result', async () => {
    const generation = engine.generate({
      prompt: 'The capital of',
      maxTokens: 20,
      temperature: 0,
      ignoreEos: true,
    });
    const deltas = await read(generation);
    const result = await generation.result;
    const expected = oracle(generation.promptTokenIds, 20, model);
    expect(result.tokenIds).toEqual(expected);
    expect(deltas.flatMap((delta) => delta.tokenIds)).toEqual(expected);
    expect(deltas.map((delta) => delta.text).join('')).toBe(result.text);
    expect(deltas.filter((delta) => delta.finishReason !== null)).toHaveLength(1);
    expect(deltas.at(-1)!.finishReason).toBe('length');
    expect(generation.tokenIds()).toEqual(expected);
    expect(result.text).toBe(engine.detokenize(expected));
    const promptTokens = engine.tokenize('The capital of').length;
    expect(result.usage).toEqual({
      promptTokens,
      cachedTokens: 0,
      completionTokens: 20,
      reasoningTokens: 0,
      totalTokens: promptTokens + 20,
    });
  });

  it('times what it does, in order', async () => {
    const { timings } = await engine.generate({ prompt: [1, 2], maxTokens: 5, temperature: 0 }).result;
    expect(timings.ttftMs).toBeCloseTo(timings.queueMs + timings.prefillMs, 6);
    expect(timings.totalMs).toBeCloseTo(timings.ttftMs + timings.decodeMs, 6);
    expect(timings.decodeTokensPerSecond).toBeCloseTo(4000 / timings.decodeMs, 6);
    for (const value of Object.values(timings)) expect(value).toBeGreaterThan(0);
  });

  it('puts a conversation through the template', async () => {
    const messages = [{ role: 'user', content: 'Hi' }];
    const rendered = engine.renderChat(messages);
    expect(rendered).toContain('<|im_start|>user\nHi<|im_end|>');
    const generation = engine.chat({
      messages,
      maxTokens: 3,
      temperature: 0,
      templateOptions: { enable_thinking: false },
    });
    const plain = engine.chat({ messages, maxTokens: 3, temperature: 0 });
    expect(plain.promptTokenIds).toEqual(engine.tokenize(rendered, { addSpecialTokens: false }));
    expect(generation.promptTokenIds.length).toBeGreaterThan(plain.promptTokenIds.length);
    expect((await plain.result).tokenIds).toEqual(oracle(plain.promptTokenIds, 3, model, undefined, 0, EOS));
    await generation.result;
  });

  it('takes the model’s defaults, and says which seed it drew', async () => {
    expect(engine.info.samplingDefaults).toEqual({ temperature: 0.7, topK: 20, topP: 0.95 });
    const drawn = engine.generate({ prompt: [5], maxTokens: 8, ignoreEos: true });
    const first = await drawn.result;
    expect(first.seed).toBe(drawn.seed);
    const again = await engine.generate({ prompt: [5], maxTokens: 8, ignoreEos: true, seed: first.seed })
      .result;
    expect(again.tokenIds).toEqual(first.tokenIds);
    expect(first.tokenIds).toEqual(oracle([5], 8, model, { temperature: 0.7, seed: first.seed }));
  });

  it('streams several choices side by side', async () => {
    const generation = engine.generate({
      prompt: [7],
      maxTokens: 6,
      n: 3,
      seed: 11,
      temperature: 1,
      ignoreEos: true,
    });
    const deltas = await read(generation);
    const { choices, usage } = await generation.result;
    expect(usage.completionTokens).toBe(18);
    choices.forEach((choice, index) => {
      const expected = oracle([7], 6, model, { temperature: 1, seed: 11 }, index);
      expect(choice).toMatchObject({ index, tokenIds: expected, finishReason: 'length' });
      const mine = deltas.filter((delta) => delta.choice === index);
      expect(mine.flatMap((delta) => delta.tokenIds)).toEqual(expected);
      expect(generation.tokenIds(index)).toEqual(expected);
    });
  });

  it('a slow reader gets every token once, and holds nobody up', async () => {
    const slow = engine.generate({ prompt: [21], maxTokens: 200, temperature: 0, ignoreEos: true });
    const deltas: Delta[] = [];
    for await (const delta of slow) {
      deltas.push(delta);
      if (deltas.length > 1) continue;
      // While it looks at its first delta, others come and go.
      const others = [22, 23, 24].map((id) =>
        engine.generate({ prompt: [id], maxTokens: 60, temperature: 0, ignoreEos: true }),
      );
      for (const [i, other] of others.entries())
        expect((await other.result).tokenIds).toEqual(oracle([22 + i], 60, model));
      await slow.result;
    }
    expect(deltas.flatMap((delta) => delta.tokenIds)).toEqual(oracle([21], 200, model));
    expect(deltas.map((delta) => delta.text).join('')).toBe((await slow.result).text);
    // What piled up came as one delta.
    expect(deltas.length).toBeLessThanOrEqual(2);
  });

  it('a result without a reader, and a reader without a result, are both fine', async () => {
    const unread = engine.generate({ prompt: [31], maxTokens: 4, temperature: 0, ignoreEos: true });
    expect((await unread.result).tokenIds).toHaveLength(4);
    expect((await read(unread)).flatMap((delta) => delta.tokenIds)).toEqual(oracle([31], 4, model));
  });

  it('an abort ends with `cancelled` and what came until then', async () => {
    const controller = new AbortController();
    const generation = engine.generate({
      prompt: [41],
      maxTokens: 400,
      temperature: 0,
      ignoreEos: true,
      signal: controller.signal,
    });
    let seen = 0;
    for await (const delta of generation) {
      seen += delta.tokenIds.length;
      if (seen > 5) controller.abort();
    }
    const result = await generation.result;
    expect(result.finishReason).toBe('cancelled');
    expect(result.tokenIds).toEqual(oracle([41], 400, model).slice(0, seen));
    expect(seen).toBeLessThan(400);
  });

  it('leaves no listener on a signal that outlives its requests', async () => {
    const { signal } = new AbortController();
    const request = { prompt: [45], maxTokens: 3, temperature: 0, ignoreEos: true, signal };
    await Promise.all([1, 2, 3].map(() => engine.generate(request).result));
    await refusal(engine.generate({ ...request, maxTokens: 0 }).accepted);
    await refusal(engine.generate({ ...request, prompt: [9999] }).accepted);
    expect(getEventListeners(signal, 'abort')).toHaveLength(0);
  });

  it('one signal ends as many requests as share it, through one listener', async () => {
    const controller = new AbortController();
    const { signal } = controller;
    const many = Array.from({ length: 15 }, (_, i) =>
      engine.generate({ prompt: [i], maxTokens: 400, temperature: 0, ignoreEos: true, signal }),
    );
    expect(getEventListeners(signal, 'abort')).toHaveLength(1);
    await Promise.all(many.map((generation) => generation.accepted));
    controller.abort();
    for (const generation of many) expect((await generation.result).finishReason).toBe('cancelled');
    expect(getEventListeners(signal, 'abort')).toHaveLength(0);
  });

  it('an abort before the request costs nothing', async () => {
    const submitted = device.submitted;
    const generation = engine.generate({ prompt: [42], signal: AbortSignal.abort() });
    expect((await read(generation)).map((delta) => delta.finishReason)).toEqual(['cancelled']);
    expect((await generation.result).usage.completionTokens).toBe(0);
    expect(device.submitted).toBe(submitted);
  });

  it('two readers share what comes, and neither waits for ever', async () => {
    const generation = engine.generate({ prompt: [46], maxTokens: 30, temperature: 0, ignoreEos: true });
    const [one, two] = await Promise.all([read(generation), read(generation)]);
    const ids = [...one, ...two].flatMap((delta) => delta.tokenIds);
    expect(ids.sort()).toEqual(oracle([46], 30, model).sort());
  });

  it('a reader that leaves while it waits in the queue need not wait for its turn', async () => {
    const ahead = [1, 2, 3, 4].map((id) =>
      engine.generate({ prompt: [id], maxTokens: 400, temperature: 0, ignoreEos: true }),
    );
    const queued = engine.generate({ prompt: [5], maxTokens: 9, temperature: 0 });
    await queued.accepted;
    const deltas = queued[Symbol.asyncIterator]();
    const next = deltas.next();
    await deltas.return!();
    expect((await next).value).toMatchObject({ finishReason: 'cancelled', tokenIds: [] });
    expect((await engine.stats()).decoding).toBe(4);
    for (const generation of ahead) generation.cancel();
    await Promise.all(ahead.map((generation) => generation.result));
  });

  it('leaving the loop, or the scope, cancels', async () => {
    const left = engine.generate({ prompt: [43], maxTokens: 400, temperature: 0, ignoreEos: true });
    for await (const _ of left) break;
    expect((await left.result).finishReason).toBe('cancelled');
    let scoped: Promise<unknown>;
    {
      await using generation = engine.generate({
        prompt: [44],
        maxTokens: 400,
        temperature: 0,
        ignoreEos: true,
      });
      await generation.accepted;
      scoped = generation.result;
    }
    expect(await scoped).toMatchObject({ finishReason: 'cancelled' });
    const stats = await engine.stats();
    expect(stats).toMatchObject({ queued: 0, decoding: 0 });
  });

  it('a refused request streams nothing: all three ways to look at it say why', async () => {
    const long = engine.generate({ prompt: Array.from({ length: 512 }, () => 1) });
    for (const promise of [long.accepted, long.result, read(long)]) {
      expect(await refusal(promise)).toMatchObject({
        code: 'context-length-exceeded',
        status: 400,
        where: 'prompt',
      });
    }
    const cases = [
      [engine.generate({ prompt: [1], temperature: Number.NaN }), 'temperature'],
      [engine.generate({ prompt: [1], frequencyPenalty: 3 }), 'frequencyPenalty'],
      [engine.generate({ prompt: 5 as never }), 'prompt'],
      [engine.generate({ prompt: [1.5] }), 'prompt'],
      [engine.generate({ prompt: [4096] }), 'prompt'],
      [engine.generate({ prompt: '' }), undefined],
      [engine.generate(undefined as never), 'request'],
      [engine.generate({ prompt: [1], signal: {} } as never), 'signal'],
      [engine.generate({ prompt: [1], requestId: 7 } as never), 'requestId'],
      [engine.generate({ prompt: 'a', addSpecialTokens: 1 } as never), 'addSpecialTokens'],
      [engine.chat({} as never), 'messages'],
      [engine.chat({ messages: [] }), 'messages'],
      [engine.chat({ messages: [{ role: 'user' }] }), 'messages[0].content'],
      [engine.chat({ messages: [{ role: 'user', content: 'x' }], temprature: 1 } as never), 'temprature'],
    ] as const;
    for (const [generation, where] of cases) {
      const error = await refusal(generation.accepted);
      expect(error.status).toBe(400);
      if (where !== undefined) expect(error.where).toBe(where);
      expect(error.fix).toBeTruthy();
    }
    const fine = await engine.generate({ prompt: [1], maxTokens: 2, temperature: 0, ignoreEos: true }).result;
    expect(fine.tokenIds).toEqual(oracle([1], 2, model));
  });

  it('describes itself', async () => {
    expect(engine.info).toMatchObject({
      name: 'demo-text',
      model: {
        architecture: 'Qwen3ForCausalLM',
        layers: 8,
        vocabSize: 4096,
        maxContext: 8192,
        hasChatTemplate: true,
      },
      deviceReason: 'a test',
      limits: { maxContext: 512, maxRows: 4, maxBatchTokens: 256, maxQueue: 256 },
    });
    // 8 layers, K and V, 2 heads of 128, f32 (the oracle calls itself a reference).
    expect(engine.info.kv).toMatchObject({
      blocks: 128,
      blockTokens: 16,
      bytesPerToken: 8 * 2 * 2 * 128 * 4,
    });
    expect(engine.info.kv.layers).toHaveLength(8);
    expect([...engine.info.model.eosTokenIds].sort()).toEqual(EOS);
    const stats = await engine.stats();
    expect(stats).toMatchObject({ maxRows: 4, blocksTotal: 128, blocksUsed: 0, slotsUsed: 0 });
  });
});
