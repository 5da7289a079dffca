/** The first tokens of a sequence as floats, what follows quantised: attention over both, beside float64. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Device } from '../../src/device/device.js';
import { type AttentionCase, AttentionBench as Bench } from './attention-bench.js';
import { kernelDevices, narrowSubgroups } from './devices.js';
import { affine, F16, F32, turbo } from './kv-cases.js';
import { Random, worstRow } from './numbers.js';

const HALF = { dtype: 'f16', tokens: 32 } as const;
const FULL = { dtype: 'f32', tokens: 64 } as const;

/** Within the head, across its end, across a split. */
const STEPS: readonly (readonly [slots: number[], lengths: number[]])[] = [
  [
    [0, 1],
    [20, 40],
  ],
  [
    [0, 1],
    [5, 1],
  ],
  [
    [1, 0],
    [190, 60],
  ],
  [
    [0, 1],
    [1, 1],
  ],
];

const SHORT = STEPS.filter((_, i) => i !== 2);

const CASES: readonly AttentionCase[] = [
  { heads: 4, kvHeads: 2, headDim: 64, key: turbo(4), value: turbo(4), head: HALF },
  { heads: 6, kvHeads: 2, headDim: 32, key: affine(8), value: affine(8), head: FULL, blockTokens: 32 },
  { heads: 4, kvHeads: 1, headDim: 64, key: F32, value: turbo(3), head: FULL, softcap: 20 },
  { heads: 4, kvHeads: 2, headDim: 144, key: turbo(4), value: turbo(4), head: HALF, sinks: 1 },
  { heads: 4, kvHeads: 4, headDim: 48, key: affine(6), value: F16, head: HALF },
  { heads: 4, kvHeads: 2, headDim: 64, key: turbo(8), value: affine(4), head: { dtype: 'f16', tokens: 256 } },
];

it.each(kernelDevices.filter(({ kind }) => kind === 'webgpu'))(
  'a head that kernels cannot read is refused by name on $name',
  async (spec) => {
    const device = await spec.create();
    try {
      for (const c of [
        { ...CASES[0]!, head: { dtype: 'f16', tokens: 512 } as const },
        { ...CASES[2]!, head: HALF },
      ])
        await expect(Bench.open(device, c, 7)).rejects.toMatchObject({
          code: 'kv-pool-unsupported',
          where: 'kvFloatHead',
        });
    } finally {
      await device[Symbol.asyncDispose]();
    }
  },
);

describe.each([...kernelDevices, ...narrowSubgroups])('a float head on $name', (spec) => {
  let device: Device;
  beforeAll(async () => {
    device = await spec.create();
  });
  afterAll(async () => {
    await device[Symbol.asyncDispose]();
  });

  it('reads floats before its end and codes behind it', async () => {
    for (const c of spec.slow ? CASES.slice(0, 2) : CASES) {
      const kind = device.info.keyCentres;
      // Beside a sink, or under a soft cap, a score has to be exact by itself.
      const none =
        spec.slow || kind === undefined || (kind === 'flat' && (c.sinks ?? c.softcap) !== undefined);
      for (const centre of none ? [undefined] : [undefined, kind]) {
        const bench = await Bench.open(device, { ...c, ...(centre ? { centre } : {}) }, 7);
        const width = c.heads * c.headDim;
        try {
          for (const [slots, lengths] of spec.slow ? SHORT : STEPS) {
            const { out, expected, rows } = await bench.step(slots, lengths);
            const where = `${JSON.stringify(c)} ${centre} ${lengths}`;
            expect(worstRow(out, expected, rows, width), where).toBeLessThan(2e-2);
          }
        } finally {
          await bench.close();
        }
      }
    }
  });

  it('its blocks are copied, read and written with those behind it', async () => {
    const c = { heads: 4, kvHeads: 2, headDim: 64, key: turbo(4), value: affine(6), head: HALF };
    const bench = await Bench.open(device, c, 3);
    try {
      await bench.step([0], [70]);
      await bench.adopt(0, 1, (from, to) => bench.pool.copy(from, to));
      await bench.adopt(0, 2, async (from, to) => bench.pool.write(to, await bench.pool.read(from)));
      const { out, expected, rows } = await bench.step([2, 1], [1, 3]);
      expect(worstRow(out, expected, rows, c.heads * c.headDim)).toBeLessThan(2e-2);
    } finally {
      await bench.close();
    }
  });

  it('a row has the same bits however its prompt was cut, alone and in company', async () => {
    if (!spec.bitwise) return;
    const c = { heads: 4, kvHeads: 2, headDim: 64, key: turbo(4), value: turbo(3), head: HALF };
    const width = (c.heads + 2 * c.kvHeads) * c.headDim;
    const size = c.heads * c.headDim;
    const rows = new Random(5).normals(300 * width);
    const other = new Random(6).normals(40 * width);
    const alone = await Bench.open(device, c, 3);
    const beside = await Bench.open(device, c, 3);
    try {
      const begun = await alone.step([0], [250], rows.subarray(0, 250 * width));
      const ended = await alone.step([0], [50], rows.subarray(250 * width));
      const want = Float32Array.from([...begun.out, ...ended.out]);
      let at = 0;
      for (const [i, length] of [30, 7, 1, 162, 100].entries()) {
        const own = rows.subarray(at * width, (at + length) * width);
        const both = i === 4 ? Float32Array.from([...other, ...own]) : own;
        const got = await beside.step(i === 4 ? [1, 0] : [0], i === 4 ? [40, length] : [length], both);
        const mine = got.out.subarray(i === 4 ? 40 * size : 0);
        expect(mine, `tokens from ${at}`).toEqual(want.subarray(at * size, (at + length) * size));
        at += length;
      }
    } finally {
      await alone.close();
      await beside.close();
    }
  });
});
