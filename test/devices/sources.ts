/** Weights made in memory, with the float64 values they stand for. The packing is written from the published format. */
import type { MatrixFormat, MatrixSource, VectorSource } from '../../src/device/weights.js';
import { fromBf16Bits, fromF16Bits, type Random, toBf16Bits, toF16Bits } from './numbers.js';

export interface TestMatrix {
  readonly source: MatrixSource;
  /** `[rows, cols]` what the stored numbers mean, exactly. */
  readonly values: Float64Array;
}

export function randomMatrix(random: Random, rows: number, cols: number, format: MatrixFormat): TestMatrix {
  return format.kind === 'float'
    ? floatMatrix(random, rows, cols, format)
    : affineMatrix(random, rows, cols, format);
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
