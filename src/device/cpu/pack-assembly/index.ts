/**
 * Rows of weights into packed blocks (../pack-layout.ts), within a memory of the device: rows stand where they were read, or in scratch,
 * and blocks are written where they stay (../pack-blocks.ts).
 */
import { q4kRows, q5kRows, q6kRows } from './blocks-of-256';
import { mxfp4Rows, q40Rows, q41Rows, q80Rows } from './blocks-of-32';
import { packFloats as floats } from './floats';
import { chunkNibbles, chunkPlanes, widenRow } from './planes';
import {
  HEAD_NONE, HEAD_PAIRS, STORED_MXFP4, STORED_Q4_0, STORED_Q4_1, STORED_Q4_K, STORED_Q5_K, STORED_Q8_0,
  TAIL_BYTE, TAIL_HALVES, TAIL_PAIRS, TAIL_TWO_BYTES, TAIL_WIDE,
} from '../pack-kinds';
import { pairs, rowHalves, scaleHalves, twoBytes, oneByte, wide } from './metas';

export {
  nibbles, fives, bytes, k2, k3, k4, k5, k6, iq4xs, mxfp4, nvfp4,
} from '../../blocks/assembly/unpack';

const BLOCK_ROWS: u32 = 8;
const CHUNK: u32 = 32;
const SUPERBLOCK: u32 = 256;

/**
 * Packs blocks of 8 rows of codes.
 *
 * @param blocks how many; all their rows are there, those that pad the last are zeros
 * @param bits of a code
 * @param head, tail what stands before a superblock, and behind `unit` columns
 * @param relaxed the byte order of the builds with relaxed SIMD
 * @param scales, biases, subscales rows of `…Row` bytes each; halves are f16 where `shifted`, and change here
 * @param room of 8 · cols bytes
 * @param to where blocks go, and `factors` f32 of each row: NaN where the row holds a number that is none
 */
export function packCodes(
  blocks: u32, cols: u32, bits: u32, head: u32, tail: u32, unit: u32, relaxed: bool, shifted: bool,
  data: usize, scales: usize, scaleRow: u32, biases: usize, biasRow: u32, subscales: usize, subRow: u32,
  room: usize, to: usize, factors: usize,
): void {
  const dataRow = (cols * bits) >> 3;
  const widened = bits != 4 && bits != 8;
  for (let b: u32 = 0; b < blocks; b++) {
    if (shifted) {
      for (let r: u32 = 0; r < BLOCK_ROWS; r++)
        store<f32>(factors + (r << 2), scaleHalves(scales + r * scaleRow, scaleRow, biases + r * biasRow, biasRow));
    }
    if (widened) {
      for (let r: u32 = 0; r < BLOCK_ROWS; r++) widenRow(data + r * dataRow, cols, bits, room + r * cols);
    }
    for (let c: u32 = 0; c < cols; c += CHUNK) {
      if (head != HEAD_NONE && c % SUPERBLOCK == 0) {
        const at: usize = (c / SUPERBLOCK) << 1;
        to = head == HEAD_PAIRS
          ? pairs(scales + at, scaleRow, biases + at, biasRow, to)
          : rowHalves(scales + at, scaleRow, to);
      }
      to = bits == 4
        ? chunkNibbles(data + (c >> 1), dataRow, relaxed, to)
        : widened
          ? chunkPlanes(room + c, cols, bits, relaxed, to)
          : chunkPlanes(data + c, dataRow, 8, relaxed, to);
      const end = c + CHUNK;
      if (end % unit != 0) continue;
      const group: usize = c / unit;
      if (tail == TAIL_PAIRS) to = pairs(scales + (group << 1), scaleRow, biases + (group << 1), biasRow, to);
      else if (tail == TAIL_WIDE) to = wide(scales + (group << 2), scaleRow, biases + (group << 2), biasRow, to);
      else if (tail == TAIL_HALVES) to = rowHalves(scales + (group << 1), scaleRow, to);
      else if (tail == TAIL_BYTE) to = oneByte(subscales + group, subRow, to);
      else if (tail == TAIL_TWO_BYTES) to = twoBytes(subscales + (group << 1), subRow, to);
    }
    data += BLOCK_ROWS * dataRow;
    scales += BLOCK_ROWS * scaleRow;
    biases += BLOCK_ROWS * biasRow;
    subscales += BLOCK_ROWS * subRow;
    factors += BLOCK_ROWS << 2;
  }
}

/** Packs blocks of 8 rows of floats: f32, f16 (`shifted`) or bf16. As packCodes. */
export function packFloats(
  blocks: u32, cols: u32, size: u32, shifted: bool, data: usize, to: usize, factors: usize,
): void {
  floats(blocks, cols, size, shifted, data, to, factors);
}

/**
 * Packs blocks of 8 rows that are stored in GGUF's blocks of one type. As packCodes, which gives the same bytes.
 *
 * @param type one of STORED_…
 * @param row bytes of a row
 * @param room of 8 · 256 bytes
 */
export function packStored(
  blocks: u32, type: u32, row: u32, relaxed: bool, at: usize, to: usize, factors: usize, room: usize,
): void {
  for (let b: u32 = 0; b < blocks; b++, at += row << 3, factors += BLOCK_ROWS << 2) {
    if (type == STORED_Q4_0) to = q40Rows(row, relaxed, at, to, factors);
    else if (type == STORED_Q4_1) to = q41Rows(row, relaxed, at, to, factors);
    else if (type == STORED_Q8_0) to = q80Rows(row, relaxed, at, to, factors);
    else if (type == STORED_MXFP4) to = mxfp4Rows(row, relaxed, at, to, factors);
    else if (type == STORED_Q4_K) to = q4kRows(row, relaxed, at, to, factors, room);
    else if (type == STORED_Q5_K) to = q5kRows(row, relaxed, at, to, factors, room);
    else to = q6kRows(row, relaxed, at, to, factors, room);
  }
}

/** Rows of `size` bytes to where they are packed from. */
export function copy(from: usize, size: u32, rows: u32, to: usize): void {
  memory.copy(to, from, size * rows);
}

/** The same, in another order within runs of `within` rows: row r is the one that `order` says of it, as u32. */
export function gather(from: usize, size: u32, rows: u32, to: usize, order: usize, within: u32): void {
  for (let first: u32 = 0; first < rows; first += within, from += size * within) {
    for (let r: u32 = 0; r < within; r++, to += size)
      memory.copy(to, from + size * load<u32>(order + (r << 2)), size);
  }
}
