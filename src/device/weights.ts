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

export const K_QUANT_BITS = [2, 3, 4, 5, 6] as const;
export type KQuantBits = (typeof K_QUANT_BITS)[number];

/** Columns of a superblock of k-quants: those that share one f16 scale. */
export const SUPERBLOCK = 256;

/**
 * How the numbers of a matrix are stored.
 *
 * `affine` is MLX's layout: `w[r, c] = scale[r, c / groupSize] · code[r, c] + bias[r, c / groupSize]`, the codes
 * of a row packed little-endian, lowest code in the lowest bits, as one bit stream over u32 words
 * (`cols · bits / 32` words a row).
 *
 * `k-quant` is that of GGUF's K types: superblocks of 256 columns with an f16 scale `d` (and `dmin`), in them groups with a scale of a
 * few bits. The codes of a row are a bit stream as in `affine`. With `(s, m)` the subscales of a group,
 *
 *     bits 4, 5   groups of 32   w = d·s · code − dmin·m            s, m in 0…63
 *     bits 2      groups of 16   w = d·s · code − dmin·m            s, m in 0…15, in one byte: s | m << 4
 *     bits 3, 6   groups of 16   w = d·s · (code − 2^(bits − 1))    s in −128…127
 */
export type MatrixFormat =
  | { readonly kind: 'float'; readonly dtype: FloatDtype }
  | {
      readonly kind: 'affine';
      readonly bits: AffineBits;
      readonly groupSize: GroupSize;
      readonly dtype: FloatDtype;
    }
  | { readonly kind: 'k-quant'; readonly bits: KQuantBits; readonly dtype: 'f16' };

export type KQuantFormat = Extract<MatrixFormat, { kind: 'k-quant' }>;

/** Columns of a group of a k-quant: those that share subscales. */
export function kQuantGroup(bits: KQuantBits): 16 | 32 {
  return bits === 4 || bits === 5 ? 32 : 16;
}

/** Whether a k-quant has minima; without them codes count from the middle. */
export function hasMinima(bits: KQuantBits): boolean {
  return bits !== 3 && bits !== 6;
}

/** Some rows of a matrix, as stored. */
export interface MatrixRows {
  /** `float`: rows · cols elements of the dtype, little-endian. Otherwise rows · cols · bits / 8 bytes of codes. */
  readonly data: Uint8Array;
  /** Elements of the format's dtype, little-endian. `affine`: rows · cols / groupSize. `k-quant`: d, rows · cols / 256. */
  readonly scales?: Uint8Array;
  /** As many. `affine`: biases. `k-quant`: dmin, where it has minima. */
  readonly biases?: Uint8Array;
  /** `k-quant` only: two bytes for every 32 columns: s and m of a group of 32, or what two groups of 16 have. */
  readonly subscales?: Uint8Array;
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

/** Bytes of one row in each of the arrays of {@link MatrixRows}. */
export interface RowBytes {
  readonly data: number;
  readonly scales: number;
  readonly biases: number;
  readonly subscales: number;
}

export function rowBytes(cols: number, format: MatrixFormat): RowBytes {
  switch (format.kind) {
    case 'float':
      return { data: cols * floatBytes(format.dtype), scales: 0, biases: 0, subscales: 0 };
    case 'affine': {
      const scales = (cols / format.groupSize) * floatBytes(format.dtype);
      return { data: (cols * format.bits) / 8, scales, biases: scales, subscales: 0 };
    }
    case 'k-quant': {
      const scales = (cols / SUPERBLOCK) * floatBytes(format.dtype);
      const biases = hasMinima(format.bits) ? scales : 0;
      return { data: (cols * format.bits) / 8, scales, biases, subscales: cols / 16 };
    }
  }
}

/** Bytes of one row as its source stores it, all that belongs to it together. */
export function wholeRowBytes(cols: number, format: MatrixFormat): number {
  const { data, scales, biases, subscales } = rowBytes(cols, format);
  return data + scales + biases + subscales;
}

/** Columns of which a row has a whole number; 1 for floats. */
export function columnUnit(format: MatrixFormat): number {
  switch (format.kind) {
    case 'float':
      return 1;
    case 'affine':
      return format.groupSize;
    case 'k-quant':
      return SUPERBLOCK;
  }
}

/** Whether a source gave the bytes that so many rows have. */
export function holdsRows(piece: MatrixRows, cols: number, format: MatrixFormat, rows: number): boolean {
  const { data, scales, biases, subscales } = rowBytes(cols, format);
  return (
    piece.data.byteLength === rows * data &&
    (piece.scales?.byteLength ?? 0) === rows * scales &&
    (piece.biases?.byteLength ?? 0) === rows * biases &&
    (piece.subscales?.byteLength ?? 0) === rows * subscales
  );
}

/** Where the arrays of some rows lie in one piece of memory, each at a multiple of 16 bytes. */
export function roomPlaces(
  cols: number,
  format: MatrixFormat,
  rows: number,
): { readonly scales: number; readonly biases: number; readonly subscales: number; readonly bytes: number } {
  const one = rowBytes(cols, format);
  const scales = align16(rows * one.data);
  const biases = scales + align16(rows * one.scales);
  const subscales = biases + align16(rows * one.biases);
  return { scales, biases, subscales, bytes: subscales + rows * one.subscales };
}

/** The arrays of some rows in `room`, as {@link roomPlaces} lays them out. */
export function roomRows(room: ArrayBuffer, cols: number, format: MatrixFormat, rows: number): MatrixRows {
  const one = rowBytes(cols, format);
  const places = roomPlaces(cols, format, rows);
  const part = (at: number, bytes: number): Uint8Array => new Uint8Array(room, at, rows * bytes);
  return {
    data: part(0, one.data),
    ...(one.scales > 0 && { scales: part(places.scales, one.scales) }),
    ...(one.biases > 0 && { biases: part(places.biases, one.biases) }),
    ...(one.subscales > 0 && { subscales: part(places.subscales, one.subscales) }),
  };
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
  if (a.dtype !== b.dtype) return false;
  switch (a.kind) {
    case 'float':
      return b.kind === 'float';
    case 'affine':
      return b.kind === 'affine' && a.bits === b.bits && a.groupSize === b.groupSize;
    case 'k-quant':
      return b.kind === 'k-quant' && a.bits === b.bits;
  }
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
