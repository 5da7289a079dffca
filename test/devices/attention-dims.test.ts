/** In a file of its own, for a GPU compiles for minutes here: files are tested side by side. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Device } from '../../src/device/device.js';
import { everyCase } from '../setup/every-case.js';
import { AWKWARD, checkAttention } from './attention-check.js';
import { grid, inPairs, kernelDevices } from './devices.js';
import { F16, F32 } from './kv-cases.js';

describe.each(kernelDevices)('attention on $name', (spec) => {
  let device: Device;
  beforeAll(async () => {
    device = await spec.create();
  });
  afterAll(async () => {
    await device[Symbol.asyncDispose]();
  });

  it.each([64, 80, 96, 128, 256])('head_dim %i, every GQA ratio and float format', async (headDim) => {
    // Of the CPU's devices, which walk the same cases, one takes all.
    const pairs = inPairs(spec) || (!everyCase && spec.name === 'cpu reference');
    const points = grid({ gqa: [1, 2, 4, 8], kvHeads: [1, 2], format: [F32, F16] }, pairs);
    for (const { gqa, kvHeads, format } of points) {
      await checkAttention(
        device,
        spec,
        { heads: gqa * kvHeads, kvHeads, headDim, key: format, value: format },
        AWKWARD,
      );
    }
  });

  it('head_dim 512, as layers of Gemma 4 that see all have it', async () => {
    const base = { heads: 4, kvHeads: 1, headDim: 512, norm: true };
    const steps = AWKWARD.slice(0, spec.slow ? 2 : 4);
    await checkAttention(device, spec, { ...base, key: F16, value: F16 }, steps);
    if (!spec.slow) await checkAttention(device, spec, { ...base, key: F32, value: F32, window: 33 }, steps);
    const wide = { kvHeads: 1, headDim: 512, group: 0 };
    const codes = { kind: 'affine', bits: 4, groupSize: 64 } as const;
    const sizes = { blocks: 2, blockTokens: 16, slots: 1, maxBlocksPerSlot: 2 };
    expect(() => device.createKvPool({ ...sizes, layers: [{ ...wide, key: codes, value: codes }] })).toThrow(
      /512/,
    );
  });
});
