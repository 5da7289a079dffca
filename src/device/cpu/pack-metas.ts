/** What lies between the codes of a packed block (pack-layout.ts), a class for each kind of format. */
import type { FloatDtype, KQuantFormat, MatrixFormat, MatrixRows } from '../weights.js';
import { hasMinima, SUPERBLOCK } from '../weights.js';
import type { MetaPacker } from './pack-codes.js';
import { halfShift, halfShiftTable } from './pack-half.js';
import { BLOCK_ROWS, CHUNK } from './pack-layout.js';

/** Scales and biases of affine groups. */
export class AffineMetas implements MetaPacker {
  readonly columns: number;
  readonly #groups: number;
  readonly #dtype: FloatDtype;
  /** `[8][groups]` bits. */
  readonly #scales: Uint32Array;
  readonly #biases: Uint32Array;

  constructor(cols: number, { groupSize, dtype }: Extract<MatrixFormat, { kind: 'affine' }>) {
    this.columns = groupSize;
    this.#groups = cols / groupSize;
    this.#dtype = dtype;
    this.#scales = new Uint32Array(BLOCK_ROWS * this.#groups);
    this.#biases = new Uint32Array(BLOCK_ROWS * this.#groups);
  }

  addRow(slot: number, { scales, biases }: MatrixRows, index: number): number {
    const groups = this.#groups;
    const first = slot * groups;
    const size = this.#dtype === 'f32' ? 4 : 2;
    readBits(scales!, index * groups, groups, size, this.#scales, first);
    readBits(biases!, index * groups, groups, size, this.#biases, first);
    return this.#dtype === 'f16' ? shiftHalves([this.#scales, this.#biases], first, groups) : 1;
  }

  writeHead(_: Uint32Array, at: number): number {
    return at;
  }

  write(to: Uint32Array, at: number, g: number): number {
    const groups = this.#groups;
    const wide = this.#dtype === 'f32';
    for (let r = 0; r < BLOCK_ROWS; r++) {
      const scale = this.#scales[r * groups + g]!;
      const bias = this.#biases[r * groups + g]!;
      if (wide) {
        to[at + r] = scale;
        to[at + BLOCK_ROWS + r] = bias;
      } else {
        to[at + r] = (scale << 16) | bias;
      }
    }
    return at + (wide ? 2 : 1) * BLOCK_ROWS;
  }

  clear(): void {
    this.#scales.fill(0);
    this.#biases.fill(0);
  }
}

/** `d` and `dmin` before a superblock, subscales after every chunk of it. */
export class KQuantMetas implements MetaPacker {
  readonly columns = CHUNK;
  readonly #chunks: number;
  readonly #minima: boolean;
  /** `[8][superblocks]` bits of f16. */
  readonly #scales: Uint32Array;
  readonly #biases: Uint32Array;
  /** `[8][chunks][2]` */
  readonly #subscales: Uint8Array;

  constructor(cols: number, { bits }: KQuantFormat) {
    this.#chunks = cols / CHUNK;
    this.#minima = hasMinima(bits);
    this.#scales = new Uint32Array((BLOCK_ROWS * cols) / SUPERBLOCK);
    this.#biases = new Uint32Array((BLOCK_ROWS * cols) / SUPERBLOCK);
    this.#subscales = new Uint8Array(BLOCK_ROWS * this.#chunks * 2);
  }

  addRow(slot: number, { scales, biases, subscales }: MatrixRows, index: number): number {
    const count = this.#scales.length / BLOCK_ROWS;
    const first = slot * count;
    readBits(scales!, index * count, count, 2, this.#scales, first);
    if (this.#minima) readBits(biases!, index * count, count, 2, this.#biases, first);
    const size = this.#chunks * 2;
    this.#subscales.set(subscales!.subarray(index * size, (index + 1) * size), slot * size);
    return shiftHalves([this.#scales, this.#biases], first, count);
  }

  writeHead(to: Uint32Array, at: number, chunk: number): number {
    if ((chunk * CHUNK) % SUPERBLOCK !== 0) return at;
    const count = this.#scales.length / BLOCK_ROWS;
    const scale = (r: number): number => this.#scales[r * count + (chunk * CHUNK) / SUPERBLOCK]!;
    const bias = (r: number): number => this.#biases[r * count + (chunk * CHUNK) / SUPERBLOCK]!;
    if (this.#minima) {
      for (let r = 0; r < BLOCK_ROWS; r++) to[at + r] = (scale(r) << 16) | bias(r);
      return at + BLOCK_ROWS;
    }
    return writeHalves(to, at, scale);
  }

  write(to: Uint32Array, at: number, chunk: number): number {
    const size = this.#chunks * 2;
    for (let w = 0; w < 4; w++) {
      let word = 0;
      for (let i = 0; i < 4; i++) {
        const byte = 4 * w + i;
        const row = byte % BLOCK_ROWS;
        word |= this.#subscales[row * size + 2 * chunk + (byte - row) / BLOCK_ROWS]! << (8 * i);
      }
      to[at + w] = word;
    }
    return at + 4;
  }

  clear(): void {
    this.#scales.fill(0);
    this.#biases.fill(0);
    this.#subscales.fill(0);
  }
}

/** An f16 scale after every chunk. */
export class HalfMetas implements MetaPacker {
  readonly columns = CHUNK;
  readonly #chunks: number;
  /** `[8][chunks]` bits of f16. */
  readonly #scales: Uint32Array;

  constructor(cols: number) {
    this.#chunks = cols / CHUNK;
    this.#scales = new Uint32Array(BLOCK_ROWS * this.#chunks);
  }

  addRow(slot: number, { scales }: MatrixRows, index: number): number {
    const chunks = this.#chunks;
    readBits(scales!, index * chunks, chunks, 2, this.#scales, slot * chunks);
    return shiftHalves([this.#scales], slot * chunks, chunks);
  }

  writeHead(_: Uint32Array, at: number): number {
    return at;
  }

  write(to: Uint32Array, at: number, chunk: number): number {
    return writeHalves(to, at, (r) => this.#scales[r * this.#chunks + chunk]!);
  }

  clear(): void {
    this.#scales.fill(0);
  }
}

/** An exponent of 8 bits after every chunk. The largest is a NaN. */
export class ExponentMetas implements MetaPacker {
  readonly columns = CHUNK;
  readonly #chunks: number;
  /** `[8][chunks]` */
  readonly #bytes: Uint8Array;

  constructor(cols: number) {
    this.#chunks = cols / CHUNK;
    this.#bytes = new Uint8Array(BLOCK_ROWS * this.#chunks);
  }

  addRow(slot: number, { scales }: MatrixRows, index: number): number {
    const chunks = this.#chunks;
    const row = scales!.subarray(index * chunks, (index + 1) * chunks);
    this.#bytes.set(row, slot * chunks);
    return row.includes(255) ? Number.NaN : 1;
  }

  writeHead(_: Uint32Array, at: number): number {
    return at;
  }

  write(to: Uint32Array, at: number, chunk: number): number {
    return writeBytes(to, at, (r) => this.#bytes[r * this.#chunks + chunk]!);
  }

  clear(): void {
    this.#bytes.fill(0);
  }
}

/** An f16 number before a superblock, and a byte after every chunk of it. */
export class ByteMetas implements MetaPacker {
  readonly columns = CHUNK;
  readonly #chunks: number;
  /** `[8][superblocks]` bits of f16. */
  readonly #scales: Uint32Array;
  /** `[8][chunks]` */
  readonly #bytes: Uint8Array;

  constructor(cols: number) {
    this.#chunks = cols / CHUNK;
    this.#scales = new Uint32Array((BLOCK_ROWS * cols) / SUPERBLOCK);
    this.#bytes = new Uint8Array(BLOCK_ROWS * this.#chunks);
  }

  addRow(slot: number, { scales, subscales }: MatrixRows, index: number): number {
    const chunks = this.#chunks;
    const count = this.#scales.length / BLOCK_ROWS;
    readBits(scales!, index * count, count, 2, this.#scales, slot * count);
    this.#bytes.set(subscales!.subarray(index * chunks, (index + 1) * chunks), slot * chunks);
    return shiftHalves([this.#scales], slot * count, count);
  }

  writeHead(to: Uint32Array, at: number, chunk: number): number {
    if ((chunk * CHUNK) % SUPERBLOCK !== 0) return at;
    const count = this.#scales.length / BLOCK_ROWS;
    return writeHalves(to, at, (r) => this.#scales[r * count + (chunk * CHUNK) / SUPERBLOCK]!);
  }

  write(to: Uint32Array, at: number, chunk: number): number {
    return writeBytes(to, at, (r) => this.#bytes[r * this.#chunks + chunk]!);
  }

  clear(): void {
    this.#scales.fill(0);
    this.#bytes.fill(0);
  }
}

/** Two floats of 8 bits after every chunk, of 16 columns each. The largest are NaN. The row's own number is its factor. */
export class FloatByteMetas implements MetaPacker {
  readonly columns = CHUNK;
  readonly #groups: number;
  /** `[8][groups]` */
  readonly #bytes: Uint8Array;

  constructor(cols: number) {
    this.#groups = cols / 16;
    this.#bytes = new Uint8Array(BLOCK_ROWS * this.#groups);
  }

  addRow(slot: number, { scales, subscales }: MatrixRows, index: number): number {
    const groups = this.#groups;
    const row = subscales!.subarray(index * groups, (index + 1) * groups);
    this.#bytes.set(row, slot * groups);
    if (row.includes(0x7f) || row.includes(0xff)) return Number.NaN;
    return new DataView(scales!.buffer, scales!.byteOffset).getFloat32(index * 4, true);
  }

  writeHead(_: Uint32Array, at: number): number {
    return at;
  }

  write(to: Uint32Array, at: number, chunk: number): number {
    const of = (r: number, half: number): number => this.#bytes[r * this.#groups + 2 * chunk + half]!;
    const next = writeBytes(to, at, (r) => of(r, 0));
    return writeBytes(to, next, (r) => of(r, 1));
  }

  clear(): void {
    this.#bytes.fill(0);
  }
}

/** 8 halves: words r of `row r << 16 | row r + 4`. */
function writeHalves(to: Uint32Array, at: number, half: (row: number) => number): number {
  for (let r = 0; r < 4; r++) to[at + r] = (half(r) << 16) | half(r + 4);
  return at + 4;
}

/** A byte of each row. */
function writeBytes(to: Uint32Array, at: number, byte: (row: number) => number): number {
  for (let w = 0; w < 2; w++) {
    let word = 0;
    for (let i = 0; i < 4; i++) word |= byte(4 * w + i) << (8 * i);
    to[at + w] = word;
  }
  return at + 2;
}

/** Makes f16 numbers of a row what kernels want (pack-half.ts); returns the row's factor, NaN if one is not finite. */
function shiftHalves(arrays: readonly Uint32Array[], first: number, count: number): number {
  let magnitude = 0;
  for (const bits of arrays)
    for (let i = first; i < first + count; i++) magnitude = Math.max(magnitude, bits[i]! & 0x7fff);
  const shift = halfShift(magnitude);
  if (shift < 0) return Number.NaN;
  const table = halfShiftTable(shift);
  for (const bits of arrays) for (let i = first; i < first + count; i++) bits[i] = table[bits[i]!]!;
  return 2 ** -shift;
}

/** Little-endian numbers of 2 or 4 bytes, at any alignment. */
function readBits(
  from: Uint8Array,
  first: number,
  count: number,
  size: 2 | 4,
  to: Uint32Array,
  at: number,
): void {
  let b = first * size;
  for (let i = 0; i < count; i++, b += size) {
    let bits = from[b]! | (from[b + 1]! << 8);
    if (size === 4) bits |= (from[b + 2]! << 16) | (from[b + 3]! << 24);
    to[at + i] = bits;
  }
}
