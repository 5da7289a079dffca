// Blocks of 8 rows of floats (../pack-layout.ts): columns of f32, or words r of `row r << 16 | row r + 4`.
import { finiteFactor, scaleHalves } from './metas';

export function packFloats(
  blocks: u32, cols: u32, bytes: u32, shifted: bool, data: usize, to: usize, factors: usize,
): void {
  const row = cols * bytes;
  for (let b: u32 = 0; b < blocks; b++, data += row << 3, factors += 32) {
    for (let r: u32 = 0; r < 8; r++) {
      const at = data + r * row;
      store<f32>(factors + (r << 2), shifted ? scaleHalves(at, row, 0, 0) : finiteFactor(at, row, bytes));
    }
    to = bytes == 4 ? words(data, cols, to) : halves(data, cols, to);
  }
}

/** Columns come in fours. */
function words(data: usize, cols: u32, to: usize): usize {
  const row = cols << 2;
  for (let end = data + row; data < end; data += 16, to += 128) {
    fourRows(data, row, to);
    fourRows(data + (row << 2), row, to + 16);
  }
  return to;
}

/** Four columns of four rows, 32 bytes a column. */
@inline
function fourRows(at: usize, row: u32, to: usize): void {
  const x0 = v128.load(at);
  const x1 = v128.load(at + row);
  const x2 = v128.load(at + (row << 1));
  const x3 = v128.load(at + row * 3);
  const a = v128.shuffle<u32>(x0, x1, 0, 4, 1, 5);
  const b = v128.shuffle<u32>(x2, x3, 0, 4, 1, 5);
  const c = v128.shuffle<u32>(x0, x1, 2, 6, 3, 7);
  const d = v128.shuffle<u32>(x2, x3, 2, 6, 3, 7);
  v128.store(to, v128.shuffle<u64>(a, b, 0, 2));
  v128.store(to + 32, v128.shuffle<u64>(a, b, 1, 3));
  v128.store(to + 64, v128.shuffle<u64>(c, d, 0, 2));
  v128.store(to + 96, v128.shuffle<u64>(c, d, 1, 3));
}

/** Four columns at a time. */
function halves(data: usize, cols: u32, to: usize): usize {
  const row = cols << 1;
  for (let end = data + row; data < end; data += 8, to += 64) {
    // Words of a column: row r above row r + 4.
    const x0 = pair(data, row);
    const x1 = pair(data + row, row);
    const x2 = pair(data + (row << 1), row);
    const x3 = pair(data + row * 3, row);
    const a = v128.shuffle<u32>(x0, x1, 0, 4, 1, 5);
    const b = v128.shuffle<u32>(x2, x3, 0, 4, 1, 5);
    const c = v128.shuffle<u32>(x0, x1, 2, 6, 3, 7);
    const d = v128.shuffle<u32>(x2, x3, 2, 6, 3, 7);
    v128.store(to, v128.shuffle<u64>(a, b, 0, 2));
    v128.store(to + 16, v128.shuffle<u64>(a, b, 1, 3));
    v128.store(to + 32, v128.shuffle<u64>(c, d, 0, 2));
    v128.store(to + 48, v128.shuffle<u64>(c, d, 1, 3));
  }
  return to;
}

@inline
function pair(at: usize, row: u32): v128 {
  return v128.shuffle<u16>(v128.load64_zero(at + (row << 2)), v128.load64_zero(at), 0, 8, 1, 9, 2, 10, 3, 11);
}
