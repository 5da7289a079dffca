import { once } from 'node:events';
import { readFile } from 'node:fs/promises';
import { setFlagsFromString } from 'node:v8';
import { Worker } from 'node:worker_threads';
import { beforeAll, describe, expect, it } from 'vitest';
import {
  activations,
  Bench,
  BUILDS,
  exactProduct,
  int8Bound,
  type KernelFile,
  memorySource,
  random,
  scaledMatrix,
  testMatrix,
  vectorSource,
} from '../../../test/devices/cpu-products.js';
import { BLOCK_FORMATS, formatLabel } from '../../../test/devices/sources.js';
import { PRECISIONS } from '../device.js';
import type { AffineBits, FloatDtype, GroupSize, MatrixFormat, MatrixSource } from '../weights.js';
import { AFFINE_BITS, columnUnit, GROUP_SIZES, groupColumns, LUT4_TABLES } from '../weights.js';
import { packMatrix, stackedBytes } from './pack.js';
import { enableRelaxedSimd } from './relaxed-simd.js';

const benches: Partial<Record<KernelFile, Bench>> = {};
const ROWS = [1, 2, 3, 5, 8, 17, 64];

function bench(build: KernelFile): Bench {
  const one = benches[build]!;
  one.clear();
  return one;
}

beforeAll(async () => {
  expect(enableRelaxedSimd()).toBe(true);
  // The baseline compiler of V8 11 gets the dot with 32-bit sums wrong; its optimising compiler does not.
  if (Number.parseInt(process.versions.v8, 10) < 12) setFlagsFromString('--no-liftoff');
  for (const build of BUILDS) {
    const file = new URL(`../../../dist/device/cpu/wasm/kernels-${build}.wasm`, import.meta.url);
    benches[build] = new Bench(build, await WebAssembly.compile(await readFile(file)));
  }
});

const FORMATS: MatrixFormat[] = (['f32', 'f16', 'bf16'] as const).map((dtype) => ({ kind: 'float', dtype }));
for (const bits of AFFINE_BITS) {
  for (const groupSize of GROUP_SIZES) {
    for (const dtype of ['f32', 'f16', 'bf16'] as const)
      FORMATS.push({ kind: 'affine', bits, groupSize, dtype });
  }
}
FORMATS.push(...BLOCK_FORMATS);

function colsOf(format: MatrixFormat): number[] {
  return format.kind === 'float' ? [4, 100, 260] : [columnUnit(format), columnUnit(format) * 3];
}

describe.each(BUILDS)('products, %s', (build) => {
  it.each(FORMATS.map((format) => [formatLabel(format), format] as const))('%s', async (_, format) => {
    let seed = 1;
    for (const cols of colsOf(format)) {
      // One block, and as many as tiles of one row take at a time.
      for (const outRows of [1, 8, 53]) {
        const device = bench(build);
        const { source, weights } = testMatrix(outRows, cols, format, seed++);
        const matrix = await device.pack([source]);
        const largest = weights.reduce((top, w) => Math.max(top, Math.abs(w)), 0);
        for (const precision of PRECISIONS) {
          const x = activations(ROWS.at(-1)!, cols, seed++);
          const sizes = Array.from({ length: ROWS.at(-1)! }, (_, r) =>
            x.subarray(r * cols, (r + 1) * cols).reduce((sum, v) => sum + Math.abs(v), 0),
          );
          const all = device.multiply(matrix, x, precision);
          for (let r = 0; r < ROWS.at(-1)!; r++) {
            for (let o = 0; o < outRows; o++) {
              const { sum, magnitude } = exactProduct(weights, x, cols, r, o);
              let bound = (magnitude + 1e-30) * cols * 2 ** -24;
              if (format.kind !== 'float') {
                // Rounding to f32 where `scale · code` and `bias` cancel.
                bound += sizes[r]! * largest * 2 ** -22;
                if (precision === 'default')
                  bound = bound + int8Bound(weights, x, cols, groupColumns(format), r, o) * 1.0001;
              }
              const error = Math.abs(all[r * outRows + o]! - sum);
              if (!(error <= bound))
                expect.fail(`row ${r}, out ${o} of ${outRows}, cols ${cols}: ${error} > ${bound}`);
            }
          }
          // Few rows, one row, and rows at another place of a tile: the same bits.
          for (const rows of ROWS.slice(0, -1)) {
            const first = 7;
            const some = device.multiply(
              matrix,
              x.subarray(first * cols, (first + rows) * cols).slice(0),
              precision,
            );
            expectSameBits(some, all.subarray(first * outRows, first * outRows + some.length));
          }
        }
      }
    }
  });
});

function expectSameBits(a: Float32Array, b: Float32Array): void {
  expect(a.length).toBe(b.length);
  const left = new Uint32Array(a.slice().buffer);
  const right = new Uint32Array(b.slice().buffer);
  for (let i = 0; i < left.length; i++)
    if (left[i] !== right[i]) expect.fail(`${a[i]} is not ${b[i]} at ${i}`);
}

describe('32-bit sums', () => {
  it.each(FORMATS.filter((f) => f.kind === 'affine').map((f) => [formatLabel(f), f] as const))(
    '%s: the same bits as 16-bit sums, for any number of rows',
    async (_, format) => {
      const cols = format.groupSize * 2;
      const { source } = testMatrix(19, cols, format, 31);
      const x = activations(23, cols, 32);
      // Groups whose products fill 16 bits, and tiles without.
      for (let i = 0; i < 9 * cols; i++) x[i] = Math.sign(x[i]!) * (1 + (i % 3) * 0.01);
      for (let rows = 1; rows <= 23; rows++) {
        const [a, b] = await Promise.all(
          (['relaxed', 'dot'] as const).map(async (build) => {
            const device = bench(build);
            const matrix = await device.pack([source]);
            return device.multiply(matrix, x.slice(0, rows * cols), 'default');
          }),
        );
        expectSameBits(a!, b!);
      }
    },
  );
});

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

  it.each(FORMATS.map((format) => [formatLabel(format), format] as const))(
    'gathers exactly: %s',
    async (_, format) => {
      const device = bench(build);
      const cols = format.kind === 'float' ? 36 : columnUnit(format) * 2;
      const first = testMatrix(13, cols, { kind: 'float', dtype: 'f32' }, 41);
      const second = testMatrix(11, cols, format, 42);
      const matrix = await device.pack([first.source, second.source]);
      const row = device.f32(device.allocate((matrix.rows + 1) * cols * 4), (matrix.rows + 1) * cols);
      device.gather(matrix, 1, row);
      for (let r = 0; r < matrix.rows; r++) {
        const [weights, local] = r < 13 ? [first.weights, r] : [second.weights, r - 13];
        for (let c = 0; c < cols; c++) {
          const exact = weights[local * cols + c]!;
          const got = row[r * cols + c]!;
          // f32 scales round the product before the bias is added; all else is one rounding.
          const slack = format.kind === 'affine' && format.dtype === 'f32' ? 2 ** -23 : 0;
          if (Math.abs(got - Math.fround(exact)) > slack)
            expect.fail(`row ${r}, col ${c}: ${got}, not ${exact}`);
        }
      }
      // An id outside the table.
      expect(row.subarray(matrix.rows * cols).every((v) => v === 0)).toBe(true);
      device.gather(matrix, 8, row);
      for (let c = 0; c < cols; c++) expect(row[c]).toBe(8 * first.weights[c]!);
    },
  );
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

describe('packing', () => {
  it('refuses what cannot be multiplied with', async () => {
    const device = bench('simd');
    const f32 = { kind: 'float', dtype: 'f32' } as const;
    const group = { kind: 'affine', bits: 4, groupSize: 64, dtype: 'bf16' } as const;
    const source = (rows: number, cols: number, format: MatrixFormat): MatrixSource => ({
      ...testMatrix(1, 64, format, 1).source,
      rows,
      cols,
    });
    expect(() => stackedBytes([])).toThrow(/at least one part/);
    expect(() => stackedBytes([source(2, 6, f32)])).toThrow(/multiple of 4/);
    expect(() => stackedBytes([source(2, 96, group)])).toThrow(/multiple of the group/);
    expect(() => stackedBytes([source(2, 64, group), source(2, 128, group)])).toThrow(/stacked/);
    await expect(device.pack([source(2, 128, group)])).rejects.toThrow(/wrong number of bytes/);
    const bias = [vectorSource(new Float32Array(3))];
    await expect(device.pack([source(1, 64, group)], bias)).rejects.toThrow(/bias of 3/);
    const infinite = memorySource(
      'inf',
      1,
      4,
      { kind: 'float', dtype: 'f16' },
      Uint8Array.of(0, 0, 0, 0x7c, 0, 0, 0, 0),
    );
    await expect(device.pack([infinite])).rejects.toMatchObject({ code: 'weights-not-finite', where: 'inf' });
  });

  it('reports the bytes it takes in', async () => {
    const device = bench('simd');
    const { source } = testMatrix(9, 64, { kind: 'affine', bits: 4, groupSize: 64, dtype: 'bf16' }, 2);
    let bytes = 0;
    const at = device.allocate(stackedBytes([source]));
    await packMatrix(device.memory, at, [source], { build: 'simd', onBytes: (n) => (bytes += n) });
    expect(bytes).toBe(9 * (32 + 4));
  });
});
