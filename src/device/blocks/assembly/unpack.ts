// Blocks of GGUF taken apart (weights/gguf-blocks.ts says what they hold): scales, minima and subscales as they are, codes as one bit
// stream, lowest code in the lowest bits. Part of two modules: of one for all devices, where the host copies blocks in and arrays out
// (../unpack.ts), and of the one that packs rows for the CPU. Buffers have 16 bytes to spare at their ends.
import { bit, halfBytes, highs, lows, pack } from './codes';
import { centredSixBits, iq4Scales, sixBitPairs } from './subscales';

/** f16 scales at the front of blocks of 32, and biases behind them where `biases` is an address. */
@inline
function halves(at: usize, b: u32, scales: usize, biases: usize): void {
  store<u16>(scales + (b << 1), load<u16>(at));
  if (biases) store<u16>(biases + (b << 1), load<u16>(at, 2));
}

/** 4 bits in groups of 32: Q4_0, Q4_1 and IQ4_NL. `codes`: where they lie in a block of `size`. */
export function nibbles(
  count: u32, at: usize, size: u32, codes: u32, data: usize, scales: usize, biases: usize,
): void {
  for (let b: u32 = 0; b < count; b++, at += size, data += 16) {
    halves(at, b, scales, biases);
    const both = v128.load(at + codes);
    v128.store(data, halfBytes(lows(both), highs(both)));
  }
}

/** 5 bits in groups of 32: Q5_0 and Q5_1. The fifth bits lie before the others. */
export function fives(
  count: u32, at: usize, size: u32, codes: u32, data: usize, scales: usize, biases: usize,
): void {
  const bits = i8x16(1, 2, 4, 8, 16, 32, 64, -128, 1, 2, 4, 8, 16, 32, 64, -128);
  const first = i8x16(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1);
  const second = i8x16(2, 2, 2, 2, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3);
  const sixteen = i8x16.splat(16);
  for (let b: u32 = 0; b < count; b++, at += size, data += 20) {
    halves(at, b, scales, biases);
    const both = v128.load(at + codes);
    const fifths = v128.load32_zero(at + codes - 4);
    const low = v128.and(i8x16.eq(v128.and(i8x16.swizzle(fifths, first), bits), bits), sixteen);
    const high = v128.and(i8x16.eq(v128.and(i8x16.swizzle(fifths, second), bits), bits), sixteen);
    pack(v128.or(lows(both), low), 5, data);
    pack(v128.or(highs(both), high), 5, data + 10);
  }
}

/** Q8_0: signed codes become those that count from the middle. */
export function bytes(count: u32, at: usize, data: usize, scales: usize): void {
  const middle = i8x16.splat(-128);
  for (let b: u32 = 0; b < count; b++, at += 34, data += 32) {
    halves(at, b, scales, 0);
    v128.store(data, v128.xor(v128.load(at, 2), middle));
    v128.store(data, v128.xor(v128.load(at, 18), middle), 16);
  }
}

/** Q2_K: subscales, codes in pairs of bits, d, dmin. */
export function k2(count: u32, at: usize, data: usize, scales: usize, biases: usize, sub: usize): void {
  for (let b: u32 = 0; b < count; b++, at += 84, sub += 16) {
    store<u16>(scales + (b << 1), load<u16>(at, 80));
    store<u16>(biases + (b << 1), load<u16>(at, 82));
    v128.store(sub, v128.load(at));
    for (let half: usize = 0; half < 64; half += 32) {
      for (let j = 0; j < 8; j += 2, data += 8) {
        pack(bit(v128.load(at + 16 + half), j, 3), 2, data);
        pack(bit(v128.load(at + 32 + half), j, 3), 2, data + 4);
      }
    }
  }
}

/** Q3_K: third bits, pairs of bits, subscales, d. */
export function k3(count: u32, at: usize, data: usize, scales: usize, sub: usize): void {
  for (let b: u32 = 0; b < count; b++, at += 110, sub += 16) {
    store<u16>(scales + (b << 1), load<u16>(at, 108));
    centredSixBits(at + 96, sub);
    const left = v128.load(at);
    const right = v128.load(at, 16);
    let g = 0;
    for (let half: usize = 0; half < 64; half += 32) {
      for (let j = 0; j < 8; j += 2, g++, data += 12) {
        pack(v128.or(bit(v128.load(at + 32 + half), j, 3), i16x8.shl(bit(left, g, 1), 2)), 3, data);
        pack(v128.or(bit(v128.load(at + 48 + half), j, 3), i16x8.shl(bit(right, g, 1), 2)), 3, data + 6);
      }
    }
  }
}

/** Q4_K: d, dmin, subscales, nibbles. */
export function k4(count: u32, at: usize, data: usize, scales: usize, biases: usize, sub: usize): void {
  for (let b: u32 = 0; b < count; b++, at += 144, sub += 16) {
    halves(at, b, scales, biases);
    sixBitPairs(at + 4, sub);
    for (let run = at + 16; run < at + 144; run += 32, data += 32) {
      const left = v128.load(run);
      const right = v128.load(run, 16);
      v128.store(data, halfBytes(lows(left), lows(right)));
      v128.store(data, halfBytes(highs(left), highs(right)), 16);
    }
  }
}

/** Q5_K: as Q4_K, with the fifth bits before the nibbles. */
export function k5(count: u32, at: usize, data: usize, scales: usize, biases: usize, sub: usize): void {
  for (let b: u32 = 0; b < count; b++, at += 176, sub += 16) {
    halves(at, b, scales, biases);
    sixBitPairs(at + 4, sub);
    const left = v128.load(at, 16);
    const right = v128.load(at, 32);
    let g = 0;
    for (let run = at + 48; run < at + 176; run += 32, g += 2, data += 40) {
      const a = v128.load(run);
      const c = v128.load(run, 16);
      pack(v128.or(lows(a), i16x8.shl(bit(left, g, 1), 4)), 5, data);
      pack(v128.or(lows(c), i16x8.shl(bit(right, g, 1), 4)), 5, data + 10);
      pack(v128.or(highs(a), i16x8.shl(bit(left, g + 1, 1), 4)), 5, data + 20);
      pack(v128.or(highs(c), i16x8.shl(bit(right, g + 1, 1), 4)), 5, data + 30);
    }
  }
}

/** Q6_K: nibbles, pairs of bits above them, subscales, d. */
export function k6(count: u32, at: usize, data: usize, scales: usize, sub: usize): void {
  for (let b: u32 = 0; b < count; b++, at += 210, sub += 16) {
    store<u16>(scales + (b << 1), load<u16>(at, 208));
    v128.store(sub, v128.load(at, 192));
    for (let half: usize = 0; half < 2; half++) {
      const low = at + (half << 6);
      const high = at + 128 + (half << 5);
      data = sixes(lows(v128.load(low)), lows(v128.load(low, 16)), high, 0, data);
      data = sixes(lows(v128.load(low, 32)), lows(v128.load(low, 48)), high, 2, data);
      data = sixes(highs(v128.load(low)), highs(v128.load(low, 16)), high, 4, data);
      data = sixes(highs(v128.load(low, 32)), highs(v128.load(low, 48)), high, 6, data);
    }
  }
}

/** 32 codes of 6 bits. Runs are written in order, as each spills into the next. */
@inline
function sixes(left: v128, right: v128, high: usize, position: i32, to: usize): usize {
  pack(v128.or(left, i16x8.shl(bit(v128.load(high), position, 3), 4)), 6, to);
  pack(v128.or(right, i16x8.shl(bit(v128.load(high, 16), position, 3), 4)), 6, to + 12);
  return to + 24;
}

/** IQ4_XS: d, subscales, nibbles. */
export function iq4xs(count: u32, at: usize, data: usize, scales: usize, sub: usize): void {
  for (let b: u32 = 0; b < count; b++, at += 136, sub += 8) {
    halves(at, b, scales, 0);
    iq4Scales(at + 2, sub);
    for (let run = at + 8; run < at + 136; run += 16, data += 16) {
      const both = v128.load(run);
      v128.store(data, halfBytes(lows(both), highs(both)));
    }
  }
}

/** MXFP4: an exponent, nibbles. */
export function mxfp4(count: u32, at: usize, data: usize, scales: usize): void {
  for (let b: u32 = 0; b < count; b++, at += 17, data += 16) {
    store<u8>(scales + b, load<u8>(at));
    const both = v128.load(at, 1);
    v128.store(data, halfBytes(lows(both), highs(both)));
  }
}

/** NVFP4: floats of 8 bits for four groups of 16, nibbles in runs of 8 bytes. */
export function nvfp4(count: u32, at: usize, data: usize, sub: usize): void {
  for (let b: u32 = 0; b < count; b++, at += 36, data += 32) {
    for (let g: u32 = 0; g < 4; g++) {
      // ggml has no sign here, and reads the largest, a NaN elsewhere, as 0.
      const scale = load<u8>(at + g) & 0x7f;
      store<u8>(sub + (b << 2) + g, scale == 0x7f ? 0 : scale);
    }
    const left = v128.load(at, 4);
    const right = v128.load(at, 20);
    const first = halfBytes(lows(left), highs(left));
    const second = halfBytes(lows(right), highs(right));
    v128.store(data, v128.shuffle<u32>(first, first, 0, 2, 1, 3));
    v128.store(data, v128.shuffle<u32>(second, second, 0, 2, 1, 3), 16);
  }
}
