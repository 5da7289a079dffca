/**
 * Promise 3 on the devices: short steps of a tiny model, with rows that join, leave and are cancelled, leave
 * buffers, bytes, plans and the heap as they were. 10,000 steps; 300 where the GPU is one in software.
 */
import { describe, expect, it } from 'vitest';
import { resolveSampling } from '../../src/sampling/params.js';
import { NO_RULES } from '../../src/sampling/token-rules.js';
import { devices } from '../devices/devices.js';
import { randomPrompt, seeded } from '../engine/core-harness.js';
import { loadTiny } from '../engine/tiny-host.js';
import { expectFlat, heapUsed } from './heap.js';

const ROWS = 4;
const SOAKED = ['cpu relaxed', 'webgpu default'];

describe.each(devices.filter((spec) => SOAKED.includes(spec.name)))('$name', (spec) => {
  const steps = spec.slow ? 300 : 40_000;

  it(`${steps} steps leave buffers, bytes, plans and the heap flat`, { timeout: 300_000 }, async () => {
    const random = seeded(8);
    const open = new Map<number, { ids: number; wanted: number }>();
    let finished = 0;
    const device = await spec.create(true);
    const host = await loadTiny(device, { maxRows: ROWS }, (events) => {
      for (const { request, ids, finish } of events) {
        const job = open.get(request)!;
        job.ids += ids.length;
        if (finish === null) continue;
        if (finish === 'length') expect(job.ids).toBe(job.wanted);
        else expect(['stop', 'cancelled']).toContain(finish);
        open.delete(request);
        finished++;
      }
    });
    const { core } = host;
    const samples: { heap: number; device: string }[] = [];
    let id = 0;
    while (core.stats().steps < steps) {
      while (open.size < ROWS + 2) {
        const wanted = 1 + Math.floor(random() * 60);
        const prompt = Int32Array.from(randomPrompt(random, 1 + Math.floor(random() * 50)));
        const sampling = resolveSampling({
          maxTokens: wanted,
          temperature: random() < 0.5 ? 0 : 1,
          seed: id,
        });
        open.set(++id, { ids: 0, wanted });
        core.add({ id, prompt, sampling, rules: NO_RULES, continuation: true, receivedAt: 0 });
        if (random() < 0.1) setTimeout((victim: number) => core.cancel(victim), 2, id);
      }
      await new Promise((resolve) => setTimeout(resolve, 1));
      const stats = core.stats();
      if (stats.steps < (steps / 8) * (samples.length + 1)) continue;
      samples.push({ heap: heapUsed(), device: JSON.stringify({ ...stats.device, peakBytes: 0 }) });
    }
    expect(finished).toBeGreaterThan(steps / 50);
    for (const sample of samples) expect(sample.device).toBe(samples[0]!.device);
    // The compiler keeps something in each of the first 20,000 steps' windows. A promise or a closure kept for each
    // step is 320 kB or more in 5,000.
    expectFlat(
      samples.map(({ heap }) => heap),
      64_000,
    );
    const { buffers, bytes } = device.stats();
    await host.close(false);
    // Program and pool gave back what was theirs.
    expect(device.stats().buffers).toBeLessThan(buffers);
    expect(device.stats().bytes).toBeLessThan(bytes);
  });
});
