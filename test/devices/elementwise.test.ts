import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Device } from '../../src/device/device.js';
import { ACTIVATIONS } from '../../src/device/graph.js';
import { type DeviceSpec, devices } from './devices.js';
import { Random, worstRow } from './numbers.js';
import * as reference from './reference.js';
import { LIMITS, record, rowsStep, runOnce, withProgram } from './run.js';
import { vectorSource } from './sources.js';

/** f32 rounding, or f16 storage of activations on a GPU. */
const bound = (spec: DeviceSpec): number =>
  spec.kind === 'webgpu' && spec.precision === 'default' ? 1e-3 : 2e-6;

describe.each(devices)('elementwise ops on $name', (spec) => {
  let device: Device;
  beforeAll(async () => {
    device = await spec.create();
  });
  afterAll(async () => {
    await device[Symbol.asyncDispose]();
  });

  it.each([1, 2, 3, 17, 64])('rms-norm of %i rows', async (rows) => {
    for (const cols of [4, 64, 384, 1000]) {
      const random = new Random(rows + cols);
      const x = random.normals(rows * cols, 3);
      const w = random.normals(cols);
      const weight = await device.loadVector(vectorSource(w));
      const out = await runOnce(device, rows, { cols, data: x }, (ops, t) => ops.rmsNorm(t, weight, 1e-6));
      expect(worstRow(out, reference.rmsNorm(x, w, rows, cols, 1e-6), rows, cols)).toBeLessThan(bound(spec));
    }
  });

  it.each([
    [1, 3],
    [5, 18],
    [17, 96],
    [2, 1000],
    [3, 4096],
  ])('adds what is normed to a sum: %i rows of %i', async (rows, cols) => {
    const random = new Random(cols);
    const [x, y] = [random.normals(rows * cols), random.normals(rows * cols, 3)];
    const gains = [random.normals(cols), random.normals(cols)];
    const [first, second] = await Promise.all(gains.map((gain) => device.loadVector(vectorSource(gain))));
    const run = (count: number): Promise<Float32Array> =>
      runOnce(device, count, { cols, data: x.subarray(0, count * cols) }, (_, t) => t, {
        cols,
        data: y.subarray(0, count * cols),
        // On either side of a sum, and of what a sum gave.
        use: (ops, t, other) => {
          const sum = ops.add(other, ops.rmsNorm(t, first!, 1e-6));
          return ops.add(ops.rmsNorm(sum, second!, 1e-3), sum);
        },
      });
    const out = await run(rows);
    const plus = (a: Float64Array | Float32Array, b: Float64Array | Float32Array): Float32Array =>
      Float32Array.from(a, (value, i) => value + b[i]!);
    const sum = plus(y, reference.rmsNorm(x, gains[0]!, rows, cols, 1e-6));
    const wanted = plus(reference.rmsNorm(sum, gains[1]!, rows, cols, 1e-3), sum);
    expect(worstRow(out, wanted, rows, cols)).toBeLessThan(bound(spec));
    expect(await run(1)).toEqual(out.slice(0, cols));
  });

  it('rms-norm of zeros is zeros, and a NaN row stays alone', async () => {
    const cols = 64;
    const x = new Float32Array(3 * cols);
    x.fill(1, cols, 2 * cols);
    x[2 * cols] = Number.NaN;
    const weight = await device.loadVector(vectorSource(new Float32Array(cols).fill(2)));
    const out = await runOnce(device, 3, { cols, data: x }, (ops, t) => ops.rmsNorm(t, weight, 1e-6));
    expect(out.subarray(0, cols).every((v) => v === 0)).toBe(true);
    for (const v of out.subarray(cols, 2 * cols)) expect(v).toBeCloseTo(2, 2);
    expect(Number.isNaN(out[2 * cols]!)).toBe(true);
  });

  it.each(ACTIVATIONS)('glu with %s', async (name) => {
    const random = new Random(3);
    for (const [rows, half] of [
      [1, 4],
      [3, 100],
      [17, 128],
    ] as const) {
      const x = random.normals(rows * half * 2, 3);
      // The tails: nothing may overflow there.
      x.set([-100, 100, -20, 20], 0);
      const out = await runOnce(device, rows, { cols: half * 2, data: x }, (ops, t) => ops.glu(t, name));
      expect(worstRow(out, reference.glu(x, rows, half, name), rows, half)).toBeLessThan(
        Math.max(bound(spec), 2e-6),
      );
    }
  });

  it('adds', async () => {
    const random = new Random(5);
    const [rows, cols] = [7, 96];
    const a = random.normals(rows * cols);
    const b = random.normals(rows * cols);
    const out = await runOnce(device, rows, { cols, data: a }, (_, t) => t, {
      cols,
      data: b,
      use: (ops, x, e) => ops.add(x, e),
    });
    const expected = a.map((v, i) => v + b[i]!);
    expect(worstRow(out, expected, rows, cols)).toBeLessThan(bound(spec));
  });

  it.each([
    [0.22, null],
    [1, 30],
    [-1.5, 2],
  ])('scales by %d with a cap of %s, a row alone as in company', async (factor, softcap) => {
    const random = new Random(7);
    for (const [rows, cols] of [
      [1, 4],
      [5, 99],
      [3, 2050],
    ] as const) {
      const x = random.normals(rows * cols, 3);
      // The tails: nothing may overflow there.
      x.set([-1e5, 1e5, 0, 1e-3], 0);
      const out = await runOnce(device, rows, { cols, data: x }, (ops, t) => ops.scale(t, factor, softcap));
      const expected = reference.scale(x, factor, softcap);
      expect(worstRow(out, expected, rows, cols)).toBeLessThan(bound(spec));
      const alone = await runOnce(device, 1, { cols, data: x.subarray(0, cols) }, (ops, t) =>
        ops.scale(t, factor, softcap),
      );
      expect([...alone]).toEqual([...out.subarray(0, cols)]);
    }
  });

  it.each([
    [1, 99, [-1.5, 2]],
    [5, 2052, [-0.5, 0.25]],
    [7, 96, [-3e38, 1, -0.25, 3e38, 0, 0]],
  ])(
    'clamps %i rows of %i columns to %j, as they are where nothing bounds them',
    async (rows, cols, bounds) => {
      const x = new Random(8).normals(rows * cols, 2);
      x.set([-1e30, 1e30, 0, 1e-30], 0);
      const held = await device.loadVector(vectorSource(Float32Array.from(bounds)));
      const out = await runOnce(device, rows, { cols, data: x }, (ops, t) => ops.clamp(t, held));
      expect([...out]).toEqual([...Float32Array.from(reference.clamp(x, cols, Float32Array.from(bounds)))]);
    },
  );

  it('selects output rows, none at all included', async () => {
    const random = new Random(9);
    const [rows, cols] = [20, 64];
    const x = random.normals(rows * cols);
    const recorded = record((ops) => {
      const input = ops.input('tokens', cols);
      const weight = ops.keep(ops.selectOutputs(input));
      return { input, out: weight };
    });
    await withProgram(device, recorded.graph, null, async (program) => {
      program.write(recorded.tensors.input, x);
      const step = rowsStep(rows);
      step.outputs.set([0, 7, 19]);
      step.outputCount = 3;
      await program.submit(step);
      const out = await program.read(recorded.tensors.out, 3);
      [0, 7, 19].forEach((row, i) => {
        const expected = x.subarray(row * cols, (row + 1) * cols);
        expect(worstRow(out.subarray(i * cols, (i + 1) * cols), expected, 1, cols)).toBeLessThan(bound(spec));
      });
      step.outputCount = 0;
      expect((await program.submit(step)).ids).toHaveLength(0);
    });
  });

  it.each([12, 10])('takes inputs of %i columns where they lie, and makes zeros of them', async (cols) => {
    const { graph, tensors } = record((ops) => {
      const x = ops.input('tokens', cols);
      return { x, out: ops.keep(ops.scale(x, 2)) };
    });
    await withProgram(device, graph, null, async (program) => {
      // The second one is larger, the third finds what the second left.
      for (const [rows, seed] of [
        [3, 1],
        [9, 2],
        [5, 3],
      ] as const) {
        const data = new Random(seed).normals(rows * cols);
        await program.fill(tensors.x, rows, (room) => {
          expect(room.length).toBe(rows * cols);
          room.set(data);
        });
        await program.submit(rowsStep(rows));
        expect([...(await program.read(tensors.out, rows))]).toEqual([...data.map((v) => 2 * v)]);
        await program.fill(tensors.x, rows, (room) => room.set(data));
        program.clear(tensors.x, 2);
        await program.submit(rowsStep(rows));
        const left = data.map((v, i) => (i < 2 * cols ? 0 : 2 * v));
        expect([...(await program.read(tensors.out, rows))]).toEqual([...left]);
      }
      const wrong = expect.objectContaining({ code: 'shape-mismatch' });
      await expect(program.fill(tensors.x, LIMITS.maxTokens + 1, () => {})).rejects.toThrowError(wrong);
      expect(() => program.clear(tensors.x, LIMITS.maxTokens + 1)).toThrowError(wrong);
    });
  });

  it('keeps tensors apart that live at the same time', async () => {
    // A diamond: x → a, b, c all alive until the end; a wrong lifetime plan would overwrite one of them.
    const cols = 32;
    const rows = 5;
    const x = new Random(21).normals(rows * cols);
    const ones = await device.loadVector(vectorSource(new Float32Array(cols).fill(1)));
    const out = await runOnce(device, rows, { cols, data: x }, (ops, t) => {
      const a = ops.add(t, t);
      const b = ops.add(a, t);
      const c = ops.add(ops.rmsNorm(b, ones, 1e-6), b);
      const d = ops.add(c, a);
      return ops.add(ops.add(d, b), t);
    });
    const b = x.map((v) => 3 * v);
    const n = reference.rmsNorm(b, new Float32Array(cols).fill(1), rows, cols, 1e-6);
    const expected = x.map((v, i) => n[i]! + 3 * v + 2 * v + 3 * v + v);
    expect(worstRow(out, expected, rows, cols)).toBeLessThan(bound(spec) * 4);
  });
});
