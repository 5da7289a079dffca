/**
 * How a weight reaches a device: sources that are read piece by piece, so that no second copy of a tensor
 * ever stands on the heap. The readers live in `weights/`; devices repack the pieces into their own layout.
 */

export const FLOAT_DTYPES = ['f32', 'f16', 'bf16'] as const;
export type FloatDtype = (typeof FLOAT_DTYPES)[number];

export const AFFINE_BITS = [2, 3, 4, 5, 6, 8] as const;
export type AffineBits = (typeof AFFINE_BITS)[number];

export const GROUP_SIZES = [32, 64, 128] as const;
export type GroupSize = (typeof GROUP_SIZES)[number];

/**
 * How the numbers of a matrix are stored.
 *
 * `affine` is MLX's layout: `w[r, c] = scale[r, c / groupSize] · code[r, c] + bias[r, c / groupSize]`, the codes
 * of a row packed little-endian, lowest code in the lowest bits, as one bit stream over u32 words
 * (`cols · bits / 32` words a row).
 */
export type MatrixFormat =
  | { readonly kind: 'float'; readonly dtype: FloatDtype }
  | {
      readonly kind: 'affine';
      readonly bits: AffineBits;
      readonly groupSize: GroupSize;
      readonly dtype: FloatDtype;
    };

/** Some rows of a matrix, as stored. */
export interface MatrixRows {
  /** `float`: rows · cols elements of the dtype, little-endian. `affine`: rows · cols · bits / 8 bytes of codes. */
  readonly data: Uint8Array;
  /** `affine` only: rows · cols / groupSize elements of the format's dtype, little-endian. */
  readonly scales?: Uint8Array;
  /** `affine` only, as `scales`. */
  readonly biases?: Uint8Array;
}

/** A matrix `[rows, cols]` (out features × in features), readable by ranges of rows. */
export interface MatrixSource {
  readonly name: string;
  readonly rows: number;
  readonly cols: number;
  readonly format: MatrixFormat;
  /**
   * Rows `[start, end)`. The result is valid until the next call. A source that reads into memory of its own takes
   * `room` instead where that has `roomBytes` for the rows: it is the caller's, to be used for the next matrix too.
   */
  readRows(start: number, end: number, room?: ArrayBuffer): Promise<MatrixRows>;
}

/** A norm weight or a bias: small, so held whole. */
export interface VectorSource {
  readonly name: string;
  readonly length: number;
  read(): Promise<Float32Array>;
}

/** Bytes of one row of codes or floats, scales and biases not counted. */
export function rowDataBytes(cols: number, format: MatrixFormat): number {
  if (format.kind === 'float') return cols * floatBytes(format.dtype);
  return (cols * format.bits) / 8;
}

/** Bytes of one row of scales (the biases are as many). 0 for a float matrix. */
export function rowScaleBytes(cols: number, format: MatrixFormat): number {
  if (format.kind === 'float') return 0;
  return (cols / format.groupSize) * floatBytes(format.dtype);
}

/** Where codes, scales and biases of some rows lie in one piece of memory, each at a multiple of 16 bytes. */
export function roomPlaces(
  cols: number,
  format: MatrixFormat,
  rows: number,
): { readonly scales: number; readonly biases: number; readonly bytes: number } {
  const scaleBytes = rows * rowScaleBytes(cols, format);
  const scales = align16(rows * rowDataBytes(cols, format));
  const biases = scales + align16(scaleBytes);
  return { scales, biases, bytes: biases + scaleBytes };
}

/** Bytes of a room that some rows fit in, as a source lays them out. */
export function roomBytes(cols: number, format: MatrixFormat, rows: number): number {
  return roomPlaces(cols, format, rows).bytes;
}

function align16(bytes: number): number {
  return Math.ceil(bytes / 16) * 16;
}

export function floatBytes(dtype: FloatDtype): number {
  return dtype === 'f32' ? 4 : 2;
}

export function sameFormat(a: MatrixFormat, b: MatrixFormat): boolean {
  if (a.kind === 'float') return b.kind === 'float' && a.dtype === b.dtype;
  return b.kind === 'affine' && a.bits === b.bits && a.groupSize === b.groupSize && a.dtype === b.dtype;
}

/** A matrix on the device, ready for `ops.linear` or `ops.embed`. Opaque. */
export interface Matrix {
  readonly kind: 'matrix';
  readonly rows: number;
  readonly cols: number;
  /** Bytes it takes on the device, padding and bias included. */
  readonly bytes: number;
}

/** A vector of f32 on the device (norm weight). Opaque. */
export interface Vector {
  readonly kind: 'vector';
  readonly length: number;
}
