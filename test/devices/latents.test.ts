/** Latent attention: one key for all heads, whose end is the value, and the products of heads before and behind it. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Device } from '../../src/device/device.js';
import type { KvFormat } from '../../src/device/kv.js';
import type { MatrixFormat } from '../../src/device/weights.js';
import { everyCase } from '../setup/every-case.js';
import { AttentionBench } from './attention-bench.js';
import type { AttentionCase } from './attention-case.js';
import { AWKWARD, checkAttention } from './attention-check.js';
import { type DeviceSpec, featureBound, kernelDevices } from './devices.js';
import { affine, alike, F16, F32, turbo } from './kv-cases.js';
import { Random, worstRow } from './numbers.js';
import * as reference from './reference.js';
import { runOnce } from './run.js';
import { randomMatrix } from './sources.js';

/** Heads, numbers of a key, and of a value: GLM-4.7-Flash and DeepSeek have 20, 16 and 128 heads of 576, Mistral 4 32 of 320. */
const SHAPES = [
  { heads: 2, headDim: 24, valueDim: 16 },
  { heads: 16, headDim: 80, valueDim: 64 },
  { heads: 20, headDim: 576, valueDim: 512 },
  { heads: 40, headDim: 320, valueDim: 256 },
] as const;

/** What is kept of keys besides floats takes whole runs of 16 numbers. */
const CODED: readonly KvFormat[] = [affine(8), affine(4, 32), affine(3), affine(5, 128), affine(6)];

const latents = (shape: (typeof SHAPES)[number], format: KvFormat): AttentionCase => ({
  ...shape,
  ...alike(format),
  kvHeads: 1,
  rope: 'interleaved',
  ropeDims: shape.headDim - shape.valueDim,
});

/** A software adapter takes its time with wide heads. */
const stepsOf = (spec: DeviceSpec, headDim: number) =>
  spec.slow && headDim > 256 ? AWKWARD.slice(0, 2) : AWKWARD;

describe.each(kernelDevices)('latents on $name', (spec) => {
  let device: Device;
  beforeAll(async () => {
    device = await spec.create();
  });
  afterAll(async () => {
    await device[Symbol.asyncDispose]();
  });

  it.each(SHAPES)('$heads heads look at keys of $headDim, whose values are $valueDim', async (shape) => {
    const formats = spec.slow && shape.headDim > 256 ? [F16] : [F32, F16];
    for (const format of formats)
      await checkAttention(device, spec, latents(shape, format), stepsOf(spec, shape.headDim));
  });

  it.each(CODED.map((format) => [JSON.stringify(format), format] as const))(
    'in codes: %s',
    async (_, format) => {
      const [, narrow, wide] = SHAPES;
      await checkAttention(device, spec, latents(narrow, format), AWKWARD);
      // The others have the steps of narrow keys, and the first one's the steps of wide ones.
      const few = spec.slow ? 1 : everyCase ? 6 : 3;
      const steps = format === CODED[0] ? stepsOf(spec, wide.headDim) : AWKWARD.slice(0, few);
      await checkAttention(device, spec, latents(wide, format), steps);
    },
  );

  it('with sinks, a cap and a window', async () => {
    const base = latents(SHAPES[1], F16);
    await checkAttention(device, spec, { ...base, sinks: 2, softcap: 20, window: 33 }, AWKWARD);
    await checkAttention(device, spec, { ...base, sinks: 2, softcap: 20 }, AWKWARD);
  });

  it('gives the same bits for any cut of a prompt, alone or in company, whatever the kernels', async () => {
    for (const [shape, total] of [
      [SHAPES[1], spec.slow ? 90 : 300],
      ...(spec.kind === 'cpu' || spec.slow ? [] : [[SHAPES[2], 270] as const]),
    ] as const) {
      const most = 150;
      const c = latents(shape, F16);
      const width = c.heads * c.headDim + c.headDim;
      const data = new Random(77).normals(total * width);
      const cuts = [
        [Math.min(total, most), Math.max(0, total - most)],
        [total - most / 2 - 1, most / 2, 1],
        [7, 64, Math.min(total - 71, most), Math.max(0, total - 71 - most)],
      ].map((cut) => cut.filter((length) => length > 0));
      let first: Float32Array | null = null;
      for (const [n, cut] of cuts.entries()) {
        const bench = await AttentionBench.open(device, c, 5);
        let last: Float32Array = new Float32Array(0);
        let at = 0;
        for (const length of cut) {
          const own = data.slice(at * width, (at + length) * width);
          at += length;
          if (n === 0) last = (await bench.step([3], [length], own)).out;
          else {
            // A neighbour decodes in front of it.
            const both = new Float32Array((length + 1) * width);
            both.set(new Random(at).normals(width));
            both.set(own, width);
            last = (await bench.step([6, 3], [1, length], both)).out;
          }
        }
        await bench.close();
        const tail = last.slice(-shape.heads * shape.valueDim);
        first ??= tail;
        expect(tail, `cut ${cut}`).toEqual(first);
      }
    }
  });

  it('refuses what is no view of a key, and rotated codes', () => {
    const sizes = { blocks: 2, blockTokens: 16, slots: 1, maxBlocksPerSlot: 2 };
    const layer = { kvHeads: 1, headDim: 80, valueDim: 64, ...alike(F16), group: 0 };
    const pool = (own: Partial<typeof layer> | { key: KvFormat; value: KvFormat }) =>
      device.createKvPool({ ...sizes, layers: [{ ...layer, ...own }] });
    pool({}).dispose();
    expect(() => pool({ kvHeads: 2 })).toThrow(/2 latents of 80 with values of 64/);
    expect(() => pool({ valueDim: 96 })).toThrow(/values of 96/);
    expect(() => pool(alike(turbo(4)))).toThrow(/turbo4/);
  });

  it('keeps nothing of values', async () => {
    const sizes = { blocks: 4, blockTokens: 16, slots: 1, maxBlocksPerSlot: 2 };
    for (const [format, bytes] of [
      [F16, 2 * 576],
      [affine(8), 576 + 9 * 4],
    ] as const) {
      const layer = { kvHeads: 1, headDim: 576, valueDim: 512, ...alike(format), group: 0 };
      const pool = device.createKvPool({ ...sizes, layers: [layer] });
      const [block] = await pool.read(Uint32Array.of(1));
      expect(block).toHaveLength(bytes * 16);
      pool.dispose();
    }
  });
});

const FORMATS: readonly MatrixFormat[] = [
  { kind: 'float', dtype: 'f32' },
  { kind: 'float', dtype: 'f16' },
  { kind: 'float', dtype: 'bf16' },
  { kind: 'affine', bits: 4, groupSize: 64, dtype: 'bf16' },
  { kind: 'affine', bits: 8, groupSize: 32, dtype: 'f16' },
];

describe.each(kernelDevices)('products of heads on $name', (spec) => {
  let device: Device;
  beforeAll(async () => {
    device = await spec.create();
  });
  afterAll(async () => {
    await device[Symbol.asyncDispose]();
  });

  it.each([
    { heads: 2, rows: 24, cols: 12, from: 0, step: 20 },
    { heads: 5, rows: 64, cols: 128, from: 64, step: 192 },
    { heads: 3, rows: 8, cols: 64, from: 0, step: 64 },
  ])('$heads of [$rows, $cols], $step columns apart', async ({ heads, rows, cols, from, step }) => {
    const wide = from + heads * step;
    for (const format of FORMATS) {
      if (format.kind === 'affine' && cols % format.groupSize !== 0) continue;
      for (const tokens of [1, 3, 7, 64]) {
        const random = new Random(tokens + rows);
        const { source, values } = randomMatrix(random, heads * rows, cols, format);
        const x = random.normals(tokens * wide);
        const matrix = await device.loadMatrix([source], { use: 'linear', unit: rows });
        const out = await runOnce(device, tokens, { cols: wide, data: x }, (ops, t) =>
          ops.headLinear(t, matrix, { heads, from, step }),
        );
        const expected = new Float64Array(tokens * heads * rows);
        for (let h = 0; h < heads; h++) {
          const own = Float32Array.from({ length: tokens * cols }, (_, i) => {
            const [t, c] = [Math.floor(i / cols), i % cols];
            return x[t * wide + from + h * step + c]!;
          });
          const of = values.subarray(h * rows * cols, (h + 1) * rows * cols);
          const part = reference.linear(own, of, tokens, cols, rows);
          for (let t = 0; t < tokens; t++)
            expected.set(part.subarray(t * rows, (t + 1) * rows), (t * heads + h) * rows);
        }
        expect(
          worstRow(out, expected, tokens, heads * rows),
          `${format.kind}, ${tokens} tokens`,
        ).toBeLessThan(Math.max(2e-5, featureBound(spec)));
      }
    }
  });

  it('a row is the same alone and among others, whatever the kernels', async () => {
    const random = new Random(5);
    const { source } = randomMatrix(random, 4 * 32, 64, FORMATS[1]!);
    const matrix = await device.loadMatrix([source], { use: 'linear', unit: 32 });
    // Tiles of a GPU change at 16 and 64 rows.
    const most = spec.slow ? 70 : 200;
    const x = random.normals(most * 256);
    const product = (tokens: number): Promise<Float32Array> =>
      runOnce(device, tokens, { cols: 256, data: x.subarray(0, tokens * 256) }, (ops, t) =>
        ops.headLinear(t, matrix, { heads: 4 }),
      );
    const all = await product(most);
    for (const tokens of spec.slow ? [1, 2, 17] : [1, 2, 5, 16, 17, 64, 65])
      expect(await product(tokens)).toEqual(all.subarray(0, tokens * 128));
  });
});
