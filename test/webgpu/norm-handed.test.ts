/**
 * Norms that are made where the slices of a product are put together, on a GPU that multiplies halves: the bits are those of a
 * launch of their own, and the products agree with float64.
 */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { createNullGpu } from '../../bench/null-gpu.mjs';
import type { Device } from '../../src/device/device.js';
import { createWebGpuDevice } from '../../src/device/webgpu/index.js';
import type { WebGpuProgram } from '../../src/device/webgpu/program.js';
import { devices } from '../devices/devices.js';
import { Random, worstRow } from '../devices/numbers.js';
import * as reference from '../devices/reference.js';
import { record, rowsStep, withProgram } from '../devices/run.js';
import { randomMatrix, vectorSource } from '../devices/sources.js';

const Q4 = { kind: 'affine', bits: 4, groupSize: 64, dtype: 'f16' } as const;
const EPS = 1e-5;
const OUT = 192;
/** Rows of steps: of those up to 8, of 9 to 32, and of more, only some have slices. */
const ROWS = [1, 8, 9, 16, 17, 25, 32, 33, 100];

/** As many vectors as threads add squares up, twice as many, four times; and some that are no whole number of them. */
const LARGE_SIZES = [
  [1024, 3072],
  [1536, 2048],
  [2048, 1024],
  [4096, 4096],
];

describe.each(devices.filter((d) => d.name === 'webgpu default'))('norms behind slices, $name', (spec) => {
  let device: Device;
  beforeAll(async () => {
    device = await spec.create();
  });
  afterAll(async () => {
    await device[Symbol.asyncDispose]();
  });

  /** Output projection, gated MLP and the next product, with the norms and residuals between them, and their values in float64. */
  async function layer(on: Device, hidden: number, inner: number) {
    const random = new Random(hidden + inner);
    const matrix = async (rows: number, cols: number) => {
      const { source, values } = randomMatrix(random, rows, cols, Q4);
      return { values, weight: await on.loadMatrix([source], { use: 'linear' }) };
    };
    const [o, up, down, next, probe] = [
      await matrix(hidden, hidden),
      await matrix(2 * inner, hidden),
      await matrix(hidden, inner),
      await matrix(OUT, hidden),
      await matrix(64, hidden),
    ];
    const gains = [random.normals(hidden), random.normals(hidden)] as const;
    const [one, two] = [
      await on.loadVector(vectorSource(gains[0])),
      await on.loadVector(vectorSource(gains[1])),
    ];
    /** `apart`: another product stands between product and norm, and nothing is left for what is behind. */
    const recorded = (apart: boolean) =>
      record((ops) => {
        const x = ops.input('tokens', hidden);
        const y = ops.keep(ops.linear(x, o.weight, x));
        if (apart) ops.keep(ops.linear(y, probe.weight));
        const gated = ops.glu(ops.linear(ops.rmsNorm(y, one, EPS), up.weight), 'silu');
        const z = ops.keep(ops.linear(gated, down.weight, y));
        if (apart) ops.keep(ops.linear(z, probe.weight));
        return { x, y, z, end: ops.keep(ops.linear(ops.rmsNorm(z, two, EPS), next.weight)) };
      });
    const expected = (x: Float32Array, rows: number) => {
      const y = reference.linear(x, o.values, rows, hidden, hidden, undefined, x);
      const normed = reference.rmsNorm(Float32Array.from(y), gains[0], rows, hidden, EPS);
      const both = reference.linear(normed, up.values, rows, hidden, 2 * inner);
      const gated = reference.glu(both, rows, inner, 'silu');
      const z = reference.linear(gated, down.values, rows, inner, hidden, undefined, Float32Array.from(y));
      const last = reference.rmsNorm(Float32Array.from(z), gains[1], rows, hidden, EPS);
      return { y, z, end: reference.linear(last, next.values, rows, hidden, OUT) };
    };
    return { recorded, expected };
  }

  const sizes = spec.slow ? [[1024, 1024]] : LARGE_SIZES;
  it.each(sizes)('give the bits of a launch of their own: %i, %i inside', async (hidden, inner) => {
    const { recorded, expected } = await layer(device, hidden!, inner!);
    const [own, handing] = [recorded(true), recorded(false)];
    await withProgram(device, own.graph, null, (plain) =>
      withProgram(device, handing.graph, null, async (program) => {
        for (const rows of spec.slow ? [3, 20] : ROWS.filter((rows) => rows <= 64)) {
          const random = new Random(rows);
          const x = random.normals(rows * hidden!);
          const wrong = rows > 8 ? 5 : -1;
          if (wrong >= 0) x[wrong * hidden! + 3] = Number.NaN;
          plain.write(own.tensors.x, x);
          program.write(handing.tensors.x, x);
          await plain.submit(rowsStep(rows));
          await program.submit(rowsStep(rows));
          // All rows have the bits of the other way; some of them are looked at.
          const some = [...new Set([0, wrong, rows >> 1, rows - 1])].filter((row) => row >= 0);
          const rowOf = (all: Float32Array, row: number, cols: number) =>
            all.slice(row * cols, (row + 1) * cols);
          const wanted = expected(
            Float32Array.from(some.flatMap((row) => [...rowOf(x, row, hidden!)])),
            some.length,
          );
          // A few rows of large weights are multiplied by bytes of x.
          const bound = rows <= 8 ? 5e-2 : 8e-3;
          for (const [name, cols] of [
            ['y', hidden!],
            ['z', hidden!],
            ['end', OUT],
          ] as const) {
            const where = `${name} of ${rows} rows`;
            const [got, apart] = [
              await program.read(handing.tensors[name], rows),
              await plain.read(own.tensors[name], rows),
            ];
            expect(new Uint32Array(got.buffer), where).toEqual(new Uint32Array(apart.buffer));
            some.forEach((row, i) => {
              const part = rowOf(got, row, cols);
              if (row === wrong) expect(part.some(Number.isNaN), `${where}: ${row}`).toBe(true);
              else {
                const own = wanted[name].slice(i * cols, (i + 1) * cols);
                expect(worstRow(part, own, 1, cols), `${where}: ${row}`).toBeLessThan(bound);
              }
            });
          }
        }
      }),
    );
  });

  it('leave out the launch of a norm behind slices, where there is one', async () => {
    // And on a GPU that does nothing, but would have all that is asked for.
    const none = await createWebGpuDevice({ gpu: createNullGpu() });
    let most = 0;
    for (const on of [device, none])
      for (const [hidden, inner] of on === none ? LARGE_SIZES : sizes) {
        const { recorded } = await layer(on, hidden!, inner!);
        const labels = (apart: boolean): Promise<string[][]> =>
          withProgram(on, recorded(apart).graph, null, async (program) =>
            ROWS.map((rows) => (program as WebGpuProgram).describe(rows, 0)),
          );
        const [own, less] = [await labels(true), await labels(false)];
        const of = (all: string[], what: string): number =>
          all.filter((label) => new RegExp(`^${what} \\[${hidden}\\]`).test(label)).length;
        ROWS.forEach((rows, i) => {
          const norms = of(own[i]!, 'rms-norm to halves');
          const both = of(less[i]!, 'split-k \\d+, rms-norm to halves');
          expect(both, `${rows} rows`).toBe(Math.min(of(own[i]!, 'split-k \\d+'), norms));
          expect(of(less[i]!, 'rms-norm to halves')).toBe(norms - both);
          expect(of(own[i]!, 'split-k \\d+, rms-norm to halves')).toBe(0);
          most = Math.max(most, both);
        });
      }
    expect(most).toBe(2);
    await none[Symbol.asyncDispose]();
  });
});
