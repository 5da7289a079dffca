// Rows of GGUF's blocks of 256 columns (weights/gguf-blocks.ts) straight into packed blocks: Q4_K, Q5_K and Q6_K. The results are those
// of packCodes. `at`: 8 rows of `row` bytes; `room`: 8 times 256 bytes. Returns where the packed block ends.
import { bit, highs, lows } from '../../blocks/assembly/codes';
import { sixBitPairs } from '../../blocks/assembly/subscales';
import { byteNibbles, chunkPlanes } from './planes';
import { pairFactors, pairShifts, putPairs, putScales, scaleFactors, scaleShifts } from './row-scales';

const COLS: u32 = 256;
/** Behind the codes of a chunk: two bytes of each row. */
const TAIL: usize = 16;

export function q4kRows(row: u32, relaxed: bool, at: usize, to: usize, factors: usize, room: usize): usize {
  pairFactors(at, row, 144, factors);
  const first = pairShifts(factors);
  const last = pairShifts(factors + 16);
  const chunk: usize = 128 + TAIL;
  for (const end = at + row; at < end; at += 144, to += 32 + (chunk << 3)) {
    putPairs(at, row, first, last, factors, to);
    let codes = to + 32;
    // A byte has a column of one chunk, and of the next.
    for (let run: usize = 16; run < 144; run += 32, codes += chunk << 1) {
      byteNibbles(at + run, row, relaxed, codes, codes + chunk);
      byteNibbles(at + run + 16, row, relaxed, codes + 64, codes + chunk + 64);
    }
    for (let r: usize = 0; r < 8; r++) sixBitPairs(at + r * row + 4, room + (r << 4));
    putTails(room, 16, to + 32 + 128, chunk);
  }
  return to;
}

export function q5kRows(row: u32, relaxed: bool, at: usize, to: usize, factors: usize, room: usize): usize {
  pairFactors(at, row, 176, factors);
  const first = pairShifts(factors);
  const last = pairShifts(factors + 16);
  const chunk: usize = 160 + TAIL;
  for (const end = at + row; at < end; at += 176, to += 32 + (chunk << 3)) {
    putPairs(at, row, first, last, factors, to);
    for (let r: usize = 0; r < 8; r++) sixBitPairs(at + r * row + 4, room + (r << 4));
    putTails(room, 16, to + 32 + 160, chunk);
    for (let r: usize = 0; r < 8; r++) fives(at + r * row, room + (r << 8));
    for (let c: usize = 0; c < 8; c++) chunkPlanes(room + (c << 5), COLS, 5, relaxed, to + 32 + c * chunk);
  }
  return to;
}

export function q6kRows(row: u32, relaxed: bool, at: usize, to: usize, factors: usize, room: usize): usize {
  scaleFactors(at + 208, row, 210, factors);
  const shifts = scaleShifts(factors);
  const chunk: usize = 192 + TAIL;
  for (const end = at + row; at < end; at += 210, to += 16 + (chunk << 3)) {
    putScales(at + 208, row, shifts, factors, to);
    for (let r: usize = 0; r < 8; r++) sixes(at + r * row, room + (r << 8));
    for (let c: usize = 0; c < 8; c++) chunkPlanes(room + (c << 5), COLS, 6, relaxed, to + 16 + c * chunk);
    putTails(at + 192, row, to + 16 + 192, chunk);
  }
  return to;
}

/** Codes of a block of Q5_K, a byte each. */
@inline
function fives(at: usize, to: usize): void {
  const left = v128.load(at, 16);
  const right = v128.load(at, 32);
  for (let g: i32 = 0; g < 8; g += 2, at += 32, to += 64) {
    const a = v128.load(at, 48);
    const b = v128.load(at, 64);
    v128.store(to, v128.or(lows(a), i16x8.shl(bit(left, g, 1), 4)));
    v128.store(to, v128.or(lows(b), i16x8.shl(bit(right, g, 1), 4)), 16);
    v128.store(to, v128.or(highs(a), i16x8.shl(bit(left, g + 1, 1), 4)), 32);
    v128.store(to, v128.or(highs(b), i16x8.shl(bit(right, g + 1, 1), 4)), 48);
  }
}

/** Codes of a block of Q6_K, a byte each. */
@inline
function sixes(at: usize, to: usize): void {
  for (let high = at + 128; high < at + 192; high += 32, to += 128) {
    const low = at + ((high - at - 128) << 1);
    for (let half: usize = 0; half < 32; half += 16) {
      const pairs = v128.load(high + half);
      const a = v128.load(low + half);
      const b = v128.load(low + half, 32);
      v128.store(to + half, v128.or(lows(a), i16x8.shl(bit(pairs, 0, 3), 4)));
      v128.store(to + half, v128.or(lows(b), i16x8.shl(bit(pairs, 2, 3), 4)), 32);
      v128.store(to + half, v128.or(highs(a), i16x8.shl(bit(pairs, 4, 3), 4)), 64);
      v128.store(to + half, v128.or(highs(b), i16x8.shl(bit(pairs, 6, 3), 4)), 96);
    }
  }
}

/** Of 8 rows `row` bytes apart two bytes for each of 8 chunks: the first of all rows, then the second, `step` bytes further each. */
@inline
function putTails(at: usize, row: usize, to: usize, step: usize): void {
  const below = at + (row << 2);
  const r0 = v128.load(at);
  const r1 = v128.load(at + row);
  const r2 = v128.load(at + (row << 1));
  const r3 = v128.load(at + row * 3);
  const r4 = v128.load(below);
  const r5 = v128.load(below + row);
  const r6 = v128.load(below + (row << 1));
  const r7 = v128.load(below + row * 3);
  // Words of chunks 0…3, then of 4…7, of two rows; of four; of eight.
  const a0 = v128.shuffle<u16>(r0, r1, 0, 8, 1, 9, 2, 10, 3, 11);
  const a1 = v128.shuffle<u16>(r2, r3, 0, 8, 1, 9, 2, 10, 3, 11);
  const a2 = v128.shuffle<u16>(r4, r5, 0, 8, 1, 9, 2, 10, 3, 11);
  const a3 = v128.shuffle<u16>(r6, r7, 0, 8, 1, 9, 2, 10, 3, 11);
  putFour(a0, a1, a2, a3, to, step);
  const b0 = v128.shuffle<u16>(r0, r1, 4, 12, 5, 13, 6, 14, 7, 15);
  const b1 = v128.shuffle<u16>(r2, r3, 4, 12, 5, 13, 6, 14, 7, 15);
  const b2 = v128.shuffle<u16>(r4, r5, 4, 12, 5, 13, 6, 14, 7, 15);
  const b3 = v128.shuffle<u16>(r6, r7, 4, 12, 5, 13, 6, 14, 7, 15);
  putFour(b0, b1, b2, b3, to + (step << 2), step);
}

@inline
function putFour(x0: v128, x1: v128, x2: v128, x3: v128, to: usize, step: usize): void {
  const a = v128.shuffle<u32>(x0, x1, 0, 4, 1, 5);
  const b = v128.shuffle<u32>(x2, x3, 0, 4, 1, 5);
  const c = v128.shuffle<u32>(x0, x1, 2, 6, 3, 7);
  const d = v128.shuffle<u32>(x2, x3, 2, 6, 3, 7);
  putTail(v128.shuffle<u64>(a, b, 0, 2), to);
  putTail(v128.shuffle<u64>(a, b, 1, 3), to + step);
  putTail(v128.shuffle<u64>(c, d, 0, 2), to + (step << 1));
  putTail(v128.shuffle<u64>(c, d, 1, 3), to + step * 3);
}

@inline
function putTail(words: v128, to: usize): void {
  v128.store(to, v128.shuffle<u8>(words, words, 0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15));
}
