/** Weights made in memory, with the float64 values they stand for. The packing is written from the published format. */
import {
  hasMinima,
  type KQuantBits,
  type KQuantFormat,
  type MatrixFormat,
  type MatrixSource,
  rowBytes,
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
  }
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
  return Float64Array.from({ length: count }, (_, i) => {
    let code = 0;
    for (let b = 0; b < bits; b++) {
      const bit = i * bits + b;
      code |= ((data[bit >> 3]! >> (bit & 7)) & 1) << b;
    }
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

export function vectorSource(values: Float32Array, name = 'vector'): VectorSource {
  return { name, length: values.length, read: async () => values };
}
