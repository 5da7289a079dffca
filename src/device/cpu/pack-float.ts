import type { FloatDtype, MatrixRows } from '../weights.js';
import { floatBytes } from '../weights.js';
import { halfShift, halfShiftTable } from './pack-half.js';
import type { BlockPacker } from './pack-layout.js';
import { BLOCK_ROWS } from './pack-layout.js';

/** Packs 8 rows of f32, f16 or bf16. */
export class FloatBlockPacker implements BlockPacker {
  readonly #cols: number;
  readonly #dtype: FloatDtype;
  /** `[8][cols]` numbers as they came, rows one after the other; f16 is shifted. */
  readonly #bytes: Uint8Array;
  readonly #words: Uint32Array;
  readonly #halves: Uint16Array;

  constructor(cols: number, dtype: FloatDtype) {
    this.#cols = cols;
    this.#dtype = dtype;
    this.#bytes = new Uint8Array(BLOCK_ROWS * cols * floatBytes(dtype));
    this.#words = new Uint32Array(this.#bytes.buffer);
    this.#halves = new Uint16Array(this.#bytes.buffer);
  }

  addRow(slot: number, rows: MatrixRows, index: number): number {
    const cols = this.#cols;
    const size = cols * floatBytes(this.#dtype);
    this.#bytes.set(rows.data.subarray(index * size, (index + 1) * size), slot * size);
    if (this.#dtype !== 'f16') return 1;
    const first = slot * cols;
    const halves = this.#halves;
    let magnitude = 0;
    for (let i = first; i < first + cols; i++) magnitude = Math.max(magnitude, halves[i]! & 0x7fff);
    const shift = halfShift(magnitude);
    if (shift < 0) return Number.NaN;
    const table = halfShiftTable(shift);
    for (let i = first; i < first + cols; i++) halves[i] = table[halves[i]!]!;
    return 2 ** -shift;
  }

  flush(to: Uint32Array): void {
    if (this.#dtype === 'f32') this.#flushWords(to);
    else this.#flushHalves(to);
    this.#bytes.fill(0);
  }

  #flushWords(to: Uint32Array): void {
    const cols = this.#cols;
    const words = this.#words;
    for (let c = 0, at = 0; c < cols; c++)
      for (let r = 0; r < BLOCK_ROWS; r++) to[at++] = words[r * cols + c]!;
  }

  /** Two columns at a time: a word of a row holds both. */
  #flushHalves(to: Uint32Array): void {
    const words = this.#words;
    const pairs = this.#cols / 2;
    for (let r = 0; r < 4; r++) {
      const low = r * pairs;
      const high = low + 4 * pairs;
      for (let p = 0, at = r; p < pairs; p++, at += BLOCK_ROWS) {
        const a = words[low + p]!;
        const b = words[high + p]!;
        to[at] = (a << 16) | (b & 0xffff);
        to[at + 4] = (a & 0xffff0000) | (b >>> 16);
      }
    }
  }
}
