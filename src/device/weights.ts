/**
 * How a weight reaches a device: sources that are read piece by piece, so that no second copy of a tensor
 * ever stands on the heap. The readers live in `weights/`; devices repack the pieces into their own layout.
 */

import type { BlockType } from './blocks/unpackers.js';

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
 *
 * `symmetric` is affine without biases, codes about the middle: `w = scale · (code − 2^(bits − 1))`.
 *
 * `lut4` has codes of 4 bits, packed as in `affine`, that stand for the numbers of a table (LUT4_TABLES): `w = scale · table[code]`, in
 * groups of 32. A scale is an f16; or a byte e, `2^(e − 127)` (`e8m0`); or `d · s`, as in a k-quant: an f16 d for 256 columns, and s in
 * −128…127 for every group (`f16-i8`); or `f · s`, an f32 f for each row, and s a float of 8 bits, 4 of them exponent, for every 16
 * columns (`f32-e4m3`).
 */
export type MatrixFormat =
  | { readonly kind: 'float'; readonly dtype: FloatDtype }
  | {
      readonly kind: 'affine';
      readonly bits: AffineBits;
      readonly groupSize: GroupSize;
      readonly dtype: FloatDtype;
    }
  | { readonly kind: 'k-quant'; readonly bits: KQuantBits; readonly dtype: 'f16' }
  | { readonly kind: 'symmetric'; readonly bits: 4 | 5 | 8; readonly groupSize: 32; readonly dtype: 'f16' }
  | {
      readonly kind: 'lut4';
      readonly bits: 4;
      readonly table: Lut4Table;
      readonly scale: Lut4Scale;
      /** Of the scales that are no bytes: f32 with `f32-e4m3`, f16 elsewhere. */
      readonly dtype: 'f16' | 'f32';
    };

export type KQuantFormat = Extract<MatrixFormat, { kind: 'k-quant' }>;
export type SymmetricFormat = Extract<MatrixFormat, { kind: 'symmetric' }>;
export type Lut4Format = Extract<MatrixFormat, { kind: 'lut4' }>;

/** Columns of a group of `lut4`. */
export function lut4Group({ scale }: Pick<Lut4Format, 'scale'>): 16 | 32 {
  return scale === 'f32-e4m3' ? 16 : 32;
}
export type Lut4Scale = 'f16' | 'e8m0' | 'f16-i8' | 'f32-e4m3';

/**
 * Tables of `lut4`. `e2m1`: numbers of 4 bits with two bits of exponent and one of mantissa (OCP Microscaling Formats, 5.3.3). `iq4`: that of
 * GGUF's IQ4 types, steps that widen away from zero.
 */
export const LUT4_TABLES = {
  e2m1: [0, 0.5, 1, 1.5, 2, 3, 4, 6, -0, -0.5, -1, -1.5, -2, -3, -4, -6],
  iq4: [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113],
} as const;
export type Lut4Table = keyof typeof LUT4_TABLES;

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
  /** Elements of the format's dtype, little-endian. `affine`: rows · cols / groupSize. `k-quant`: d, rows · cols / 256.
   * `symmetric`: rows · cols / 32. `lut4`: as many or, with `f16-i8`, rows · cols / 256; with `e8m0` bytes; with `f32-e4m3` rows. */
  readonly scales?: Uint8Array;
  /** As many as there are scales. `affine`: biases. `k-quant`: dmin, where it has minima. */
  readonly biases?: Uint8Array;
  /**
   * `k-quant`: two bytes for every 32 columns: s and m of a group of 32, or what two groups of 16 have. `lut4` with `f16-i8` or
   * `f32-e4m3`: s of every group.
   */
  readonly subscales?: Uint8Array;
}

/** What rows have beside their codes. */
export type BesideRows = Omit<MatrixRows, 'data'>;

/** Rows that lie in a file one after the other, each in one piece. */
export interface StoredRows {
  /** What a row is made of. `codes`: of {@link MatrixRows.data} alone; the other arrays lie elsewhere. */
  readonly type: BlockType | 'floats' | 'codes';
  /** Bytes of a row: no more than {@link wholeRowBytes} of it. */
  readonly rowBytes: number;
  /** Blocks of a row; 0 for floats and codes. */
  readonly rowBlocks: number;
  /** Row `r` of the matrix is the row `of(r)` of each so many that are read, and their number is a multiple of it. Absent: as read. */
  readonly order?: { readonly within: number; of(row: number): number } | undefined;
  /** Rows `[start, end)`, as they are. `into` has their bytes, and may lie in shared memory. `beside`: of codes, the arrays to fill. */
  readInto(start: number, end: number, into: Uint8Array, beside?: BesideRows): Promise<void>;
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
  /** The same rows for a device that takes blocks apart, and looks for what is no number, itself. Not every source has them. */
  readonly stored?: StoredRows | undefined;
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

/** What one row takes in each array, as stored; 0 for arrays that the format does not have. */
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
    case 'symmetric':
      return { data: (cols * format.bits) / 8, scales: cols / 16, biases: 0, subscales: 0 };
    case 'lut4': {
      const groups = cols / lut4Group(format);
      if (format.scale === 'f32-e4m3') return { data: cols / 2, scales: 4, biases: 0, subscales: groups };
      if (format.scale === 'f16-i8')
        return { data: cols / 2, scales: (2 * cols) / SUPERBLOCK, biases: 0, subscales: groups };
      return {
        data: cols / 2,
        scales: format.scale === 'f16' ? 2 * groups : groups,
        biases: 0,
        subscales: 0,
      };
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
    case 'symmetric':
      return format.groupSize;
    case 'lut4':
      return format.scale === 'f16-i8' ? SUPERBLOCK : 32;
  }
}

/** Columns whose codes are multiplied with one scale; 0 for floats. */
export function groupColumns(format: MatrixFormat): number {
  switch (format.kind) {
    case 'float':
      return 0;
    case 'affine':
    case 'symmetric':
      return format.groupSize;
    case 'k-quant':
      return kQuantGroup(format.bits);
    case 'lut4':
      return lut4Group(format);
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
function roomPlaces(
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
  const places = roomPlaces(cols, format, rows);
  const data = new Uint8Array(room, 0, rows * rowBytes(cols, format).data);
  return { data, ...besideFrom(room, 0, cols, format, rows, places) };
}

/** Bytes of a room that some rows fit in, as a source lays them out. */
export function roomBytes(cols: number, format: MatrixFormat, rows: number): number {
  return roomPlaces(cols, format, rows).bytes;
}

/** The arrays that some rows have beside their codes, in a room of {@link besideBytes}. */
export function besideRows(room: ArrayBuffer, cols: number, format: MatrixFormat, rows: number): BesideRows {
  const places = roomPlaces(cols, format, rows);
  return besideFrom(room, places.scales, cols, format, rows, places);
}

export function besideBytes(cols: number, format: MatrixFormat, rows: number): number {
  const { scales, bytes } = roomPlaces(cols, format, rows);
  return bytes - scales;
}

/** @param from the place that the room begins at */
function besideFrom(
  room: ArrayBuffer,
  from: number,
  cols: number,
  format: MatrixFormat,
  rows: number,
  places: ReturnType<typeof roomPlaces>,
): BesideRows {
  const one = rowBytes(cols, format);
  const part = (at: number, bytes: number): Uint8Array => new Uint8Array(room, at - from, rows * bytes);
  return {
    ...(one.scales > 0 && { scales: part(places.scales, one.scales) }),
    ...(one.biases > 0 && { biases: part(places.biases, one.biases) }),
    ...(one.subscales > 0 && { subscales: part(places.subscales, one.subscales) }),
  };
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
    case 'symmetric':
      return b.kind === 'symmetric' && a.bits === b.bits;
    case 'lut4':
      return b.kind === 'lut4' && a.table === b.table && a.scale === b.scale;
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
