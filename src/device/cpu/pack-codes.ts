import type { MatrixRows } from '../weights.js';
import type { BlockPacker, KernelBuild } from './pack-layout.js';
import { BLOCK_ROWS, CHUNK } from './pack-layout.js';

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

/** What lies between the codes of a block: scales, and whatever else makes numbers of codes. */
export interface MetaPacker {
  /** Columns after whose codes {@link write} is called: whole chunks. */
  readonly columns: number;
  /** Takes those of row `index` of `rows` as those of row `slot`; returns the row's factor, NaN if one is not finite. */
  addRow(slot: number, rows: MatrixRows, index: number): number;
  /** Writes what precedes the codes of unit `unit` at word `at`; returns where they begin. */
  writeHead(to: Uint32Array, at: number, unit: number): number;
  /** Writes what follows them; returns where the next unit begins. */
  write(to: Uint32Array, at: number, unit: number): number;
  /** Makes all rows zeros. */
  clear(): void;
}

/**
 * Packs 8 rows of codes. Codes are widened to bytes first, four columns a word; planes are then cut out of words, four
 * codes at a time.
 */
export class CodeBlockPacker implements BlockPacker {
  readonly #cols: number;
  readonly #bits: number;
  readonly #metas: MetaPacker;
  readonly #build: KernelBuild;
  /** `[8][cols / 4]` words of four codes. */
  readonly #codes: Uint32Array;
  readonly #codeBytes: Uint8Array;
  /** Where unaligned input is copied to: a row, or with 4 bits all 8, for nothing is widened then. */
  readonly #words: Uint32Array;
  readonly #wordBytes: Uint8Array;

  constructor(cols: number, bits: number, metas: MetaPacker, build: KernelBuild) {
    this.#cols = cols;
    this.#bits = bits;
    this.#metas = metas;
    this.#build = build;
    const direct = bits === 4;
    this.#codes = new Uint32Array(direct ? 0 : (BLOCK_ROWS * cols) / 4);
    this.#codeBytes = new Uint8Array(this.#codes.buffer);
    this.#words = new Uint32Array(((direct ? BLOCK_ROWS : 1) * cols * bits) / 32);
    this.#wordBytes = new Uint8Array(this.#words.buffer);
  }

  addRow(slot: number, rows: MatrixRows, index: number): number {
    const bits = this.#bits;
    const size = (this.#cols * bits) / 8;
    this.#wordBytes.set(rows.data.subarray(index * size, (index + 1) * size), bits === 4 ? slot * size : 0);
    if (bits !== 4) this.#widen(slot);
    return this.#metas.addRow(slot, rows, index);
  }

  flush(to: Uint32Array): void {
    const bits = this.#bits;
    const metas = this.#metas;
    const { columns } = metas;
    const planes = PLANES[bits]!;
    let at = 0;
    for (let unit = 0; unit < this.#cols / columns; unit++) {
      at = metas.writeHead(to, at, unit);
      if (bits === 4) at = this.#writeNibbles(to, at, (unit * columns) / 8, columns / 8);
      for (let c = 0; c < columns && bits !== 4; c += CHUNK) {
        const step = (unit * columns + c) / 4;
        for (const [width, position] of planes) at = this.#writePlane(to, at, step, width, position);
      }
      at = metas.write(to, at, unit);
    }
    this.#codes.fill(0);
    this.#words.fill(0);
    metas.clear();
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
    const bits = this.#bits;
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
