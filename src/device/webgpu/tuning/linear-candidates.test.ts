import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { LARGE } from '../../../../test/devices/large-gpu.js';
import { Random, worstRow } from '../../../../test/devices/numbers.js';
import * as reference from '../../../../test/devices/reference.js';
import { randomMatrix } from '../../../../test/devices/sources.js';
import { emulateMatrices } from '../../../../test/setup/emulate-matrices.js';
import { runKernel } from '../../../../test/setup/run-kernel.js';
import { openTestDevice } from '../../../../test/setup/swiftshader.js';
import type { WebGpuDevice } from '../device.js';
import { type Capabilities, chooseVariant, type Kernel, type LinearShape } from '../kernel.js';
import {
  gemmOf,
  type LinearChoice,
  linearKernel,
  linearKey,
  linearName,
  linearOrder,
} from '../kernels/linear-choice.js';
import { ruleForLinear } from '../kernels/linear-fast.js';
import { type MatrixGemmConfig, matrixGemmFits } from '../kernels/linear-matrix-plan.js';
import type { LinearSpec } from '../kernels/linear-spec.js';
import { linearVariants } from '../kernels/registry.js';
import { factsOf } from './bench.js';
import { linearCandidates } from './linear-candidates.js';
import { TunedChoices } from './tuned-choices.js';

const SMALL: Capabilities = {
  ...LARGE,
  f16: false,
  matrices: [],
  workgroupBytes: 16384,
  workgroupThreads: 256,
};

const Q4 = { kind: 'affine', bits: 4, groupSize: 64, meta: 'f16' } as const;
const shapeOf = (rows: number, n: number, k: number, more: Partial<LinearShape> = {}): LinearShape => ({
  rowKind: 'tokens',
  rows,
  n,
  k,
  weight: Q4,
  xStride: k,
  outStride: more.glu == null ? n : n / 2,
  outOffset: 0,
  bias: false,
  residual: false,
  norm: null,
  glu: null,
  ...more,
});

describe('candidates of a product', () => {
  const norm = { eps: 1e-6 };
  const shapes = [1, 2, 3, 4, 8, 16, 32, 64, 128, 512, 2048].flatMap((rows) => [
    shapeOf(rows, 4096, 1024, { norm }),
    shapeOf(rows, 1024, 3072, { residual: true }),
    shapeOf(rows, 28672, 4096, { norm, glu: 'silu' }),
    shapeOf(rows, 4096, 14336, { residual: true }),
    shapeOf(rows, 130, 96, { weight: { ...Q4, bits: 3, groupSize: 32 } }),
    shapeOf(rows, 512, 256, { weight: { kind: 'float', dtype: 'bf16' }, bias: true }),
  ]);

  it.each([
    ['a large GPU', LARGE],
    ['a GPU with little workgroup memory and no matrices', SMALL],
  ])('begin with the choice by rule, are told apart by name and fit %s', (_, capabilities) => {
    let most = 0;
    for (const shape of shapes) {
      const candidates = linearCandidates(capabilities, shape);
      const rule = ruleForLinear(capabilities, shape);
      if (rule === null) {
        expect(candidates).toEqual([]);
        continue;
      }
      most = Math.max(most, candidates.length);
      expect(candidates[0]).toEqual({ id: linearName(rule), choice: rule, neutral: true });
      expect(new Set(candidates.map((c) => c.id)).size).toBe(candidates.length);
      const order = linearOrder(capabilities, shape, rule);
      for (const { choice, neutral } of candidates) {
        expect(linearOrder(capabilities, shape, choice) === order).toBe(neutral);
        expect(linearKernel(capabilities, shape, choice).stages.at(-1)!.wgsl).toContain('fn main(');
      }
    }
    expect(most).toBeGreaterThan(10);
  });

  it('offer what measurements point at: x in fewer registers or as bytes at four rows, more and smaller tiles at 512', () => {
    const gateUp = shapeOf(4, 28672, 4096, { norm, glu: 'silu' });
    const memory = (kernel: Kernel): number => {
      const arrays = kernel.stages.at(-1)!.wgsl.matchAll(/var<workgroup> \w+: array<(vec4<)?\w+>?, (\d+)>/g);
      return [...arrays].reduce((sum, [, wide, count]) => sum + Number(count) * (wide ? 16 : 4), 0);
    };
    const lean = linearCandidates(LARGE, gateUp).filter(
      ({ choice }) => choice.family === 'few' && memory(linearKernel(LARGE, gateUp, choice)) <= 9 * 1024,
    );
    expect(lean.length).toBeGreaterThan(1);
    const words = linearCandidates(LARGE, gateUp).map(({ choice }) =>
      choice.family === 'held' ? choice.config.words : 0,
    );
    expect(words).toContain(1);
    const families = linearCandidates(LARGE, gateUp).map(({ choice }) => choice.family);
    expect(families).toContain('dots');
    const narrow = shapeOf(512, 1024, 2048, { residual: true });
    const tiles = linearCandidates(LARGE, narrow).map(({ choice, neutral }) => {
      const out: [number, number, number] = [0, 0, 0];
      linearKernel(LARGE, narrow, choice).stages.at(-1)!.workgroups(factsOf(512), out);
      return neutral ? out[0] * out[1] : 0;
    });
    expect(Math.max(...tiles)).toBeGreaterThanOrEqual(256);
  });

  it('are what programs take once they are adopted, for their shape alone', () => {
    const shape = shapeOf(4, 28672, 4096, { norm, glu: 'silu' });
    const labelOf = (capabilities: Capabilities, of: LinearShape) => {
      const variant = chooseVariant(linearVariants, capabilities, of)!;
      return `${variant.name} ${variant.build(capabilities, of).stages.at(-1)!.label}`;
    };
    const before = new Map(shapes.map((s) => [linearKey(s), labelOf(LARGE, s)]));
    const candidates = linearCandidates(LARGE, shape);
    const families = new Set(candidates.map(({ choice }) => choice.family));
    expect([...families].sort()).toEqual(['dots', 'few', 'gemv', 'held']);
    for (const family of families) {
      const { choice } = candidates.findLast((c) => c.choice.family === family)!;
      const choices = new TunedChoices();
      choices.adoptLinear(linearKey(shape), choice);
      const tuned = { ...LARGE, tuned: choices };
      const { label } = linearKernel(LARGE, shape, choice).stages.at(-1)!;
      expect(labelOf(tuned, shape)).toBe(`${family} ${label}`);
      expect(labelOf(tuned, { ...shape, rowKind: 'outputs' })).toBe(`${family} ${label}`);
      for (const other of shapes.filter((s) => linearKey(s) !== linearKey(shape)))
        expect(labelOf(tuned, other)).toBe(before.get(linearKey(other)));
    }
  });

  it('are none where results must not depend on the rows', () => {
    for (const shape of shapes)
      expect(linearCandidates({ ...LARGE, deterministic: true }, shape)).toEqual([]);
  });
});

const FAMILIES = ['gemv', 'held', 'few', 'dots', 'matrices'] as const;
/** What may be lost, by row and in the norm: x as one byte loses what bytes do. */
const boundOf = ({ family, config }: LinearChoice): number =>
  family === 'dots' && config.planes === 1 ? 1e-2 : 2e-4;

describe('candidates on a device', () => {
  let device: WebGpuDevice;
  let raw: GPUDevice;
  beforeAll(async () => {
    ({ device, raw } = await openTestDevice({ minLanes: 4 }));
  });
  afterAll(async () => {
    await device[Symbol.asyncDispose]();
  });

  const upload = (data: Float32Array | Uint32Array): GPUBuffer => {
    const buffer = raw.createBuffer({ size: data.byteLength, usage: 128 | 8 });
    raw.queue.writeBuffer(buffer, 0, data as Float32Array<ArrayBuffer>);
    return buffer;
  };

  async function inputsOf(shape: LinearShape, random: Random) {
    const { rows, n, k, weight } = shape;
    const format =
      weight.kind === 'float'
        ? weight
        : ({ kind: 'affine', bits: weight.bits, groupSize: weight.groupSize, dtype: 'f16' } as const);
    const { source, values } = randomMatrix(random, n, k, format);
    const loaded = await device.loadMatrix([source], { use: 'linear' });
    const x = random.normals(rows * k);
    const width = shape.outStride;
    const residual = random.normals(rows * width);
    const gain = random.normals(k);
    const normed = shape.norm === null ? x : reference.rmsNorm(x, gain, rows, k, shape.norm.eps);
    const both = reference.linear(normed, values, rows, k, n);
    const product = shape.glu === null ? both : reference.glu(both, rows, n / 2, shape.glu);
    const expected = product.map((v, i) => v + (shape.residual ? residual[i]! : 0));
    const shard = loaded.shards[0]!;
    const roles: Record<string, GPUBuffer> = {
      x: upload(x),
      residual: upload(residual),
      norm: upload(gain),
      step: upload(new Uint32Array([rows, rows, 1, 0])),
      codes: shard.codes,
      metas: shard.metas ?? shard.codes,
      out: raw.createBuffer({ size: rows * width * 4, usage: 128 | 4 | 8 }),
    };
    return { roles, expected };
  }

  it.each([
    ['one row, a norm', shapeOf(1, 48, 512, { norm: { eps: 1e-5 } })],
    ['one row, a residual', shapeOf(1, 40, 256, { residual: true, weight: { ...Q4, bits: 8 } })],
    ['two rows, a norm and a glu', shapeOf(2, 96, 512, { norm: { eps: 1e-5 }, glu: 'silu' })],
    ['four rows, a residual', shapeOf(4, 48, 256, { residual: true })],
    ['four rows of 8 bits', shapeOf(4, 40, 256, { weight: { ...Q4, bits: 8 } })],
  ])('%s: within the bound of float64, and bits of the rule where neutral', async (_, shape) => {
    const capabilities = device.capabilities;
    const all = linearCandidates(capabilities, shape);
    // Families share their code: of each kind of order, some from all over the list.
    const spread = (list: typeof all, count: number) =>
      list.filter((_, i) => i % Math.ceil(list.length / count) === 0);
    const some = [
      ...spread(
        all.filter((c) => c.neutral),
        6,
      ),
      ...FAMILIES.flatMap((family) =>
        spread(
          all.filter((c) => !c.neutral && c.choice.family === family),
          4,
        ),
      ),
    ];
    expect(some[0]).toBe(all[0]);
    expect(some.filter((c) => c.neutral).length).toBeGreaterThan(1);
    expect(some.filter((c) => /held w1/.test(c.id)).length).toBeGreaterThan(0);
    const { roles, expected } = await inputsOf(shape, new Random(7));
    const width = shape.outStride;
    let rule: Float32Array | null = null;
    for (const { id, choice, neutral } of some) {
      raw.queue.writeBuffer(roles.out!, 0, new Float32Array(shape.rows * width).fill(Number.NaN));
      const got = await runKernel(raw, linearKernel(capabilities, shape, choice), shape.rows, roles);
      expect(worstRow(got, expected, shape.rows, width), id).toBeLessThan(boundOf(choice));
      rule ??= got;
      if (neutral) expect(new Uint32Array(got.buffer), id).toEqual(new Uint32Array(rule.buffer));
    }
    for (const [name, buffer] of Object.entries(roles))
      if (name !== 'codes' && name !== 'metas') buffer.destroy();
  });

  const config = (sizes: readonly number[], more: Partial<MatrixGemmConfig> = {}): MatrixGemmConfig => {
    const [bm, bn, bk, sm, sn, sk] = sizes as [number, number, number, number, number, number];
    const matrix = { m: 4, n: 4, k: 4, component: 'f32', result: 'f32' };
    const base = { matrix, subgroupSize: 1, buffers: 1, depth: 1, tile: 'vec4' } as const;
    return { ...base, workgroupBytes: 16384, bm, bn, bk, sm, sn, sk, ...more };
  };
  /** A GEMM on matrices of 4 × 4 that are loops, of a shape without its norm. */
  async function emulated(
    shape: LinearShape,
    c: MatrixGemmConfig,
    roles: Readonly<Record<string, GPUBuffer>>,
  ): Promise<{ readonly got: Float32Array; readonly wgsl: string }> {
    const { rowKind: _, norm: __, ...rest } = shape;
    const residual = shape.residual ? 'f32' : null;
    const spec: LinearSpec = { ...rest, x: 'f32', out: 'f32', residual, norm: null };
    expect(matrixGemmFits(spec, c)).toBe(true);
    const kernel = gemmOf(shape, spec, c);
    raw.queue.writeBuffer(roles.out!, 0, new Float32Array(roles.out!.size / 4).fill(Number.NaN));
    const text = (from: string): string =>
      from.includes('subgroup_matrix') ? emulateMatrices(from, 4) : from;
    return { got: await runKernel(raw, kernel, shape.rows, roles, text), wgsl: kernel.stages[0]!.wgsl };
  }

  it('tiles of a GEMM on matrices, emulated: the bits do not know the tile', async () => {
    const shape = shapeOf(13, 24, 128, { residual: true });
    const { roles, expected } = await inputsOf(shape, new Random(11));
    const results: Uint32Array[] = [];
    for (const c of [
      config([8, 8, 32, 2, 2, 1]),
      config([8, 8, 32, 2, 2, 1], { rowsFirst: true }),
      config([4, 8, 32, 1, 2, 1]),
      config([4, 8, 32, 1, 1, 2]),
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

  it('slices along K, emulated: whatever the tile, and with a bias and a residual elsewhere in wider rows', async () => {
    const shape = shapeOf(13, 24, 128);
    const { roles, expected } = await inputsOf(shape, new Random(13));
    const results: Uint32Array[] = [];
    for (const c of [
      config([8, 8, 32, 2, 2, 1], { slices: 2 }),
      config([4, 8, 32, 1, 2, 1], { slices: 2, depth: 2 }),
      config([4, 4, 32, 1, 1, 1], { slices: 4 }),
      config([4, 8, 32, 1, 1, 2], { slices: 4, buffers: 2 }),
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
      bias: upload(bias),
      residual: upload(residual),
      out: raw.createBuffer({ size: 13 * stride * 4, usage: 128 | 4 | 8 }),
    };
    const wider = { ...shape, outStride: stride, outOffset: offset, bias: true, residual: true };
    const { got } = await emulated(wider, config([4, 8, 32, 1, 1, 2], { slices: 2 }), into);
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

  it('a glu of a GEMM on matrices, emulated: its bits do not know where it was made', async () => {
    const shape = shapeOf(13, 44, 32, { glu: 'silu', weight: { kind: 'float', dtype: 'f32' } });
    const { roles, expected } = await inputsOf(shape, new Random(12));
    const beside = await emulated(shape, config([16, 16, 8, 2, 2, 1], { tile: 'scalar' }), roles);
    expect(beside.wgsl).toContain('var<workgroup> scratch:');
    // Where the tiles were: all rows of matrices at once, one at a time, of two copies, with shares along K, more than the tiles.
    for (const [sizes, buffers, workgroupBytes] of [
      [[16, 16, 32, 2, 2, 1], 1, 16384],
      [[16, 16, 8, 2, 2, 1], 1, 1600],
      [[16, 16, 8, 2, 2, 1], 2, 3100],
      [[8, 16, 8, 2, 1, 1], 1, 1200],
      [[16, 16, 8, 1, 2, 2], 1, 1600],
      [[8, 8, 16, 2, 1, 4], 1, 1600],
    ] as const) {
      const { got, wgsl } = await emulated(shape, config(sizes, { buffers, workgroupBytes }), roles);
      expect(wgsl).toContain('var<workgroup> tiles:');
      expect(wgsl).not.toContain('var<workgroup> scratch:');
      expect(worstRow(got, expected, 13, 22), `${sizes}`).toBeLessThan(2e-5);
      if (sizes[5] === 1) expect(new Uint32Array(got.buffer)).toEqual(new Uint32Array(beside.got.buffer));
    }
  });
});
