/** Promise 3 on the CPU device: 10,000 short steps of a tiny model leave its memory and the heap as they were. */
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { expect, it } from 'vitest';
import { createCpuDevice } from '../../src/device/cpu/index.js';
import { type LoadedHost, loadHost } from '../../src/engine/host-load.js';
import { resolveSampling } from '../../src/sampling/params.js';
import { randomPrompt, seeded } from '../engine/core-harness.js';

const MODEL = new URL('../fixtures/models/qwen3-tied', import.meta.url).pathname;
const ROWS = 4;

setFlagsFromString('--expose-gc');
const collect = runInNewContext('gc') as () => void;

it('10,000 steps on the CPU leave buffers, bytes, plans and the heap flat', async () => {
  const random = seeded(8);
  const open = new Map<number, { ids: number[]; wanted: number }>();
  let finished = 0;
  const device = await createCpuDevice({ threads: 1 });
  const host: LoadedHost = await loadHost(
    {
      weights: { kind: 'folder', path: MODEL },
      device: 'cpu',
      precision: undefined,
      deterministic: undefined,
      threads: undefined,
      allowSoftwareGpu: undefined,
      quantize: undefined,
      kvFormat: undefined,
      kvMemory: undefined,
      maxContext: 128,
      maxRows: ROWS,
      maxBatchTokens: 24,
      maxQueue: undefined,
      blockTokens: undefined,
      tokenTable: null,
      eosIds: null,
      resourceDebug: false,
    },
    {
      onEvents: (events) => {
        for (const { request, ids, finish } of events) {
          const job = open.get(request)!;
          job.ids.push(...ids);
          if (finish === null) continue;
          if (finish === 'length') expect(job.ids).toHaveLength(job.wanted);
          else expect(['stop', 'cancelled']).toContain(finish);
          open.delete(request);
          finished++;
        }
      },
      onFault: (error) => {
        throw error;
      },
      onProgress: () => {},
      onLog: () => {},
      makeDevice: async () => ({ device, reason: 'a test' }),
    },
  );
  const { core } = host;
  const samples: { heap: number; device: string }[] = [];
  let id = 0;
  while (core.stats().steps < 10_000) {
    while (open.size < ROWS + 2) {
      const wanted = 1 + Math.floor(random() * 60);
      const prompt = Int32Array.from(randomPrompt(random, 1 + Math.floor(random() * 50)));
      const sampling = resolveSampling({ maxTokens: wanted, temperature: random() < 0.5 ? 0 : 1, seed: id });
      open.set(++id, { ids: [], wanted });
      core.add({ id, prompt, sampling, continuation: true, receivedAt: 0 });
      if (random() < 0.1) setTimeout((victim: number) => core.cancel(victim), 2, id);
    }
    await new Promise((resolve) => setTimeout(resolve, 1));
    const stats = core.stats();
    if (stats.steps < 2000 * (samples.length + 1)) continue;
    collect();
    collect();
    samples.push({ heap: process.memoryUsage().heapUsed, device: JSON.stringify(stats.device) });
  }
  expect(finished).toBeGreaterThan(500);
  expect(samples.length).toBeGreaterThanOrEqual(4);
  for (const sample of samples) {
    expect(sample.device).toBe(samples[0]!.device);
    // Flat, give or take what the engine's own compiler keeps: under 30 bytes a step.
    expect(sample.heap - samples[0]!.heap).toBeLessThan(30 * 10_000);
  }
  const { buffers, bytes } = device.stats();
  await host.close(false);
  // Program and pool gave back what was theirs.
  expect(device.stats().buffers).toBeLessThan(buffers);
  expect(device.stats().bytes).toBeLessThan(bytes);
});
