import type { MatrixFormat, MatrixRows } from '../weights.js';
import { halfShift, halfShiftTable } from './pack-half.js';
import type { BlockPacker, KernelBuild } from './pack-layout.js';
import { BLOCK_ROWS, CHUNK, groupMetaBytes } from './pack-layout.js';

type AffineFormat = Extract<MatrixFormat, { kind: 'affine' }>;

/** Planes of a code, in the order they lie in a chunk: width, and position of the lowest bit in the code. */
const PLANES: Record<number, readonly (readonly [width: number, position: number])[]> = {
  2: [[2, 0]],
  3: [
    [2, 0],
    [1, 2],
  ],
  4: [[4, 0]],
  5: [
    [4, 0],
    [1, 4],
  ],
  6: [
    [4, 0],
    [2, 4],
  ],
  8: [
    [4, 4],
    [4, 0],
  ],
};

/** `bytes` of 1 in every byte, times a mask of `width` bits. */
const BYTE_MASK: Record<number, number> = { 1: 0x01010101, 2: 0x03030303, 4: 0x0f0f0f0f };

/**
 * Packs 8 affine rows. Codes are widened to bytes first, four columns a word; planes are then cut out of words, four
 * codes at a time.
 */
export class AffineBlockPacker implements BlockPacker {
  readonly #cols: number;
  readonly #format: AffineFormat;
  readonly #build: KernelBuild;
  /** `[8][cols / 4]` words of four codes. */
  readonly #codes: Uint32Array;
  readonly #codeBytes: Uint8Array;
  /** `[8][groups]` bits of scales and biases. */
  readonly #scales: Uint32Array;
  readonly #biases: Uint32Array;
  /** Where unaligned input is copied to: a row, or with 4 bits all 8, for nothing is widened then. */
  readonly #words: Uint32Array;
  readonly #wordBytes: Uint8Array;

  constructor(cols: number, format: AffineFormat, build: KernelBuild) {
    this.#cols = cols;
    this.#format = format;
    this.#build = build;
    const direct = format.bits === 4;
    this.#codes = new Uint32Array(direct ? 0 : (BLOCK_ROWS * cols) / 4);
    this.#codeBytes = new Uint8Array(this.#codes.buffer);
    const groups = cols / format.groupSize;
    this.#scales = new Uint32Array(BLOCK_ROWS * groups);
    this.#biases = new Uint32Array(BLOCK_ROWS * groups);
    this.#words = new Uint32Array(((direct ? BLOCK_ROWS : 1) * cols * format.bits) / 32);
    this.#wordBytes = new Uint8Array(this.#words.buffer);
  }

  addRow(slot: number, rows: MatrixRows, index: number): number {
    const { bits } = this.#format;
    const size = (this.#cols * bits) / 8;
    this.#wordBytes.set(rows.data.subarray(index * size, (index + 1) * size), bits === 4 ? slot * size : 0);
    if (bits !== 4) this.#widen(slot);
    return this.#addMeta(slot, rows.scales!, rows.biases!, index);
  }

  flush(to: Uint32Array): void {
    const { bits, groupSize, dtype } = this.#format;
    const groups = this.#cols / groupSize;
    const planes = PLANES[bits]!;
    let at = 0;
    for (let g = 0; g < groups; g++) {
      if (bits === 4) at = this.#writeNibbles(to, at, (g * groupSize) / 8, groupSize / 8);
      for (let c = 0; c < groupSize && bits !== 4; c += CHUNK) {
        const step = (g * groupSize + c) / 4;
        for (const [width, position] of planes) at = this.#writePlane(to, at, step, width, position);
      }
      for (let r = 0; r < BLOCK_ROWS; r++) {
        const scale = this.#scales[r * groups + g]!;
        const bias = this.#biases[r * groups + g]!;
        if (dtype === 'f32') {
          to[at + r] = scale;
          to[at + BLOCK_ROWS + r] = bias;
        } else {
          to[at + r] = (scale << 16) | bias;
        }
      }
      at += groupMetaBytes(dtype) / 4;
    }
    this.#codes.fill(0);
    this.#words.fill(0);
    this.#scales.fill(0);
    this.#biases.fill(0);
  }

  /** Codes of 4 bits, straight from the rows: a word of a row is two steps. */
  #writeNibbles(to: Uint32Array, at: number, first: number, count: number): number {
    const words = this.#words;
    const stride = this.#cols / 8;
    const half = 4 * stride;
    const relaxed = this.#build === 'relaxed';
    let next = at;
    for (let k = first; k < first + count; k++, next += 8) {
      for (let r = 0, from = k; r < 4; r++, from += stride) {
        const a = words[from]!;
        const b = words[from + half]!;
        to[next + r] = spread(a & 0xffff) | (spread(b & 0xffff) << 4);
        to[next + 4 + r] = spread(a >>> 16) | (spread(b >>> 16) << 4);
      }
      if (relaxed) continue;
      pairRows(to, next);
      pairRows(to, next + 4);
    }
    return next;
  }

  /** One plane of one chunk: `width` vectors for every 4 steps. */
  #writePlane(to: Uint32Array, at: number, firstStep: number, width: number, position: number): number {
    const codes = this.#codes;
    const stride = this.#cols / 4;
    const mask = BYTE_MASK[width]!;
    const perVector = 4 / width;
    const relaxed = this.#build === 'relaxed';
    let next = at;
    for (let step = firstStep; step < firstStep + CHUNK / 4; step += perVector) {
      let w0 = 0;
      let w1 = 0;
      let w2 = 0;
      let w3 = 0;
      for (let s = 0; s < perVector; s++) {
        const low = 2 * width * s;
        const high = low + width;
        const from = step + s;
        w0 |= ((codes[from]! >>> position) & mask) << low;
        w1 |= ((codes[from + stride]! >>> position) & mask) << low;
        w2 |= ((codes[from + 2 * stride]! >>> position) & mask) << low;
        w3 |= ((codes[from + 3 * stride]! >>> position) & mask) << low;
        w0 |= ((codes[from + 4 * stride]! >>> position) & mask) << high;
        w1 |= ((codes[from + 5 * stride]! >>> position) & mask) << high;
        w2 |= ((codes[from + 6 * stride]! >>> position) & mask) << high;
        w3 |= ((codes[from + 7 * stride]! >>> position) & mask) << high;
      }
      to[next] = w0;
      to[next + 1] = w1;
      to[next + 2] = w2;
      to[next + 3] = w3;
      if (!relaxed) pairRows(to, next);
      next += 4;
    }
    return next;
  }

  /** The row's bit stream to one byte a code. */
  #widen(slot: number): void {
    const { bits } = this.#format;
    const words = this.#words;
    const first = (slot * this.#cols) / 4;
    const codes = this.#codes;
    if (bits === 8) {
      codes.set(words, first);
    } else {
      // 32 codes are `bits` words, whatever the width.
      const bytes = this.#codeBytes;
      const mask = (1 << bits) - 1;
      let out = slot * this.#cols;
      for (let base = 0; base < words.length; base += bits) {
        for (let i = 0; i < 32; i++) {
          const bit = i * bits;
          const word = base + (bit >> 5);
          const shift = bit & 31;
          let code = words[word]! >>> shift;
          if (shift + bits > 32) code |= words[word + 1]! << (32 - shift);
          bytes[out++] = code & mask;
        }
      }
    }
  }

  #addMeta(slot: number, scales: Uint8Array, biases: Uint8Array, index: number): number {
    const { dtype, groupSize } = this.#format;
    const groups = this.#cols / groupSize;
    const first = slot * groups;
    const size = dtype === 'f32' ? 4 : 2;
    readBits(scales, index * groups, groups, size, this.#scales, first);
    readBits(biases, index * groups, groups, size, this.#biases, first);
    if (dtype !== 'f16') return 1;
    let magnitude = 0;
    for (let g = first; g < first + groups; g++) {
      magnitude = Math.max(magnitude, this.#scales[g]! & 0x7fff, this.#biases[g]! & 0x7fff);
    }
    const shift = halfShift(magnitude);
    if (shift < 0) return Number.NaN;
    const table = halfShiftTable(shift);
    for (let g = first; g < first + groups; g++) {
      this.#scales[g] = table[this.#scales[g]!]!;
      this.#biases[g] = table[this.#biases[g]!]!;
    }
    return 2 ** -shift;
  }
}

/** A vector in the byte order of the build without relaxed SIMD: columns 0 and 1 of rows 0…3, then columns 2 and 3. */
function pairRows(to: Uint32Array, at: number): void {
  const w0 = to[at]!;
  const w1 = to[at + 1]!;
  const w2 = to[at + 2]!;
  const w3 = to[at + 3]!;
  to[at] = (w0 & 0xffff) | (w1 << 16);
  to[at + 1] = (w2 & 0xffff) | (w3 << 16);
  to[at + 2] = (w0 >>> 16) | (w1 & 0xffff0000);
  to[at + 3] = (w2 >>> 16) | (w3 & 0xffff0000);
}

/** Four nibbles to four bytes. */
function spread(nibbles: number): number {
  const pairs = (nibbles | (nibbles << 8)) & 0x00ff00ff;
  return (pairs | (pairs << 4)) & 0x0f0f0f0f;
}

/** Little-endian numbers of 2 or 4 bytes, at any alignment. */
export function readBits(
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
