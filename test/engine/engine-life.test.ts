/** Loading and closing, and what an engine says when its device goes. */
import { cp, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { Engine } from '../../src/engine/engine.js';
import type { EngineOptions, LoadProgress, LogEntry } from '../../src/engine/types.js';
import type { KvantError } from '../../src/errors.js';
import { loadOracle, MODEL, model, refusal } from './engine-harness.js';
import { OracleDevice } from './oracle-device.js';
import { oracle } from './oracle-model.js';

describe('an engine’s life', () => {
  it('tells how loading goes and what is unusual', async () => {
    const progress: LoadProgress[] = [];
    const logs: LogEntry[] = [];
    const { engine, device } = await loadOracle({
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

  it('names a model by a text, and says so', async () => {
    for (const model of [undefined, null, 5, {}, ['x']])
      await expect(Engine.load(model as never)).rejects.toMatchObject({
        code: 'invalid-parameter',
        where: 'model',
        fix: expect.stringContaining('folder'),
      });
  });

  it('says once which keys of generation_config.json nothing is made of', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'kvant-engine-'));
    await cp(MODEL, folder, { recursive: true });
    const file = join(folder, 'generation_config.json');
    const defaults = JSON.parse(await readFile(file, 'utf8')) as object;
    await writeFile(file, JSON.stringify({ ...defaults, num_beams: 4, no_repeat_ngram_size: 0 }));
    const logs: LogEntry[] = [];
    try {
      const device = new OracleDevice(model);
      const engine = await Engine.load(
        folder,
        { maxRows: 2, maxContext: 512, worker: false, onLog: (entry) => logs.push(entry) },
        { makeDevice: async () => ({ device, reason: 'a test' }) },
      );
      expect(engine.info.samplingDefaults).toMatchObject({ temperature: 0.7, topK: 20 });
      await engine.generate({ prompt: [1], maxTokens: 2 }).result;
      await engine.close();
    } finally {
      await rm(folder, { recursive: true });
    }
    expect(logs).toEqual([
      { level: 'info', message: 'generation_config keys left out', fields: { keys: ['num_beams'] } },
    ]);
  });

  it('halves a cache that finds no room, unless its size was asked for', async () => {
    const { engine } = await loadOracle({}, 40);
    expect(engine.info.kv.blocks).toBe(32);
    expect(engine.info.limits.maxContext).toBe(512);
    await engine.close();
    const asked = { maxContext: 1024 };
    expect(await refusal(loadOracle(asked, 40))).toMatchObject({ code: 'device-out-of-memory' });
    const bytes = { kvMemory: 64 * 16 * 8 * 2 * 2 * 128 * 4 };
    expect(await refusal(loadOracle(bytes, 40))).toMatchObject({ code: 'device-out-of-memory' });
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
      const error = await refusal(loadOracle(options));
      expect(error).toMatchObject({ where, status: 400 });
    }
    expect((await refusal(Engine.load('/nowhere/at/all'))).fix).toBeTruthy();
    // Before the model is looked for, let alone fetched.
    expect((await refusal(Engine.load('/nowhere/at/all', { maxRows: 0 }))).where).toBe('maxRows');
    expect((await refusal(Engine.load('/nowhere/at/all', { kvFormat: 'f12' }))).where).toBe('kvFormat');
  });

  it('says how much too long a prompt is, and offers only what would help', async () => {
    const whole = { maxContext: undefined } as unknown as EngineOptions;
    const tooLong = async (options: EngineOptions): Promise<[KvantError, KvantError]> => {
      const { engine } = await loadOracle(options);
      const content = 'a lot '.repeat(9000);
      const errors = [
        await refusal(engine.generate({ prompt: Array.from({ length: 9000 }, () => 1) }).accepted),
        await refusal(engine.chat({ messages: [{ role: 'user', content }] }).accepted),
      ] as const;
      await engine.close();
      return [...errors];
    };
    const [prompt, chat] = await tooLong({ maxContext: 512 });
    expect(prompt).toMatchObject({ code: 'context-length-exceeded', status: 400, where: 'prompt' });
    expect(prompt.message).toBe(
      "This model's maximum context length is 512 tokens, the answer included. However, the prompt has 9000 tokens.",
    );
    expect(prompt.fix).toBe(
      'Shorten the prompt to at most 511 tokens, or start the engine with a larger maxContext.',
    );
    expect(chat).toMatchObject({ code: 'context-length-exceeded', status: 400, where: 'messages' });
    expect(chat.message).toMatch(/However, the messages have (?:at least )?\d{3,} tokens\.$/);
    // The model was made for no more.
    const [full] = await tooLong(whole);
    expect(full.fix).toBe('Shorten the prompt to at most 8191 tokens.');
    const { engine } = await loadOracle(whole);
    const perToken = engine.info.kv.bytesPerToken;
    await engine.close();
    const kvMemory = 256 * perToken;
    const [small] = await tooLong({ ...whole, kvMemory });
    expect(small.fix).toBe(
      'Shorten the prompt to at most 255 tokens, or start the engine with a larger kvMemory.',
    );
    const [both] = await tooLong({ maxContext: 256, kvMemory });
    expect(both.fix).toMatch(/start the engine with a larger maxContext and a larger kvMemory\.$/);
    // What is offered is taken.
    const [less] = await tooLong({ maxContext: 128, kvMemory });
    expect(less.fix).toMatch(/start the engine with a larger maxContext\.$/);
    await (await loadOracle({ maxContext: 129, kvMemory })).engine.close();
    expect(await refusal(loadOracle({ maxContext: 257, kvMemory }))).toMatchObject({
      code: 'kv-memory-too-small',
    });
  });

  it('tells once what its chat template makes nothing of, and refuses tools that it would not show', async () => {
    const logs: LogEntry[] = [];
    const onLog = (entry: LogEntry): void => void logs.push(entry);
    const warned = (): unknown[] =>
      logs.filter(({ level }) => level === 'warn').map(({ fields }) => fields.where);
    const { engine } = await loadOracle({ onLog });
    const messages = [
      { role: 'user', content: 'Hi' },
      { role: 'assistant', content: null, refusal: 'No.', annotations: [], audio: null, function_call: null },
      { role: 'user', content: 'Why?' },
    ];
    const templateOptions = { reasoning_effort: 'low' };
    for (let i = 0; i < 3; i++) engine.renderChat(messages, { templateOptions });
    expect(warned()).toEqual(['messages[1].refusal', 'chat_template_kwargs.reasoning_effort']);
    const tools = [{ type: 'function', function: { name: 'f', parameters: {} } }];
    expect(engine.renderChat(messages, { tools })).toContain('"name": "f"');
    expect(await refusal(engine.chat({ messages, tools: [{ type: 'zzz' }] }).accepted)).toMatchObject({
      code: 'unsupported-tool',
      where: 'tools[0].type',
    });
    await engine.close();

    const folder = await mkdtemp(join(tmpdir(), 'kvant-no-tools-'));
    await cp(MODEL, folder, { recursive: true });
    const blind = '{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}';
    await writeFile(join(folder, 'chat_template.jinja'), blind);
    const without = await Engine.load(
      folder,
      { worker: false, maxContext: 512 },
      { makeDevice: async () => ({ device: new OracleDevice(model), reason: 'a test' }) },
    );
    const refused = await refusal(without.chat({ messages, tools }).accepted);
    expect(refused).toMatchObject({ code: 'tools-unsupported', status: 400, where: 'tools' });
    expect(without.renderChat(messages)).toBe('user: Hi\nassistant: \nuser: Why?\n');
    await without.close();
    await rm(folder, { recursive: true });
  });

  it('refuses options that it does not have, wherever there are options', async () => {
    const unknown = { code: 'unknown-option', status: 400 };
    const misspelt = { maxRow: 4 } as never;
    const meant = { ...unknown, where: 'maxRow', fix: 'Did you mean `maxRows`?' };
    expect(await refusal(Engine.load('/nowhere/at/all', misspelt))).toMatchObject(meant);
    expect(await refusal(Engine.loadShape('demo', misspelt))).toMatchObject(meant);
    const { engine } = await loadOracle();
    const where = (name: string): object => ({ ...unknown, where: name });
    expect(() => engine.tokenize('a', { addSpecial: false } as never)).toThrow(
      expect.objectContaining(where('addSpecial')),
    );
    const messages = [{ role: 'user', content: 'Hi' }];
    expect(() => engine.renderChat(messages, { tool: [] } as never)).toThrow(
      expect.objectContaining(where('tool')),
    );
    expect(await refusal(engine.close({ drained: true } as never))).toMatchObject(where('drained'));
    const request = { prompt: [1], max_tokens: 1 } as never;
    expect(await refusal(engine.generate(request).accepted)).toMatchObject({
      code: 'unknown-parameter',
      where: 'max_tokens',
      fix: 'Did you mean `maxTokens`?',
    });
    await engine.close();
  });

  it('closing with drain finishes what there is; afterwards it says so', async () => {
    const { engine } = await loadOracle();
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
    const { engine } = await loadOracle();
    const running = engine.generate({ prompt: [1], maxTokens: 500, temperature: 0, ignoreEos: true });
    await running.accepted;
    const drained = engine.close({ drain: true });
    await engine.close();
    await drained;
    expect((await running.result).finishReason).toBe('cancelled');
    await engine.close();
  });

  it('whatever goes wrong while loading comes as an error of kvant, with what to do', async () => {
    const makeDevice = (): never => {
      throw new TypeError('nothing is a function');
    };
    const error = await refusal(Engine.load(MODEL, { worker: false }, { makeDevice }));
    expect(error).toMatchObject({ code: 'internal', message: 'nothing is a function', status: 500 });
    expect(error.fix).toBeTruthy();
    expect(error.stack).toContain('makeDevice');
  });

  it('what a callback throws while loading is the outcome of loading', async () => {
    const onProgress = ({ phase }: LoadProgress): void => {
      if (phase === 'compile') throw new Error('no terminal');
    };
    await expect(loadOracle({ onProgress })).rejects.toThrow('no terminal');
  });

  it('closing at once cancels', async () => {
    const { engine } = await loadOracle();
    const running = engine.generate({ prompt: [1], maxTokens: 500, temperature: 0, ignoreEos: true });
    await running.accepted;
    await engine[Symbol.asyncDispose]();
    expect((await running.result).finishReason).toBe('cancelled');
  });

  it('a lost device ends what runs, refuses what comes, and is announced', async () => {
    const { engine, device } = await loadOracle({ maxRows: 1 });
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
      const { engine } = await loadOracle({ onLog: (entry) => logs.push(entry) });
      await engine.generate({ prompt: [1], maxTokens: 5, temperature: 0, ignoreEos: true }).result;
      await engine.close();
    } finally {
      delete process.env.KVANT_RESOURCE_DEBUG;
    }
    const resources = logs.filter((entry) => entry.message === 'resources');
    expect(resources).toHaveLength(5);
    expect(resources[0]!.fields).toMatchObject({ step: 0, rows: 1, buffers: 1 });
    const quiet: LogEntry[] = [];
    const { engine } = await loadOracle({ onLog: (entry) => quiet.push(entry) });
    await engine.generate({ prompt: [1], maxTokens: 5, temperature: 0, ignoreEos: true }).result;
    await engine.close();
    expect(quiet).toEqual([]);
  });
});
