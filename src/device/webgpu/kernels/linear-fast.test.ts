import { describe, expect, it } from 'vitest';
import { LARGE } from '../../../../test/devices/large-gpu.js';
import { type Capabilities, chooseVariant, type LinearShape } from '../kernel.js';
import { factsOf } from '../tuning/bench.js';
import { gemmSpec, linearFits, linearKernel, linearOrder } from './linear-choice.js';
import { chooseMatrixGemm, ruleForLinear } from './linear-fast.js';
import { matrixGemmKernel } from './linear-matrix.js';
import { linearVariants } from './registry.js';

const shapeOf = (rows: number, n = 4096, k = 4096): LinearShape => ({
  rowKind: 'tokens',
  rows,
  n,
  k,
  weight: { kind: 'affine', bits: 4, groupSize: 64, meta: 'f16' },
  xStride: k,
  outStride: n,
  outOffset: 0,
  bias: false,
  residual: false,
  norm: { eps: 1e-6 },
  glu: null,
});
const nameFor = (capabilities: Capabilities, shape: LinearShape): string | undefined =>
  chooseVariant(linearVariants, capabilities, shape)?.name;

describe('linear on a large GPU', () => {
  it('has a kernel of its own for one row, a few, some more and many, each with the norm folded in', () => {
    const names = [1, 2, 4, 5, 8, 17, 512].map((rows) => nameFor(LARGE, shapeOf(rows, 4096, 2048)));
    expect(names).toEqual(['gemv', 'resident', 'resident', 'skinny', 'skinny', 'matrices', 'matrices']);
  });

  it('adds up in one order for any number of rows where a program wants that', () => {
    const one: Capabilities = { ...LARGE, oneOrder: true };
    const orders = (capabilities: Capabilities, shape: (rows: number) => LinearShape): Set<string | null> =>
      new Set(
        [16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 65_536].map((rows) => {
          const rule = ruleForLinear(capabilities, shape(rows));
          return rule && linearOrder(capabilities, shape(rows), rule);
        }),
      );
    const half = { kind: 'float', dtype: 'f16' } as const;
    for (const weight of [half, shapeOf(1).weight])
      for (const [n, k] of [
        [896, 4096],
        [1024, 4096],
        [1024, 640],
        [1152, 4352],
        [2048, 5120],
        [3584, 5120],
      ] as const)
        for (const more of [{ bias: true }, { residual: true }, { norm: null, bias: true, residual: true }]) {
          const shape = (rows: number): LinearShape => ({ ...shapeOf(rows, n, k), weight, ...more });
          expect(orders(one, shape).size, `${n} × ${k}`).toBe(1);
          expect(orders(LARGE, shape).size).toBeGreaterThan(1);
        }
  });

  it('takes dp4a for up to 8 rows where a weight is large', () => {
    const shapes = [1, 2, 3, 8].map((rows) => shapeOf(rows, 28672, 4096));
    expect(shapes.map((shape) => nameFor(LARGE, shape))).toEqual(['dp4a', 'dp4a', 'dp4a', 'dp4a']);
    expect(nameFor(LARGE, shapeOf(9, 28672, 4096))).toBe('matrices');
    expect(nameFor(LARGE, shapeOf(1))).toBe('gemv');
    expect(nameFor(LARGE, shapeOf(2))).toBe('dp4a');
    for (const rows of [2, 4, 8]) {
      const long = { ...shapeOf(rows, 4096, 14336), norm: null, residual: true };
      const { stages, scratch } = chooseVariant(linearVariants, LARGE, long)!.build(LARGE, long);
      const [first, second] = stages.map((stage) => stage.bindings.map((b) => `${b.name} ${b.access}`));
      expect(first).toEqual(['x read', 'scratchBytes read_write', 'scratchTerms read_write']);
      expect(second).toContain('scratchBytes read');
      expect(second).not.toContain('x read');
      // A byte of x is enough for codes of 4 bits, and two cost little where there are few rows.
      expect(scratch!.scratchBytes).toBe(rows * 14336 * (rows <= 2 ? 2 : 1));
    }
    expect(nameFor(LARGE, { ...shapeOf(1, 4096, 14336), norm: null, residual: true })).toBe('gemv');
    const bytes = { kind: 'affine', bits: 8, groupSize: 64, meta: 'f16' } as const;
    const fine = { ...shapeOf(8, 28672, 4096), weight: bytes };
    expect(nameFor(LARGE, fine)).toBe('skinny');
  });

  it('has sizes of their own for dp4a of eight rows with a glu', () => {
    const sizesOf = (shape: LinearShape): number[] => {
      const rule = ruleForLinear(LARGE, shape);
      if (rule?.family !== 'dp4a') throw new Error(rule?.family);
      const { across, pieces, each, subgroups, splits, chunks } = rule.config;
      return [across, pieces, each, subgroups, splits, chunks];
    };
    const shape = shapeOf(8, 28672, 4096);
    expect(sizesOf(shape)).toEqual([8, 1, 4, 4, 2, 0]);
    expect(sizesOf({ ...shape, outStride: 28672 / 2, glu: 'silu' })).toEqual([8, 1, 4, 8, 1, 2]);
  });

  it('shares a long K among subgroups whatever its length', () => {
    const alongOf = (k: number, rows = 8): readonly number[] => {
      const rule = ruleForLinear(LARGE, { ...shapeOf(rows, 2560, k), norm: null, residual: true });
      if (rule?.family !== 'dp4a') throw new Error(rule?.family);
      return [rule.config.subgroups, rule.config.splits];
    };
    expect([8192, 9216, 14336, 17_408].map((k) => alongOf(k))).toEqual([
      [8, 8],
      [9, 9],
      [14, 7],
      [17, 17],
    ]);
    // 37 · 512: no more subgroups than four, which five rows and more leave to matrices.
    expect(alongOf(18_944, 4)).toEqual([4, 4]);
    expect(nameFor(LARGE, { ...shapeOf(8, 3584, 18_944), norm: null, residual: true })).toBe('skinny');
  });

  it('shares K in steps of 33 to 64 rows too, and weights where features are many', () => {
    const of = (n: number, k: number, rows = 64) => {
      const rule = ruleForLinear(LARGE, { ...shapeOf(rows, n, k), norm: null });
      if (rule?.family !== 'matrices') throw new Error(rule?.family);
      const { bm, bn, splitK = 1, rowsFirst = false } = rule.config;
      return [bm, bn, splitK, rowsFirst];
    };
    expect(of(4096, 4096)).toEqual([64, 64, 4, false]);
    expect(of(4096, 12_288, 33)).toEqual([64, 64, 4, false]);
    expect(of(24_576, 4096)).toEqual([32, 128, 1, true]);
    expect(of(12_352, 2560)).toEqual([64, 128, 2, false]);
    // 1,536 columns are three pairs of steps in each of four slices; 2,816 and 2,880 are not.
    expect(of(2048, 1536)).toEqual([64, 64, 4, false]);
    expect(of(2048, 2816)).toEqual([64, 64, 2, false]);
    expect(of(2048, 2880)[2]).toBe(1);
  });

  it('multiplies by matrices where K is an odd number of 64 columns', () => {
    const of = (rows: number) => {
      const rule = ruleForLinear(LARGE, { ...shapeOf(rows, 5120, 2880), norm: null });
      return rule !== null && 'bn' in rule.config ? [rule.family, rule.config.bn] : rule?.family;
    };
    expect([1, 8, 16, 32].map(of)).toEqual(['gemv', ['skinny', 32], ['matrices', 64], ['matrices', 32]]);
  });

  it('cuts a long K of a prompt into slices where the largest tiles are too few', () => {
    const splitKOf = (rows: number, n: number, k: number): number | undefined => {
      const rule = ruleForLinear(LARGE, { ...shapeOf(rows, n, k), norm: null });
      if (rule?.family !== 'matrices') throw new Error(rule?.family);
      return rule.config.splitK;
    };
    expect(splitKOf(512, 2560, 9216)).toBe(2);
    expect(splitKOf(2048, 2560, 9216)).toBeUndefined();
    expect(splitKOf(512, 2560, 2560)).toBeUndefined();
  });

  it('takes no dp4a where WGSL has none', () => {
    const without = { ...LARGE, packedDots: false };
    for (const rows of [1, 2, 3, 8]) {
      const shape = shapeOf(rows, 28672, 4096);
      const choice = ruleForLinear(LARGE, shape)!;
      expect(choice.family).toBe('dp4a');
      expect([LARGE, without].map((capabilities) => linearFits(capabilities, shape, choice))).toEqual([
        true,
        false,
      ]);
      const name = nameFor(without, shape);
      expect(name).not.toBe('dp4a');
      expect(name).not.toMatch(/^portable/);
    }
  });

  it.each([
    ['Q4_0', { kind: 'symmetric', bits: 4 }, ['gemv', 'dp4a', 'dp4a', 'matrices']],
    ['Q5_0', { kind: 'symmetric', bits: 5 }, ['gemv', 'gemv', 'gemv', 'matrices']],
    ['Q8_0', { kind: 'symmetric', bits: 8 }, ['gemv', 'resident', 'skinny', 'matrices']],
    ['Q2_K', { kind: 'k-quant', bits: 2 }, ['gemv', 'gemv', 'gemv', 'matrices']],
    ['Q4_K', { kind: 'k-quant', bits: 4 }, ['gemv', 'dp4a', 'dp4a', 'matrices']],
    ['Q6_K', { kind: 'k-quant', bits: 6 }, ['gemv', 'gemv', 'gemv', 'matrices']],
    [
      'MXFP4',
      { kind: 'lut4', bits: 4, table: 'e2m1', scale: 'e8m0' },
      ['gemv', 'resident', 'skinny', 'matrices'],
    ],
    [
      'IQ4_XS',
      { kind: 'lut4', bits: 4, table: 'iq4', scale: 'f16-i8' },
      ['gemv', 'resident', 'skinny', 'matrices'],
    ],
  ] as const)('has fast kernels for %s', (_, weight, names) => {
    expect([1, 2, 8, 512].map((rows) => nameFor(LARGE, { ...shapeOf(rows), weight }))).toEqual(names);
  });

  it('makes x halves once, before the GEMM that reads them', () => {
    const shape = shapeOf(64, 16_384);
    const { stages, scratch } = chooseVariant(linearVariants, LARGE, shape)!.build(LARGE, shape);
    expect(stages).toHaveLength(2);
    const [first, second] = stages.map((stage) => stage.bindings.map((b) => `${b.name} ${b.access}`));
    expect(first).toEqual(['x read', 'norm read', 'scratchHalves read_write']);
    expect(second).toContain('scratchHalves read');
    expect(second).not.toContain('x read');
    expect(scratch).toEqual({ scratchHalves: 64 * 4096 * 2 });
  });

  it('leaves long rows that no registers hold to the streaming GEMV', () => {
    expect(nameFor(LARGE, { ...shapeOf(4, 1024, 14336), norm: null, residual: true })).toBe('gemv');
  });

  it('keeps to portable kernels where results must not depend on the rows, or are a reference', () => {
    for (const capabilities of [
      { ...LARGE, deterministic: true },
      { ...LARGE, precision: 'reference' as const },
    ])
      for (const rows of [1, 4, 8, 64])
        expect(nameFor(capabilities, { ...shapeOf(rows), norm: null })).toMatch(/^portable/);
  });

  it('does without matrices, and without halves', () => {
    const shapes = [4, 8].map((rows) => ({ ...shapeOf(rows, 4096, 2048), norm: null }));
    for (const capabilities of [
      { ...LARGE, matrices: [] },
      { ...LARGE, f16: false },
    ])
      expect(shapes.map((shape) => nameFor(capabilities, shape))).toEqual(['resident', 'gemv']);
  });

  it('has one tile of 128 × 128, shared by eight subgroups, for every product of a prompt, with a glu too', () => {
    for (const [n, k, glu] of [
      [28672, 4096, 'silu'],
      [4096, 14336, null],
      [6144, 4096, null],
    ] as const)
      for (const rows of [512, 2048]) {
        const outStride = glu === null ? n : n / 2;
        const outHanded = glu === null ? null : 'halves';
        const shape = { ...shapeOf(rows, n, k), glu, outStride, outHanded } as const;
        const spec = gemmSpec(LARGE, shape);
        const config = chooseMatrixGemm(LARGE, spec);
        expect(config).toMatchObject({ bm: 128, bn: 128, bk: 64, sm: 2, sn: 4, sk: 1 });
        const { workgroupBytes, wgsl } = matrixGemmKernel(spec, config!);
        // The tiles fill it: what the glu is made of lies where they were.
        expect(workgroupBytes).toBe(2 * 128 * (64 + 8) * 2);
        expect(wgsl.match(/var<workgroup>/g)).toHaveLength(1);
      }
  });

  it('cuts K into slices only where their sums can be put together four at a time', () => {
    const down = { ...shapeOf(32, 1024, 3072), norm: null };
    const splitKOf = (shape: LinearShape): number => {
      const rule = ruleForLinear(LARGE, shape);
      if (rule?.family !== 'matrices') throw new Error(rule?.family);
      expect(linearFits(LARGE, shape, rule)).toBe(true);
      return rule.config.splitK ?? 1;
    };
    expect(splitKOf(down)).toBe(4);
    expect(splitKOf({ ...down, outStride: 2048, outOffset: 512 })).toBe(4);
    // A shard that begins at an odd row.
    expect(splitKOf({ ...down, outStride: 2048, outOffset: 510 })).toBe(1);
    expect(splitKOf({ ...down, outStride: 1030 })).toBe(1);
  });

  it('counts the tiles of the rows there are, first or last', () => {
    const shape = { ...shapeOf(512, 6144, 1024), outStride: 3072, glu: 'silu' } as const;
    const config = chooseMatrixGemm(LARGE, gemmSpec(LARGE, shape))!;
    const size = (rowsFirst: boolean): number[] => {
      const { stages } = linearKernel(LARGE, shape, { family: 'matrices', config: { ...config, rowsFirst } });
      const out: [number, number, number] = [0, 0, 0];
      stages.at(-1)!.workgroups(factsOf(300), out);
      return out;
    };
    expect(size(false)).toEqual([6144 / 128, 3, 1]);
    expect(size(true)).toEqual([3, 6144 / 128, 1]);
  });
});
