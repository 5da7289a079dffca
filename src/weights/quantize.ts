/**
 * Affine quantisation of a float matrix, with the scheme of `mlx.core.quantize` (MLX's documentation of
 * `quantize`; results agree with its CPU build bit for bit on the fixtures).
 *
 * A group of `g` values between `lo` and `hi` gets `2^bits` levels. The edge that is larger in magnitude is met
 * exactly: with `s₀ = max((hi − lo) / (2^bits − 1), 1e-7)`, positive when that edge is `lo` and negative when it is
 * `hi`, and `q₀ = round(edge / s₀)`, the scale is `edge / q₀` and the bias is `edge`; so zero is a level too. Where
 * `q₀` is 0 the scale stays `s₀` and the bias is 0. Codes are `round((w − bias) / scale)`, ties to even, clamped.
 * All in f32; scales and biases are rounded to the dtype of the matrix at the end, after the codes are made.
 */

import type { FloatDtype, MatrixFormat, MatrixRows, MatrixSource } from '../device/weights.js';
import { roomBytes, roomRows, rowBytes } from '../device/weights.js';
import { KvantError } from '../errors.js';
import { type AffineSpec, packCodes } from './affine.js';
import { decodeFloats, encodeFloats } from './dtypes.js';
import { notFinite } from './finite.js';
import { checkRows } from './stored-matrix.js';

const SMALLEST_SCALE = Math.fround(1e-7);
/** Adding and taking away 1.5 · 2^52 in f64 rounds to an integer, ties to even. */
const ROUNDER_F64 = 1.5 * 2 ** 52;

/** True where a matrix of that many columns divides into groups. */
export function isQuantizable(cols: number, spec: AffineSpec): boolean {
  return cols > 0 && cols % spec.groupSize === 0;
}

/**
 * Quantises one row.
 *
 * @param row `[cols]`
 * @param codes receives one code per column
 * @param scales receives `[cols / groupSize]`, as biases, in f32 before rounding
 * @returns false where the row holds an infinity or NaN, or spans more than f32 can hold
 */
export function quantizeRow(
  row: Float32Array,
  spec: AffineSpec,
  codes: Uint8Array,
  scales: Float32Array,
  biases: Float32Array,
): boolean {
  const { groupSize } = spec;
  const top = (1 << spec.bits) - 1;
  for (let group = 0, from = 0; from < row.length; group++, from += groupSize) {
    const to = from + groupSize;
    let low = Infinity;
    let high = -Infinity;
    for (let i = from; i < to; i++) {
      const value = row[i]!;
      if (value < low) low = value;
      if (value > high) high = value;
      if (Number.isNaN(value)) return false;
    }
    const span = Math.fround(high - low);
    if (!Number.isFinite(span)) return false;

    const lowWins = Math.abs(low) > Math.abs(high);
    const edge = lowWins ? low : high;
    const step = Math.max(Math.fround(span / top), SMALLEST_SCALE);
    let scale = lowWins ? step : -step;
    let bias = 0;
    const level = roundHalfEven(Math.fround(edge / scale));
    if (level !== 0) {
      scale = Math.fround(edge / level);
      bias = edge;
    }
    scales[group] = scale;
    biases[group] = bias;
    // A product in f64 is cheaper than a division and decides the code, except so near a tie that the rounding of
    // the f32 quotient (2^-24 of at most 256) could tip it.
    const inverse = 1 / scale;
    for (let i = from; i < to; i++) {
      const above = Math.fround(row[i]! - bias);
      const quotient = above * inverse;
      let code = quotient + ROUNDER_F64 - ROUNDER_F64;
      if (Math.abs(quotient - code) > 0.4999) code = roundHalfEven(Math.fround(above / scale));
      codes[i] = Math.min(Math.max(code, 0), top);
    }
  }
  return true;
}

function roundHalfEven(value: number): number {
  const rounded = Math.round(value);
  return Math.abs(value % 1) === 0.5 && rounded % 2 !== 0 ? rounded - 1 : rounded;
}

/**
 * A float matrix quantised as it is read, range by range of rows.
 *
 * @param dtype of scales and biases; default: the matrix's
 * @throws KvantError `weights-already-quantized`, `weights-quantize-shape` where the columns do not divide into
 * groups; while reading, `weights-not-finite`
 */
export function quantizedSource(
  source: MatrixSource,
  spec: AffineSpec,
  dtype: FloatDtype | undefined = undefined,
): MatrixSource {
  return new QuantizedMatrix(source, spec, dtype);
}

class QuantizedMatrix implements MatrixSource {
  readonly name: string;
  readonly rows: number;
  readonly cols: number;
  readonly format: Extract<MatrixFormat, { kind: 'affine' }>;
  readonly #source: MatrixSource;
  readonly #floats: FloatDtype;
  #buffer: ArrayBuffer | undefined;

  constructor(source: MatrixSource, { bits, groupSize }: AffineSpec, dtype: FloatDtype | undefined) {
    if (source.format.kind !== 'float') {
      throw new KvantError('weights-already-quantized', `${source.name} is already quantised`, {
        kind: 'invalid-request',
        where: source.name,
        fix: 'Load the model without --quantize.',
      });
    }
    if (!isQuantizable(source.cols, { bits, groupSize })) {
      throw new KvantError(
        'weights-quantize-shape',
        `${source.name} has ${source.cols} columns, which do not divide into groups of ${groupSize}`,
        {
          kind: 'model',
          where: source.name,
          fix: 'Choose a smaller group size, or leave this matrix as it is.',
        },
      );
    }
    this.#source = source;
    this.name = source.name;
    this.rows = source.rows;
    this.cols = source.cols;
    this.format = { kind: 'affine', bits, groupSize, dtype: dtype ?? source.format.dtype };
    this.#floats = source.format.dtype;
  }

  async readRows(start: number, end: number): Promise<MatrixRows> {
    checkRows(this, start, end);
    const { cols, format } = this;
    const rows = end - start;
    const { data: floats } = await this.#source.readRows(start, end);
    const { data: dataBytes, scales: scaleBytes } = rowBytes(cols, format);
    const buffer = this.#room(roomBytes(cols, format, rows));
    // As in a stored matrix: the caller's views keep the bytes alive.
    if (end === this.rows) this.#buffer = undefined;
    const read = roomRows(buffer, cols, format, rows);
    const data = read.data;
    const scales = read.scales!;
    const biases = read.biases!;

    const floatBytes = floats.byteLength / Math.max(rows, 1);
    const row = new Float32Array(cols);
    const codes = new Uint8Array(cols);
    const rowScales = new Float32Array(cols / format.groupSize);
    const rowBiases = new Float32Array(cols / format.groupSize);
    for (let r = 0; r < rows; r++) {
      decodeFloats(floats.subarray(r * floatBytes, (r + 1) * floatBytes), this.#floats, row);
      if (!quantizeRow(row, format, codes, rowScales, rowBiases)) throw notFinite(this.name, start + r);
      packCodes(codes, format.bits, data.subarray(r * dataBytes, (r + 1) * dataBytes));
      encodeFloats(rowScales, format.dtype, scales.subarray(r * scaleBytes, (r + 1) * scaleBytes));
      encodeFloats(rowBiases, format.dtype, biases.subarray(r * scaleBytes, (r + 1) * scaleBytes));
    }
    return read;
  }

  #room(bytes: number): ArrayBuffer {
    if (this.#buffer === undefined || this.#buffer.byteLength < bytes) this.#buffer = new ArrayBuffer(bytes);
    return this.#buffer;
  }
}
