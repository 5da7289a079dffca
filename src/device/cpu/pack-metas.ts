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
    const half = BLOCK_ROWS / 2;
    for (let r = 0; r < half; r++) to[at + r] = (scale(r) << 16) | scale(r + half);
    return at + half;
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
