/** What goes with a product: stacked parts, biases and residuals, numbers that are not finite or at their largest, threads. */
import { once } from 'node:events';
import { Worker } from 'node:worker_threads';
import { beforeAll, describe, expect, it } from 'vitest';
import { bench, openBuilds } from '../../../test/devices/cpu-builds.js';
import {
  activations,
  BUILDS,
  exactProduct,
  int8Bound,
  memorySource,
  random,
  scaledMatrix,
  testMatrix,
  vectorSource,
} from '../../../test/devices/cpu-products.js';
import { expectSameBits } from '../../../test/devices/same-bits.js';
import { PRECISIONS } from '../device.js';
import type { AffineBits, FloatDtype, GroupSize, MatrixFormat } from '../weights.js';
import { AFFINE_BITS, GROUP_SIZES, LUT4_TABLES } from '../weights.js';

beforeAll(openBuilds);

describe.each(BUILDS)('what goes with a product, %s', (build) => {
  const affine = (bits: AffineBits, groupSize: GroupSize, dtype: FloatDtype): MatrixFormat => ({
    kind: 'affine',
    bits,
    groupSize,
    dtype,
  });

  it('stacks parts of any format, adds biases and a residual', async () => {
    const cols = 128;
    const parts = [
      testMatrix(5, cols, affine(4, 64, 'bf16'), 11),
      testMatrix(9, cols, affine(4, 64, 'bf16'), 12),
      testMatrix(3, cols, affine(6, 32, 'f16'), 13),
      testMatrix(10, cols, { kind: 'float', dtype: 'bf16' }, 14),
    ];
    const rows = parts.reduce((sum, p) => sum + p.source.rows, 0);
    const next = random(15);
    const biases = parts.map((p, i) => (i === 1 ? null : Float32Array.from({ length: p.source.rows }, next)));
    for (const precision of PRECISIONS) {
      const device = bench(build);
      const matrix = await device.pack(
        parts.map((p) => p.source),
        biases.map((b) => b && vectorSource(b)),
      );
      expect(matrix.rows).toBe(rows);
      expect(matrix.segments.length).toBe(3);
      for (const n of [1, 6]) {
        const x = activations(n, cols, 16);
        const residual = Float32Array.from({ length: n * rows }, next);
        const got = device.multiply(matrix, x, precision, residual);
        let column = 0;
        for (const [i, { source, weights }] of parts.entries()) {
          const { groupSize } = source.format.kind === 'affine' ? source.format : { groupSize: 0 };
          for (let o = 0; o < source.rows; o++, column++) {
            for (let r = 0; r < n; r++) {
              const { sum, magnitude } = exactProduct(weights, x, cols, r, o);
              const want = sum + (biases[i]?.[o] ?? 0) + residual[r * rows + column]!;
              let bound = (magnitude + 4) * cols * 2 ** -24;
              if (groupSize && precision === 'default') bound += int8Bound(weights, x, cols, groupSize, r, o);
              expect(Math.abs(got[r * rows + column]! - want)).toBeLessThanOrEqual(bound);
            }
          }
        }
      }
    }
  });

  it('keeps what is not finite in its row', async () => {
    const cols = 192;
    const formats = [affine(4, 64, 'bf16'), affine(8, 32, 'f32'), { kind: 'float', dtype: 'f16' } as const];
    for (const format of formats) {
      for (const precision of PRECISIONS) {
        const device = bench(build);
        const matrix = await device.pack([testMatrix(19, cols, format, 21).source]);
        const clean = activations(8, cols, 22);
        const dirty = clean.slice();
        dirty[1 * cols + 70] = Number.NaN;
        dirty[4 * cols + 1] = Number.POSITIVE_INFINITY;
        dirty[6 * cols + 191] = Number.NEGATIVE_INFINITY;
        const want = device.multiply(matrix, clean, precision);
        const got = device.multiply(matrix, dirty, precision);
        for (let r = 0; r < 8; r++) {
          const own = got.subarray(r * 19, (r + 1) * 19);
          if (r === 1 || r === 4 || r === 6) expect(own.some(Number.isFinite)).toBe(false);
          else expectSameBits(own, want.subarray(r * 19, (r + 1) * 19));
        }
      }
    }
  });

  it('gives a row the same bits in whichever chunk of rows it is', async () => {
    const cols = 64;
    const device = bench(build);
    const matrix = await device.pack([testMatrix(21, cols, affine(4, 32, 'bf16'), 41).source]);
    for (const rows of [264, 265, 270, 531]) {
      const x = activations(rows, cols, 42);
      const all = device.multiply(matrix, x, 'default');
      for (let r = 0; r < rows; r++) {
        const one = device.multiply(matrix, x.slice(r * cols, (r + 1) * cols), 'default');
        expectSameBits(one, all.subarray(r * 21, (r + 1) * 21));
      }
    }
  });

  it('gives many rows the bits of one, whatever the scales of weights and activations', async () => {
    const cols = 256;
    const rows = 43;
    const x = activations(rows, cols, 51);
    const change = (row: number, to: (value: number, col: number) => number) => {
      for (let c = 0; c < cols; c++) x[row * cols + c] = to(x[row * cols + c]!, c);
    };
    change(1, (v) => v * 1e-30);
    change(6, (v) => v * 1e35);
    change(9, (v, c) => (c === 100 ? Number.NaN : v));
    change(14, () => 0);
    // The largest codes, of one sign and of both.
    change(19, () => 1);
    change(22, (_, c) => (c % 4 < 2 ? 1 : -1));
    for (const bits of [2, 3, 4] as const) {
      for (const groupSize of GROUP_SIZES) {
        for (const dtype of ['f16', 'bf16', 'f32'] as const) {
          const device = bench(build);
          const matrix = await device.pack([scaledMatrix(cols, bits, groupSize, dtype)]);
          const all = device.multiply(matrix, x, 'default');
          for (let r = 0; r < rows; r++) {
            const one = device.multiply(matrix, x.slice(r * cols, (r + 1) * cols), 'default');
            // One NaN is as good as another.
            const many = all.slice(r * 24, (r + 1) * 24);
            const plain = (v: number): number => (Number.isNaN(v) ? Number.NaN : v);
            expectSameBits(one.map(plain), many.map(plain));
          }
        }
      }
    }
  });

  it('never overflows: codes and activations at their largest', async () => {
    const cols = 256;
    for (const bits of AFFINE_BITS) {
      for (const groupSize of GROUP_SIZES) {
        const device = bench(build);
        const format = affine(bits, groupSize, 'f32');
        const groups = (8 * cols) / groupSize;
        const ones = new Uint8Array(Float32Array.from({ length: groups }, () => 1).buffer);
        const data = new Uint8Array((8 * cols * bits) / 8).fill(255);
        const matrix = await device.pack([
          memorySource('ones', 8, cols, format, data, ones, new Uint8Array(groups * 4)),
        ]);
        // All of one sign, and columns in pairs of alternating signs: the sums of the two kinds of lanes.
        const x = new Float32Array(33 * cols);
        const rows = [0, 1, 2].map((k) =>
          Float32Array.from({ length: cols }, (_, c) => [127, c & 2 ? -127 : 127, -127][k]!),
        );
        for (let r = 0; r < 33; r++) x.set(rows[r % 3]!, r * cols);
        const top = 2 ** bits - 1;
        for (const n of [1, 2, 8, 33]) {
          const got = device.multiply(matrix, x.slice(0, n * cols), 'default');
          for (let i = 0; i < got.length; i++) {
            expect(got[i]).toBe([cols * 127 * top, 0, -cols * 127 * top][Math.floor(i / 8) % 3]);
          }
        }
      }
    }
  });

  it('never overflows: numbers of tables and activations at their largest', async () => {
    const cols = 256;
    for (const [table, scale, one] of [
      ['iq4', 'f16', [0, 0x3c]],
      ['e2m1', 'e8m0', [127]],
    ] as const) {
      const format = { kind: 'lut4', bits: 4, table, scale, dtype: 'f16' } as const;
      // Row k has code k alone.
      const data = Uint8Array.from({ length: 16 * (cols / 2) }, (_, i) => Math.floor(i / (cols / 2)) * 17);
      const scales = Uint8Array.from(
        { length: 16 * (cols / 32) * one.length },
        (_, i) => one[i % one.length]!,
      );
      const device = bench(build);
      const matrix = await device.pack([memorySource('codes', 16, cols, format, data, scales)]);
      const rows = [0, 1, 2].map((k) =>
        Float32Array.from({ length: cols }, (_, c) => [127, c & 2 ? -127 : 127, -127][k]!),
      );
      for (const n of [1, 2, 4, 33]) {
        const x = new Float32Array(n * cols);
        for (let r = 0; r < n; r++) x.set(rows[r % 3]!, r * cols);
        const got = device.multiply(matrix, x, 'default');
        for (let i = 0; i < got.length; i++) {
          const sum = cols * 127 * LUT4_TABLES[table][i % 16]!;
          // Without the sign of a zero.
          expect(got[i]! + 0).toBe([sum, 0, -sum][Math.floor(i / 16) % 3]! + 0);
        }
      }
    }
  });

  it('multiplies rows of zeros and of tiny numbers', async () => {
    const device = bench(build);
    const { source, weights } = testMatrix(8, 64, affine(4, 32, 'bf16'), 31);
    const matrix = await device.pack([source]);
    const x = activations(3, 64, 32);
    x.fill(0, 0, 64);
    for (let c = 64; c < 128; c++) x[c]! *= 1e-38;
    const got = device.multiply(matrix, x, 'default');
    expect([...got.subarray(0, 8)].map(Math.abs)).toEqual(new Array(8).fill(0));
    for (let o = 0; o < 8; o++) {
      expect(Math.abs(got[8 + o]!)).toBeLessThan(1e-33);
      const { sum } = exactProduct(weights, x, 64, 2, o);
      expect(Math.abs(got[16 + o]! - sum)).toBeLessThan(int8Bound(weights, x, 64, 32, 2, o) + 1e-6);
    }
  });
});

/** Runs commands on threads of its own, as the device does. */
const THREAD = `
  const { parentPort, workerData } = require('node:worker_threads');
  const { memory, module, thread, threads } = workerData;
  const { run } = new WebAssembly.Instance(module, { env: { memory, abort() {} } }).exports;
  parentPort.on('message', ({ at, count }) => parentPort.postMessage(run(at, count, thread, threads)));
`;

describe.each(BUILDS)('threads, %s', (build) => {
  it.each([2, 3])('give the same bits: %i', async (threads) => {
    const device = bench(build);
    const { memory, module } = device;
    const workers = Array.from(
      { length: threads },
      (_, thread) => new Worker(THREAD, { eval: true, workerData: { memory, module, thread, threads } }),
    );
    const formats: MatrixFormat[] = [
      { kind: 'affine', bits: 4, groupSize: 64, dtype: 'bf16' },
      { kind: 'affine', bits: 6, groupSize: 32, dtype: 'f16' },
      { kind: 'float', dtype: 'bf16' },
    ];
    try {
      for (const [i, format] of formats.entries()) {
        const matrix = await device.pack([testMatrix(203, 192, format, 51 + i).source]);
        for (const precision of PRECISIONS) {
          for (const rows of [1, 6, 31]) {
            const x = activations(rows, 192, 61 + rows);
            const want = device.multiply(matrix, x, precision);
            const { at, count, out, length } = device.prepare(matrix, x, precision);
            // The second time shows that a command is left as it was found.
            for (let turn = 0; turn < 2; turn++) {
              device.f32(out, length).fill(-1);
              const done = workers.map((worker) => once(worker, 'message'));
              for (const worker of workers) worker.postMessage({ at, count });
              expect(await Promise.all(done)).toEqual(workers.map(() => [1]));
              expectSameBits(device.f32(out, length).slice(), want);
            }
          }
        }
      }
    } finally {
      await Promise.all(workers.map((worker) => worker.terminate()));
    }
  });
});
