import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { readPacked } from '../../test/fixtures/read-packed.js';
import { ggufBytes, string } from '../../test/setup/gguf-writer.js';
import { type MatrixSource, wholeRowBytes } from '../device/weights.js';
import { dequantiseRows } from './dequantise.js';
import { GgufCheckpoint } from './gguf-checkpoint.js';
import { pairedRows } from './gguf-matrix.js';

type Fixture = Record<string, { readonly blocks: string; readonly values: string }>;
/** Made by gguf-py (scripts/fixtures/gguf_blocks.py). */
const fixture = readPacked('test/fixtures/weights/gguf-blocks.json.br') as Fixture;
const IDS: Record<string, number> = { Q4_0: 2, Q4_1: 3, Q5_0: 6, Q5_1: 7, Q8_0: 8 };
const LUT_IDS: Record<string, number> = { IQ4_NL: 20, IQ4_XS: 23, MXFP4: 39, NVFP4: 40 };
const K_IDS: Record<string, number> = { Q2_K: 10, Q3_K: 11, Q4_K: 12, Q5_K: 13, Q6_K: 14 };

let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'kvant-gguf-'));
});
afterAll(() => rm(folder, { recursive: true }));

async function opened(
  name: string,
  type: number,
  shape: readonly number[],
  data: Uint8Array,
): Promise<GgufCheckpoint> {
  const path = join(folder, `${name}.gguf`);
  const tensors = [{ name: 'w.weight', shape, type, data }];
  await writeFile(path, ggufBytes({ metadata: { 'general.architecture': string('x') }, tensors }));
  return await GgufCheckpoint.open(path);
}

/** All values of a matrix, computed from what a device is given. */
async function values(matrix: MatrixSource, rowsAtOnce: number): Promise<Float32Array> {
  const { rows, cols, format } = matrix;
  const out = new Float32Array(rows * cols);
  for (let start = 0; start < rows; start += rowsAtOnce) {
    const end = Math.min(rows, start + rowsAtOnce);
    dequantiseRows(
      await matrix.readRows(start, end),
      end - start,
      cols,
      format,
      out.subarray(start * cols, end * cols),
    );
  }
  return out;
}

const bits = (floats: Float32Array): number[] => [
  // -0 and 0 are one weight.
  ...new Uint32Array(floats.map((value) => value + 0).buffer),
];

describe('block types of GGUF', () => {
  it.each(Object.keys(IDS))('%s: every value is what gguf-py reads, to the bit', async (name) => {
    const blocks = Buffer.from(fixture[name]!.blocks, 'base64');
    const wanted = new Float32Array(Uint8Array.from(Buffer.from(fixture[name]!.values, 'base64')).buffer);
    await using file = await opened(name, IDS[name]!, [wanted.length / 64, 64], blocks);
    for (const rowsAtOnce of [1, 4, 100]) {
      const matrix = file.matrix('w.weight', 'w');
      expect(matrix.format).toMatchObject({
        kind: name.endsWith('_0') ? 'symmetric' : 'affine',
        groupSize: 32,
        dtype: 'f16',
      });
      expect(matrix.rows * wholeRowBytes(64, matrix.format)).toBe(blocks.length);
      expect(bits(await values(matrix, rowsAtOnce))).toEqual(bits(wanted));
    }
  });

  it.each(Object.keys(K_IDS))(
    '%s: every value is what gguf-py reads, at the bytes of the file',
    async (name) => {
      const blocks = Buffer.from(fixture[name]!.blocks, 'base64');
      const wanted = new Float32Array(Uint8Array.from(Buffer.from(fixture[name]!.values, 'base64')).buffer);
      await using file = await opened(name, K_IDS[name]!, [wanted.length / 512, 512], blocks);
      for (const rowsAtOnce of [1, 4, 100]) {
        const matrix = file.matrix('w.weight', 'w');
        expect(matrix.format).toEqual({ kind: 'k-quant', bits: Number(name[1]), dtype: 'f16' });
        expect(bits(await values(matrix, rowsAtOnce))).toEqual(bits(wanted));
        expect((matrix.rows * wholeRowBytes(512, matrix.format)) / blocks.length).toBeLessThan(1.04);
      }
    },
  );

  it.each(Object.keys(LUT_IDS))('%s: every value is what gguf-py reads', async (name) => {
    const blocks = Buffer.from(fixture[name]!.blocks, 'base64');
    const wanted = new Float32Array(Uint8Array.from(Buffer.from(fixture[name]!.values, 'base64')).buffer);
    const cols = name === 'IQ4_XS' ? 512 : name === 'NVFP4' ? 256 : 64;
    await using file = await opened(name, LUT_IDS[name]!, [wanted.length / cols, cols], blocks);
    for (const rowsAtOnce of [1, 4, 100]) {
      const matrix = file.matrix('w.weight', 'w');
      expect(matrix.format.kind).toBe('lut4');
      expect(bits(await values(matrix, rowsAtOnce))).toEqual(bits(wanted));
      expect((matrix.rows * wholeRowBytes(cols, matrix.format)) / blocks.length).toBeLessThan(1.03);
    }
  });

  it('has every code of Q8_0 under every scale that f16 has', async () => {
    // All 65,536 scales, each with codes that run on.
    const blocks = Buffer.alloc(65_536 * 34);
    for (let scale = 0; scale < 65_536; scale++) {
      blocks.writeUInt16LE(scale, scale * 34);
      for (let i = 0; i < 32; i++) blocks[scale * 34 + 2 + i] = (scale * 32 + i) & 0xff;
    }
    await using file = await opened('scales', 8, [65_536, 32], blocks);
    const { data, scales } = await file.matrix('w.weight', 'w').readRows(0, 65_536);
    const read = Buffer.from(scales!);
    for (let scale = 0; scale < 65_536; scale++) {
      if (read.readUInt16LE(2 * scale) !== scale) expect.fail(`scale ${scale}`);
      for (let i = 0; i < 32; i++)
        if (data[scale * 32 + i] !== (((scale * 32 + i) & 0xff) ^ 128)) expect.fail(`code ${i} of ${scale}`);
    }
  });

  it.each([
    ['F32', 0, 4],
    ['F16', 1, 2],
    ['BF16', 30, 2],
  ])('%s is read as it stands', async (name, type, size) => {
    const data = Buffer.alloc(6 * size).map((_, i) => (i * 29) & 0x3f);
    await using file = await opened(name, type, [3, 2], data);
    const { data: read } = await file.matrix('w.weight', 'w').readRows(1, 3);
    expect(Buffer.from(read)).toEqual(data.subarray(2 * size));
  });

  it('moves the rows of paired heads back, in pieces of any size', async () => {
    const [heads, headRows, cols] = [3, 8, 4];
    const rows = heads * headRows;
    // What the converter does: row (h, k, half) of the file is row (h, half, k) of the model.
    const original = Float32Array.from({ length: rows * cols }, (_, i) => i);
    const stored = new Float32Array(rows * cols);
    for (let h = 0; h < heads; h++)
      for (let half = 0; half < 2; half++)
        for (let k = 0; k < headRows / 2; k++) {
          const from = (h * headRows + half * (headRows / 2) + k) * cols;
          stored.set(original.subarray(from, from + cols), (h * headRows + 2 * k + half) * cols);
        }
    await using file = await opened('paired', 0, [rows, cols], new Uint8Array(stored.buffer));
    for (const rowsAtOnce of [1, 3, 8, 11, 24]) {
      const matrix = file.matrix('w.weight', 'w', { rows, cols }, pairedRows(headRows));
      expect(await values(matrix, rowsAtOnce)).toEqual(original);
    }
    expect(Array.from({ length: 8 }, (_, row) => pairedRows(8).of(row))).toEqual([0, 2, 4, 6, 1, 3, 5, 7]);
  });

  it('reads NVFP4 of all scales and codes as the formats say, in float64', async () => {
    // A row for each byte that a scale may be: four times the same one, each code twice in 32 columns.
    const rows = 256;
    const data = new Uint8Array(rows * 36);
    for (let row = 0; row < rows; row++) {
      data.fill(row, row * 36, row * 36 + 4);
      for (let j = 0; j < 32; j++) data[row * 36 + 4 + j] = (j % 16) | ((15 - (j % 16)) << 4);
    }
    await using file = await opened('NVFP4-all', LUT_IDS.NVFP4!, [rows, 64], data);
    const read = await values(file.matrix('w.weight', 'w'), 100);
    const e2m1 = (code: number): number => {
      const [exponent, mantissa] = [(code >> 1) & 3, code & 1];
      const size = exponent === 0 ? mantissa / 2 : 2 ** (exponent - 1) * (1 + mantissa / 2);
      return code & 8 ? -size : size;
    };
    const e4m3 = (byte: number): number => {
      const [exponent, mantissa] = [(byte >> 3) & 15, byte & 7];
      // ggml knows no sign, and takes the NaN for 0.
      if ((byte & 0x7f) === 0x7f) return 0;
      return exponent === 0 ? mantissa * 2 ** -9 : 2 ** (exponent - 7) * (1 + mantissa / 8);
    };
    for (let row = 0; row < rows; row++)
      for (let col = 0; col < 64; col++) {
        // In 16 columns byte j has columns j and j + 8.
        const byte = data[row * 36 + 4 + 8 * (col >> 4) + (col & 7)]!;
        const code = (col & 8) === 0 ? byte & 15 : byte >> 4;
        expect(read[row * 64 + col]! + 0).toBe(e2m1(code) * e4m3(row) + 0);
      }
  });

  it('multiplies NVFP4 with its number, one for all or one for each matrix of a stack', async () => {
    const blocks = Buffer.from(fixture.NVFP4!.blocks, 'base64').subarray(0, 8 * 36);
    const plain = new Float32Array(Uint8Array.from(Buffer.from(fixture.NVFP4!.values, 'base64')).buffer);
    const path = join(folder, 'scaled.gguf');
    for (const numbers of [[0.375], [0.5, -1.3]]) {
      const scale = new Uint8Array(Float32Array.from(numbers).buffer);
      const metadata = { 'general.architecture': string('x') };
      const tensors = [
        { name: 'w.weight', shape: [2, 2, 128], type: 40, data: blocks },
        { name: 'w.scale', shape: [numbers.length], type: 0, data: scale },
      ];
      await writeFile(path, ggufBytes({ metadata, tensors }));
      await using file = await GgufCheckpoint.open(path);
      const read = await values(file.matrix('w.weight', 'w', { rows: 4, cols: 128, stack: 2 }), 3);
      for (let i = 0; i < 512; i++) {
        const by = Math.fround(numbers[numbers.length === 1 ? 0 : Math.floor(i / 256)]!);
        expect(Math.abs(read[i]! - by * plain[i]!)).toBeLessThanOrEqual(Math.abs(by * plain[i]!) * 2 ** -23);
      }
    }
  });

  it('refuses other types by name, and says what to take', async () => {
    for (const [type, name, elements, size] of [
      [19, 'IQ1_S', 256, 50],
      [35, 'TQ2_0', 256, 66],
      [24, 'I8', 1, 1],
    ] as const) {
      await using file = await opened(name, type, [2, elements], new Uint8Array(2 * size));
      expect(() => file.matrix('w.weight', 'w')).toThrow(
        expect.objectContaining({
          code: 'weights-gguf-type',
          message: expect.stringContaining(name) as string,
          fix: expect.stringContaining('Q8_0') as string,
        }) as Error,
      );
    }
  });
});
