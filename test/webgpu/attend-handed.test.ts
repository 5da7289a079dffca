/**
 * What attention hands to the product behind it as halves, on a GPU that multiplies halves: the bits are those of a launch
 * that makes halves of f32, whichever kernel wrote a row, and the product agrees with float64.
 */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Device } from '../../src/device/device.js';
import type { WebGpuProgram } from '../../src/device/webgpu/program.js';
import { type AttentionCase, AttentionBench as Bench } from '../devices/attention-bench.js';
import { devices } from '../devices/devices.js';
import { affine, F16, F32, turbo } from '../devices/kv-cases.js';
import { Random, worstRow } from '../devices/numbers.js';
import * as reference from '../devices/reference.js';
import { randomMatrix } from '../devices/sources.js';
import { casesOf, everyCase } from '../setup/every-case.js';

const OUT = 192;
/** Without rotation, after which a key might be stored otherwise in f32 than in float64: it is drawn for being none such. */
const shape = { heads: 8, kvHeads: 4, headDim: 64, rope: null };
const CASES: readonly AttentionCase[] = [
  { ...shape, key: F16, value: F16 },
  { ...shape, key: F16, value: F16, window: 20 },
  { ...shape, key: affine(4), value: affine(4) },
  { ...shape, key: turbo(3), value: turbo(4) },
  { ...shape, key: turbo(3), value: turbo(4), floatStart: { dtype: 'f16', slots: [1, 4] } },
  // Kernels that any device has, for tiles.
  { ...shape, key: F32, value: F32 },
  { ...shape, headDim: 80, key: turbo(4), value: turbo(4) },
];
/** Of up to 16 rows and more: prompts alone, beside rows that decode, over several splits, and in parts. */
const STEPS: readonly (readonly [slots: number[], lengths: number[]])[] = [
  [
    [0, 1, 2, 3, 4, 5, 6],
    [17, 20, 3, 1, 33, 16, 100],
  ],
  [
    [3, 0, 1, 4, 5, 6, 2],
    [1, 1, 1, 1, 1, 1, 6],
  ],
  [[7], [200]],
  [
    [7, 0, 6],
    [190, 1, 31],
  ],
  [
    [7, 1, 2, 3, 4, 5, 6, 0],
    [1, 1, 1, 1, 1, 1, 1, 9],
  ],
];
/** A prompt of 1,024, whose last tiles are walked in parts. */
const LONG = [250, 250, 250, 250, 24];

describe.each(devices.filter((d) => d.name === 'webgpu default'))(
  'attention that hands on, $name',
  (spec) => {
    let device: Device;
    beforeAll(async () => {
      device = await spec.create();
    });
    afterAll(async () => {
      await device[Symbol.asyncDispose]();
    });

    /** Two of a kind: between attention and product f32 is kept, or nothing is. */
    async function open(c: AttentionCase) {
      const format = { kind: 'affine', bits: 4, groupSize: 64, dtype: 'f16' } as const;
      const { source, values } = randomMatrix(new Random(5), OUT, c.heads * c.headDim, format);
      const weight = await device.loadMatrix([source], { use: 'linear' });
      const plain = await Bench.open(device, c, 21, { weight, keeps: true });
      const handing = await Bench.open(device, c, 21, { weight, keeps: false });
      return { plain, handing, weights: values };
    }
    const labels = ({ program }: Bench, rows: number): string[] =>
      (program as WebGpuProgram).describe(rows, 0);

    it('leaves out the launch between them, where there is one', async () => {
      for (const c of CASES) {
        const { plain, handing } = await open(c);
        for (const rows of [12, 32, 200]) {
          const [own, less] = [labels(plain, rows), labels(handing, rows)];
          const makes = own.filter((label) => label.startsWith('halves ['));
          expect(less.filter((label) => label.startsWith('halves ['))).toEqual([]);
          expect(less).toHaveLength(own.length - makes.length);
          expect(less.some((label) => label.startsWith('attend reduce') && label.endsWith('to halves'))).toBe(
            makes.length > 0,
          );
        }
        await plain.close();
        await handing.close();
      }
    });

    // Without halves there is nothing to hand on, and little to be learnt.
    it.each(spec.slow && !everyCase ? CASES.slice(3, 4) : CASES)(
      'gives the same bits: $key $value $headDim',
      async (c) => {
        const { plain, handing, weights } = await open(c);
        for (const [slots, lengths] of STEPS) {
          const where = `slots ${slots} lengths ${lengths}`;
          const kept = await plain.step(slots, lengths);
          const { product, expected, rows } = await handing.step(slots, lengths);
          expect(new Uint32Array(product.buffer), where).toEqual(new Uint32Array(kept.product.buffer));
          const wanted = reference.linear(expected, weights, rows, c.heads * c.headDim, OUT);
          expect(worstRow(product, wanted, rows, OUT), where).toBeLessThan(5e-3);
        }
        await plain.close();
        await handing.close();
      },
    );

    it.each(casesOf([CASES[3]!], [CASES[0]!]))(
      'of a long prompt too, and a row that went wrong stays so: $value',
      async (c) => {
        const { plain, handing, weights } = await open({ ...c, heads: 4, kvHeads: 2 });
        const width = 8 * c.headDim;
        for (const length of LONG) {
          const data = plain.draw(length);
          if (length === LONG.at(-1)) data.fill(Number.NaN, 5 * width, 5 * width + 4 * c.headDim);
          const kept = await plain.step([0], [length], data);
          const { product, expected } = await handing.step([0], [length], data);
          expect(product).toEqual(kept.product);
          const wanted = reference.linear(expected, weights, length, 4 * c.headDim, OUT);
          for (let row = 0; row < length; row++) {
            const [got, want] = [product, wanted].map((all) => all.slice(row * OUT, (row + 1) * OUT));
            if (Number.isNaN(want![0])) expect(got!.every(Number.isNaN), `row ${row}`).toBe(true);
            else expect(worstRow(got!, want!, 1, OUT), `row ${row} of ${length}`).toBeLessThan(5e-3);
          }
        }
        await plain.close();
        await handing.close();
      },
    );
  },
);
