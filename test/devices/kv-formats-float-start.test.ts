import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Device } from '../../src/device/device.js';
import { type KvFormat, kvFormatName } from '../../src/device/kv.js';
import { type AttentionCase, AttentionBench as Bench } from './attention-bench.js';
import { kernelDevices } from './devices.js';
import { affine, attentionBound, F16, F32, turbo } from './kv-cases.js';
import { Random, roundF16, worstRow } from './numbers.js';

const PAIRS: readonly (readonly [key: KvFormat, value: KvFormat])[] = [
  [affine(8), affine(8)],
  [affine(4), affine(3)],
  [turbo(3), turbo(4)],
  [turbo(8), F16],
  [F32, affine(5)],
];

describe.each(kernelDevices)('float-start blocks on $name', (spec) => {
  let device: Device;
  beforeAll(async () => {
    device = await spec.create();
  });
  afterAll(async () => {
    await device[Symbol.asyncDispose]();
  });

  it.each(['f16', 'f32'] as const)(
    '%s rows decode beside quantised ones, and are converted',
    async (dtype) => {
      for (const [key, value] of spec.slow ? PAIRS.slice(1, 3) : PAIRS) {
        const c: AttentionCase = {
          heads: 6,
          kvHeads: 3,
          headDim: 80,
          rope: null,
          key,
          value,
          floatStart: { dtype, slots: [1, 2, 5] },
        };
        const bench = await Bench.open(device, c, 8);
        const step = async (slots: number[], lengths: number[]): Promise<void> => {
          const { out, expected, rows } = await bench.step(slots, lengths);
          const where = `${kvFormatName(key)}/${kvFormatName(value)} slots ${slots} lengths ${lengths}`;
          // f16 keys of the float path are held to their own bound.
          expect(worstRow(out, expected, rows, c.heads * c.headDim), where).toBeLessThan(
            attentionBound(spec),
          );
        };
        await step([0, 1, 2], [20, 33, 17]);
        await step([0, 1, 2], [1, 1, 1]);
        await bench.convert(1);
        await step([2, 0, 1], [1, 1, 1]);
        await step([1, 2, 0], [30, 1, 1]);
        await bench.convert(2);
        await step([0, 1, 2, 5], [1, 1, 1, 40]);
        await step([5, 2, 0], [1, 9, 1]);
        await bench.close();
      }
    },
  );

  it('a converted sequence is one whose rounded vectors were stored at once', async () => {
    for (const [key, value] of spec.slow ? PAIRS.slice(2, 3) : PAIRS) {
      const c: AttentionCase = {
        heads: 4,
        kvHeads: 2,
        headDim: 64,
        rope: null,
        key,
        value,
        floatStart: { dtype: 'f16', slots: [1] },
      };
      const bench = await Bench.open(device, c, 8);
      const width = (c.heads + 2 * c.kvHeads) * c.headDim;
      const row = c.heads * c.headDim;
      const data = new Random(5).normals(45 * width);
      await bench.step([1], [45], data);
      await bench.step([0], [45], data.map(roundF16));
      await bench.convert(1);
      const next = new Random(6).normals(width);
      const { out } = await bench.step([0, 1], [1, 1], Float32Array.from([...next, ...next]));
      if (spec.bitwise) expect(out.subarray(row)).toEqual(out.subarray(0, row));
      else
        expect(worstRow(out.subarray(row), out.subarray(0, row), 1, row)).toBeLessThan(attentionBound(spec));
      await bench.close();
    }
  });

  it('refuses to convert what is not float-start, or to what is', async () => {
    const pool = device.createKvPool({
      layers: [{ kvHeads: 2, headDim: 64, key: affine(4), value: affine(4), group: 0 }],
      blocks: 4,
      floatStart: { blocks: 2, dtype: 'f16' },
      blockTokens: 16,
      slots: 1,
      maxBlocksPerSlot: 4,
    });
    const code = { code: 'bad-block-table' };
    await expect(pool.convert(Uint32Array.of(3), Uint32Array.of(0))).rejects.toMatchObject(code);
    await expect(pool.convert(Uint32Array.of(6), Uint32Array.of(0))).rejects.toMatchObject(code);
    await expect(pool.convert(Uint32Array.of(4), Uint32Array.of(4))).rejects.toMatchObject(code);
    await expect(pool.convert(Uint32Array.of(4, 5), Uint32Array.of(0))).rejects.toMatchObject(code);
    await pool.convert(Uint32Array.of(4, 5), Uint32Array.of(1, 0));
    pool.dispose();
  });
});
