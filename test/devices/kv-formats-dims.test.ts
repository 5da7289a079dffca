/** In a file of its own, for a GPU compiles for minutes here: files are tested side by side. */
import { afterAll, beforeAll, describe, it } from 'vitest';
import type { Device } from '../../src/device/device.js';
import { everyCase } from '../setup/every-case.js';
import { inPairs, kernelDevices } from './devices.js';
import { alike, FORMATS, STEPS, turbo } from './kv-cases.js';
import { checkKv } from './kv-check.js';

const DIMS = [64, 80, 96, 112, 128, 256];
/** Rotated by dense matrices. */
const DENSE = everyCase ? [144, 176, 208, 240] : [176, 240];
const BITS = [2, 3, 4, 8] as const;

describe.each(kernelDevices)('quantised KV on $name', (spec) => {
  let device: Device;
  beforeAll(async () => {
    device = await spec.create();
  });
  afterAll(async () => {
    await device[Symbol.asyncDispose]();
  });

  it.each(DIMS)('head_dim %i, every format', async (headDim) => {
    // Over all head sizes every format meets every ratio.
    const ratios = [1, 2, 4, 8];
    const formats = inPairs(spec) ? FORMATS.filter((_, i) => (i + headDim / 16) % 4 === 0) : FORMATS;
    for (const format of formats) {
      const gqa = ratios[(FORMATS.indexOf(format) + DIMS.indexOf(headDim)) % ratios.length]!;
      const kvHeads = 1 + (FORMATS.indexOf(format) % 2);
      await checkKv(
        device,
        spec,
        { heads: gqa * kvHeads, kvHeads, headDim, rope: null, ...alike(format) },
        STEPS.slice(0, 4),
      );
    }
  });

  it('head_dim 144 to 240, rotated by dense matrices', async () => {
    for (const headDim of spec.slow ? [176] : DENSE)
      for (const bits of BITS.filter((one) => everyCase || one === (headDim === 176 ? 2 : 4)))
        await checkKv(
          device,
          spec,
          { heads: 4, kvHeads: 2, headDim, rope: null, ...alike(turbo(bits)) },
          STEPS.slice(1, 3),
        );
  });
});
