import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Device } from '../../src/device/device.js';
import { type AttentionCase, AttentionBench as Bench } from './attention-bench.js';
import { attentionCheckBound as bound } from './attention-check.js';
import { kernelDevices } from './devices.js';
import { affine, F16, F32, turbo } from './kv-cases.js';
import { Random, worstRow } from './numbers.js';

/** Contexts on both sides of a split, and rows of several splits beside short ones. */
const STEPS: readonly (readonly [slots: number[], lengths: number[]])[] = [
  [
    [0, 1],
    [200, 5],
  ],
  [
    [0, 1],
    [100, 3],
  ],
  [[0], [256]],
  [
    [1, 0],
    [1, 1],
  ],
];

const SHORT: typeof STEPS = [
  [
    [0, 1],
    [20, 5],
  ],
  [
    [1, 0],
    [1, 1],
  ],
];

describe.each(kernelDevices)('centres of keys on $name', (spec) => {
  let device: Device;
  beforeAll(async () => {
    device = await spec.create();
  });
  afterAll(async () => {
    await device[Symbol.asyncDispose]();
  });

  const cases: AttentionCase[] = [
    { heads: 4, kvHeads: 2, headDim: 64, key: F32, value: F32 },
    { heads: 6, kvHeads: 2, headDim: 32, key: F16, value: F32, rope: 'interleaved', norm: true },
    { heads: 4, kvHeads: 4, headDim: 64, key: F32, value: turbo(4), ropeDims: 32, softcap: 5 },
    { heads: 4, kvHeads: 1, headDim: 64, key: affine(8), value: affine(8), growth: { beta: 0.3, every: 64 } },
    { heads: 4, kvHeads: 2, headDim: 64, key: turbo(8), value: turbo(8), softcap: 20 },
  ];

  it('scores are those of the keys with the mean, in every split', async () => {
    for (const c of spec.slow ? cases.slice(1, 4) : cases) {
      const turns = device.info.keyCentres === 'turning';
      // A centre that is the same everywhere moves all scores of a row alike: a soft cap would see that.
      const centre = turns ? 'turning' : 'flat';
      if (!turns && c.softcap !== undefined) continue;
      const bench = await Bench.open(device, { ...c, centre }, 11);
      const width = c.heads * c.headDim;
      const most = c.key === F32 || c.key === F16 ? bound(spec, c.key) : 2e-2;
      try {
        for (const [slots, lengths] of spec.slow ? SHORT : STEPS) {
          const { out, expected, q, expectedQ, rows } = await bench.step(slots, lengths);
          const where = `${JSON.stringify(c)} ${lengths}`;
          expect(worstRow(q, expectedQ, rows, width), `q of ${where}`).toBeLessThan(bound(spec, F32));
          expect(worstRow(out, expected, rows, width), where).toBeLessThan(most);
        }
      } finally {
        await bench.close();
      }
    }
  });

  it('a row has the same bits alone and in company, and however it came', async () => {
    if (!spec.bitwise) return;
    const c = { heads: 4, kvHeads: 2, headDim: 64, key: turbo(4), value: turbo(4) };
    const width = (c.heads + 2 * c.kvHeads) * c.headDim;
    const centre = device.info.keyCentres ?? 'flat';
    const rows = new Random(5).normals(300 * width);
    const other = new Random(6).normals(40 * width);
    const alone = await Bench.open(device, { ...c, centre }, 3);
    const beside = await Bench.open(device, { ...c, centre }, 3);
    try {
      await alone.step([0], [150], rows.subarray(0, 150 * width));
      const want = await alone.step([0], [150], rows.subarray(150 * width));
      await beside.step([0], [200], rows.subarray(0, 200 * width));
      const both = Float32Array.from([...other, ...rows.subarray(200 * width)]);
      const got = await beside.step([1, 0], [40, 100], both);
      const size = c.heads * c.headDim;
      expect(got.out.subarray(40 * size)).toEqual(want.out.subarray(50 * size));
    } finally {
      await alone.close();
      await beside.close();
    }
  });
});
