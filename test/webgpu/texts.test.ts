/**
 * What a large GPU would be given to compile is WGSL, and within its rules for matrices: kernels of halves and of subgroup
 * matrices run nowhere but on a GPU, and a text that is none should not have to wait for one.
 */
import { describe, expect, it } from 'vitest';
import { createNullGpu } from '../../bench/null-gpu.mjs';
import type { KvFormat } from '../../src/device/kv.js';
import { createWebGpuDevice } from '../../src/device/webgpu/index.js';
import { parseModelConfig } from '../../src/models/families.js';
import type { ModelDefinition } from '../../src/models/family.js';
import { loadModel } from '../../src/models/load.js';
import { RandomWeights, shapeFields, shapeModel } from '../../src/models/shapes.js';
import { affine, F16, turbo } from '../devices/kv-cases.js';

interface Wanted {
  readonly formats: (layer: number) => { readonly key?: KvFormat; readonly value?: KvFormat };
  readonly floatStart: { readonly blocks: number; readonly dtype: 'f16' } | null;
  /** Steps of so many tokens. */
  readonly steps: readonly number[];
}

/** All texts that a model's program is made of, and what is wrong with one. */
async function textsOf(definition: ModelDefinition, { formats, floatStart, steps }: Wanted) {
  const texts = new Set<string>();
  let raw: GPUDevice | undefined;
  const gpu = createNullGpu({
    onDevice: (made) => {
      raw = made;
    },
    onText: (text) => texts.add(text),
  });
  const device = await createWebGpuDevice({ gpu });
  const model = await loadModel(new RandomWeights(), definition, device, { kvFormat: F16, maxContext: 4096 });
  const pool = device.createKvPool({
    layers: model.kvLayers.map((layer, i) => ({ ...layer, ...formats(i) })),
    blocks: 64,
    blockTokens: 32,
    slots: 32,
    maxBlocksPerSlot: 128,
    floatStart,
  });
  const limits = { maxTokens: 512, maxOutputs: 32, maxSequences: 32, maxContext: 4096, inFlight: 2 };
  const program = await device.compile(model.buildGraph().graph, limits, pool);
  for (const tokens of steps) await program.prepare(tokens, Math.min(tokens, 32));
  // The device under it takes texts as they are.
  const { createShaderModule } = Object.getPrototypeOf(raw) as GPUDevice;
  const errorsOf = async (text: string): Promise<string[]> => {
    raw!.pushErrorScope('validation');
    const { messages } = await createShaderModule.call(raw!, { code: text }).getCompilationInfo();
    await raw!.popErrorScope();
    return messages.filter(({ type }) => type === 'error').map(({ message }) => message);
  };
  return { all: [...texts], errorsOf, close: () => device[Symbol.asyncDispose]() };
}

describe('the texts of all kernels of a model', () => {
  it.each([
    ['f16', F16, F16],
    ['affine 4', affine(4), affine(4)],
    ['affine 8', affine(8), affine(8)],
    ['TurboQuant 3.5, and float-start rows', turbo(3), turbo(4)],
  ])('compile as far as anything but a driver can say: %s', async (name, key, value) => {
    const floatStart = name.includes('floatStart') ? { blocks: 64, dtype: 'f16' as const } : null;
    const { all, close, errorsOf } = await textsOf(shapeModel('qwen3-0.6b', { vocab: 4096 }), {
      formats: (layer) => (layer === 0 ? {} : { key, value }),
      floatStart,
      steps: [1, 2, 4, 8, 16, 32, 64, 128, 256, 512],
    });
    expect(all.filter((text) => text.includes('subgroupMatrixMultiply')).length).toBeGreaterThan(10);
    expect(all.some((text) => /scratchHanded\[.*\] = halves_/.test(text))).toBe(true);
    expect(all.some((text) => text.includes('var<workgroup> tiles:'))).toBe(true);
    expect(all.some((text) => text.includes('subgroupShuffle(sum0'))).toBe(name === 'affine 8');
    for (const text of all) expect(await errorsOf(text), text.slice(0, 2000)).toEqual([]);
    await close();
  });

  it('compile where products are large: bytes of x, and norms, made in a launch or handed on', async () => {
    const fields = { ...shapeFields('llama-8b', { vocab: 4096 }), num_hidden_layers: 1 };
    const { all, close, errorsOf } = await textsOf(parseModelConfig(fields, 'a layer'), {
      formats: () => ({}),
      floatStart: null,
      steps: [1, 2, 4, 8, 32],
    });
    const dots = all.filter((text) => text.includes('dot4I8Packed'));
    expect(dots.length).toBeGreaterThan(8);
    expect(dots.filter((text) => /scratchHanded\[.*\] = bytes_/.test(text))).toHaveLength(3);
    // And what merges attention, of 2, 4 and 8 rows.
    const merges = all.filter((text) => text.includes('scratchTops'));
    expect(merges.filter((text) => /scratchHanded\[.*\] = bytes_/.test(text))).toHaveLength(3);
    // Rows that as many threads norm as have a vector of them: behind the output projection.
    expect(all.filter((text) => /scratchSplitK[\s\S]*scratchHalves\[.*\] = halves_/.test(text))).toHaveLength(
      1,
    );
    expect(all.some((text) => text.includes('var<workgroup> dots: array<f32, 1024>'))).toBe(true);
    for (const text of all) expect(await errorsOf(text), text.slice(0, 2000)).toEqual([]);
    await close();
  });

  it.each([
    ['f16', F16],
    ['affine 8', affine(8)],
    ['affine 6', affine(6)],
  ])('compile where attention is latent: %s', async (_, format) => {
    const fields = { ...shapeFields('glm-4.7-flash', { vocab: 4096 }), num_hidden_layers: 1 };
    const { all, close, errorsOf } = await textsOf(parseModelConfig(fields, 'a layer'), {
      formats: () => ({ key: format, value: format }),
      floatStart: null,
      steps: [1, 32, 512],
    });
    const latents = all.filter((text) => text.includes('total_tops') || text.includes('scratchTops[item_at'));
    expect(latents.filter((text) => text.includes('subgroupMatrixMultiply'))).toHaveLength(2);
    // Products of heads, before and behind, for each of the steps.
    expect(all.filter((text) => text.includes('head_x'))).toHaveLength(6);
    for (const text of all) expect(await errorsOf(text), text.slice(0, 2000)).toEqual([]);
    await close();
  });
});
