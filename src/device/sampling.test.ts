import { describe, expect, it } from 'vitest';
import { ALL_FEATURES, FEATURE, requireFeatures } from './sampling.js';
import { SAMPLING_FIELDS, SamplingInputs, samplingField } from './sampling-inputs.js';

describe('the sampler contract', () => {
  it('keeps columns in the order of the list, and clears a row to what is off', () => {
    const inputs = new SamplingInputs(3);
    expect(inputs.columns).toHaveLength(SAMPLING_FIELDS.length);
    SAMPLING_FIELDS.forEach(([name, type], i) => {
      const column = inputs[name];
      expect(inputs.columns[i], name).toBe(column);
      expect(column instanceof Float32Array ? 'f32' : 'u32', name).toBe(type);
      expect(samplingField(name)).toBe(i);
    });
    const fresh = inputs.columns.map((column) => column[1]);
    for (const column of inputs.columns) column[1] = 5;
    inputs.clearRow(1);
    expect(inputs.columns.map((column) => column[1])).toEqual(fresh);
    expect([inputs.topP[1], inputs.typicalP[1], inputs.repetitionPenalty[1], inputs.features[1]]).toEqual([
      1, 1, 1, 0,
    ]);
  });

  it('gives every feature a bit of its own', () => {
    const bits = Object.values(FEATURE);
    expect(new Set(bits).size).toBe(bits.length);
    expect(bits.reduce<number>((all, bit) => all | bit, 0)).toBe(ALL_FEATURES);
  });

  it('refuses features by name', () => {
    expect(() => requireFeatures(FEATURE.DRY | FEATURE.XTC, ALL_FEATURES, 'CPU')).not.toThrow();
    expect(() => requireFeatures(FEATURE.DRY | FEATURE.XTC, FEATURE.XTC, 'CPU')).toThrowError(
      expect.objectContaining({
        code: 'sampling-unsupported',
        message: 'The CPU device has no kernels for dry.',
      }),
    );
  });
});
