/** Weights made in memory, with the float64 values they stand for. The packing is written from the published format. */
import {
  hasMinima,
  K_QUANT_BITS,
  type KQuantBits,
  type KQuantFormat,
  LUT4_TABLES,
  type Lut4Format,
  type MatrixFormat,
  type MatrixSource,
  rowBytes,
  type SymmetricFormat,
  type VectorSource,
} from '../../src/device/weights.js';
import { fromBf16Bits, fromF16Bits, type Random, toBf16Bits, toF16Bits } from './numbers.js';

export interface TestMatrix {
  readonly source: MatrixSource;
  /** `[rows, cols]` what the stored numbers mean, exactly. */
  readonly values: Float64Array;
}

export function randomMatrix(random: Random, rows: number, cols: number, format: MatrixFormat): TestMatrix {
  switch (format.kind) {
    case 'float':
      return floatMatrix(random, rows, cols, format);
    case 'affine':
      return affineMatrix(random, rows, cols, format);
    case 'k-quant':
      return kQuantMatrix(random, rows, cols, format);
    case 'lut4':
      if (format.scale === 'f32-e4m3') return floatByteMatrix(random, rows, cols, format);
      return scaledMatrix(random, rows, cols, format);
    case 'symmetric':
      return scaledMatrix(random, rows, cols, format);
  }
}

/** Codes of any kind, each with one scale. */
function scaledMatrix(
  random: Random,
  rows: number,
  cols: number,
  format: SymmetricFormat | Lut4Format,
): TestMatrix {
  const one = rowBytes(cols, format);
  const data = Uint8Array.from({ length: rows * one.data }, () => random.int(256));
  const codes = codesOf(data, format.bits, rows * cols);
  const number = (code: number): number =>
    format.kind === 'lut4' ? LUT4_TABLES[format.table][code]! : code - 2 ** (format.bits - 1);
  const largest = Math.abs(number(0)) || 6;
  const width = (): number => ((1 + random.uniform()) * 1.5) / Math.sqrt(cols) / largest;
  const groups = (rows * cols) / 32;
  const bytes = format.kind === 'lut4' && format.scale !== 'f16';
  const signed = format.kind === 'lut4' && format.scale === 'f16-i8';
  const units = bytes ? (signed ? (rows * cols) / 256 : 0) : groups;
  const halves = encodeFloats(
    Float64Array.from({ length: units }, () => width() / (signed ? 32 : 1)),
    'f16',
  );
  const perGroup = Uint8Array.from({ length: bytes ? groups : 0 }, () =>
    signed ? random.int(64) - 32 : 127 + Math.round(Math.log2(width())),
  );
  const scaleOf = (g: number): number => {
    if (!bytes) return halves.rounded[g]!;
    return signed ? halves.rounded[g >> 3]! * new Int8Array(perGroup.buffer)[g]! : 2 ** (perGroup[g]! - 127);
  };
  const scales = bytes && !signed ? perGroup : halves.bytes;
  return {
    values: Float64Array.from({ length: rows * cols }, (_, i) => scaleOf(i >> 5) * number(codes[i]!)),
    source: {
      name: `random ${rows}×${cols} ${format.kind}`,
      rows,
      cols,
      format,
      readRows: async (start, end) => ({
        data: data.slice(start * one.data, end * one.data),
        scales: scales.slice(start * one.scales, end * one.scales),
        ...(signed && { subscales: perGroup.slice(start * one.subscales, end * one.subscales) }),
      }),
    },
  };
}

/** Codes with a float of 8 bits for every 16 of a row, of any sign and exponent, and a number for the row. */
function floatByteMatrix(random: Random, rows: number, cols: number, format: Lut4Format): TestMatrix {
  const one = rowBytes(cols, format);
  const data = Uint8Array.from({ length: rows * one.data }, () => random.int(256));
  const codes = codesOf(data, 4, rows * cols);
  const factors = Float32Array.from({ length: rows }, () => (1 + random.uniform()) / Math.sqrt(cols));
  // Exponents up to 2^-1, and those without one.
  const floats = Uint8Array.from({ length: (rows * cols) / 16 }, () => random.int(2) * 128 + random.int(56));
  const values = Float64Array.from({ length: rows * cols }, (_, i) => {
    const byte = floats[i >> 4]!;
    const [e, m] = [(byte >> 3) & 15, byte & 7];
    const size = e === 0 ? m / 512 : (1 + m / 8) * 2 ** (e - 7);
    const factor = factors[Math.floor(i / cols)]!;
    return factor * (byte < 128 ? size : -size) * LUT4_TABLES[format.table][codes[i]!]!;
  });
  const source: MatrixSource = {
    name: `random ${rows}×${cols} ${format.kind}`,
    rows,
    cols,
    format,
    readRows: async (start, end) => ({
      data: data.slice(start * one.data, end * one.data),
      scales: new Uint8Array(factors.slice(start, end).buffer),
      subscales: floats.slice(start * one.subscales, end * one.subscales),
    }),
  };
  return { values, source };
}

/** Codes of a bit stream. */
function codesOf(data: Uint8Array, bits: number, count: number): Uint8Array {
  return Uint8Array.from({ length: count }, (_, i) => {
    let code = 0;
    for (let b = 0; b < bits; b++) {
      const bit = i * bits + b;
      code |= ((data[bit >> 3]! >> (bit & 7)) & 1) << b;
    }
    return code;
  });
}

function floatMatrix(
  random: Random,
  rows: number,
  cols: number,
  format: Extract<MatrixFormat, { kind: 'float' }>,
): TestMatrix {
  const values = new Float64Array(rows * cols);
  for (let i = 0; i < values.length; i++) values[i] = random.normal() / Math.sqrt(cols);
  const { bytes, rounded } = encodeFloats(values, format.dtype);
  const rowBytes = bytes.length / Math.max(1, rows);
  return {
    values: rounded,
    source: {
      name: `random ${rows}×${cols} ${format.dtype}`,
      rows,
      cols,
      format,
      readRows: async (start, end) => ({ data: bytes.slice(start * rowBytes, end * rowBytes) }),
    },
  };
}

function affineMatrix(
  random: Random,
  rows: number,
  cols: number,
  format: Extract<MatrixFormat, { kind: 'affine' }>,
): TestMatrix {
  const { bits, groupSize, dtype } = format;
  const groups = cols / groupSize;
  const levels = 2 ** bits - 1;
  const scaleValues = new Float64Array(rows * groups);
  const biasValues = new Float64Array(rows * groups);
  for (let i = 0; i < scaleValues.length; i++) {
    const width = ((1 + random.uniform()) * 3) / Math.sqrt(cols);
    // MLX signs the scale so that the code of the value largest in size is exact: both signs occur.
    const sign = random.uniform() < 0.5 ? -1 : 1;
    scaleValues[i] = (sign * width) / levels;
    biasValues[i] = -sign * width * (0.3 + 0.4 * random.uniform());
  }
  const scales = encodeFloats(scaleValues, dtype);
  const biases = encodeFloats(biasValues, dtype);
  const rowWords = (cols * bits) / 32;
  const words = new Uint32Array(rows * rowWords);
  const values = new Float64Array(rows * cols);
  for (let r = 0; r < rows; r++) {
    for (let c = 0; c < cols; c++) {
      const code = random.int(levels + 1);
      const at = c * bits;
      const word = r * rowWords + (at >>> 5);
      words[word] = (words[word]! | (code << (at & 31))) >>> 0;
      if ((at & 31) + bits > 32) words[word + 1] = (words[word + 1]! | (code >>> (32 - (at & 31)))) >>> 0;
      const g = r * groups + Math.floor(c / groupSize);
      values[r * cols + c] = scales.rounded[g]! * code + biases.rounded[g]!;
    }
  }
  const data = new Uint8Array(words.buffer);
  const scaleRow = scales.bytes.length / Math.max(1, rows);
  return {
    values,
    source: {
      name: `random ${rows}×${cols} affine ${bits}/${groupSize}`,
      rows,
      cols,
      format,
      readRows: async (start, end) => ({
        data: data.slice(start * rowWords * 4, end * rowWords * 4),
        scales: scales.bytes.slice(start * scaleRow, end * scaleRow),
        biases: biases.bytes.slice(start * scaleRow, end * scaleRow),
      }),
    },
  };
}

function kQuantMatrix(random: Random, rows: number, cols: number, format: KQuantFormat): TestMatrix {
  const { bits } = format;
  const superblocks = (rows * cols) / 256;
  // Subscales of 6 bits or 4, and signed ones: what is largest is about as large as a weight.
  const six = bits === 4 || bits === 5;
  const top = six ? 63 : hasMinima(bits) ? 15 : 127;
  const numbers = (width: number): ReturnType<typeof encodeFloats> =>
    encodeFloats(
      Float64Array.from(
        { length: superblocks },
        () => ((1 + random.uniform()) * width) / Math.sqrt(cols) / top,
      ),
      'f16',
    );
  const scales = numbers(3 / 2 ** bits);
  const minima = numbers(1.5);
  const data = Uint8Array.from({ length: (rows * cols * bits) / 8 }, () => random.int(256));
  const subscales = Uint8Array.from({ length: (rows * cols) / 16 }, () => random.int(six ? 64 : 256));
  const values = kQuantValues(bits, rows * cols, data, scales.rounded, minima.rounded, subscales);
  const one = rowBytes(cols, format);
  return {
    values,
    source: {
      name: `random ${rows}×${cols} k-quant ${bits}`,
      rows,
      cols,
      format,
      readRows: async (start, end) => ({
        data: data.slice(start * one.data, end * one.data),
        scales: scales.bytes.slice(start * one.scales, end * one.scales),
        ...(hasMinima(bits) && { biases: minima.bytes.slice(start * one.biases, end * one.biases) }),
        subscales: subscales.slice(start * one.subscales, end * one.subscales),
      }),
    },
  };
}

/** What `count` numbers of a k-quant mean, exactly, as src/device/weights.ts says it. */
export function kQuantValues(
  bits: KQuantBits,
  count: number,
  data: Uint8Array,
  scales: ArrayLike<number>,
  minima: ArrayLike<number>,
  subscales: Uint8Array,
): Float64Array {
  const signed = new Int8Array(subscales.buffer, subscales.byteOffset, subscales.length);
  const codes = codesOf(data, bits, count);
  return Float64Array.from({ length: count }, (_, i) => {
    const code = codes[i]!;
    const [d, low] = [scales[i >> 8]!, minima[i >> 8]!];
    switch (bits) {
      case 2:
        return d * (subscales[i >> 4]! & 15) * code - low * (subscales[i >> 4]! >> 4);
      case 3:
        return d * signed[i >> 4]! * (code - 4);
      case 6:
        return d * signed[i >> 4]! * (code - 32);
      default:
        return d * subscales[2 * (i >> 5)]! * code - low * subscales[2 * (i >> 5) + 1]!;
    }
  });
}

function encodeFloats(
  values: Float64Array,
  dtype: 'f32' | 'f16' | 'bf16',
): { bytes: Uint8Array; rounded: Float64Array } {
  if (dtype === 'f32') {
    const data = Float32Array.from(values);
    return { bytes: new Uint8Array(data.buffer), rounded: Float64Array.from(data) };
  }
  const [to, from] = dtype === 'f16' ? [toF16Bits, fromF16Bits] : [toBf16Bits, fromBf16Bits];
  const data = Uint16Array.from(values, to);
  return { bytes: new Uint8Array(data.buffer), rounded: Float64Array.from(data, from) };
}

/** The formats that are neither floats nor affine. */
export const BLOCK_FORMATS: readonly MatrixFormat[] = [
  ...K_QUANT_BITS.map((bits): MatrixFormat => ({ kind: 'k-quant', bits, dtype: 'f16' })),
  ...([4, 5, 8] as const).map(
    (bits): MatrixFormat => ({ kind: 'symmetric', bits, groupSize: 32, dtype: 'f16' }),
  ),
  { kind: 'lut4', bits: 4, table: 'e2m1', scale: 'e8m0', dtype: 'f16' },
  { kind: 'lut4', bits: 4, table: 'iq4', scale: 'f16', dtype: 'f16' },
  { kind: 'lut4', bits: 4, table: 'iq4', scale: 'f16-i8', dtype: 'f16' },
  { kind: 'lut4', bits: 4, table: 'e2m1', scale: 'f32-e4m3', dtype: 'f32' },
];

/** In a few letters. */
export function formatLabel(format: MatrixFormat): string {
  switch (format.kind) {
    case 'float':
      return format.dtype;
    case 'affine':
      return `affine ${format.bits}/${format.groupSize} ${format.dtype}`;
    case 'lut4':
      return `lut4 ${format.table} ${format.scale}`;
    default:
      return `${format.kind} ${format.bits}`;
  }
}

export function vectorSource(values: Float32Array, name = 'vector'): VectorSource {
  return { name, length: values.length, read: async () => values };
}
