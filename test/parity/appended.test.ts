/**
 * The tiny checkpoints decoded row by row on a device that does rope and append in the product of q, k and v, and on one that binds
 * too few buffers for that: the tokens of transformers and mlx from both, and the same ones.
 */
import { join } from 'node:path';
import { describe, expect, it, vi } from 'vitest';
import type { Device } from '../../src/device/device.js';
import type { KvFormat } from '../../src/device/kv.js';
import type { WebGpuDevice } from '../../src/device/webgpu/device.js';
import type { WebGpuProgram } from '../../src/device/webgpu/program.js';
import { devices, narrowSubgroups } from '../devices/devices.js';
import { casesOf } from '../setup/every-case.js';
import { openTestDevice } from '../setup/swiftshader.js';
import {
  type Continuation,
  decidedTokens,
  expectedCases,
  largestDifference,
  loadFolder,
  MODEL_FIXTURES,
  Runner,
} from './runner.js';

const here =
  narrowSubgroups.length > 0 ? narrowSubgroups : devices.filter((d) => d.name === 'webgpu default');
const minLanes = 4;
/** What WebGPU promises. */
const FEW_BUFFERS = { maxStorageBuffersPerShaderStage: 8 };
const F16: KvFormat = { kind: 'float', dtype: 'f16' };
const F32: KvFormat = { kind: 'float', dtype: 'f32' };

/** Labels of the launches of one row, as the device compiles its first program. */
function watched(device: Device): string[] {
  const labels: string[] = [];
  const compile = device.compile.bind(device);
  vi.spyOn(device, 'compile').mockImplementation(async (...args) => {
    const program = await compile(...args);
    labels.push(...(program as WebGpuProgram).describe(1, 1));
    return program;
  });
  return labels;
}

describe.each(here)('one row on $name', () => {
  it.each(
    casesOf<[string, KvFormat]>(
      // Norms of heads and another table; a bias; a window; weights of 3 bits.
      [
        ['qwen3-untied-yarn', F32],
        ['qwen2-bias', F16],
        ['mistral-window', F32],
        ['mlx-llama-3bit', F16],
      ],
      [
        ['qwen3-tied', F16],
        ['mlx-qwen3-4bit', F16],
        ['llama-yarn-mscale', F16],
      ],
    ),
  )('%s', async (name, format) => {
    const run = async (device: WebGpuDevice, appends: boolean): Promise<Continuation[]> => {
      const labels = watched(device);
      const model = await loadFolder(join(MODEL_FIXTURES, name), device, { kvFormat: format });
      await using runner = await Runner.create(device, model, { context: 128, chunk: 64 });
      expect(labels.some((label) => label.startsWith('q k v appended'))).toBe(appends);
      expect(labels.some((label) => label.startsWith('rope-append'))).toBe(!appends);
      const results: Continuation[] = [];
      for (const { prompt, greedy } of expectedCases(name))
        results.push(await runner.generate(prompt, greedy.length));
      return results;
    };
    const { device } = await openTestDevice({ minLanes });
    await using appending = device;
    const { device: other } = await openTestDevice({ minLanes }, FEW_BUFFERS);
    await using apart = other;
    const [got, wanted] = [await run(appending, true), await run(apart, false)];
    expectedCases(name).forEach(({ greedy, margins }, i) => {
      expect(got[i]!.tokens).toEqual(wanted[i]!.tokens);
      const decided = decidedTokens(greedy, margins, 0.1);
      expect(got[i]!.tokens.slice(0, decided.length)).toEqual(decided);
      for (const [t, logits] of got[i]!.logits.entries())
        expect(largestDifference(logits, wanted[i]!.logits[t]!), `token ${t}`).toBeLessThan(0.02);
    });
  });
});
