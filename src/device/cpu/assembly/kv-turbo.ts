import {
  BOOK_CENTROIDS, BOOK_MIDPOINTS, SIDE_BITS, SIDE_CODEBOOK, SIDE_META, SIDE_PLAIN, SIDE_ROTATION, SIDE_UNIT,
} from '../kv-layout';
import { toHalves } from './kv';
import { fromHalf, highHalf, lowHalf, storeBytes } from './kv-words';
import { sumLanes } from './math';
import { rotate } from './rotation';

/** TurboQuant's codes (../../kv-formats/turbo.ts): see `codeVector` and `readMeta` of kv-formats.ts. */
// @ts-ignore: decorator
@inline export function codeTurbo(
  side: usize, isKey: bool, x: usize, block: u32, head: u32, kvHeads: u32, token: u32, dim: u32, blockTokens: u32,
  position: u32, codes: usize, spare: usize,
): void {
  const norm = codeUnit(side, load<u32>(side, SIDE_BITS), isKey, x, dim, codes, spare);
  const pairs = (kvHeads + 1) >> 1;
  const meta = load<u32>(side, SIDE_META);
  store<u16>(meta + ((block * pairs + (head >> 1)) * blockTokens + token) * 4 + (head & 1) * 2, norm);
}

// @ts-ignore: decorator
@inline export function metaTurbo(
  side: usize, block: u32, h: u32, kvHeads: u32, g: u32, groups: u32, all: u32, token: u32, count: u32, blockShift: u32,
  scales: usize, biases: usize, step: usize,
): void {
  const at: usize = load<u32>(side, SIDE_META) + ((((block * ((kvHeads + 1) >> 1) + (h >> 1)) << blockShift) + token) << 2);
  const unit = v128.load_splat<f32>(side, SIDE_UNIT);
  const odd = (h & 1) != 0;
  for (let i: usize = 0; i < count * 4; i += 16) {
    v128.store(scales + i, norms(at + i, odd, unit));
    v128.store(biases + i, f32x4.splat(0));
  }
}

/** Four norms of TurboQuant, those of head `h`, times the unit of the centroids. */
// @ts-ignore: decorator
@inline function norms(at: usize, odd: bool, unit: v128): v128 {
  const pairs = v128.load(at);
  return f32x4.mul(fromHalf(odd ? highHalf(pairs) : lowHalf(pairs)), unit);
}

/** Codes of the rotated unit vector, a byte each; gives the bits of the norm that is stored. Overwrites `x`. */
function codeUnit(side: usize, bits: u32, isKey: bool, x: usize, dim: u32, codes: usize, spare: usize): u16 {
  const book: usize = load<u32>(side, SIDE_CODEBOOK);
  const midpoints = book + BOOK_MIDPOINTS;
  let squares = f32x4.splat(0);
  for (let d: u32 = 0; d < dim; d += 4) {
    const v = v128.load(x + d * 4);
    squares = f32x4.add(squares, f32x4.mul(v, v));
  }
  const length = sqrt<f32>(sumLanes(squares));
  if (length > 0) {
    const by = f32x4.splat(length);
    for (let d: u32 = 0; d < dim; d += 4) v128.store(x + d * 4, f32x4.div(v128.load(x + d * 4), by));
  }
  rotate(load<u32>(side, SIDE_ROTATION), x, spare, dim, false);
  const count: u32 = (1 << bits) - 1;
  for (let d: u32 = 0; d < dim; d += 4) {
    const v = v128.load(x + d * 4);
    let code = i32x4.splat(0);
    if (bits < 8) {
      for (let i: u32 = 0; i < count; i++) {
        code = i32x4.sub(code, f32x4.lt(v128.load_splat<f32>(midpoints + i * 4), v));
      }
    } else {
      // The number of midpoints below, bit by bit.
      for (let step: u32 = 128; step != 0; step >>= 1) {
        const last = i32x4.add(code, i32x4.splat(step - 1));
        const m = f32x4(
          load<f32>(midpoints + i32x4.extract_lane(last, 0) * 4), load<f32>(midpoints + i32x4.extract_lane(last, 1) * 4),
          load<f32>(midpoints + i32x4.extract_lane(last, 2) * 4), load<f32>(midpoints + i32x4.extract_lane(last, 3) * 4),
        );
        code = i32x4.add(code, v128.and(f32x4.lt(m, v), i32x4.splat(step)));
      }
    }
    storeBytes(codes + d, code);
  }
  let norm = length;
  if (isKey && length > 0 && load<u32>(side, SIDE_PLAIN) == 0) {
    let likeness = f32x4.splat(0);
    for (let d: u32 = 0; d < dim; d += 4) {
      const c = f32x4(
        centroid(book, codes + d), centroid(book, codes + d + 1), centroid(book, codes + d + 2),
        centroid(book, codes + d + 3),
      );
      likeness = f32x4.add(likeness, f32x4.mul(v128.load(x + d * 4), c));
    }
    norm = length / sumLanes(likeness);
  }
  return <u16>i32x4.extract_lane(toHalves(f32x4.splat(norm)), 0);
}

// @ts-ignore: decorator
@inline function centroid(book: usize, code: usize): f32 {
  return load<f32>(book + BOOK_CENTROIDS + <usize>load<u8>(code) * 4);
}
