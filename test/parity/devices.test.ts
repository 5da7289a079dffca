/**
 * The tiny checkpoints on real devices: within 1e-3 of transformers and mlx in reference mode, within the stated
 * bound on the default path, and (where a device promises it) the same bits however the prompt is cut.
 */

import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import type { Device } from '../../src/device/device.js';
import { defaultKvFormat } from '../../src/kv/policy.js';
import type { LoadModelOptions } from '../../src/models/load.js';
import { type DeviceSpec, devices } from '../devices/devices.js';
import { everyCase } from '../setup/every-case.js';
import { createReferenceDevice } from './reference-device.js';
import {
  casesByModel,
  decidedTokens,
  type ExpectedCase,
  expectedCases,
  largestDifference,
  loadFolder,
  MODEL_FIXTURES,
  Runner,
} from './runner.js';

const all = readdirSync(MODEL_FIXTURES, { withFileTypes: true })
  .filter((entry) => entry.isDirectory())
  .map((entry) => entry.name);

/** Of MLX's weights and of every third family: the formats of weights, and each op. */
const ALSO = /^mlx-(llama|qwen3)/;

/** All, but for what one device of the CPU shows for another whose code alone differs. */
function most(spec: DeviceSpec): readonly string[] {
  return everyCase || spec.name !== 'cpu simd128'
    ? all
    : all.filter((name, i) => ALSO.test(name) || (i % 3 === 0 && !name.startsWith('mlx-')));
}

/** On a slow device: one of each feature over its three modes, as compiling takes seconds. */
function few(spec: DeviceSpec): readonly string[] {
  if (spec.precision === 'reference')
    return [
      'llama-yarn-mscale',
      'mistral-window',
      'mlx-qwen3-mixed',
      'gemma2',
      'smollm3',
      'olmo2',
      'cohere2',
      'glm4',
      'glm4-moe',
      'gemma4-moe',
      'gemma4-shared',
      'gpt-oss',
      'deepseek-v3',
    ];
  return spec.bitwise
    ? ['mistral-window', 'qwen3-moe', 'lfm2', 'falcon-h1']
    : ['llama-odd-f32-sharded', 'qwen2-tied-sharded', 'qwen3.5'];
}

/**
 * How far logits (of size up to 8) may lie from the reference's. f32 throughout leaves the order of sums. f16 for KV,
 * and on a GPU for operands, and int8 activations on the CPU where weights are affine: two or three layers of
 * random weights damp none of it.
 */
function boundOf(spec: DeviceSpec, name: string): number {
  if (spec.precision === 'reference') return spec.kind === 'cpu' ? 1e-4 : 1e-3;
  return spec.kind === 'cpu' && name.startsWith('mlx-') ? 0.5 : 0.1;
}

describe.each(devices)('$name', (spec) => {
  if (spec.slow) vi.setConfig({ testTimeout: 240_000 });
  // One for all, as to start its threads takes longer than most models here. What a model leaves behind, the next one meets.
  let device: Device;
  beforeAll(async () => {
    device = await spec.create();
  });
  afterAll(async () => {
    await device?.[Symbol.asyncDispose]();
  });

  it.each(spec.slow ? few(spec) : most(spec))('%s', async (name) => {
    const bound = boundOf(spec, name);
    const kvFormat = defaultKvFormat(device.info);
    for (const { model, context, cases } of await casesByModel(name, device, { kvFormat })) {
      await using runner = await Runner.create(device, model, { context, chunk: 64 });
      for (const { prompt, logits, greedy, margins } of cases) {
        const whole = await runner.generate(prompt, greedy.length);
        expect(largestDifference(whole.logits[0]!, logits)).toBeLessThan(bound);
        const decided = decidedTokens(greedy, margins, bound);
        expect(whole.tokens.slice(0, decided.length)).toEqual(decided);

        const cut = await runner.generate(prompt, 1, 7);
        if (spec.bitwise) expect(cut.logits[0]).toEqual(whole.logits[0]);
        else expect(largestDifference(cut.logits[0]!, whole.logits[0]!)).toBeLessThan(bound);
      }
    }
  });

  // A CPU's int8 activations are imitated, so that what is left is the order of sums. K and V are f32 here: an f16
  // that is rounded to its other neighbour would be carried on as a whole step of int8.
  const imitated = { int8: spec.kind === 'cpu' && spec.precision === 'default' };
  const close = imitated.int8 || spec.precision === 'reference' ? 1e-3 : 0.1;

  async function compare(name: string, options: LoadModelOptions): Promise<void> {
    const { prompt } = expectedCases(name)[0] as ExpectedCase;
    const run = async (device: Device): Promise<Float32Array> => {
      const model = await loadFolder(join(MODEL_FIXTURES, name), device, options);
      await using runner = await Runner.create(device, model, { context: 32, chunk: 16 });
      return (await runner.generate(prompt, 1)).logits[0]!;
    };
    await using reference = createReferenceDevice(imitated);
    expect(largestDifference(await run(device), await run(reference))).toBeLessThan(close);
  }

  it.each(spec.slow ? [] : most(spec).filter((name) => name.startsWith('mlx-')))(
    '%s rounds as it says',
    (name) => compare(name, {}),
  );

  it.each(spec.slow ? ([4] as const) : ([4, 8] as const))(
    'a checkpoint quantised to %i bits on load',
    (bits) => compare('qwen3-untied-yarn', { quantize: { bits, groupSize: 32 } }),
  );
});
