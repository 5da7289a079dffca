/** In a file of its own, for a GPU compiles for minutes here: files are tested side by side. */
import { afterAll, beforeAll, describe, it } from 'vitest';
import type { Device } from '../../src/device/device.js';
import { AWKWARD, checkAttention } from './attention-check.js';
import { grid, kernelDevices } from './devices.js';
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
    const points = grid({ gqa: [1, 2, 4, 8], kvHeads: [1, 2], format: [F32, F16] }, spec.slow);
    for (const { gqa, kvHeads, format } of points) {
      await checkAttention(
        device,
        spec,
        { heads: gqa * kvHeads, kvHeads, headDim, key: format, value: format },
        AWKWARD,
      );
    }
  });
});
