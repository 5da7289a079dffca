import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Random, worstRow } from '../../../../test/devices/numbers.js';
import * as reference from '../../../../test/devices/reference.js';
import { shapeOf } from '../../../../test/setup/linear-inputs.js';
import { uploadTo } from '../../../../test/setup/raw-buffers.js';
import { runKernel } from '../../../../test/setup/run-kernel.js';
import { openTestDevice } from '../../../../test/setup/swiftshader.js';
import type { WebGpuDevice } from '../device.js';
import type { LinearShape, Stage } from '../kernel.js';
import { HALVES, halvesStage } from './linear-halves.js';
import { normedSplitKStage, normsSplitK, SPLIT_K_SUMS, splitKStage } from './linear-split-k.js';

/** Rows of the bucket, and of the step. */
const [ROWS, THERE] = [5, 3];
const EPS = 1e-5;

/** Halves are widened to f32 here, for a software GPU has none: what is tested is who reads what, and the sums. */
describe('the launch that puts slices together and norms the rows', () => {
  let device: WebGpuDevice;
  let raw: GPUDevice;
  beforeAll(async () => {
    ({ device, raw } = await openTestDevice());
  });
  afterAll(async () => {
    await device[Symbol.asyncDispose]();
  });

  const widened = (wgsl: string): string => wgsl.replace('enable f16;', '').replace(/\bf16\b/g, 'f32');
  /** What a stage leaves in a role, of a step of THERE rows: NaN where it writes nothing. */
  async function left(
    stage: Stage,
    role: string,
    n: number,
    roles: Readonly<Record<string, GPUBuffer>>,
  ): Promise<Float32Array> {
    const bytes = ROWS * n * 4;
    const made = stage.bindings
      .filter(({ access }) => access === 'read_write')
      .map(({ name }) => [name, raw.createBuffer({ size: bytes, usage: 128 | 4 | 8 })] as const);
    for (const [, buffer] of made)
      raw.queue.writeBuffer(buffer, 0, new Float32Array(ROWS * n).fill(Number.NaN));
    const own = Object.fromEntries(made);
    // What is read back is the buffer under that name; a stage binds by names of its own.
    const swapped = (name: string): string => (name === 'out' ? role : name === role ? 'out' : name);
    const bindings = stage.bindings.map((b) => ({ ...b, name: swapped(b.name) }));
    const given = Object.fromEntries(
      Object.entries({ ...roles, ...own }).map(([name, buffer]) => [swapped(name), buffer]),
    );
    const got = await runKernel(raw, { stages: [{ ...stage, bindings }] }, THERE, given, widened);
    for (const [, buffer] of made) buffer.destroy();
    return got;
  }

  /** Sums of slices and what is added to them, uploaded, and the rows they make in float64. */
  function inputs({ n, bias, residual }: LinearShape, splitK: number) {
    const random = new Random(n + splitK);
    const sums = random.normals(splitK * ROWS * n, 2);
    const biases = random.normals(n);
    const stream = random.normals(ROWS * n, 3);
    const gain = random.normals(n);
    const wanted = Float64Array.from({ length: ROWS * n }, (_, at) => {
      let value = (bias ? biases[at % n]! : 0) + (residual ? stream[at]! : 0);
      for (let s = 0; s < splitK; s++) value += sums[s * ROWS * n + at]!;
      return value;
    });
    const roles = {
      [SPLIT_K_SUMS]: uploadTo(raw, sums),
      bias: uploadTo(raw, biases),
      residual: uploadTo(raw, stream),
      outNorm: uploadTo(raw, gain),
    };
    return { roles, gain, wanted };
  }

  // Less than a thread each, rows of one vector a thread, some threads with more than others, all that is kept in registers. With
  // the squares added up by a quarter of the threads and fewer too, as where a workgroup has more than they are shared out among.
  it.each([
    [40, 2, 256, { residual: true }],
    [1024, 4, 256, { residual: true }],
    [1000, 8, 256, { bias: true }],
    [3080, 4, 256, { bias: true, residual: true }],
    [8192, 2, 256, {}],
    [200, 2, 32, { residual: true }],
    [1000, 4, 64, { residual: true }],
    [1024, 8, 64, { bias: true, residual: true }],
    [3080, 4, 32, { residual: true }],
    [4096, 8, 128, { residual: true }],
  ] as const)(
    'rows of %i of %i slices, squares added up by %i threads, %o',
    async (n, splitK, summing, of) => {
      const shape = shapeOf(ROWS, n, 64, of);
      expect(normsSplitK(shape)).toBe(true);
      const lanes = device.capabilities.subgroupMinSize;
      const { roles, gain, wanted } = inputs(shape, splitK);
      const stage = (most: number) => normedSplitKStage(shape, splitK, EPS, lanes, most, summing);
      const whole = stage(256);
      const stream = await left(whole, 'out', n, roles);
      const halves = await left(whole, HALVES, n, roles);
      const there = (all: Float32Array): Float32Array => all.subarray(0, THERE * n);
      const want = wanted.slice(0, THERE * n);
      expect(worstRow(there(stream), want, THERE, n)).toBeLessThan(1e-6);
      const normed = reference.rmsNorm(Float32Array.from(want), gain, THERE, n, EPS);
      expect(worstRow(there(halves), normed, THERE, n)).toBeLessThan(1e-6);
      for (const all of [stream, halves])
        expect(all.subarray(THERE * n).every(Number.isNaN), 'rows that are not there').toBe(true);

      // The bits of the launches that it takes the place of.
      const bits = (all: Float32Array): Uint32Array => new Uint32Array(there(all).slice().buffer);
      expect(bits(stream)).toEqual(bits(await left(splitKStage(shape, splitK), 'out', n, roles)));
      const fewer = await left(stage(summing), HALVES, n, roles);
      expect(bits(halves)).toEqual(bits(fewer));
      if (summing === 256) {
        const after = { ...shape, k: n, xStride: n, norm: { eps: EPS } };
        const x = uploadTo(raw, stream);
        const own = await left(halvesStage(after, lanes), HALVES, n, { x, norm: roles.outNorm! });
        expect(bits(halves)).toEqual(bits(own));
        x.destroy();
      }
      for (const buffer of Object.values(roles)) buffer.destroy();
    },
  );

  it('has as many threads as vectors, where a workgroup may', () => {
    const threads = (n: number, most: number): number => {
      const { wgsl } = normedSplitKStage(shapeOf(ROWS, n, 64), 4, EPS, 32, most);
      return Number(/@workgroup_size\((\d+)\)/.exec(wgsl)![1]);
    };
    expect([40, 1024, 1028, 2048, 4096, 8192].map((n) => threads(n, 1024))).toEqual([
      256, 256, 512, 512, 1024, 1024,
    ]);
    expect([1024, 4096].map((n) => threads(n, 300))).toEqual([256, 256]);
  });

  it('is not for a part of a row, nor for more of one than threads keep', () => {
    expect(normsSplitK(shapeOf(ROWS, 8192, 64))).toBe(true);
    expect(normsSplitK(shapeOf(ROWS, 8200, 64))).toBe(false);
    expect(normsSplitK(shapeOf(ROWS, 64, 64, { outStride: 128 }))).toBe(false);
    expect(normsSplitK(shapeOf(ROWS, 64, 64, { outStride: 128, outOffset: 64 }))).toBe(false);
  });

  it('keeps a row that went wrong wrong, and no other', async () => {
    const shape = shapeOf(ROWS, 1024, 64, { residual: true });
    const { roles } = inputs(shape, 2);
    raw.queue.writeBuffer(roles[SPLIT_K_SUMS]!, (1024 + 7) * 4, new Float32Array([Number.NaN]));
    const stage = normedSplitKStage(shape, 2, EPS, device.capabilities.subgroupMinSize, 256);
    const halves = await left(stage, HALVES, 1024, roles);
    expect([0, 1, 2].map((row) => halves.subarray(row * 1024, (row + 1) * 1024).some(Number.isNaN))).toEqual([
      false,
      true,
      false,
    ]);
    expect(halves.subarray(1024, 2048).every(Number.isNaN)).toBe(true);
    const stream = await left(stage, 'out', 1024, roles);
    expect(stream.subarray(1024, 2048).filter(Number.isNaN)).toHaveLength(1);
    for (const buffer of Object.values(roles)) buffer.destroy();
  });
});
