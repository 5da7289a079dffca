/**
 * Promise 3 on the devices: short steps of a tiny model, with rows that join, leave and are cancelled, leave
 * buffers, bytes, plans and the heap as they were. 40,000 steps; 300 where the GPU is one in software.
 */
import { describe, it } from 'vitest';
import { devices } from '../devices/devices.js';
import { randomPrompt } from '../engine/core-harness.js';
import { expectFlat } from './heap.js';
import { walk } from './walk.js';

const SOAKED = ['cpu relaxed', 'webgpu default'];

describe.each(devices.filter((spec) => SOAKED.includes(spec.name)))('$name', (spec) => {
  const steps = spec.slow ? 300 : 40_000;

  it(`${steps} steps leave buffers, bytes, plans and the heap flat`, { timeout: 300_000 }, async () => {
    const { heaps } = await walk(await spec.create(true), {}, { steps, prompt: randomPrompt });
    // The compiler keeps something in each of the first 20,000 steps' windows. A promise or a closure kept for each
    // step is 320 kB or more in 5,000.
    expectFlat(heaps, 64_000);
  });
});
