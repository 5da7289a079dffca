/**
 * Promise 3 for each kind of layers, on the CPU, with prefixes and snapshots kept and given up: rows that join, leave, are cancelled and begin alike
 * leave buffers, bytes and the heap as they were. 800 steps; 10,000 with KVANT_TEST_ALL, and on every device with KVANT_TEST_GPU.
 */
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { devices } from '../devices/devices.js';
import { MODEL_FIXTURES } from '../parity/runner.js';
import { everyCase } from '../setup/every-case.js';
import { expectFlat } from './heap.js';
import { walk } from './walk.js';

const KINDS = [
  ['sliding and full', 'gemma3-list'],
  ['recurrent', 'qwen3.5'],
  ['short convolution', 'lfm2'],
  ['experts', 'qwen3-moe'],
  ['sinks', 'gpt-oss'],
  ['shared keys and values', 'gemma4-shared'],
  ['latent attention', 'deepseek-v3'],
  ['composite', 'falcon-h1'],
  ['one mixer a layer', 'nemotron-h'],
] as const;

const STEPS = everyCase ? 10_000 : 800;
const soaked = devices.filter(
  ({ name, slow }) => name === 'cpu relaxed' || (name === 'webgpu default' && !slow),
);

/** Half of them begin with the same two blocks. */
function prompt(random: () => number, length: number): number[] {
  const token = (): number => 3 + Math.floor(random() * 60);
  const shared = random() < 0.5 ? Array.from({ length: 33 }, (_, i) => 3 + ((i * 7) % 60)) : [];
  return [...shared, ...Array.from({ length }, token)];
}

describe.each(soaked)('$name', (spec) => {
  it.each(KINDS)(`%s: ${STEPS} steps leave all as it was`, { timeout: 600_000 }, async (_, fixture) => {
    await using device = await spec.create(true);
    const options = {
      weights: { kind: 'folder', path: join(MODEL_FIXTURES, fixture) },
      prefixCache: true,
    } as const;
    const { heaps, stats } = await walk(device, options, { steps: STEPS, prompt, longest: 30, lists: 8 });
    expect(stats.prefixCache!.hits).toBeGreaterThan(0);
    // A promise or a closure kept for each step is 64 bytes or more: of 800 steps that is lost in what the compiler keeps.
    expectFlat(heaps, everyCase ? 64_000 : 400_000);
  });
});
