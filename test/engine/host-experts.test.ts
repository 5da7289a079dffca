/**
 * Experts in host memory beside a GPU with one order of sums: promises 1 and 2 to the last bit, with two steps under way and with what is
 * moved between them: blocks that were hit, snapshots of state, conversions. All of it keeps its order behind a step that waits for the host.
 */
import { describe, expect, it, vi } from 'vitest';
import { devices } from '../devices/devices.js';
import { Asker, type Said } from './asker.js';
import { seeded } from './core-harness.js';

vi.setConfig({ testTimeout: 240_000 });

const gpus = devices.filter(({ kind, bitwise }) => kind === 'webgpu' && bitwise);
const random = seeded(11);
const tokens = (length: number): number[] => Array.from({ length }, () => 3 + Math.floor(random() * 60));
const base = tokens(40);
const PROMPTS = [1, 17, 33, 40].map((length) => [...base.slice(0, length), ...tokens(2)]);
const DRAWN = { maxTokens: 10, temperature: 1, topK: 12, seed: 5 };
/** Draws that take state, which is made between steps. */
const RULED = { maxTokens: 10, frequencyPenalty: 0.4, logitBias: { 7: 2 } };

const ids = (said: readonly Said[]): unknown => said.map((one) => one.ids);

describe.each(gpus)('$name with a CPU beside it', (spec) => {
  const open = (model: string, options: Parameters<typeof Asker.open>[1]): Promise<Asker> =>
    Asker.open(model, { maxContext: 128, cpuExperts: 1, ...options }, (cpu) => spec.create(false, cpu));

  it.each([
    ['experts', 'qwen3-moe', {}],
    ['state', 'qwen3.5-moe', { cpuExperts: 3 }],
    ['float at first', 'qwen3-moe', { kv: { kvBits: 8, quantizedKvStart: 24, kvSkipLayers: [] } }],
  ] as const)('%s: a row says what it says alone, in any pieces, from the cache', async (_, model, more) => {
    await using alone = await open(model, { ...more, prefixCache: false, maxRows: 1, maxBatchTokens: 48 });
    expect(alone.info.memory.host).toBeGreaterThan(0);
    const cold: Said[] = [];
    for (const prompt of PROMPTS) cold.push(await alone.ask(prompt, DRAWN));
    const ruled = await alone.ask(PROMPTS[2]!, RULED);
    await using cached = await open(model, { ...more, maxRows: 4, maxBatchTokens: 11 });
    const ask = (): Promise<Said[]> => Promise.all(PROMPTS.map((prompt) => cached.ask(prompt, DRAWN)));
    expect(ids(await ask())).toEqual(ids(cold));
    const again = await ask();
    expect(ids(again)).toEqual(ids(cold));
    expect(Math.max(...again.map(({ cached: hit }) => hit))).toBeGreaterThanOrEqual(32);
    const [beside] = await Promise.all([cached.ask(PROMPTS[2]!, RULED), ask()]);
    expect(beside.ids).toEqual(ruled.ids);
  });
});

it.each(devices.filter(({ kind }) => kind === 'cpu').slice(0, 1))(
  '$name has none beside it',
  async (spec) => {
    const refused = Asker.open('qwen3-moe', { cpuExperts: 1 }, async (cpu) => {
      await cpu[Symbol.asyncDispose]();
      return spec.create();
    });
    await expect(refused).rejects.toMatchObject({ code: 'invalid-option', where: 'cpuExperts' });
  },
);
