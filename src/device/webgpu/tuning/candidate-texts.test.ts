/**
 * Every candidate is WGSL that the compiler takes, also where no software GPU has what it needs (f16, subgroup
 * matrices): Dawn's null backend has both, reads texts and runs nothing.
 */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { LARGE } from '../../../../test/devices/large-gpu.js';
import type { LinearShape } from '../kernel.js';
import { allRows } from '../kernels/kv-rows.js';
import { linearKernel } from '../kernels/linear-choice.js';
import { linearCandidates } from './linear-candidates.js';

describe('texts of candidates', () => {
  const held: { gpu: GPU | undefined; device: GPUDevice | undefined } = { gpu: undefined, device: undefined };
  beforeAll(async () => {
    const dawn = (await import('webgpu')) as unknown as { create(flags: string[]): GPU };
    held.gpu = dawn.create(['backend=null', 'enable-dawn-features=allow_unsafe_apis']);
    const adapter = await held.gpu.requestAdapter();
    const requiredFeatures = ['shader-f16', 'subgroups', 'chromium-experimental-subgroup-matrix'];
    held.device = await adapter!.requestDevice({
      requiredFeatures: requiredFeatures as GPUFeatureName[],
    });
  });
  afterAll(async () => {
    held.device?.destroy();
    await held.device?.lost;
    held.gpu = undefined;
  });

  const q = (bits: 4 | 8) => ({ kind: 'affine', bits, groupSize: 64, meta: 'f16' }) as const;
  const shapes = [1, 2, 4, 8, 16, 32, 64, 512].flatMap((rows): Partial<LinearShape>[] => [
    { rows, n: 1024, k: 1024, norm: { eps: 1e-6 }, glu: 'silu', weight: q(4) },
    { rows, n: 1024, k: 2048, residual: true, weight: q(4) },
    ...(rows === 4 || rows === 512
      ? [{ rows, n: 1024, k: 1024, norm: { eps: 1e-6 }, bias: true, weight: q(8) } as const]
      : []),
  ]);

  const f16 = { kind: 'float', dtype: 'f16' } as const;
  const heads = { heads: 4, kvHeads: 2, headDim: 128, key: f16, value: f16, rows: allRows(8) };
  const append = { ...heads, blockTokens: 32, maxBlocksPerSlot: 4, normEps: null };
  const product = { rows: 1, n: 1024, k: 1024, norm: { eps: 1e-6 }, weight: q(4) };
  const appending: Partial<LinearShape>[] = [
    { ...product, bias: true, append: { ...append, normEps: 1e-6, rope: { dims: 64, style: 'half' } } },
    { ...product, append: { ...append, rope: { dims: 128, style: 'interleaved' } } },
    { ...product, append: { ...append, rope: { dims: 128, style: 'half' } } },
  ];

  it.each([...shapes, ...appending])('%j', async (given) => {
    const { n, k, rows } = given as LinearShape;
    const base = { rowKind: 'tokens', xStride: k, outOffset: 0, bias: false, residual: false } as const;
    const shape = {
      ...base,
      norm: null,
      glu: null,
      ...given,
      outStride: given.glu ? n / 2 : n,
    } as LinearShape;
    const candidates = linearCandidates(LARGE, shape);
    expect(candidates.length).toBeGreaterThan(rows === 64 || given.append !== undefined ? 5 : 10);
    const device = held.device!;
    const texts = new Map<string, string>();
    for (const { id, choice } of candidates)
      for (const { wgsl } of linearKernel(LARGE, shape, choice).stages) texts.set(wgsl, id);
    for (const [code, id] of texts) {
      device.pushErrorScope('validation');
      const module = device.createShaderModule({ code });
      const { messages } = await module.getCompilationInfo();
      const error = await device.popErrorScope();
      const errors = messages.filter((m) => m.type === 'error').map((m) => `${m.lineNum}: ${m.message}`);
      expect({ id, errors, error: error?.message }).toEqual({ id, errors: [], error: undefined });
    }
  });
});
