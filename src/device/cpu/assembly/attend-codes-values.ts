import {
  FORMAT_A3, FORMAT_A4, FORMAT_A5, FORMAT_A6, FORMAT_T4, FORMAT_T8, SIDE_BITS, SIDE_CENTRE, SIDE_CODEBOOK, SIDE_CODES,
  SIDE_FORMAT, SIDE_GROUP, SIDE_HEAD_BYTES,
} from '../kv-layout';
import { dotRows, groupsOf, plainFormat, plainValue, rowsTogether, widenValueUnit } from './attend-codes';
import { addCodes1, addCodes2, widenValueCodes } from './attend-codes-tiles';
import { restBits, unitDims, unitVectors } from './kv-codes';
import { readMeta } from './kv-formats';
import { madd, maxLanes, sumLanes } from './math';

/** From so many rows on, codes are unpacked once for all of them. */
const WIDE_ROWS: u32 = 3;
/** Positions whose weights share a factor. */
export const WEIGHT_TILE: u32 = 32;
const TILE_QUADS: u32 = 8;
/** Bytes of the integer weights of a row and group, and of what belongs to them: for each tile factor and −c · Σ. */
const WEIGHTS_BYTES: usize = 512;
const FACTS_BYTES: usize = 64;
const SCORES_BYTES: usize = 1024;
/** Bytes of 16 unpacked columns of a split. */
const AREA: usize = 8192;

// The job at hand: a split of a unit of work, over tiles [from, to). Globals are a thread's own.
let side: usize = 0;
let table: usize = 0;
let h: u32 = 0;
let kvHeads: u32 = 0;
let blockShift: u32 = 0;
let dim: u32 = 0;
let base: u32 = 0;
let from: u32 = 0;
let to: u32 = 0;
/** Positions of the split that have been stored. */
let stored: u32 = 0;

/**
 * Adds weight · V of the split at `position`, over its positions [a, b), to the sums of `rows` rows of each of `span` KV
 * heads. The weights are
 * finished: 0 where a row does not see a position, in all tiles of 32 that [a, b) touches. `wide`: 16 KiB; `scratch`:
 * 2 KiB and, a row, 580 bytes for each group.
 */
export function addValues(
  valueSide: usize, blocks: usize, head: u32, span: u32, heads: u32, shift: u32, width: u32, position: u32, a: u32, b: u32,
  rows: u32, weights: usize, sums: usize, wide: usize, scratch: usize,
): void {
  takeSplit(valueSide, blocks, head, heads, shift, width, position, a, b);
  const groups = groupsOf(side, dim);
  const all = span * rows;
  const meta = scratch;
  const codes = scratch + 2048;
  const facts = codes + all * groups * WEIGHTS_BYTES;
  let biases = facts + all * groups * FACTS_BYTES;
  for (let s: u32 = 0; s < span; s++) {
    h = head + s;
    for (let g: u32 = 0; g < groups; g++) {
      readSplitMeta(g, groups, meta);
      for (let r = s * rows; r < (s + 1) * rows; r++) {
        const i = r * groups + g;
        const bias = codeWeights(weights + r * SCORES_BYTES, meta, codes + i * WEIGHTS_BYTES, facts + i * FACTS_BYTES);
        store<f32>(biases + i * 4, bias);
      }
    }
  }
  h = head;
  if (rows < WIDE_ROWS && load<u32>(side, SIDE_FORMAT) != FORMAT_T8) addDirect(span, rows, groups, codes, facts, sums);
  else {
    for (let s: u32 = 0; s < span; s++, h++) {
      const i = s * rows * groups;
      addWide(rows, groups, codes + i * WEIGHTS_BYTES, facts + i * FACTS_BYTES, sums + s * rows * dim * 4, wide, meta);
    }
  }
  const group = load<u32>(side, SIDE_GROUP);
  for (let r: u32 = 0; r < all; r++) {
    for (let d: u32 = 0; d < dim; d += group, biases += 4) {
      const bias = v128.load_splat<f32>(biases);
      const end = sums + min<u32>(group, dim - d) * 4;
      for (; sums < end; sums += 16) v128.store(sums, f32x4.add(v128.load(sums), bias));
    }
  }
}

function takeSplit(
  valueSide: usize, blocks: usize, head: u32, heads: u32, shift: u32, width: u32, position: u32, a: u32, b: u32,
): void {
  side = valueSide;
  table = blocks;
  h = head;
  kvHeads = heads;
  blockShift = shift;
  dim = width;
  base = position;
  from = a / WEIGHT_TILE;
  to = (b + WEIGHT_TILE - 1) / WEIGHT_TILE;
  stored = b;
}

/** The block of position `t` of the split. */
// @ts-ignore: decorator
@inline function blockAt(t: u32): u32 {
  return load<u32>(table + ((base + t) >> blockShift) * 4);
}

// @ts-ignore: decorator
@inline function headAt(block: u32): usize {
  return load<u32>(side, SIDE_CODES) + (block * kvHeads + h) * load<u32>(side, SIDE_HEAD_BYTES);
}

/** Scales and biases of a group: 256 of each. What is not stored yet, and has no block, gets zeros. */
function readSplitMeta(g: u32, groups: u32, meta: usize): void {
  const mask: u32 = (1 << blockShift) - 1;
  const end = to * WEIGHT_TILE;
  let t = from * WEIGHT_TILE;
  while (t < end && t < stored) {
    const block = blockAt(t);
    const stop = min<u32>(end, ((base + t) | mask) + 1 - base);
    readMeta(
      side, block, h, kvHeads, g, 1, groups, (base + t) & mask, stop - t, blockShift, meta + t * 4, meta + 1024 + t * 4, 0,
    );
    t = stop;
  }
  memory.fill(meta + t * 4, 0, (end - t) * 4);
  memory.fill(meta + 1024 + t * 4, 0, (end - t) * 4);
}

/** Weights times scales to integers; gives Σ weight · bias. */
function codeWeights(weights: usize, meta: usize, codes: usize, facts: usize): f32 {
  const centre = <i32>load<u32>(side, SIDE_CENTRE);
  const ones = i16x8.splat(1);
  const end = to * WEIGHT_TILE * 4;
  let bias = f32x4.splat(0);
  facts += from * 8;
  for (let t: usize = from * WEIGHT_TILE * 4; t < end; t += WEIGHT_TILE * 4, facts += 8) {
    const w = weights + t;
    const m = meta + t;
    const w0 = v128.load(w);
    const w1 = v128.load(w, 16);
    const w2 = v128.load(w, 32);
    const w3 = v128.load(w, 48);
    bias = madd(w0, v128.load(m, 1024), bias);
    bias = madd(w1, v128.load(m, 1040), bias);
    bias = madd(w2, v128.load(m, 1056), bias);
    bias = madd(w3, v128.load(m, 1072), bias);
    const u0 = f32x4.mul(w0, v128.load(m));
    const u1 = f32x4.mul(w1, v128.load(m, 16));
    const u2 = f32x4.mul(w2, v128.load(m, 32));
    const u3 = f32x4.mul(w3, v128.load(m, 48));
    const w4 = v128.load(w, 64);
    const w5 = v128.load(w, 80);
    const w6 = v128.load(w, 96);
    const w7 = v128.load(w, 112);
    bias = madd(w4, v128.load(m, 1088), bias);
    bias = madd(w5, v128.load(m, 1104), bias);
    bias = madd(w6, v128.load(m, 1120), bias);
    bias = madd(w7, v128.load(m, 1136), bias);
    const u4 = f32x4.mul(w4, v128.load(m, 64));
    const u5 = f32x4.mul(w5, v128.load(m, 80));
    const u6 = f32x4.mul(w6, v128.load(m, 96));
    const u7 = f32x4.mul(w7, v128.load(m, 112));
    const low = f32x4.pmax(f32x4.pmax(u0, u1), f32x4.pmax(u2, u3));
    const most = maxLanes(f32x4.pmax(low, f32x4.pmax(f32x4.pmax(u4, u5), f32x4.pmax(u6, u7))));
    const usable = most >= 1e-30;
    const inverse = f32x4.splat(usable ? <f32>32767 / most : 0);
    const c0 = i16x8.narrow_i32x4_s(scaled(u0, inverse), scaled(u1, inverse));
    const c1 = i16x8.narrow_i32x4_s(scaled(u2, inverse), scaled(u3, inverse));
    const c2 = i16x8.narrow_i32x4_s(scaled(u4, inverse), scaled(u5, inverse));
    const c3 = i16x8.narrow_i32x4_s(scaled(u6, inverse), scaled(u7, inverse));
    const c = codes + (t >> 1);
    v128.store(c, c0);
    v128.store(c, c1, 16);
    v128.store(c, c2, 32);
    v128.store(c, c3, 48);
    store<f32>(facts, usable ? most * <f32>(1.0 / 32767.0) : 0);
    if (centre != 0) {
      let sums = i32x4.add(i32x4.dot_i16x8_s(c0, ones), i32x4.dot_i16x8_s(c1, ones));
      sums = i32x4.add(sums, i32x4.add(i32x4.dot_i16x8_s(c2, ones), i32x4.dot_i16x8_s(c3, ones)));
      sums = i32x4.add(sums, v128.shuffle<i32>(sums, sums, 2, 3, 0, 1));
      sums = i32x4.add(sums, v128.shuffle<i32>(sums, sums, 1, 0, 3, 2));
      store<i32>(facts, -centre * i32x4.extract_lane(sums, 0), 4);
    } else {
      store<i32>(facts, 0, 4);
    }
  }
  return sumLanes(bias);
}

/** `x · by` as integers, rounded to nearest; |x · by| < 2^22. */
// @ts-ignore: decorator
@inline function scaled(x: v128, by: v128): v128 {
  const magic = f32x4.splat(12582912.0);
  return i32x4.sub(madd(x, by, magic), magic);
}

/** One or two rows: codes as they lie in memory, a tile at a time, and of each all heads. */
function addDirect(span: u32, rows: u32, groups: u32, codes: usize, facts: usize, sums: usize): void {
  const format = load<u32>(side, SIDE_FORMAT);
  const bits = load<u32>(side, SIDE_BITS);
  const group = load<u32>(side, SIDE_GROUP);
  const book: usize = load<u32>(side, SIDE_CODEBOOK);
  const headBytes: usize = load<u32>(side, SIDE_HEAD_BYTES);
  const mask: u32 = (1 << blockShift) - 1;
  const quads: u32 = 1 << (blockShift - 2);
  const codesRow = groups * WEIGHTS_BYTES;
  const factsRow = groups * FACTS_BYTES;
  const row = dim * 4;
  const step: usize = (group * bits << blockShift) >> 3;
  for (let tile = from; tile < to; tile++) {
    const t = tile * WEIGHT_TILE;
    let p = headAt(blockAt(t));
    const first = ((base + t) & mask) >> 2;
    let p2 = p;
    let second = first;
    // What follows may have no block yet; its weights are 0.
    if (t + 16 < stored) {
      p2 = headAt(blockAt(t + 16));
      second = ((base + t + 16) & mask) >> 2;
    }
    let w = codes + tile * 64;
    let f = facts + tile * 8;
    let out = sums;
    for (let s: u32 = 0; s < span; s++, p += headBytes, p2 += headBytes, out += rows * row) {
      let at = p;
      let at2 = p2;
      for (let d: u32 = 0; d < dim; d += group, at += step, at2 += step) {
        const dims = min<u32>(group, dim - d);
        if (rows == 2) {
          addCodes2(format, at, at2, first, second, quads, dims, w, codesRow, f, factsRow, out + d * 4, row, book);
        } else {
          addCodes1(format, at, at2, first, second, quads, dims, w, codesRow, f, factsRow, out + d * 4, row, book);
        }
        w += WEIGHTS_BYTES;
        f += FACTS_BYTES;
      }
      w += (rows - 1) * codesRow;
      f += (rows - 1) * factsRow;
    }
  }
}

/** Many rows: a unit of columns at a time, unpacked once for the whole split. */
function addWide(
  rows: u32, groups: u32, codes: usize, facts: usize, sums: usize, wide: usize, dots: usize,
): void {
  const bits = load<u32>(side, SIDE_BITS);
  const group = load<u32>(side, SIDE_GROUP);
  const quads: u32 = 1 << (blockShift - 2);
  const codesRow = groups * WEIGHTS_BYTES;
  const factsRow = groups * FACTS_BYTES;
  let offset: usize = 0;
  for (let d: u32 = 0; d < dim; ) {
    const packing = dim - d < unitDims(bits) ? restBits(bits) : bits;
    widenUnit(packing, offset, wide, false);
    const end = d + unitDims(packing);
    for (let area = wide; d < end; d += 16, area += AREA) {
      const g = d / group;
      for (let r: u32 = 0, n: u32 = 0; r < rows; r += n) {
        n = rowsTogether(rows - r);
        const w = codes + r * codesRow + g * WEIGHTS_BYTES;
        const f = facts + r * factsRow + g * FACTS_BYTES;
        const out = sums + (r * dim + d) * 4;
        for (let tile = from; tile < to; tile++) {
          if (!isSeen(f + tile * 8, factsRow, n)) continue;
          const v = area + tile * 1024;
          dotRows(n, v, 64, w + tile * 64, codesRow, 16, dots);
          finishValues(dots, f + tile * 8, factsRow, out, n);
          dotRows(n, v + 32, 64, w + tile * 64, codesRow, 16, dots);
          finishValues(dots, f + tile * 8, factsRow, out + 32, n);
        }
      }
    }
    offset += quads * unitVectors(packing) * 16;
  }
}

/** Whether one of `rows` rows sees something of a tile. */
// @ts-ignore: decorator
@inline function isSeen(facts: usize, factsRow: usize, rows: u32): bool {
  for (let r: u32 = 0; r < rows; r++, facts += factsRow) if (load<f32>(facts) != 0) return true;
  return false;
}

/** Puts the sums of a tile and 8 columns to `rows` rows at `out`. */
function finishValues(dots: usize, facts: usize, factsRow: usize, out: usize, rows: u32): void {
  for (const end = dots + rows * 32; dots < end; dots += 32, facts += factsRow, out += dim * 4) {
    const factor = v128.load_splat<f32>(facts);
    const start = v128.load32_splat(facts, 4);
    const a = f32x4.convert_i32x4_s(i32x4.add(v128.load(dots), start));
    const b = f32x4.convert_i32x4_s(i32x4.add(v128.load(dots, 16), start));
    v128.store(out, madd(a, factor, v128.load(out)));
    v128.store(out, madd(b, factor, v128.load(out, 16)), 16);
  }
}

/** The unit of columns that lies `offset` bytes from where a head begins, over all tiles. */
function widenUnit(packing: u32, offset: usize, wide: usize, plain: bool): void {
  const mask: u32 = (1 << blockShift) - 1;
  const end = to * WEIGHT_TILE;
  const step: usize = unitVectors(packing) * 16;
  // The unit that ends a vector may be packed in another way.
  let format = load<u32>(side, SIDE_FORMAT);
  if (packing != load<u32>(side, SIDE_BITS)) format = format == FORMAT_A3 ? FORMAT_A4 : format == FORMAT_A5 ? FORMAT_A6 : FORMAT_T4;
  const book: usize = load<u32>(side, SIDE_CODEBOOK);
  for (let t = from * WEIGHT_TILE; t < end; ) {
    const stop = min<u32>(end, ((base + t) | mask) + 1 - base);
    const block = blockAt(t < stored ? t : from * WEIGHT_TILE);
    const at = headAt(block) + offset + (((base + t) & mask) >> 2) * step;
    const into = wide + (t >> 2) * 128;
    const count = (stop - t) >> 2;
    if (plain) widenValueCodes(format == FORMAT_T8 ? plainFormat(side) : format, at, into, AREA, count, book);
    else if (format == FORMAT_T8) widenValueUnit(side, at, into, AREA, count);
    else widenValueCodes(format, at, into, AREA, count, book);
    t = stop;
  }
}

/**
 * Columns [d, d + 16) of V of positions [a, b) of a split as floats, `[token][16]`. For f32 arithmetic; arguments as of
 * `addValues`, `scratch` 2 KiB.
 */
export function plainValues(
  valueSide: usize, blocks: usize, head: u32, heads: u32, shift: u32, width: u32, position: u32, a: u32, b: u32, d: u32,
  wide: usize, scratch: usize, out: usize,
): void {
  takeSplit(valueSide, blocks, head, heads, shift, width, position, a, b);
  readSplitMeta(d / load<u32>(side, SIDE_GROUP), groupsOf(side, dim), scratch);
  const bits = load<u32>(side, SIDE_BITS);
  const whole = d & ~(unitDims(bits) - 1);
  const packing = dim - whole < unitDims(bits) ? restBits(bits) : bits;
  widenUnit(packing, (whole * bits << blockShift) >> 3, wide, true);
  const area = wide + ((d - whole) >> 4) * AREA;
  for (let t = a; t < b; t++) {
    const pair = area + (t >> 1) * 64 + (t & 1) * 2;
    const scale = load<f32>(scratch + t * 4);
    const bias = load<f32>(scratch + t * 4, 1024);
    for (let j: u32 = 0; j < 16; j++, out += 4) {
      store<f32>(out, plainValue(side, load<u16>(pair + (j >> 2) * 16 + (j & 3) * 4)) * scale + bias);
    }
  }
}
