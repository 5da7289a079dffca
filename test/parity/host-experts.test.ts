/**
 * Experts in host memory: a GPU computes the rest of a model, the CPU beside it the experts of its first layers. Logits as transformers and
 * mlx have them, within the bound of devices.test.ts, for every way to store, choose and weigh experts.
 */

import { join } from 'node:path';
import { describe, expect, it, vi } from 'vitest';
import { createCpuDevice } from '../../src/device/cpu/index.js';
import type { Device } from '../../src/device/device.js';
import { StepInputs } from '../../src/device/step.js';
import { defaultKvFormat } from '../../src/kv/policy.js';
import { loadModel, type Model } from '../../src/models/load.js';
import { openModel } from '../../src/models/open.js';
import { type DeviceSpec, devices } from '../devices/devices.js';
import { everyCase } from '../setup/every-case.js';
import { decidedTokens, expectedCases, largestDifference, MODEL_FIXTURES, Runner } from './runner.js';

vi.setConfig({ testTimeout: 240_000 });

/** The experts of all layers stay in host memory, of the first model those of one. */
const FEW = ['qwen3-moe', 'gpt-oss-mxfp4', 'gemma4-moe', 'mlx-qwen3-moe', 'deepseek-v3'];
const MORE = [
  'mixtral',
  'qwen2-moe',
  'qwen3.5-moe',
  'qwen3-next',
  'gpt-oss',
  'glm4-moe',
  'glm4-moe-lite',
  'deepseek-v2',
  'lfm2-moe',
  'ernie4_5-moe',
  'hunyuan-moe',
  'minimax-m2',
  'granite4-h',
  'nemotron-h-moe',
  'mistral4',
  'mlx-mixtral',
  'mlx-qwen2-moe',
  'mlx-glm4-moe',
  'mlx-minimax-m2',
];

const gpus = devices.filter(({ kind, precision }) => kind === 'webgpu' && precision === 'reference');

/** The device, with a CPU beside it. */
async function beside(spec: DeviceSpec): Promise<Device> {
  const { precision } = spec;
  return spec.create(false, await createCpuDevice({ precision, threads: 2 }));
}

async function load(name: string, device: Device, layers: number | 'all'): Promise<Model> {
  await using opened = await openModel(join(MODEL_FIXTURES, name));
  const { source, definition } = opened;
  const cpuExperts = layers === 'all' ? definition.facts.layers : layers;
  return await loadModel(source, definition, device, { cpuExperts, kvFormat: defaultKvFormat(device.info) });
}

describe.each(gpus)('$name with a CPU beside it', (spec) => {
  it.each(everyCase ? [...FEW, ...MORE] : FEW)('%s', async (name) => {
    await using device = await beside(spec);
    const bound = 1e-3;
    const model = await load(name, device, name === 'qwen3-moe' ? 1 : 'all');
    expect(model.hostBytes).toBeGreaterThan(0);
    expect(device.stats().hostBytes).toBeGreaterThanOrEqual(model.hostBytes);
    await using runner = await Runner.create(device, model, { context: 128, chunk: 64 });
    for (const { prompt, logits, greedy, margins } of expectedCases(name).slice(0, 2)) {
      const whole = await runner.generate(prompt, greedy.length);
      expect(largestDifference(whole.logits[0]!, logits)).toBeLessThan(bound);
      const decided = decidedTokens(greedy, margins, bound);
      expect(whole.tokens.slice(0, decided.length)).toEqual(decided);
      const cut = await runner.generate(prompt, 1, 7);
      expect(largestDifference(cut.logits[0]!, whole.logits[0]!)).toBeLessThan(bound);
    }
  });

  it('more rows than the host takes at once', async () => {
    await using device = await beside(spec);
    await using plain = await createCpuDevice({ precision: 'reference', threads: 2 });
    const prompt = Array.from({ length: 270 }, (_, i) => 3 + ((i * 7) % 50));
    const logits = async (on: Device, cpuExperts: number): Promise<Float32Array> => {
      const model = await load('qwen3-moe', on, cpuExperts);
      await using runner = await Runner.create(on, model, { context: 288, chunk: 288 });
      return (await runner.generate(prompt, 1)).logits[0]!;
    };
    const hosted = await logits(device, 2);
    expect(largestDifference(hosted, await logits(plain, 0))).toBeLessThan(1e-3);
    // The same with these experts on the device.
    expect(largestDifference(hosted, await logits(device, 0))).toBeLessThan(1e-3);
  });

  it('runs in halves as whole, and steps that are given at once one after the other', async () => {
    await using device = await beside(spec);
    const model = await load('qwen3-moe', device, 'all');
    const blocks = { blocks: 4, blockTokens: 16, slots: 1, maxBlocksPerSlot: 4 };
    const pool = device.createKvPool({ layers: model.kvLayers, ...blocks });
    pool.setBlocks(0, 0, Uint32Array.of(2, 0, 3, 1));
    const { graph } = model.buildGraph();
    const limits = { maxTokens: 8, maxOutputs: 1, maxSequences: 1, maxContext: 64, inFlight: 2 };
    const program = await device.compile(graph, limits, pool);
    const inputs = new StepInputs(8, 1, 1);
    const fill = (tokens: readonly number[], position: number): StepInputs => {
      inputs.clear();
      inputs.tokens.set(tokens);
      inputs.tokenCount = inputs.seqLength[0] = tokens.length;
      inputs.sequenceCount = inputs.outputCount = 1;
      inputs.seqPosition[0] = position;
      inputs.outputs[0] = tokens.length - 1;
      return inputs;
    };
    const prompt = [5, 9, 12, 7, 3];
    const whole: number[] = [];
    for (let i = 0; i < 6; i++) {
      const step = i === 0 ? fill(prompt, 0) : fill([-1], prompt.length + i - 1);
      whole.push((await program.submit(step)).ids[0]!);
    }
    const halves: number[] = [];
    for (let i = 0; i < 6; i++) {
      program.forward(i === 0 ? fill(prompt, 0) : fill([-1], prompt.length + i - 1));
      if (i % 2 === 0) await program.computed();
      halves.push((await program.sample(inputs)).ids[0]!);
    }
    expect(halves).toEqual(whole);
    const pairs: number[] = [];
    for (let i = 0; i < 6; i += 2) {
      const first = program.submit(i === 0 ? fill(prompt, 0) : fill([-1], prompt.length + i - 1));
      // It reads what the one before drew.
      const second = program.submit(fill([-1], prompt.length + i));
      // Behind both: what it copies is what they left.
      const moved = pool.copy(Uint32Array.of(2), Uint32Array.of(1));
      for (const { ids } of await Promise.all([first, second])) pairs.push(ids[0]!);
      await moved;
    }
    expect(pairs).toEqual(whole);
    const [own, copy] = await pool.read(Uint32Array.of(2, 1));
    expect(copy).toEqual(own);
    await program.dispose();
    pool.dispose();
  });

  it('refuses what makes no sense', async () => {
    await using device = await beside(spec);
    const refused = { code: 'invalid-option', where: 'cpuExperts' };
    await expect(load('qwen3-moe', device, 99)).rejects.toMatchObject({
      ...refused,
      message: expect.stringContaining('layers'),
    });
    await expect(load('qwen3-tied', device, 1)).rejects.toMatchObject({
      ...refused,
      message: expect.stringContaining('no experts'),
    });
    // Its first layer is dense.
    await expect(load('deepseek-v3', device, 1)).rejects.toMatchObject({
      ...refused,
      message: expect.stringContaining('first layer with experts is layer 2'),
    });
  });
});

it.each(devices)('$name alone refuses them', async (spec) => {
  await using device = await spec.create();
  await expect(load('qwen3-moe', device, 1)).rejects.toMatchObject({
    code: 'invalid-option',
    where: 'cpuExperts',
  });
});
