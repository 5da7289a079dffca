/** Cached prefixes on the CPU, bitwise, for every way to store K and V: where K and V come from does not show. */
import { describe, expect, it, vi } from 'vitest';
import { createCpuDevice } from '../../src/device/cpu/index.js';
import { Engine } from '../../src/engine/engine.js';
import type { ChoiceEvent } from '../../src/engine/sequence.js';
import type { EngineOptions, GenerateRequest } from '../../src/engine/types.js';
import { resolveSampling } from '../../src/sampling/params.js';
import { tokenRules } from '../../src/sampling/token-rules.js';
import { casesOf } from '../setup/every-case.js';
import { seeded } from './core-harness.js';
import { loadTiny } from './tiny-host.js';
import { Watch } from './watched-device.js';

const MODEL = new URL('../../models/demo-text', import.meta.url).pathname;
const WINDOW = new URL('../fixtures/models/mistral-window', import.meta.url).pathname;

const SYSTEM =
  'Record: name = Maria, city = Oslo, colour = green, code = 4471. Record: name = Peter, city = Rome, colour = blue, code = 9120. Record: name = Lucy, city = Lima, colour = red, code = 3356. ';

/** Prompts that begin alike for a long way, a short way and not at all; each asked for greedily and by chance. */
const REQUESTS: readonly GenerateRequest[] = [
  `${SYSTEM}The code of Peter is`,
  `${SYSTEM}The city of Lucy is`,
  SYSTEM.slice(0, 100),
  `${SYSTEM}The code of Peter is`,
  'Once upon a time there was a small dog who lived by the sea. Every morning',
].map((prompt, i) => ({
  prompt,
  maxTokens: 8 + i,
  ignoreEos: true,
  ...(i % 2 === 0 ? { temperature: 0 } : { temperature: 0.8, seed: i }),
}));

const load = (options: EngineOptions): Promise<Engine> =>
  Engine.load(MODEL, { device: 'cpu', maxContext: 160, ...options });

interface Said {
  readonly ids: readonly number[];
  readonly prompt: number;
  readonly cached: number;
}

async function ask(engine: Engine, request: GenerateRequest): Promise<Said> {
  const { tokenIds, usage } = await engine.generate(request).result;
  return { ids: tokenIds, prompt: usage.promptTokens, cached: usage.cachedTokens };
}

async function one(engine: Engine, requests: readonly GenerateRequest[]): Promise<Said[]> {
  const said: Said[] = [];
  for (const request of requests) said.push(await ask(engine, request));
  return said;
}

const ids = (said: readonly Said[]): unknown => said.map((answer) => answer.ids);

/** Formats of each kind, of keys and of values apart, late, behind a float head and before a float tail. */
const WAYS: readonly EngineOptions[] = casesOf<EngineOptions>(
  [
    {},
    { kvFormat: 'affine6/affine3', kvSkipLayers: [] },
    { kvFormat: 'turbo8/affine2-g128', kvSkipLayers: [0] },
    { kvFormat: 'affine8/turbo4', blockTokens: 32 },
    { kvBits: 3.5, kvSkipLayers: [], quantizedKvStart: 40 },
    { kvFormat: 'affine6/f32', kvFloatHead: 40, blockTokens: 32 },
    { kvFormat: 'turbo4/affine4', kvFloatTail: 24 },
  ],
  [
    { kvFormat: 'f32' },
    { kvBits: 8 },
    { kvFormat: 'affine4-g32' },
    { kvBits: 3.5 },
    { kvBits: 8, quantizedKvStart: 48 },
    { kvFormat: 'turbo8/affine8', kvSkipLayers: [], kvFloatHead: 32 },
    { kvFormat: 'affine3', kvFloatHead: 32, kvFloatTail: 40, blockTokens: 32 },
  ],
);

describe.each(WAYS)('KV kept as %j', (way) => {
  it('cold, hit, chunked, shared and resumed give the same tokens', async () => {
    const { blockTokens = 16 } = way;
    await using off = await load({ ...way, maxRows: 8, maxBatchTokens: 96, prefixCache: false });
    // A shorter answer is the beginning of a longer one.
    // In a pool of a third of the demand it outgrows its blocks.
    const long = REQUESTS.map((request) => ({ ...request, maxTokens: 24 + blockTokens }));
    const whole = await one(off, long);
    const alone = whole.map((answer, i) => ({
      ...answer,
      ids: answer.ids.slice(0, REQUESTS[i]!.maxTokens!),
    }));
    expect(alone.map((answer) => answer.cached)).toEqual([0, 0, 0, 0, 0]);
    expect((await off.stats()).prefixCache).toBeUndefined();

    // One after the other, twice: partial hits, then whole ones.
    await using on = await load({ ...way, maxRows: 8, maxBatchTokens: 96 });
    const first = await one(on, REQUESTS);
    expect(ids(first)).toEqual(ids(alone));
    expect(first.map((answer) => answer.cached > 0)).toEqual([false, true, true, true, false]);
    const again = await one(on, REQUESTS);
    expect(ids(again)).toEqual(ids(alone));
    for (const { prompt, cached } of again)
      expect(cached).toBeGreaterThanOrEqual(prompt - 1 - ((prompt - 1) % blockTokens));

    // Together, cut into small chunks, on an engine that knows nothing.
    await using chunked = await load({ ...way, maxRows: 4, maxBatchTokens: 7 });
    const together = await Promise.all(REQUESTS.map((request) => ask(chunked, request)));
    expect(ids(together)).toEqual(ids(alone));
    expect(together.filter((answer) => answer.cached > 0).length).toBeGreaterThanOrEqual(3);

    // In a pool of a third of the demand: rows give way and resume.
    const { bytesPerToken, floatStart, groups } = on.info.kv;
    const blocks = 192 / blockTokens;
    const floatStartBytes = floatStart === null ? 0 : 8192 * 16 * 3;
    // Half of it goes to float heads. A tail has room for a row besides.
    const parts = groups.filter(({ tail }) => !tail).length;
    const besides = 192 * (groups.find(({ tail }) => tail)?.bytesPerToken ?? 0);
    await using small = await load({
      ...way,
      maxRows: 6,
      maxBatchTokens: 24,
      kvMemory: parts * bytesPerToken * blockTokens * blocks + floatStartBytes + besides,
    });
    expect(ids(await Promise.all(long.map((request) => ask(small, request))))).toEqual(ids(whole));
    const stats = await small.stats();
    // Beside a tail, whose room is for one row, fewer rows are in: none gives way.
    if (way.kvFloatTail === undefined) expect(stats.preemptions).toBeGreaterThan(0);
    await vi.waitFor(async () => expect((await small.stats()).blocksUsed).toBe(0));
  });
});

it('nothing that a step names is touched under it, and nobody writes to what others read', async () => {
  for (const way of [{ kvBits: 8 }, { kvBits: 3.5, kvSkipLayers: [], quantizedKvStart: 40 }]) {
    const watch = new Watch();
    await using engine = await Engine.load(
      MODEL,
      { ...way, maxContext: 160, maxRows: 4, maxBatchTokens: 40, worker: false },
      {
        makeDevice: async () => ({
          device: watch.wrap(await createCpuDevice({ threads: 2 })),
          reason: 'watched',
        }),
      },
    );
    const random = seeded(3);
    const jobs: Promise<unknown>[] = [];
    for (let i = 0; i < 24; i++) {
      const generation = engine.generate(REQUESTS[i % REQUESTS.length]!);
      jobs.push(generation.result);
      if (random() < 0.3) setTimeout(() => generation.cancel(), random() * 60);
      if (random() < 0.5) await new Promise((resolve) => setTimeout(resolve, random() * 20));
    }
    await Promise.all(jobs);
    expect(watch.faults).toEqual([]);
    expect((await engine.stats()).prefixCache!.hits).toBeGreaterThan(8);
  }
});

it('sliding-window layers hit as well, beyond the window and within it', async () => {
  const weights = { kind: 'folder', path: WINDOW } as const;
  const limits = { weights, maxContext: 256, maxRows: 4, maxBatchTokens: 48 };
  const random = seeded(5);
  const tokens = (length: number): number[] => Array.from({ length }, () => 3 + Math.floor(random() * 250));
  const system = tokens(150);
  const prompts = [
    [...system, ...tokens(10)],
    [...system, ...tokens(20)],
    [...system.slice(0, 40), ...tokens(90)],
    [...system.slice(0, 100), ...tokens(5)],
  ];
  const answers: { ids: number[]; cached: number }[][] = [];
  for (const prefixCache of [false, true]) {
    const said = prompts.map(() => ({ ids: [] as number[], cached: 0 }));
    let open = prompts.length;
    let done!: () => void;
    const host = await loadTiny(
      await createCpuDevice({ threads: 1 }),
      { ...limits, prefixCache },
      (events) => {
        for (const event of events as ChoiceEvent[]) {
          const answer = said[event.request % prompts.length]!;
          answer.ids.push(...event.ids);
          if (event.finish === null) continue;
          answer.cached += event.cached ?? 0;
          if (--open === 0) done();
        }
      },
    );
    expect(host.info.kv.layers.every(({ kind }) => kind === 'sliding')).toBe(true);
    for (let round = 0; round < 2; round++) {
      open = prompts.length;
      const all = new Promise<void>((resolve) => {
        done = resolve;
      });
      prompts.forEach((prompt, i) => {
        const sampling = resolveSampling({ temperature: 0, maxTokens: 40, ignoreEos: true });
        host.core.add({
          id: round * prompts.length + i,
          prompt: Int32Array.from(prompt),
          sampling,
          rules: tokenRules(sampling, null),
          continuation: true,
          receivedAt: 0,
        });
      });
      await all;
    }
    for (const answer of said) expect(answer.ids.slice(0, 40)).toEqual(answer.ids.slice(40));
    answers.push(said);
    await host.close(false);
  }
  expect(answers[1]!.map((answer) => answer.ids)).toEqual(answers[0]!.map((answer) => answer.ids));
  expect(answers[0]!.every((answer) => answer.cached === 0)).toBe(true);
  // In the second round each found all whole blocks but the last.
  for (const [i, { cached }] of answers[1]!.entries())
    expect(cached).toBeGreaterThanOrEqual(Math.floor((prompts[i]!.length - 1) / 16) * 16);
});
