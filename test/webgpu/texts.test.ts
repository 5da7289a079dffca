/**
 * What a large GPU would be given to compile is WGSL, and within its rules for matrices: kernels of halves and of subgroup
 * matrices run nowhere but on a GPU, and a text that is none should not have to wait for one.
 */
import { describe, expect, it } from 'vitest';
import { createNullGpu } from '../../bench/null-gpu.mjs';
import { createWebGpuDevice } from '../../src/device/webgpu/index.js';
import { loadModel } from '../../src/models/load.js';
import { RandomWeights, shapeConfig } from '../../src/models/shapes.js';
import { affine, F16, turbo } from '../devices/kv-cases.js';

describe('the texts of all kernels of a model', () => {
  it.each([
    ['f16', F16, F16],
    ['affine 4', affine(4), affine(4)],
    ['affine 8', affine(8), affine(8)],
    ['TurboQuant 3.5, and young rows', turbo(3), turbo(4)],
  ])('compile as far as anything but a driver can say: %s', async (name, key, value) => {
    const texts = new Set<string>();
    let raw: GPUDevice | undefined;
    const gpu = createNullGpu({
      onDevice: (made) => {
        raw = made;
      },
      onText: (text) => texts.add(text),
    });
    const device = await createWebGpuDevice({ gpu });
    const model = await loadModel(new RandomWeights(), shapeConfig('qwen3-0.6b', { vocab: 4096 }), device, {
      kvFormat: F16,
      maxContext: 4096,
    });
    const pool = device.createKvPool({
      layers: model.kvLayers.map((layer, i) => (i === 0 ? layer : { ...layer, key, value })),
      blocks: 64,
      blockTokens: 32,
      slots: 32,
      maxBlocksPerSlot: 128,
      young: name.includes('young') ? { blocks: 64, dtype: 'f16' } : null,
    });
    const limits = { maxTokens: 512, maxOutputs: 32, maxSequences: 32, maxContext: 4096, inFlight: 2 };
    const program = await device.compile(model.buildGraph().graph, limits, pool);
    for (const tokens of [1, 2, 4, 8, 16, 32, 64, 128, 256, 512])
      await program.prepare(tokens, Math.min(tokens, 32));
    const all = [...texts];
    expect(all.filter((text) => text.includes('subgroupMatrixMultiply')).length).toBeGreaterThan(10);
    expect(all.some((text) => /scratchHanded\[.*\] = halves_/.test(text))).toBe(true);
    expect(all.some((text) => text.includes('var<workgroup> tiles:'))).toBe(true);
    expect(all.some((text) => text.includes('subgroupShuffle(sum0'))).toBe(name === 'affine 8');
    // The device under it takes texts as they are.
    const { createShaderModule } = Object.getPrototypeOf(raw) as GPUDevice;
    for (const text of all) {
      raw!.pushErrorScope('validation');
      const { messages } = await createShaderModule.call(raw!, { code: text }).getCompilationInfo();
      await raw!.popErrorScope();
      const errors = messages.filter(({ type }) => type === 'error').map(({ message }) => message);
      expect(errors, text.slice(0, 2000)).toEqual([]);
    }
    await device[Symbol.asyncDispose]();
  });
});
