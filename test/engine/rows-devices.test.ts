/** Promises 1 and 2 on every device that keeps them bitwise, with a tiny model: any company, any chunks, any pool. */
import { describe, expect, it } from 'vitest';
import type { HostConfig } from '../../src/engine/messages.js';
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
): Promise<number[][]> {
  const device = await spec.create();
  const ids: number[][] = jobs.map(() => []);
  let wake: () => void = () => {};
  let finished = 0;
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
  }
  await until(jobs.length);
  await host.close(false);
  return ids;
}

describe.each(devices.filter((spec) => spec.bitwise))('$name', (spec) => {
  it('alone, in company, in small chunks and in a small pool: the same tokens', {
    timeout: 300_000,
  }, async () => {
    const kv = { kvFormat: 'f32' };
    const alone = await answers(spec, { kv, maxBatchTokens: 64, maxRows: 1 }, false);
    expect(alone.map((ids) => ids.length)).toEqual(jobs.map((job) => job.sampling.maxTokens));
    expect(await answers(spec, { kv, maxBatchTokens: 64, maxRows: 6 }, true)).toEqual(alone);
    expect(
      await answers(
        spec,
        { maxBatchTokens: 9, maxRows: 3, maxContext: 64, kv, kvMemory: 5 * 16 * 2048 },
        true,
      ),
    ).toEqual(alone);
  });
});
