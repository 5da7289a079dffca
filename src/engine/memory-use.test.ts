import { describe, expect, it } from 'vitest';
import { estimateActivations, memoryUse, memoryWarning } from './memory-use.js';

describe('memoryUse', () => {
  const measured = { weights: 500, total: 960, caches: [300, 100], floatStart: 20, deviceBytes: 1000 };

  it('takes the rest for activations', () => {
    expect(memoryUse(measured)).toEqual({
      deviceBytes: 1000,
      weights: 500,
      caches: [300, 100],
      floatStart: 20,
      activations: 40,
      total: 960,
    });
    expect(memoryUse({ ...measured, deviceBytes: undefined }).deviceBytes).toBeNull();
  });

  it('warns where the device is nearly full, with the flag that helps most', () => {
    const warned = memoryWarning(memoryUse(measured), false);
    expect(warned).toMatchObject({ level: 'warn', fields: { share: 0.96, total: 960 } });
    expect(warned!.fields!.fix).toContain('--quantize');
    expect(memoryWarning(memoryUse(measured), true)!.fields!.fix).toContain('--kv-memory');
    expect(memoryWarning(memoryUse({ ...measured, weights: 300 }), false)!.fields!.fix).toContain(
      '--kv-bits',
    );
  });

  it('is silent where there is room, and where the device does not say what it has', () => {
    expect(memoryWarning(memoryUse({ ...measured, deviceBytes: 1067 }), false)).toBeNull();
    expect(memoryWarning(memoryUse({ ...measured, deviceBytes: undefined }), false)).toBeNull();
  });
});

describe('estimateActivations', () => {
  it('counts rows of a layer and of logits', () => {
    const model = {
      hiddenSize: 384,
      intermediateSize: 1024,
      heads: 4,
      kvHeads: 2,
      headDim: 128,
      vocabSize: 4096,
    };
    // Residual and its copy; gate, up and what they become.
    expect(estimateActivations(model, 256, 8)).toBe(4 * (256 * (768 + 3072) + 8 * 4096));
    // Wide heads: queries, keys, values, and what attention gives.
    expect(estimateActivations({ ...model, headDim: 512 }, 1, 0)).toBe(4 * (768 + 12 * 512));
  });
});
