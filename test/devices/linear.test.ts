import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Device } from '../../src/device/device.js';
import { AFFINE_BITS, columnUnit, GROUP_SIZES, type MatrixFormat } from '../../src/device/weights.js';
import { everyCase } from '../setup/every-case.js';
import { once } from '../setup/once.js';
import { type DeviceSpec, devices, grid, inPairs, narrowSubgroups } from './devices.js';
import { Random, worstRow } from './numbers.js';
import * as reference from './reference.js';
import { record, rowsStep, runOnce, withProgram } from './run.js';
import { BLOCK_FORMATS, formatLabel, randomMatrix, vectorSource } from './sources.js';

const FORMATS: readonly MatrixFormat[] = [
  { kind: 'float', dtype: 'f32' },
  { kind: 'float', dtype: 'f16' },
  { kind: 'float', dtype: 'bf16' },
  ...AFFINE_BITS.flatMap((bits) =>
    GROUP_SIZES.map(
      (groupSize): MatrixFormat => ({ kind: 'affine', bits, groupSize, dtype: bits % 2 ? 'bf16' : 'f16' }),
    ),
  ),
  { kind: 'affine', bits: 4, groupSize: 64, dtype: 'f32' },
  ...BLOCK_FORMATS,
];

/**
 * The stated bounds, ‖out − ref‖ / ‖ref‖ of a row. f32: rounding of the sums. CPU affine: activations are int8 per
 * group, half a step of max|x| / 127 each. GPU: f16 operands.
 */
function bound(spec: DeviceSpec, format: MatrixFormat): number {
  if (spec.precision === 'reference') return 2e-5;
  if (spec.kind === 'cpu') return format.kind === 'float' ? 2e-5 : 2e-2;
  return 2e-3;
}

// In software `webgpu default` has the kernels of `reference`, which is held to more.
const here = devices.filter(({ slow, name }) => !slow || name !== 'webgpu default');

describe.each([...here, ...narrowSubgroups])('linear on $name', (spec) => {
  let device: Device;
  beforeAll(async () => {
    device = await spec.create();
  });
  afterAll(async () => {
    await device[Symbol.asyncDispose]();
  });

  const points = grid(
    {
      format: FORMATS,
      rows: spec.slow && !everyCase ? [1, 3, 8, 33] : [1, 2, 3, 5, 8, 17, 33, 64],
      shape: [
        [64, 128],
        [40, 384],
        [1, 128],
        [333, 256],
        [72, 512],
      ] as const,
    },
    inPairs(spec),
  );
  const byFormat = new Map<string, typeof points>();
  // Every product with blocks is a kernel of its own on subgroups, compiled for half a second: two of each there.
  const few = spec.slow && !everyCase && narrowSubgroups.includes(spec);
  for (const p of points) {
    const known = byFormat.get(formatLabel(p.format)) ?? [];
    if (few && BLOCK_FORMATS.includes(p.format) && (p.rows > 8 || known.length === 2)) continue;
    byFormat.set(formatLabel(p.format), [...known, p]);
  }

  it.each([...byFormat])('%s agrees with float64', async (_, cases) => {
    for (const { format, rows, shape } of cases) {
      const [outs, least] = shape;
      const unit = columnUnit(format);
      const cols = Math.ceil(least / unit) * unit;
      const { source, x, expected } = once(`${formatLabel(format)} ${rows}×${cols}→${outs}`, () => {
        const random = new Random(rows * 1000 + outs);
        const { source, values } = randomMatrix(random, outs, cols, format);
        const x = random.normals(rows * cols);
        return { source, x, expected: reference.linear(x, values, rows, cols, outs) };
      });
      const matrix = await device.loadMatrix([source], { use: 'linear' });
      const out = await runOnce(device, rows, { cols, data: x }, (ops, t) => ops.linear(t, matrix));
      // One output column: the sum may cancel, so its size is that of the products.
      if (outs === 1) {
        for (let r = 0; r < rows; r++)
          expect(Math.abs(out[r]! - expected[r]!)).toBeLessThan(bound(spec, format) * 4);
      } else {
        expect(worstRow(out, expected, rows, outs), `${rows}×${cols}→${outs}`).toBeLessThan(
          bound(spec, format),
        );
      }
    }
  });

  it('adds bias and residual, and stacks parts of different formats', async () => {
    const random = new Random(7);
    const cols = 128;
    const a = randomMatrix(random, 24, cols, { kind: 'affine', bits: 4, groupSize: 64, dtype: 'bf16' });
    const b = randomMatrix(random, 13, cols, { kind: 'affine', bits: 8, groupSize: 32, dtype: 'f16' });
    const c = randomMatrix(random, 11, cols, { kind: 'float', dtype: 'bf16' });
    const biasA = random.normals(24);
    const matrix = await device.loadMatrix([a.source, b.source, c.source], {
      use: 'linear',
      bias: [vectorSource(biasA), null, null],
    });
    expect(matrix.rows).toBe(48);
    const some = [5, 21];
    const xs = some.map((rows) => random.normals(rows * cols));
    const residuals = some.map((rows) => random.normals(rows * 48));
    const values = new Float64Array(48 * cols);
    values.set(a.values, 0);
    values.set(b.values, 24 * cols);
    values.set(c.values, 37 * cols);
    const bias = new Float64Array(48);
    bias.set(biasA);
    for (const [i, rows] of some.entries()) {
      const [x, residual] = [xs[i]!, residuals[i]!];
      const out = await runOnce(device, rows, { cols, data: x }, (_, t) => t, {
        cols: 48,
        data: residual,
        use: (ops, t, e) => ops.linear(t, matrix, e),
      });
      const expected = reference.linear(x, values, rows, cols, 48, bias, residual);
      expect(worstRow(out, expected, rows, 48)).toBeLessThan(bound(spec, a.source.format));
    }
  });

  it('gives a row of many the bits that it has alone, with float weights of any width', async () => {
    const random = new Random(19);
    // In one piece and several, with a last group of columns that is not whole.
    for (const [dtype, cols, outs, rows] of [
      ['f32', 36, 9, 16],
      ['f16', 100, 70, 19],
      ['bf16', 1028, 24, 17],
    ] as const) {
      const { source, values } = randomMatrix(random, outs, cols, { kind: 'float', dtype });
      const matrix = await device.loadMatrix([source], { use: 'linear' });
      const x = random.normals(rows * cols);
      const run = (n: number, data: Float32Array) =>
        runOnce(device, n, { cols, data }, (ops, t) => ops.linear(t, matrix));
      const out = await run(rows, x);
      const expected = reference.linear(x, values, rows, cols, outs);
      expect(worstRow(out, expected, rows, outs)).toBeLessThan(bound(spec, source.format));
      if (spec.bitwise)
        for (const row of [0, rows - 2, rows - 1])
          expect(await run(1, x.slice(row * cols, (row + 1) * cols))).toEqual(
            out.slice(row * outs, (row + 1) * outs),
          );
    }
  });

  it('reads x as it is where a product is exact, and adds it up in one order', async () => {
    const random = new Random(17);
    const codes = { kind: 'affine', bits: 8, groupSize: 64, dtype: 'bf16' } as const;
    // Wide rows have more lanes.
    for (const [cols, format] of [
      [128, FORMATS[2]!],
      [128, codes],
      [2112, codes],
      [520, FORMATS[0]!],
    ] as const) {
      const { source, values } = randomMatrix(random, 27, cols, format);
      const matrix = await device.loadMatrix([source], { use: 'linear' });
      // More than a kernel of few rows is made for.
      const rows = 64;
      const x = random.normals(rows * cols);
      const run = (count: number, data: Float32Array): Promise<Float32Array> =>
        runOnce(device, count, { cols, data }, (ops, t) => ops.linear(t, matrix, null, true));
      const out = await run(rows, x);
      // Metas are f16 where a GPU has it.
      expect(worstRow(out, reference.linear(x, values, rows, cols, 27), rows, 27)).toBeLessThan(
        spec.kind === 'cpu' || spec.precision === 'reference' ? 2e-5 : 2e-3,
      );
      expect(await run(1, x.slice(20 * cols, 21 * cols))).toEqual(out.slice(20 * 27, 21 * 27));
    }
  });

  it('gives a row the same result whatever stands beside it', async () => {
    const random = new Random(11);
    const cols = 256;
    for (const format of [
      FORMATS[1]!,
      FORMATS[2]!,
      { kind: 'affine', bits: 4, groupSize: 64, dtype: 'f16' } as const,
      { kind: 'k-quant', bits: 4, dtype: 'f16' } as const,
      { kind: 'k-quant', bits: 6, dtype: 'f16' } as const,
      { kind: 'symmetric', bits: 8, groupSize: 32, dtype: 'f16' } as const,
    ]) {
      const { source } = randomMatrix(random, 72, cols, format);
      const matrix = await device.loadMatrix([source], { use: 'linear' });
      const x = random.normals(64 * cols);
      const batch = await runOnce(device, 64, { cols, data: x }, (ops, t) => ops.linear(t, matrix));
      for (const row of [0, 13, 63]) {
        const one = x.slice(row * cols, (row + 1) * cols);
        const alone = await runOnce(device, 1, { cols, data: one }, (ops, t) => ops.linear(t, matrix));
        const together = batch.slice(row * 72, (row + 1) * 72);
        if (spec.bitwise) expect(alone).toEqual(together);
        else expect(worstRow(alone, together, 1, 72)).toBeLessThan(bound(spec, format));
      }
    }
  });

  it('keeps a non-finite row to itself', async () => {
    const random = new Random(13);
    const cols = 128;
    for (const format of [FORMATS[0]!, { kind: 'affine', bits: 4, groupSize: 32, dtype: 'f16' } as const]) {
      const { source, values } = randomMatrix(random, 32, cols, format);
      const matrix = await device.loadMatrix([source], { use: 'linear' });
      const rows = 9;
      const x = random.normals(rows * cols);
      x[2 * cols + 5] = Number.NaN;
      x[6 * cols + 77] = Number.POSITIVE_INFINITY;
      const out = await runOnce(device, rows, { cols, data: x }, (ops, t) => ops.linear(t, matrix));
      const expected = reference.linear(x, values, rows, cols, 32);
      for (let r = 0; r < rows; r++) {
        const got = out.subarray(r * 32, (r + 1) * 32);
        if (r === 2 || r === 6) continue;
        expect(worstRow(got, expected.subarray(r * 32, (r + 1) * 32), 1, 32)).toBeLessThan(
          bound(spec, format),
        );
      }
      expect(Number.isFinite(out[2 * 32]!), 'a NaN must stay visible').toBe(false);
    }
  });

  it('gathers embeddings exactly, also from a tied matrix', async () => {
    const random = new Random(17);
    const formats: MatrixFormat[] = [
      FORMATS[0]!,
      FORMATS[2]!,
      { kind: 'affine', bits: 4, groupSize: 64, dtype: 'f16' },
      { kind: 'affine', bits: 6, groupSize: 32, dtype: 'bf16' },
      { kind: 'affine', bits: 8, groupSize: 64, dtype: 'f32' },
      ...BLOCK_FORMATS,
    ];
    for (const format of formats) {
      for (const use of ['embedding', 'both'] as const) {
        const cols = Math.max(128, columnUnit(format));
        const { source, values } = randomMatrix(random, 77, cols, format);
        const matrix = await device.loadMatrix([source], { use });
        const recorded = record((ops) => ({ y: ops.keep(ops.embed(matrix)) }));
        await withProgram(device, recorded.graph, null, async (program) => {
          const step = rowsStep(6);
          step.tokens.set([0, 76, 5, 5, 32, 75]);
          await program.submit(step);
          const out = await program.read(recorded.tensors.y, 6);
          [0, 76, 5, 5, 32, 75].forEach((id, r) => {
            const expected = values.subarray(id * cols, (id + 1) * cols);
            // A GPU keeps scales and biases as f16, and their sum may cancel.
            const tolerance = spec.kind === 'webgpu' && spec.precision === 'default' ? 2e-3 : 1e-6;
            expect(worstRow(out.subarray(r * cols, (r + 1) * cols), expected, 1, cols)).toBeLessThan(
              tolerance,
            );
          });
        });
      }
    }
  });
});
