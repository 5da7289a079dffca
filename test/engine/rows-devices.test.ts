/**
 * Promises 1 and 2 on every device that keeps them bitwise, with a tiny model: any company, any chunks, any pool, any way
 * to keep K and V.
 */
import { describe, expect, it } from 'vitest';
import type { DeviceStats } from '../../src/device/device.js';
import type { HostConfig, HostInfo } from '../../src/engine/messages.js';
import type { KvOptions } from '../../src/kv/options.js';
import type { SamplingOptions } from '../../src/sampling/options.js';
import { resolveSampling } from '../../src/sampling/params.js';
import { NO_RULES } from '../../src/sampling/token-rules.js';
import { type DeviceSpec, devices } from '../devices/devices.js';
import { randomPrompt, seeded } from './core-harness.js';
import { loadTiny } from './tiny-host.js';

interface Job {
  readonly prompt: number[];
  readonly sampling: SamplingOptions;
}

const random = seeded(17);
const jobs: Job[] = Array.from({ length: 6 }, (_, i) => ({
  prompt: randomPrompt(random, [1, 40, 7, 23, 16, 33][i]!),
  sampling: {
    maxTokens: 5 + i,
    seed: i,
    temperature: i % 2 === 0 ? 0 : 1,
    topK: i % 3 === 0 ? 12 : 0,
    ignoreEos: true,
  },
}));

/** What each job gets when they are asked in these groups, one group after another. */
async function answers(
  spec: DeviceSpec,
  options: Partial<HostConfig>,
  together: boolean,
): Promise<{
  readonly ids: number[][];
  readonly kv: HostInfo['kv'];
  readonly conversions: number;
  readonly early: DeviceStats | null;
  readonly late: DeviceStats;
}> {
  const device = await spec.create();
  const ids: number[][] = jobs.map(() => []);
  let wake: () => void = () => {};
  let finished = 0;
  let early: DeviceStats | null = null;
  const host = await loadTiny(device, options, (events) => {
    for (const event of events) {
      ids[event.request]!.push(...event.ids);
      if (event.finish !== null) finished++;
    }
    wake();
  });
  const until = async (count: number): Promise<void> => {
    while (finished < count) await new Promise<void>((resolve) => (wake = resolve));
  };
  for (const [id, { prompt, sampling }] of jobs.entries()) {
    host.core.add({
      id,
      prompt: Int32Array.from(prompt),
      sampling: resolveSampling(sampling),
      rules: NO_RULES,
      continuation: true,
      receivedAt: 0,
    });
    if (!together) await until(id + 1);
    if (id === 1) early = host.core.stats().device;
  }
  await until(jobs.length);
  const { conversions, device: late } = host.core.stats();
  await host.close(false);
  return { ids, kv: host.info.kv, conversions, early, late };
}

const WAYS: readonly { readonly kv: KvOptions; readonly conversions: number }[] = [
  { kv: { kvFormat: 'f32' }, conversions: 0 },
  { kv: { kvFormat: 'affine8/turbo4', kvSkipLayers: [] }, conversions: 0 },
  // All but the prompts of 1 and 7 tokens come of age.
  { kv: { kvBits: 3.5, kvSkipLayers: [], quantizedKvStart: 20 }, conversions: 4 },
];

describe.each(devices.filter((spec) => spec.bitwise))('$name', (spec) => {
  it.each(WAYS)(
    'alone, in company, in small chunks and in a small pool: the same tokens, %j',
    {
      timeout: 300_000,
    },
    async ({ kv, conversions }) => {
      const alone = await answers(spec, { kv, maxBatchTokens: 64, maxRows: 1 }, false);
      expect(alone.ids.map((ids) => ids.length)).toEqual(jobs.map((job) => job.sampling.maxTokens));
      expect(alone.conversions).toBe(conversions);
      // The first two had a conversion, where there are any: what came after made nothing that stays.
      expect(alone.late).toEqual(alone.early);
      const crowd = await answers(spec, { kv, maxBatchTokens: 64, maxRows: 6 }, true);
      expect(crowd.ids).toEqual(alone.ids);
      // Room for one sequence of 64 tokens and a little more.
      const { bytesPerToken, floatStart, bytes, blocks } = alone.kv;
      const floatStartBlock =
        floatStart === null ? 0 : (bytes - blocks * 16 * bytesPerToken) / floatStart.blocks;
      const kvMemory = 5 * 16 * bytesPerToken + 2 * floatStartBlock;
      const small = { kv, maxBatchTokens: 9, maxRows: 3, maxContext: 64, kvMemory };
      expect((await answers(spec, small, true)).ids).toEqual(alone.ids);
    },
  );

  it('a sequence that is quantised late is float before', { timeout: 300_000 }, async () => {
    const options = { maxBatchTokens: 64, maxRows: 6 };
    const ask = async (kv: KvOptions) => (await answers(spec, { ...options, kv }, true)).ids;
    const float = await ask({ kvFormat: 'f32/f32' });
    const ids = await ask({ kvFormat: 'f32/turbo2', kvSkipLayers: [], quantizedKvStart: 42 });
    // Of the prompt of 40 three tokens are drawn over floats alone; the others never come so far, or start beyond.
    for (const [i, { prompt }] of jobs.entries())
      expect(ids[i]!.slice(0, 43 - prompt.length)).toEqual(float[i]!.slice(0, 43 - prompt.length));
  });
});
