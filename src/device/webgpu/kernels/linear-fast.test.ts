import { describe, expect, it } from 'vitest';
import { LARGE } from '../../../../test/devices/large-gpu.js';
import { type Capabilities, chooseVariant, type LinearShape } from '../kernel.js';
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
    const names = [1, 2, 4, 5, 8, 17, 512].map((rows) => nameFor(LARGE, shapeOf(rows)));
    expect(names).toEqual(['gemv', 'held', 'held', 'few', 'few', 'matrices', 'matrices']);
  });

  it('makes x halves once, before the GEMM that reads them', () => {
    const shape = shapeOf(64);
    const { stages, scratch } = chooseVariant(linearVariants, LARGE, shape)!.build(LARGE, shape);
    expect(stages).toHaveLength(2);
    const [first, second] = stages.map((stage) => stage.bindings.map((b) => `${b.name} ${b.access}`));
    expect(first).toEqual(['x read', 'norm read', 'scratchHalves read_write']);
    expect(second).toContain('scratchHalves read');
    expect(second).not.toContain('x read');
    expect(scratch).toEqual({ scratchHalves: 64 * 4096 * 2 });
  });

  it('leaves long rows that no registers hold to the streaming GEMV', () => {
    expect(nameFor(LARGE, { ...shapeOf(4, 4096, 14336), norm: null, residual: true })).toBe('gemv');
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
    const shapes = [4, 8].map((rows) => ({ ...shapeOf(rows), norm: null }));
    for (const capabilities of [
      { ...LARGE, matrices: [] },
      { ...LARGE, f16: false },
    ])
      expect(shapes.map((shape) => nameFor(capabilities, shape))).toEqual(['held', 'gemv']);
  });
});
