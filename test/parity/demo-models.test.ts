/**
 * The demo models that write against transformers: prompts from 5 to 2,091 tokens, the logits of the last one, the greedy
 * continuation and the log-probability of each of its tokens.
 */

import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import type { Device } from '../../src/device/device.js';
import { defaultKvFormat } from '../../src/kv/policy.js';
import { devices } from '../devices/devices.js';
import { readPacked } from '../fixtures/read-packed.js';
import { everyCase } from '../setup/every-case.js';
import { createReferenceDevice } from './reference-device.js';
import { decidedTokens, largestDifference, loadFolder, Runner } from './runner.js';

interface DemoCase {
  readonly prompt_ids: readonly number[];
  readonly continuation_ids: readonly number[];
  readonly margins: readonly number[];
  readonly logprobs: readonly number[];
  /** Ids and logits of the prompt's last token. */
  readonly top20: readonly (readonly [number, number])[];
}

interface Demo {
  readonly name: string;
  readonly folder: string;
  readonly cases: readonly DemoCase[];
  /** Largest difference of a logit in reference precision, and in the default one: weights that are codes meet int8 on the CPU. */
  readonly bounds: { readonly reference: number; readonly webgpu: number; readonly cpu: number };
}

const DEMOS: readonly Demo[] = [
  demo('demo-text', { reference: 1e-3, webgpu: 0.1, cpu: 0.1 }),
  demo('demo-hybrid', { reference: 1e-3, webgpu: 0.1, cpu: 0.5 }),
];

function demo(name: string, bounds: Demo['bounds']): Demo {
  const packed = readPacked(new URL(`../fixtures/${name}.json.br`, import.meta.url));
  const folder = fileURLToPath(new URL(`../../models/${name}/`, import.meta.url));
  return { name, folder, bounds, cases: (packed as { readonly cases: readonly DemoCase[] }).cases };
}

async function check(runner: Runner, expected: DemoCase, most: number, bound: number): Promise<void> {
  const { prompt_ids: prompt, margins, top20 } = expected;
  const decided = decidedTokens(expected.continuation_ids, margins, bound).slice(0, most);
  const { tokens, logits } = await runner.generate(prompt, Math.max(1, decided.length));
  for (const [id, logit] of top20)
    expect(Math.abs(logits[0]![id]! - logit), `logit ${id}`).toBeLessThan(bound);
  expect(tokens.slice(0, decided.length)).toEqual(decided);
  for (const [i, token] of decided.entries())
    expect(Math.abs(logProbability(logits[i]!, token) - expected.logprobs[i]!), `token ${i}`).toBeLessThan(
      2 * bound,
    );
}

function logProbability(logits: Float32Array, id: number): number {
  const max = logits.reduce((a, b) => Math.max(a, b));
  const sum = logits.reduce((total, logit) => total + Math.exp(logit - max), 0);
  return logits[id]! - max - Math.log(sum);
}

describe.each(DEMOS)('$name in float64', ({ folder, cases }) => {
  it('answers short prompts', async () => {
    await using device = createReferenceDevice();
    const model = await loadFolder(folder, device);
    await using runner = await Runner.create(device, model, { context: 128, chunk: 64 });
    for (const expected of cases.slice(0, 3)) await check(runner, expected, 3, 1e-4);
  });
});

// In software `webgpu default` has the kernels of `reference`, which is held to more.
const here = devices.filter(({ slow, name }) => everyCase || !slow || name !== 'webgpu default');

const each = DEMOS.flatMap((demo) => here.map((spec) => ({ demo, spec, model: demo.name, on: spec.name })));

describe.each(each)('$model on $on', ({ demo: { folder, cases, bounds }, spec }) => {
  if (spec.slow) vi.setConfig({ testTimeout: 240_000, hookTimeout: 240_000 });
  const bound = spec.precision === 'reference' ? bounds.reference : bounds[spec.kind];
  let device: Device;
  let runner: Runner;
  beforeAll(async () => {
    device = await spec.create();
    const model = await loadFolder(folder, device, { kvFormat: defaultKvFormat(device.info) });
    const size = spec.slow ? { context: 64, chunk: 32 } : { context: 2200, chunk: 256 };
    runner = await Runner.create(device, model, size);
  });
  afterAll(async () => {
    await runner?.[Symbol.asyncDispose]();
    await device?.[Symbol.asyncDispose]();
  });

  // A slow device takes some hundred megaflops.
  // The longest prompt is walked by two of the CPU's three.
  const some =
    everyCase || spec.name !== 'cpu simd128' ? cases : cases.filter((c) => c.prompt_ids.length < 2000);
  it.each(spec.slow ? cases.slice(0, 2) : some)('answers a prompt of $prompt_ids.length tokens', (expected) =>
    check(runner, expected, spec.slow ? 3 : 32, bound),
  );

  // Where sums may differ, the tiny checkpoints of devices.test.ts are cut, in software.
  it.each(spec.slow && !spec.bitwise ? [] : [7])(
    'answers the same when the prompt is cut elsewhere',
    async (chunk) => {
      const { prompt_ids: prompt } = spec.slow ? cases[1]! : cases.find((c) => c.prompt_ids.length === 254)!;
      const [whole] = (await runner.generate(prompt, 1)).logits as [Float32Array];
      const [cut] = (await runner.generate(prompt, 1, chunk)).logits as [Float32Array];
      if (spec.bitwise) expect(cut).toEqual(whole);
      else expect(largestDifference(cut, whole)).toBeLessThan(bound);
    },
  );
});
