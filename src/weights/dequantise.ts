/** The numbers that rows of a matrix mean, whatever their format: for readers that are no device, and for quantising anew. */
import {
  floatBytes,
  hasMinima,
  type KQuantFormat,
  kQuantGroup,
  LUT4_TABLES,
  type Lut4Format,
  lut4Group,
  type MatrixFormat,
  type MatrixRows,
  rowBytes,
  SUPERBLOCK,
  type SymmetricFormat,
} from '../device/weights.js';
import { unpackAffineRow, unpackCodes } from './affine.js';
import { decodeFloats } from './dtypes.js';

/**
 * @param piece `rows` rows of a matrix of `cols` columns
 * @param out `[rows, cols]`, each number rounded to f32 once
 */
export function dequantiseRows(
  piece: MatrixRows,
  rows: number,
  cols: number,
  format: MatrixFormat,
  out: Float32Array,
): void {
  if (format.kind === 'float') {
    decodeFloats(piece.data, format.dtype, out);
    return;
  }
  const one = rowBytes(cols, format);
  const part = (bytes: Uint8Array | undefined, row: number, size: number): Uint8Array =>
    bytes?.subarray(row * size, (row + 1) * size) ?? new Uint8Array(0);
  const floats = (bytes: Uint8Array | undefined, row: number, size: number): Float32Array => {
    const values = new Float32Array(size / (format.dtype === 'f32' ? 4 : 2));
    if (format.kind !== 'lut4') decodeFloats(part(bytes, row, size), format.dtype, values);
    return values;
  };
  for (let row = 0; row < rows; row++) {
    const codes = part(piece.data, row, one.data);
    const scales = floats(piece.scales, row, one.scales);
    const biases = floats(piece.biases, row, one.biases);
    const to = out.subarray(row * cols, (row + 1) * cols);
    const subscales = part(piece.subscales, row, one.subscales);
    switch (format.kind) {
      case 'affine':
        unpackAffineRow(codes, scales, biases, format, to);
        break;
      case 'symmetric':
        symmetricRow(codes, scales, format, to);
        break;
      case 'k-quant':
        kQuantRow(codes, scales, biases, subscales, format, to);
        break;
      case 'lut4':
        lut4Row(codes, part(piece.scales, row, one.scales), subscales, format, to);
    }
  }
}

function symmetricRow(
  codes: Uint8Array,
  scales: Float32Array,
  { bits, groupSize }: SymmetricFormat,
  out: Float32Array,
): void {
  const levels = new Uint8Array(out.length);
  unpackCodes(codes, bits, levels);
  for (let c = 0; c < out.length; c++)
    out[c] = scales[Math.floor(c / groupSize)]! * (levels[c]! - 2 ** (bits - 1));
}

function lut4Row(
  codes: Uint8Array,
  scales: Uint8Array,
  subscales: Uint8Array,
  format: Lut4Format,
  out: Float32Array,
): void {
  const levels = new Uint8Array(out.length);
  unpackCodes(codes, 4, levels);
  const { table, scale, dtype } = format;
  const numbers = LUT4_TABLES[table];
  const floats = new Float32Array(scale === 'e8m0' ? 0 : scales.length / floatBytes(dtype));
  if (scale !== 'e8m0') decodeFloats(scales, dtype, floats);
  const group = lut4Group(format);
  for (let g = 0; g < out.length / group; g++) {
    const of = {
      f16: () => floats[g]!,
      e8m0: () => (scales[g] === 255 ? Number.NaN : 2 ** (scales[g]! - 127)),
      'f16-i8': () => floats[Math.floor((g * group) / SUPERBLOCK)]! * ((subscales[g]! << 24) >> 24),
      'f32-e4m3': () => Math.fround(floats[0]! * e4m3(subscales[g]!)),
    }[scale]();
    for (let c = g * group; c < (g + 1) * group; c++) out[c] = of * numbers[levels[c]!]!;
  }
}

/** A float of 8 bits: sign, exponent of 4 that counts from 7, mantissa of 3; the largest is NaN (OCP 8-bit Floating Point, 5). */
export function e4m3(bits: number): number {
  const sign = bits < 128 ? 1 : -1;
  const exponent = (bits >> 3) & 15;
  const mantissa = bits & 7;
  if (exponent === 15 && mantissa === 7) return Number.NaN;
  return sign * (exponent === 0 ? mantissa * 2 ** -9 : (8 + mantissa) * 2 ** (exponent - 10));
}

function kQuantRow(
  codes: Uint8Array,
  scales: Float32Array,
  minima: Float32Array,
  subscales: Uint8Array,
  { bits }: KQuantFormat,
  out: Float32Array,
): void {
  const levels = new Uint8Array(out.length);
  unpackCodes(codes, bits, levels);
  const group = kQuantGroup(bits);
  for (let c = 0; c < out.length; c++) {
    const superblock = Math.floor(c / SUPERBLOCK);
    const g = Math.floor(c / group);
    const d = scales[superblock]!;
    if (!hasMinima(bits)) {
      out[c] = d * ((subscales[g]! << 24) >> 24) * (levels[c]! - 2 ** (bits - 1));
      continue;
    }
    const s = group === 32 ? subscales[2 * g]! : subscales[g]! & 15;
    const m = group === 32 ? subscales[2 * g + 1]! : subscales[g]! >> 4;
    out[c] = d * s * levels[c]! - minima[superblock]! * m;
  }
}
