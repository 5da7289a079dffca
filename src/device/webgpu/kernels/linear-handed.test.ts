import { describe, expect, it } from 'vitest';
import { LARGE } from '../../../../test/devices/large-gpu.js';
import type { Capabilities, LinearShape } from '../kernel.js';
import { handsHalves, linearKernel, takesHalves } from './linear-choice.js';
import { fastLinear, ruleForLinear } from './linear-fast.js';

const base = {
  rowKind: 'tokens',
  weight: { kind: 'affine', bits: 4, groupSize: 64, meta: 'f16' },
  outOffset: 0,
  bias: false,
} as const;

/** Gate and up of 3,072, and the product behind them. */
function pair(rows: number): [LinearShape, LinearShape] {
  return [
    {
      ...base,
      rows,
      n: 6144,
      k: 1024,
      xStride: 1024,
      outStride: 3072,
      residual: false,
      norm: { eps: 1e-6 },
      glu: 'silu',
    },
    {
      ...base,
      rows,
      n: 1024,
      k: 3072,
      xStride: 3072,
      outStride: 1024,
      residual: true,
      norm: null,
      glu: null,
    },
  ];
}

const familyOn = (capabilities: Capabilities) => (shape: LinearShape) =>
  fastLinear.find((variant) => variant.supports(capabilities, shape))?.name;

describe('halves that one GEMM hands to the next', () => {
  it.each([32, 64, 512])('lie of %i rows where the launch that makes them would leave them', (rows) => {
    const [up, down] = pair(rows);
    expect(handsHalves(LARGE, up, down, familyOn(LARGE))).toBe(true);
    const given = { ...up, outHanded: true };
    const taken = { ...down, xHanded: true };
    // What is handed over decides nothing else.
    expect(ruleForLinear(LARGE, given)).toEqual(ruleForLinear(LARGE, up));
    expect(ruleForLinear(LARGE, taken)).toEqual(ruleForLinear(LARGE, down));

    const first = linearKernel(LARGE, given, ruleForLinear(LARGE, given)!);
    const writer = first.stages.at(-1)!;
    expect(writer.bindings).toContainEqual({
      name: 'scratchHanded',
      access: 'read_write',
      type: 'array<f16>',
    });
    expect(writer.wgsl).toContain('let to = row * 3072u + 0u + feature;');
    expect(writer.wgsl).toContain('out[to] = half_(value);');
    expect(first.scratch).toMatchObject({ scratchHanded: rows * 3072 * 2, scratchHalves: rows * 1024 * 2 });

    const own = linearKernel(LARGE, down, ruleForLinear(LARGE, down)!);
    const second = linearKernel(LARGE, taken, ruleForLinear(LARGE, taken)!);
    expect(own.stages.map(({ label }) => label)[0]).toBe('halves [3072]');
    expect(second.stages).toHaveLength(own.stages.length - 1);
    // The same product of the same halves, from another buffer.
    expect(second.stages[0]!.wgsl).toBe(own.stages[1]!.wgsl);
    expect(second.stages[0]!.bindings).toContainEqual({
      name: 'scratchHanded',
      access: 'read',
      type: 'array<vec4<u32>>',
    });
  });

  it('are not where a product has no matrices of halves, a norm of its own, or another width', () => {
    const [up, down] = pair(32);
    const family = familyOn(LARGE);
    const [fewUp, fewDown] = pair(8);
    expect(handsHalves(LARGE, fewUp, fewDown, family)).toBe(false);
    expect(handsHalves(LARGE, up, { ...down, norm: { eps: 1e-6 } }, family)).toBe(false);
    expect(handsHalves(LARGE, up, { ...down, k: 1536 }, family)).toBe(false);
    expect(handsHalves(LARGE, { ...up, glu: null }, down, family)).toBe(false);
    const wide = { ...LARGE, f16: false };
    expect(handsHalves(wide, up, down, familyOn(wide))).toBe(false);
  });

  it('are taken from attention by the products that would make them of it', () => {
    const taken = (rows: number, more: Partial<LinearShape>, capabilities: Capabilities = LARGE): boolean =>
      takesHalves(capabilities, { ...pair(rows)[1], ...more }, 2048, familyOn(capabilities));
    const output = { k: 2048, xStride: 2048 };
    expect([1, 4, 8, 16, 32, 512].map((rows) => taken(rows, output))).toEqual([
      false,
      false,
      false,
      true,
      true,
      true,
    ]);
    expect(taken(32, {})).toBe(false);
    expect(taken(32, { ...output, norm: { eps: 1e-6 } })).toBe(false);
    expect(taken(32, output, { ...LARGE, f16: false })).toBe(false);
    expect(taken(32, output, { ...LARGE, deterministic: true })).toBe(false);
  });
});
