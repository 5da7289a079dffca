import { describe, expect, it } from 'vitest';
import { testMatrix } from '../../../test/devices/cpu-products.js';
import { BLOCK_FORMATS, formatLabel } from '../../../test/devices/sources.js';
import { decodeFloats } from '../../weights/dtypes.js';
import { columnUnit, type MatrixFormat, type MatrixRows, rowBytes } from '../weights.js';
import { BlockPacker } from './pack-blocks.js';

const FORMATS: readonly MatrixFormat[] = [
  ...BLOCK_FORMATS,
  { kind: 'float', dtype: 'f32' },
  { kind: 'float', dtype: 'f16' },
  { kind: 'affine', bits: 3, groupSize: 64, dtype: 'f32' },
  { kind: 'affine', bits: 6, groupSize: 32, dtype: 'f16' },
];

const memory = new WebAssembly.Memory({ initial: 16, maximum: 16, shared: true });
const PLACE = { memory, at: 1 << 19, scratch: () => 64 };

/** All blocks of rows that come in pieces of so many, and the factors of all rows. */
function packed(
  rows: MatrixRows,
  count: number,
  cols: number,
  format: MatrixFormat,
  pieces: readonly number[],
): number[] {
  const factors: number[] = [];
  const bytes = new Uint8Array(memory.buffer).fill(0xaa);
  const packer = new BlockPacker(cols, format, 'relaxed', PLACE, (first, found) => {
    expect(first).toBe(factors.length);
    factors.push(...found);
  });
  const one = rowBytes(cols, format);
  const part = (from: Uint8Array | undefined, size: number, start: number, end: number) =>
    from?.slice(start * size, end * size);
  let start = 0;
  for (let i = 0; start < count; i++) {
    const end = Math.min(count, start + pieces[i % pieces.length]!);
    const [scales, biases, subscales] = (['scales', 'biases', 'subscales'] as const).map((name) =>
      part(rows[name], one[name], start, end),
    );
    packer.add(
      {
        data: part(rows.data, one.data, start, end)!,
        ...(scales && { scales }),
        ...(biases && { biases }),
        ...(subscales && { subscales }),
      },
      end - start,
    );
    start = end;
  }
  packer.finish();
  expect(factors).toHaveLength(count);
  const end = PLACE.at + packer.blockSpan(count);
  // Nothing is written around them.
  expect([...bytes.subarray(PLACE.at - 16, PLACE.at), ...bytes.subarray(end, end + 16)]).toEqual(
    new Array(32).fill(0xaa),
  );
  return [...bytes.subarray(PLACE.at, end), ...factors];
}

describe('blocks of rows', () => {
  it.each(FORMATS.map((format) => [formatLabel(format), format] as const))(
    '%s: whatever pieces rows come in, the blocks are the same',
    async (_, format) => {
      const cols = columnUnit(format) === 1 ? 36 : 2 * columnUnit(format);
      const { source } = testMatrix(43, cols, format, 5);
      const rows = await source.readRows(0, 43);
      const whole = packed(rows, 43, cols, format, [43]);
      for (const pieces of [[1], [3, 8, 1], [16, 7], [8], [42]])
        expect(packed(rows, 43, cols, format, pieces)).toEqual(whole);
    },
  );

  it('multiplies f16 numbers with a power of two that leaves no subnormal, and says which', () => {
    const rows = [
      [2 ** -24, 1023 * 2 ** -24, -(2 ** -24), 0, 2 ** -14, 1, -63, 0.5, 3 * 2 ** -20, 2, 4, 8],
      [2 ** -24, 65504, -1, 0, 1, 2, 3, 4, 5, 6, 7, 8],
      [-0, 100, 2 ** -15, 1, 1, 1, 1, 1, 1, 1, 1, 2 ** -23],
    ];
    const halves = new Uint16Array(rows.flat().map(halfBits));
    const found: number[] = [];
    const packer = new BlockPacker(12, { kind: 'float', dtype: 'f16' }, 'simd', PLACE, (_, factors) => {
      found.push(...factors);
    });
    packer.add({ data: new Uint8Array(halves.buffer) }, 3);
    packer.finish();
    expect(found).toEqual([2 ** -10, 1, 2 ** -9]);
    const stored = new Uint16Array(memory.buffer, PLACE.at, 8 * 12);
    rows.forEach((row, r) => {
      // Of a column: words r of `row r << 16 | row r + 4`.
      const bits = Uint16Array.from(row, (_, c) => stored[8 * c + 2 * r + 1]!);
      const numbers = new Float32Array(12);
      decodeFloats(new Uint8Array(bits.buffer), 'f16', numbers);
      expect([...numbers].map((x) => x * found[r]! + 0)).toEqual(row.map((x) => x + 0));
      if (r !== 1) for (const x of bits) expect(x === 0 || x === 0x8000 || (x & 0x7c00) !== 0).toBe(true);
    });
  });

  it('gives NaN for a row that holds what is no number', () => {
    const factorsOf = (format: MatrixFormat, rows: MatrixRows): number[] => {
      const out: number[] = [];
      const packer = new BlockPacker(32, format, 'simd', PLACE, (_, factors) => out.push(...factors));
      packer.add(rows, 2);
      packer.finish();
      return out;
    };
    const f16 = new Uint16Array(64).fill(0x3c00);
    f16[40] = 0x7c00;
    const floats = factorsOf({ kind: 'float', dtype: 'f16' }, { data: new Uint8Array(f16.buffer) });
    expect(floats).toEqual([2 ** -10, Number.NaN]);
    const lut4 = { kind: 'lut4', bits: 4, table: 'e2m1' } as const;
    const data = new Uint8Array(32);
    const exponents = Uint8Array.of(127, 255);
    expect(factorsOf({ ...lut4, scale: 'e8m0', dtype: 'f16' }, { data, scales: exponents })).toEqual([
      1,
      Number.NaN,
    ]);
    const own = new Uint8Array(Float32Array.of(3, 5).buffer);
    const subscales = Uint8Array.of(1, 0xff, 2, 3);
    expect(factorsOf({ ...lut4, scale: 'f32-e4m3', dtype: 'f32' }, { data, scales: own, subscales })).toEqual(
      [Number.NaN, 5],
    );
  });
});

/** Of numbers that f16 holds. */
function halfBits(x: number): number {
  const sign = x < 0 || Object.is(x, -0) ? 0x8000 : 0;
  const size = Math.abs(x);
  if (size < 2 ** -14) return sign | (size * 2 ** 24);
  const exponent = Math.floor(Math.log2(size));
  return sign | ((exponent + 15) << 10) | ((size / 2 ** exponent - 1) * 1024);
}
