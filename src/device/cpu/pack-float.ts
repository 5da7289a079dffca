import type { FloatDtype, MatrixRows } from '../weights.js';
import { floatBytes } from '../weights.js';
import { readBits } from './pack-affine.js';
import { halfShift, halfShiftTable } from './pack-half.js';
import type { BlockPacker } from './pack-layout.js';
import { BLOCK_ROWS } from './pack-layout.js';

/** Packs 8 rows of f32, f16 or bf16. */
export class FloatBlockPacker implements BlockPacker {
  readonly #cols: number;
  readonly #dtype: FloatDtype;
  /** `[8][cols]` bits. */
  readonly #rows: Uint32Array;

  constructor(cols: number, dtype: FloatDtype) {
    this.#cols = cols;
    this.#dtype = dtype;
    this.#rows = new Uint32Array(BLOCK_ROWS * cols);
  }

  addRow(slot: number, rows: MatrixRows, index: number): number {
    const cols = this.#cols;
    const first = slot * cols;
    const bits = this.#rows;
    readBits(rows.data, index * cols, cols, floatBytes(this.#dtype) as 2 | 4, bits, first);
    if (this.#dtype !== 'f16') return 1;
    let magnitude = 0;
    for (let i = first; i < first + cols; i++) magnitude = Math.max(magnitude, bits[i]! & 0x7fff);
    const shift = halfShift(magnitude);
    if (shift < 0) return Number.NaN;
    const table = halfShiftTable(shift);
    for (let i = first; i < first + cols; i++) bits[i] = table[bits[i]!]!;
    return 2 ** -shift;
  }

  flush(to: Uint32Array): void {
    const cols = this.#cols;
    const bits = this.#rows;
    let at = 0;
    for (let c = 0; c < cols; c++) {
      if (this.#dtype === 'f32') {
        for (let r = 0; r < BLOCK_ROWS; r++) to[at++] = bits[r * cols + c]!;
      } else {
        for (let r = 0; r < 4; r++) to[at++] = (bits[r * cols + c]! << 16) | bits[(r + 4) * cols + c]!;
      }
    }
    bits.fill(0);
  }
}
