/** Rows that join, leave and are cancelled on a host, until it has done so many steps; what is there after each eighth of them. */
import { expect } from 'vitest';
import type { Device, DeviceStats } from '../../src/device/device.js';
import type { HostConfig } from '../../src/engine/messages.js';
import type { EngineStats } from '../../src/engine/types.js';
import { resolveSampling } from '../../src/sampling/params.js';
import { NO_RULES } from '../../src/sampling/token-rules.js';
import { seeded } from '../engine/core-harness.js';
import { loadTiny } from '../engine/tiny-host.js';
import { heapUsed } from './heap.js';

const ROWS = 4;
/** Of a list of blocks, about. */
const LIST_BYTES = 1024;

export interface Walk {
  readonly steps: number;
  /** A prompt of so many tokens. */
  readonly prompt: (random: () => number, length: number) => readonly number[];
  /** Longest prompt, and most tokens of an answer. */
  readonly longest?: number;
  /** Lists of blocks to copy that may be made on the way: as many as are ever under way at once, and used again. Default 0. */
  readonly lists?: number;
}

/** Disposes of the device's program and pools, not of the device. */
export async function walk(
  device: Device,
  options: Partial<HostConfig>,
  { steps, prompt, longest = 50, lists = 0 }: Walk,
): Promise<{ readonly heaps: readonly number[]; readonly stats: EngineStats }> {
  const random = seeded(8);
  const open = new Map<number, { ids: number; wanted: number }>();
  let finished = 0;
  const host = await loadTiny(device, { maxRows: ROWS, ...options }, (events) => {
    for (const { request, ids, finish, error } of events) {
      const job = open.get(request)!;
      job.ids += ids.length;
      if (finish === null) continue;
      if (finish === 'length') expect(job.ids).toBe(job.wanted);
      else expect(['stop', 'cancelled'], String(error)).toContain(finish);
      open.delete(request);
      finished++;
    }
  });
  const { core } = host;
  const samples: { heap: number; device: DeviceStats }[] = [];
  let id = 0;
  while (core.stats().steps < steps) {
    while (open.size < ROWS + 2) {
      const wanted = 1 + Math.floor(random() * 60);
      const ids = Int32Array.from(prompt(random, 1 + Math.floor(random() * longest)));
      const sampling = resolveSampling({
        maxTokens: wanted,
        temperature: random() < 0.5 ? 0 : 1,
        seed: id,
      });
      open.set(++id, { ids: 0, wanted });
      core.add({ id, prompt: ids, sampling, rules: NO_RULES, continuation: true, receivedAt: 0 });
      if (random() < 0.1) setTimeout((victim: number) => core.cancel(victim), 2, id);
    }
    await new Promise((resolve) => setTimeout(resolve, 1));
    const stats = core.stats();
    if (stats.steps < (steps / 8) * (samples.length + 1)) continue;
    samples.push({ heap: heapUsed(), device: { ...stats.device, peakBytes: 0 } });
  }
  expect(finished).toBeGreaterThan(steps / 50);
  const [{ device: first }] = samples as [(typeof samples)[number]];
  for (const { device: later } of samples) {
    const made = later.buffers - first.buffers;
    expect(made).toBeLessThanOrEqual(lists);
    expect(later).toEqual(made === 0 ? first : { ...first, buffers: later.buffers, bytes: later.bytes });
    expect(later.bytes - first.bytes).toBeLessThanOrEqual(made * LIST_BYTES);
  }
  const stats = core.stats();
  const { buffers, bytes } = device.stats();
  await host.close(false);
  // Program and pool gave back what was theirs.
  expect(device.stats().buffers).toBeLessThan(buffers);
  expect(device.stats().bytes).toBeLessThan(bytes);
  return { heaps: samples.map(({ heap }) => heap), stats };
}
