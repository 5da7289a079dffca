import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Random, worstRow } from '../../../../test/devices/numbers.js';
import { emulateMatrices } from '../../../../test/setup/emulate-matrices.js';
import { casesOf, everyCase } from '../../../../test/setup/every-case.js';
import { linearInputs, Q4, shapeOf } from '../../../../test/setup/linear-inputs.js';
import { uploadTo } from '../../../../test/setup/raw-buffers.js';
import { runKernel } from '../../../../test/setup/run-kernel.js';
import { openTestDevice } from '../../../../test/setup/swiftshader.js';
import type { WebGpuDevice } from '../device.js';
import type { LinearShape } from '../kernel.js';
import { gemmOf } from './linear-choice.js';
import { type MatrixGemmConfig, matrixGemmFits } from './linear-matrix-plan.js';
import type { LinearSpec } from './linear-spec.js';

describe('a GEMM on matrices', () => {
  let device: WebGpuDevice;
  let raw: GPUDevice;
  beforeAll(async () => {
    ({ device, raw } = await openTestDevice({ minLanes: 4 }));
  });
  afterAll(async () => {
    await device[Symbol.asyncDispose]();
  });

  const config = (sizes: readonly number[], more: Partial<MatrixGemmConfig> = {}): MatrixGemmConfig => {
    const [bm, bn, bk, sm, sn, sk] = sizes as [number, number, number, number, number, number];
    const matrix = { m: 4, n: 4, k: 4, component: 'f32', result: 'f32' };
    const base = { matrix, subgroupSize: 1, buffers: 1, depth: 1 } as const;
    return { ...base, workgroupBytes: 16384, bm, bn, bk, sm, sn, sk, ...more };
  };
  /** On matrices that are loops. Few threads with large tiles make long texts, and compiling is what takes the time. */
  async function emulated(
    shape: LinearShape,
    c: MatrixGemmConfig,
    roles: Readonly<Record<string, GPUBuffer>>,
  ): Promise<{ readonly got: Float32Array }> {
    const { rowKind: _, norm: __, ...rest } = shape;
    const residual = shape.residual ? 'f32' : null;
    const spec: LinearSpec = { ...rest, x: 'f32', out: 'f32', residual, norm: null };
    expect(matrixGemmFits(spec, c)).toBe(true);
    const kernel = gemmOf(shape, spec, c, 256);
    raw.queue.writeBuffer(roles.out!, 0, new Float32Array(roles.out!.size / 4).fill(Number.NaN));
    const text = (from: string): string =>
      from.includes('subgroup_matrix') ? emulateMatrices(from, c.matrix.m) : from;
    return { got: await runKernel(raw, kernel, shape.rows, roles, text) };
  }

  it('tiles, emulated: the bits do not know the tile', async () => {
    const shape = shapeOf(13, 24, 128, { residual: true });
    const { roles, expected } = await linearInputs(device, raw, shape, new Random(11));
    const results: Uint32Array[] = [];
    for (const c of [
      config([8, 8, 32, 2, 2, 1]),
      config([8, 8, 32, 2, 2, 1], { rowsFirst: true }),
      config([4, 8, 32, 1, 2, 1]),
      config([4, 8, 32, 1, 2, 2]),
    ]) {
      const { got } = await emulated(shape, c, roles);
      expect(worstRow(got, expected, 13, 24)).toBeLessThan(2e-5);
      results.push(new Uint32Array(got.buffer));
    }
    const shared = results.pop()!;
    for (const bits of results) expect(bits).toEqual(results[0]);
    // Shares along K add up in another order, and say so.
    expect(shared).not.toEqual(results[0]);
  });

  it.each([
    ['f32', 4, [4, 16, 8, 1, 2, 1], 2e-5],
    ['f16', 8, [8, 16, 8, 1, 2, 1], 2e-3],
  ] as const)(
    'sums of %s that are stored straight begin with a residual and a bias, emulated',
    async (...one) => {
      const [component, size, sizes, bound] = one;
      // The last tile ends beyond the features.
      const product = shapeOf(8, 24, 32, { weight: { kind: 'float', dtype: 'f32' } });
      const { roles, expected } = await linearInputs(device, raw, product, new Random(17));
      const [bias, residual] = [new Random(18).normals(24), new Random(19).normals(8 * 24)];
      const into = { ...roles, bias: uploadTo(raw, bias), residual: uploadTo(raw, residual) };
      const matrix = { m: size, n: size, k: size, component, result: 'f32' } as const;
      const { got } = await emulated(
        { ...product, residual: true, bias: true },
        config(sizes, { matrix }),
        into,
      );
      const want = expected.map((v, i) => v + bias[i % 24]! + residual[i]!);
      expect(worstRow(got, want, 8, 24)).toBeLessThan(bound);
    },
  );

  it('slices along K, emulated: whatever the tile, and with a bias and a residual elsewhere in wider rows', async () => {
    const shape = shapeOf(13, 24, 128);
    const { roles, expected } = await linearInputs(device, raw, shape, new Random(13));
    const results: Uint32Array[] = [];
    for (const c of [
      config([8, 8, 32, 2, 2, 1], { splitK: 2 }),
      config([8, 16, 32, 2, 4, 1], { splitK: 2, depth: 2 }),
      config([4, 4, 32, 1, 1, 1], { splitK: 4 }),
      config([4, 8, 32, 1, 2, 2], { splitK: 4, buffers: 2 }),
    ]) {
      const { got } = await emulated(shape, c, roles);
      expect(worstRow(got, expected, 13, 24)).toBeLessThan(2e-5);
      results.push(new Uint32Array(got.buffer));
    }
    expect(results[1]).toEqual(results[0]);
    expect(results[2]).not.toEqual(results[0]);

    const [stride, offset] = [40, 12];
    const [bias, residual] = [new Random(14).normals(24), new Random(15).normals(13 * stride)];
    const into = {
      ...roles,
      bias: uploadTo(raw, bias),
      residual: uploadTo(raw, residual),
      out: raw.createBuffer({ size: 13 * stride * 4, usage: 128 | 4 | 8 }),
    };
    const wider = { ...shape, outStride: stride, outOffset: offset, bias: true, residual: true };
    const { got } = await emulated(wider, config([4, 8, 32, 1, 2, 2], { splitK: 2 }), into);
    const within = Float32Array.from({ length: 13 * 24 }, (_, i) => {
      const f = i % 24;
      const at = Math.floor(i / 24) * stride + offset + f;
      return got[at]! - bias[f]! - residual[at]!;
    });
    expect(worstRow(within, expected, 13, 24)).toBeLessThan(2e-5);
    got.forEach((value, at) => {
      const f = (at % stride) - offset;
      expect(Number.isNaN(value), `${at}`).toBe(f < 0 || f >= 24);
    });
  });

  const OTHER_ROOM = [
    [[8, 16, 8, 2, 1, 1], 1, 1200],
    [[16, 16, 8, 1, 2, 2], 1, 1600],
  ] as const;
  it('a glu, emulated: its bits do not know how many of its rows of matrices had room at once', async () => {
    const shape = shapeOf(13, 44, 32, { glu: 'silu', weight: { kind: 'float', dtype: 'f32' } });
    const { roles, expected } = await linearInputs(device, raw, shape, new Random(12));
    const results: Uint32Array[] = [];
    for (const [sizes, buffers, workgroupBytes] of [
      // All rows of matrices at once, one at a time, beside a second copy, with shares along K, more than the tiles took.
      [[16, 16, 16, 2, 2, 1], 1, 16384],
      [[16, 16, 8, 2, 2, 1], 1, 1600],
      [[16, 16, 8, 2, 2, 1], 2, 3100],
      [[8, 8, 16, 2, 1, 4], 1, 1600],
      ...(everyCase ? OTHER_ROOM : []),
    ] as const) {
      const { got } = await emulated(shape, config(sizes, { buffers, workgroupBytes }), roles);
      expect(worstRow(got, expected, 13, 22), `${sizes}`).toBeLessThan(2e-5);
      if (sizes[5] === 1) results.push(new Uint32Array(got.buffer));
    }
    for (const bits of results) expect(bits).toEqual(results[0]);
  });

  const weight = (bits: 4 | 8, groupSize: 32 | 64 | 128): LinearShape['weight'] => ({
    ...Q4,
    bits,
    groupSize,
  });
  it.each([
    ['groups of two steps', shapeOf(11, 24, 256, { weight: weight(4, 128) }), [8, 8, 64, 1, 1, 4], {}],
    ['steps of two groups', shapeOf(11, 24, 512), [8, 8, 128, 1, 1, 16], { depth: 2 }],
    ['groups of 32', shapeOf(11, 24, 256, { weight: weight(4, 32) }), [8, 16, 64, 1, 2, 8], { buffers: 2 }],
    ['8 bits, split-K', shapeOf(11, 24, 512, { weight: weight(8, 64) }), [8, 8, 64, 1, 1, 4], { splitK: 4 }],
    ['an odd number of groups', shapeOf(11, 24, 320), [16, 8, 32, 2, 1, 4], { depth: 2, buffers: 2 }],
  ] as const)('scales and biases of %s, emulated', async (_, shape, sizes, more) => {
    const { roles, expected } = await linearInputs(device, raw, shape, new Random(21));
    const eight = { m: 8, n: 8, k: 8, component: 'f32', result: 'f32' } as const;
    const { got } = await emulated(shape, config(sizes, { ...more, matrix: eight }), roles);
    expect(worstRow(got, expected, 11, shape.outStride)).toBeLessThan(2e-5);
  });

  const kQuant = (bits: 2 | 3 | 4 | 5 | 6): LinearShape['weight'] => ({ kind: 'k-quant', bits });
  const symmetric = (bits: 4 | 5 | 8): LinearShape['weight'] => ({ kind: 'symmetric', bits });
  const lut4 = (
    table: 'e2m1' | 'iq4',
    scale: 'f16' | 'f16-i8' | 'e8m0' | 'f32-e4m3',
  ): LinearShape['weight'] => ({
    ...{ kind: 'lut4', bits: 4 },
    table,
    scale,
  });
  // Beyond a superblock, in steps that are parts of one, and in pairs of them. Of halves results are stored straight from matrices, as emulated.
  const BLOCKS = [
    ['Q4_K', shapeOf(5, 24, 512, { weight: kQuant(4) }), [8, 8, 32, 1, 1, 4], { depth: 2 }, 'f32'],
    [
      'NVFP4',
      shapeOf(5, 20, 192, { weight: lut4('e2m1', 'f32-e4m3') }),
      [8, 8, 32, 1, 1, 4],
      { paired: true },
      'f32',
    ],
  ] as const;
  const MORE_BLOCKS = [
    ['Q4_0', shapeOf(5, 24, 96, { weight: symmetric(4) }), [8, 16, 32, 1, 2, 2], {}, 'f32'],
    [
      'Q4_0 in pairs',
      shapeOf(5, 24, 256, { weight: symmetric(4) }),
      [8, 8, 32, 1, 1, 4],
      { paired: true },
      'f32',
    ],
    ['Q5_0', shapeOf(5, 20, 192, { weight: symmetric(5) }), [8, 8, 64, 1, 1, 4], { buffers: 2 }, 'f32'],
    ['Q8_0', shapeOf(5, 24, 192, { weight: symmetric(8) }), [8, 8, 64, 1, 1, 4], { depth: 2 }, 'f32'],
    ['Q4_0 as halves', shapeOf(8, 24, 96, { weight: symmetric(4) }), [8, 8, 32, 1, 1, 1], {}, 'f16'],
    ['Q8_0 as halves', shapeOf(8, 24, 96, { weight: symmetric(8) }), [8, 8, 32, 1, 1, 1], {}, 'f16'],
    ['Q6_K', shapeOf(5, 20, 512, { weight: kQuant(6) }), [8, 16, 64, 1, 2, 2], { splitK: 2 }, 'f32'],
    [
      'IQ4_XS',
      shapeOf(5, 24, 512, { weight: lut4('iq4', 'f16-i8') }),
      [8, 8, 64, 1, 1, 4],
      { buffers: 2 },
      'f32',
    ],
    ['Q2_K', shapeOf(5, 24, 256, { weight: kQuant(2) }), [8, 8, 64, 1, 1, 4], {}, 'f32'],
    ['Q3_K', shapeOf(5, 24, 512, { weight: kQuant(3) }), [8, 8, 64, 1, 1, 4], {}, 'f32'],
    ['Q5_K', shapeOf(5, 24, 512, { weight: kQuant(5) }), [8, 8, 128, 1, 1, 4], {}, 'f32'],
    [
      'Q4_K in pairs',
      shapeOf(5, 24, 512, { weight: kQuant(4) }),
      [8, 16, 32, 1, 2, 2],
      { paired: true },
      'f32',
    ],
    [
      'MXFP4',
      shapeOf(5, 24, 192, { weight: lut4('e2m1', 'e8m0') }),
      [8, 16, 32, 1, 2, 2],
      { depth: 2 },
      'f32',
    ],
    ['IQ4_NL', shapeOf(5, 24, 96, { weight: lut4('iq4', 'f16') }), [8, 16, 32, 1, 2, 2], {}, 'f32'],
    ['MXFP4 as halves', shapeOf(8, 24, 96, { weight: lut4('e2m1', 'e8m0') }), [8, 8, 32, 1, 1, 1], {}, 'f16'],
    ['IQ4_NL as halves', shapeOf(8, 24, 96, { weight: lut4('iq4', 'f16') }), [8, 8, 32, 1, 1, 1], {}, 'f16'],
  ] as const;
  it.each(casesOf<(typeof BLOCKS | typeof MORE_BLOCKS)[number]>(BLOCKS, MORE_BLOCKS))(
    'blocks of %s, emulated',
    async (_, shape, sizes, more, component) => {
      const { roles, expected } = await linearInputs(device, raw, shape, new Random(41));
      const matrix = { m: 8, n: 8, k: 8, component, result: 'f32' } as const;
      const { got } = await emulated(shape, config(sizes, { ...more, matrix }), roles);
      expect(worstRow(got, expected, shape.rows, shape.n)).toBeLessThan(component === 'f16' ? 2e-3 : 2e-5);
    },
  );

  // Threads beside a pair: 4 and 8 bits, one slot of x and two, slices, units in even and uneven tiles, groups within and beyond.
  const PAIRED = [
    ['4 bits', shapeOf(11, 24, 256), [8, 8, 32, 2, 2, 1], {}],
    ['two slots of x', shapeOf(11, 24, 256), [8, 8, 32, 2, 2, 1], { depth: 2 }],
    ['8 bits', shapeOf(11, 24, 256, { weight: weight(8, 64) }), [8, 8, 32, 1, 2, 2], {}],
    ['split-K', shapeOf(13, 24, 512), [8, 8, 64, 1, 2, 4], { splitK: 4 }],
    ['tiles that end beyond the features', shapeOf(11, 20, 256), [8, 8, 32, 1, 2, 2], {}],
    ['a glu, uneven', shapeOf(11, 40, 256, { glu: 'silu' }), [8, 16, 32, 2, 2, 1], { depth: 2 }],
  ] as const;
  const MORE_PAIRED = [
    ['8 bits, two slots', shapeOf(11, 24, 256, { weight: weight(8, 32) }), [8, 8, 64, 1, 1, 4], { depth: 2 }],
    ['groups of 128', shapeOf(11, 24, 256, { weight: weight(4, 128) }), [8, 8, 32, 1, 2, 1], {}],
    ['groups of 32', shapeOf(11, 24, 256, { weight: weight(4, 32) }), [8, 8, 64, 1, 2, 2], {}],
    ['a residual', shapeOf(8, 24, 256, { residual: true }), [8, 8, 32, 2, 2, 1], {}],
    ['a glu, even', shapeOf(11, 32, 256, { glu: 'silu' }), [8, 16, 32, 1, 2, 1], {}],
  ] as const;
  it.each(casesOf<(typeof PAIRED | typeof MORE_PAIRED)[number]>(PAIRED, MORE_PAIRED))(
    'codes of two steps at once, %s, emulated',
    async (_, shape, sizes, more) => {
      const { roles, expected } = await linearInputs(device, raw, shape, new Random(31));
      const { got } = await emulated(shape, config(sizes, { ...more, paired: true }), roles);
      const cols = shape.glu === null ? shape.n : shape.n / 2;
      expect(worstRow(got, expected, shape.rows, cols)).toBeLessThan(2e-5);
    },
  );

  it('codes of two steps at once need whole pairs of steps, and words that have a half for each', () => {
    const fits = (
      shape: LinearShape,
      sizes: readonly number[],
      more: Partial<MatrixGemmConfig> = {},
    ): boolean => {
      const { rowKind: _, norm: __, residual: ___, ...rest } = shape;
      const spec: LinearSpec = { ...rest, x: 'f32', out: 'f32', residual: null, norm: null };
      return matrixGemmFits(spec, config(sizes, { ...more, paired: true }));
    };
    const sizes = [8, 8, 32, 2, 2, 1];
    expect(fits(shapeOf(8, 24, 256), sizes)).toBe(true);
    expect(fits(shapeOf(8, 24, 256), sizes, { buffers: 2 })).toBe(false);
    expect(fits(shapeOf(8, 24, 256), sizes, { depth: 4 })).toBe(false);
    expect(fits(shapeOf(8, 24, 256), [8, 8, 256, 2, 2, 1])).toBe(false);
    expect(fits(shapeOf(8, 24, 512), [8, 8, 128, 2, 2, 1], { splitK: 4 })).toBe(false);
    expect(fits(shapeOf(8, 24, 256, { weight: { kind: 'float', dtype: 'f32' } }), sizes)).toBe(false);
    expect(fits(shapeOf(8, 24, 256, { weight: { ...Q4, bits: 6 } }), sizes)).toBe(false);
  });
});
