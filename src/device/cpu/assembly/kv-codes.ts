/**
 * How codes lie in a block, for one KV head (head_dim a multiple of 16).
 *
 * A unit is 16 values of a vector (32 at 3 and 5 bits) of 4 tokens: a few vectors of 16 bytes that unpack, without moving
 * anything across lanes, to one vector of 16 bytes for every 4 values. Of K, a 32-bit lane is a token and its bytes are 4
 * values; of V, a lane is a value and its bytes are the 4 tokens. Either way the bytes are in the order 0, 2, 1, 3: so the
 * even bytes are the pair (0, 1) and the odd ones (2, 3), and `i32x4.dot_i16x8_s` of pairs with a broadcast pair of
 * queries (or weights) adds up within lanes.
 *
 * K: `[tile of 8 tokens][unit][2 quads]`. V: `[unit][quad]`. A vector of head_dim 16 (mod 32) at 3 and 5 bits ends in a
 * unit of 16 values packed as 4 and 6 bits.
 *
 * Packing, with B0, B1, … four codes in four bytes each: 8 bits: B0; B1; B2; B3. 4: B0 | B1 << 4; B2 | B3 << 4. 2: all
 * four side by side. 6: B0, B1 and B2 with two bits of B3 each. 3: (B0, B1), (B2, B3), (B4, B5) as nibbles, whose fourth
 * bits are the bits of B6 and B7. 5: B0 to B4; their spare bits hold B5, B6 and B7.
 *
 * A byte of the cache belongs to one token, so vectors are written without reading.
 */

/** Values of a unit. */
// @ts-ignore: decorator
@inline export function unitDims(bits: u32): u32 {
  return bits == 3 || bits == 5 ? 32 : 16;
}

/** Packing of a unit of 16 values that ends a vector of longer units. */
// @ts-ignore: decorator
@inline export function restBits(bits: u32): u32 {
  return bits == 3 ? 4 : bits == 5 ? 6 : bits;
}

/** Vectors of a unit. */
// @ts-ignore: decorator
@inline export function unitVectors(bits: u32): u32 {
  return bits == 3 ? 3 : bits == 5 ? 5 : bits >> 1;
}

// @ts-ignore: decorator
@inline function at(codes: usize, k: u32): u32 {
  return load<u32>(codes + k * 4);
}

/** Word `i` of a unit of one token. */
export function packWord(bits: u32, codes: usize, i: u32): u32 {
  switch (bits) {
    case 8: return at(codes, i);
    case 4: return at(codes, 2 * i) | at(codes, 2 * i + 1) << 4;
    case 2: return at(codes, 0) | at(codes, 1) << 2 | at(codes, 2) << 4 | at(codes, 3) << 6;
    case 6: return at(codes, i) | (at(codes, 3) >> 2 * i & 0x03030303) << 6;
    case 3:
      return at(codes, 2 * i) | at(codes, 2 * i + 1) << 4 | (at(codes, 6) >> i & 0x01010101) << 3 |
        (at(codes, 7) >> i & 0x01010101) << 7;
    default: break;
  }
  switch (i) {
    case 0: return at(codes, 0) | (at(codes, 5) & 0x07070707) << 5;
    case 1:
      return at(codes, 1) | (at(codes, 5) >> 3 & 0x03030303) << 5 | (at(codes, 6) >> 3 & 0x01010101) << 7;
    case 2: return at(codes, 2) | (at(codes, 6) & 0x07070707) << 5;
    case 3:
      return at(codes, 3) | (at(codes, 7) >> 3 & 0x03030303) << 5 | (at(codes, 6) >> 4 & 0x01010101) << 7;
    default: return at(codes, 4) | (at(codes, 7) & 0x07070707) << 5;
  }
}

/** Byte of a lane where value (of K) or token (of V) i lies. */
// @ts-ignore: decorator
@inline function byteOf(i: u32): u32 {
  return (i & 1) << 1 | i >> 1 & 1;
}

/** Writes the codes (a byte each) of a K vector; `at` is the head's place in the block. */
export function packKey(bits: u32, codes: usize, at: usize, token: u32, dim: u32, vectorBytes: u32): void {
  const inTile = token & 7;
  let unit: usize = at + (token - inTile) * vectorBytes;
  const lane = (inTile & 3) * 4;
  for (let d: u32 = 0; d < dim; ) {
    const packing = dim - d < unitDims(bits) ? restBits(bits) : bits;
    const vectors = unitVectors(packing);
    const to = unit + (inTile >> 2) * vectors * 16 + lane;
    for (let i: u32 = 0; i < vectors; i++) {
      const w = packWord(packing, codes + d, i);
      store<u32>(to + i * 16, w & 0xff0000ff | (w & 0xff00) << 8 | w >> 8 & 0xff00);
    }
    unit += vectors * 32;
    d += unitDims(packing);
  }
}

/** Writes the codes of a V vector. */
export function packValue(bits: u32, codes: usize, at: usize, token: u32, dim: u32, blockTokens: u32): void {
  let unit: usize = at;
  for (let d: u32 = 0; d < dim; ) {
    const packing = dim - d < unitDims(bits) ? restBits(bits) : bits;
    const vectors = unitVectors(packing);
    const to = unit + (token >> 2) * vectors * 16 + byteOf(token & 3);
    for (let i: u32 = 0; i < vectors; i++) {
      const w = packWord(packing, codes + d, i);
      store<u8>(to + i * 16, w);
      store<u8>(to + i * 16, w >> 8, 4);
      store<u8>(to + i * 16, w >> 16, 8);
      store<u8>(to + i * 16, w >> 24, 12);
    }
    unit += (blockTokens >> 2) * vectors * 16;
    d += unitDims(packing);
  }
}
