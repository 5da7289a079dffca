/** The engine's API, on this thread and on the oracle device, with the demo model's tokenizer and template. */
import { getEventListeners } from 'node:events';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Engine } from '../../src/engine/engine.js';
import type { Delta, EngineOptions, LoadProgress, LogEntry } from '../../src/engine/types.js';
import { KvantError } from '../../src/errors.js';
import { OracleDevice, oracle } from './oracle-device.js';

const MODEL = new URL('../../models/demo-text', import.meta.url).pathname;
const model = { vocab: 4096 };
const EOS = [4083, 4085];

async function load(
  options: EngineOptions = {},
  maxBlocks = Number.POSITIVE_INFINITY,
): Promise<{ engine: Engine; device: OracleDevice }> {
  const device = new OracleDevice({ ...model, maxBlocks });
  device.keepLog = false;
  const engine = await Engine.load(
    MODEL,
    { maxRows: 4, maxContext: 512, ...options, worker: false },
    { makeDevice: async () => ({ device, reason: 'a test' }) },
  );
  return { engine, device };
}

async function read(deltas: AsyncIterable<Delta>): Promise<Delta[]> {
  const list: Delta[] = [];
  for await (const delta of deltas) list.push(delta);
  return list;
}

async function refusal(promise: Promise<unknown>): Promise<KvantError> {
  const error: unknown = await promise.then(
    () => new Error('was taken'),
    (reason) => reason,
  );
  if (error instanceof KvantError) return error;
  throw error;
}

describe('Engine', () => {
  let engine: Engine;
  let device: OracleDevice;
  beforeAll(async () => {
    ({ engine, device } = await load());
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
    expect(result.usage).toEqual({ promptTokens, completionTokens: 20, totalTokens: promptTokens + 20 });
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
      expect(await refusal(promise)).toMatchObject({ code: 'prompt-too-long', status: 400, where: 'prompt' });
    }
    const cases = [
      [engine.generate({ prompt: [1], temperature: Number.NaN }), 'temperature'],
      [engine.generate({ prompt: [1], frequencyPenalty: 1 } as never), 'frequencyPenalty'],
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
      name: MODEL,
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

describe('an engine’s life', () => {
  it('tells how loading goes and what is unusual', async () => {
    const progress: LoadProgress[] = [];
    const logs: LogEntry[] = [];
    const { engine, device } = await load({
      kvMemory: 40 * 16 * 8 * 2 * 2 * 128 * 4,
      onProgress: (step) => progress.push(step),
      onLog: (entry) => logs.push(entry),
    });
    expect(progress.map((step) => step.phase)).toContain('compile');
    expect(progress.at(-1)!.done).toBe(progress.at(-1)!.total);
    expect(device.prepared).toBeGreaterThan(5);
    expect(engine.info.kv.blocks).toBe(40);
    expect(logs.map((entry) => entry.fields.limitedBy)).toEqual(['kv-memory']);
    await engine.close();
  });

  it('halves a cache that finds no room, unless its size was asked for', async () => {
    const { engine } = await load({}, 40);
    expect(engine.info.kv.blocks).toBe(32);
    expect(engine.info.limits.maxContext).toBe(512);
    await engine.close();
    const asked = { maxContext: 1024 };
    expect(await refusal(load(asked, 40))).toMatchObject({ code: 'device-out-of-memory' });
    const bytes = { kvMemory: 64 * 16 * 8 * 2 * 2 * 128 * 4 };
    expect(await refusal(load(bytes, 40))).toMatchObject({ code: 'device-out-of-memory' });
  });

  it('refuses options that make no sense, naming them', async () => {
    for (const [options, where] of [
      [{ maxContext: 9000 }, 'maxContext'],
      [{ maxRows: 0 }, 'maxRows'],
      [{ maxBatchTokens: 1.5 }, 'maxBatchTokens'],
      [{ blockTokens: 20 }, 'blockTokens'],
      [{ kvFormat: 'f12' }, 'kvFormat'],
      [{ kvMemory: 5 }, 'kvMemory'],
      [{ device: 'gpu' as never }, 'device'],
      [{ precision: 'fast' as never }, 'precision'],
    ] as const) {
      const error = await refusal(load(options));
      expect(error).toMatchObject({ where, status: 400 });
    }
    expect((await refusal(Engine.load('/nowhere/at/all'))).fix).toBeTruthy();
    // Before the model is looked for, let alone fetched.
    expect((await refusal(Engine.load('/nowhere/at/all', { maxRows: 0 }))).where).toBe('maxRows');
    expect((await refusal(Engine.load('/nowhere/at/all', { kvFormat: 'f12' }))).where).toBe('kvFormat');
  });

  it('closing with drain finishes what there is; afterwards it says so', async () => {
    const { engine } = await load();
    const running = engine.generate({ prompt: [1], maxTokens: 50, temperature: 0, ignoreEos: true });
    await running.accepted;
    const closed = engine.close({ drain: true });
    expect(await refusal(engine.generate({ prompt: [1] }).accepted)).toMatchObject({ code: 'engine-closed' });
    await closed;
    expect((await running.result).tokenIds).toEqual(oracle([1], 50, model));
    expect(await refusal(engine.stats())).toMatchObject({ code: 'engine-closed' });
    await engine.close();
  });

  it('closing at once while another close drains ends what that one waits for', async () => {
    const { engine } = await load();
    const running = engine.generate({ prompt: [1], maxTokens: 500, temperature: 0, ignoreEos: true });
    await running.accepted;
    const drained = engine.close({ drain: true });
    await engine.close();
    await drained;
    expect((await running.result).finishReason).toBe('cancelled');
    await engine.close();
  });

  it('what a callback throws while loading is the outcome of loading', async () => {
    const onProgress = ({ phase }: LoadProgress): void => {
      if (phase === 'compile') throw new Error('no terminal');
    };
    await expect(load({ onProgress })).rejects.toThrow('no terminal');
  });

  it('closing at once cancels', async () => {
    const { engine } = await load();
    const running = engine.generate({ prompt: [1], maxTokens: 500, temperature: 0, ignoreEos: true });
    await running.accepted;
    await engine[Symbol.asyncDispose]();
    expect((await running.result).finishReason).toBe('cancelled');
  });

  it('a lost device ends what runs, refuses what comes, and is announced', async () => {
    const { engine, device } = await load({ maxRows: 1 });
    const running = engine.generate({ prompt: [1], maxTokens: 500, temperature: 0, ignoreEos: true });
    const queued = engine.generate({ prompt: [2], maxTokens: 500, temperature: 0, ignoreEos: true });
    for await (const _ of running) {
      device.lose();
      break;
    }
    expect((await running.result).choices[0]!.finishReason).toMatch(/cancelled|error/);
    expect(await queued.result).toMatchObject({ finishReason: 'error' });
    expect((await queued.result).choices[0]!.error).toMatchObject({ code: 'device-lost', status: 503 });
    expect((await engine.failed).code).toBe('device-lost');
    expect(await refusal(engine.generate({ prompt: [3] }).accepted)).toMatchObject({ code: 'device-lost' });
    expect((await engine.stats()).fault).toMatchObject({ code: 'device-lost' });
    await engine.close();
  });

  it('logs device bytes after each step where KVANT_RESOURCE_DEBUG=1 asks for it, else nothing', async () => {
    const logs: LogEntry[] = [];
    process.env.KVANT_RESOURCE_DEBUG = '1';
    try {
      const { engine } = await load({ onLog: (entry) => logs.push(entry) });
      await engine.generate({ prompt: [1], maxTokens: 5, temperature: 0, ignoreEos: true }).result;
      await engine.close();
    } finally {
      delete process.env.KVANT_RESOURCE_DEBUG;
    }
    const resources = logs.filter((entry) => entry.message === 'resources');
    expect(resources).toHaveLength(5);
    expect(resources[0]!.fields).toMatchObject({ step: 0, rows: 1, buffers: 1 });
    const quiet: LogEntry[] = [];
    const { engine } = await load({ onLog: (entry) => quiet.push(entry) });
    await engine.generate({ prompt: [1], maxTokens: 5, temperature: 0, ignoreEos: true }).result;
    await engine.close();
    expect(quiet).toEqual([]);
  });
});
