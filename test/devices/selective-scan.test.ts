import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Device } from '../../src/device/device.js';
import { type DeviceSpec, kernelDevices } from './devices.js';
import { Random } from './numbers.js';
import { expectScan, RecurrentBench } from './recurrent-bench.js';
import * as recurrent from './recurrent-reference.js';
import { vectorSource } from './sources.js';

/** As Granite 4 and Nemotron-H have it, and sizes that pieces of work do not divide. */
const CASES = [
  { name: 'wide states', groups: 1, heads: 2, rows: 128, cols: 32, conv: null, limits: [0, Infinity] },
  { name: 'groups behind a convolution', groups: 2, heads: 6, rows: 16, cols: 24, conv: 3, limits: [0.3, 2] },
  { name: 'rows of no four parts', groups: 1, heads: 3, rows: 20, cols: 4, conv: null, limits: [0, 0.5] },
] as const;

describe.each(kernelDevices)('selective scan on $name', (spec: DeviceSpec) => {
  let device: Device;
  beforeAll(async () => {
    device = await spec.create();
  });
  afterAll(async () => {
    await device[Symbol.asyncDispose]();
  });

  it.each(CASES)('with $name', async ({ groups, heads, rows, cols, conv, limits }) => {
    const random = new Random(rows);
    // Some heads forget at once, some hardly.
    const decay = Float32Array.from({ length: 3 * heads }, (_, i) =>
      i < heads ? -Math.exp(2 * random.normal() - 1) : random.normal(),
    );
    const vector = await device.loadVector(vectorSource(decay));
    const width = heads * cols + 2 * groups * rows;
    const shape = {
      conv: conv === null ? null : { channels: 8, taps: conv },
      matrix: { heads, rows, cols },
    };
    // Steps stand among other columns.
    const [stepsFrom, behind] = [3, 2];
    const beside = stepsFrom + heads + behind;
    const sizes = { groups, heads, rows, cols, limits, stepsFrom };
    await using bench = await RecurrentBench.create(device, shape, [width, beside], (ops, [x, steps]) =>
      ops.selectiveScan(x!, steps!, { layer: 1, ...sizes, decay: vector }),
    );
    await expectScan(bench, random, width + beside, 1e-4, (own) => {
      const steps = own.map((row) => row.subarray(width + stepsFrom));
      return recurrent.selectiveScan(own, steps, { ...sizes, decay });
    });
  });

  it('refuses a layer without such a state, and shapes that do not fit', async () => {
    const decay = await device.loadVector(vectorSource(new Float32Array(6)));
    const shape = { conv: null, matrix: { heads: 2, rows: 8, cols: 4 } };
    const make = (layer: number, more: object): Promise<RecurrentBench> =>
      RecurrentBench.create(device, shape, [24, 2], (ops, [x, steps]) => {
        const sizes = { groups: 1, heads: 2, rows: 8, cols: 4, limits: [0, 1] as const };
        return ops.selectiveScan(x!, steps!, { layer, ...sizes, decay, ...more });
      });
    await (await make(1, {}))[Symbol.asyncDispose]();
    const wrong = { code: 'shape-mismatch' };
    await expect(make(2, {})).rejects.toMatchObject(wrong);
    await expect(make(1, { rows: 4, cols: 8 })).rejects.toMatchObject(wrong);
    await expect(make(1, { heads: 4, cols: 2 })).rejects.toMatchObject(wrong);
    await expect(make(1, { limits: [2, 1] })).rejects.toMatchObject(wrong);
  });
});
