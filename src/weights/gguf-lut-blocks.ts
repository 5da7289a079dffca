/**
 * The types of GGUF whose codes stand for numbers of a table, as `lut4` (device/weights.ts).
 *
 *     IQ4_NL   f16 scale, 16 bytes of codes                                    for 32 columns
 *     MXFP4    a byte e, 2^(e − 127), 16 bytes                                 for 32
 *     NVFP4    4 floats of 8 bits, one for 16 columns each, 32 bytes            for 64
 *     IQ4_XS   f16 d, 16 bits and 4 bytes of scales of 6 bits, 128 bytes       for 256
 *
 * Byte j of 16 has columns j and j + 16; of NVFP4, byte j of 8 columns j and j + 8. Source of the layouts: ggml's reference quantisation (ggml-quants.c); values are tested against
 * gguf-py.
 */
import type { Lut4Format, MatrixRows } from '../device/weights.js';
import type { GgufTypeName } from './gguf-types.js';

const FORMATS: Partial<Record<GgufTypeName, Lut4Format>> = {
  IQ4_NL: { kind: 'lut4', bits: 4, table: 'iq4', scale: 'f16', dtype: 'f16' },
  IQ4_XS: { kind: 'lut4', bits: 4, table: 'iq4', scale: 'f16-i8', dtype: 'f16' },
  MXFP4: { kind: 'lut4', bits: 4, table: 'e2m1', scale: 'e8m0', dtype: 'f16' },
  NVFP4: { kind: 'lut4', bits: 4, table: 'e2m1', scale: 'f32-e4m3', dtype: 'f32' },
};

/** Of the types whose blocks have an even number of bytes. */
const LAYOUTS: Partial<Record<GgufTypeName, NibbleLayout>> = {
  IQ4_NL: { size: 18, at: 2, groups: 1, bytes: 16 },
  IQ4_XS: { size: 136, at: 8, groups: 8, bytes: 16 },
};

/** The format that a type is; undefined for types that are none. */
export function lut4Format(type: GgufTypeName): Lut4Format | undefined {
  return FORMATS[type];
}

/**
 * Takes blocks apart.
 *
 * @param blocks `count` blocks of the type
 * @param rows arrays for them, as {@link MatrixRows} of the type's format says; the number of a row of NVFP4 is not in them
 */
export function unpackLutBlocks(
  type: GgufTypeName,
  blocks: Uint8Array,
  count: number,
  { data, scales, subscales }: MatrixRows,
): void {
  const size = blocks.length / count;
  const layout = LAYOUTS[type];
  if (layout !== undefined) packGroups(blocks, data, count, layout);
  for (let b = 0, at = 0; b < count; b++, at += size) {
    if (type === 'MXFP4') {
      scales![b] = blocks[at]!;
      packGroup(blocks, at + 1, data, 16 * b);
      continue;
    }
    if (type === 'NVFP4') {
      for (let g = 0; g < 4; g++) {
        // ggml has no sign here, and reads the largest, a NaN elsewhere, as 0.
        const scale = blocks[at + g]! & 0x7f;
        subscales![4 * b + g] = scale === 0x7f ? 0 : scale;
        packHalves(blocks, at + 4 + 8 * g, 8, data, 32 * b + 8 * g);
      }
      continue;
    }
    scales![2 * b] = blocks[at]!;
    scales![2 * b + 1] = blocks[at + 1]!;
    if (type === 'IQ4_NL') continue;
    for (let g = 0; g < 8; g++) {
      const low = (blocks[at + 4 + (g >> 1)]! >> (4 * (g & 1))) & 15;
      const high = (blocks[at + 2 + (g >> 2)]! >> (2 * (g & 3))) & 3;
      subscales![8 * b + g] = (low | (high << 4)) - 32;
    }
  }
}

/** 16 bytes of two halves of a group; two neighbours make a byte. */
function packGroup(from: Uint8Array, at: number, to: Uint8Array, out: number): void {
  packHalves(from, at, 16, to, out);
}

/** Where codes of 4 bits lie in blocks of a type. */
export interface NibbleLayout {
  /** Bytes of a block, and where the groups begin in it: even numbers. */
  readonly size: number;
  readonly at: number;
  /** Groups of a block, and bytes of each: two halves, the low nibbles and the high ones. */
  readonly groups: number;
  readonly bytes: 16 | 32;
}

/**
 * As {@link packGroup} for a run of blocks, two bytes at a time: what loading spends its time in.
 *
 * @param from `count` blocks
 * @param to where the groups go, one after the other
 */
export function packGroups(
  from: Uint8Array,
  to: Uint8Array,
  count: number,
  { size, at, groups, bytes }: NibbleLayout,
): void {
  const [source, target] = [asWords(from), asWords(to)];
  const half = bytes / 4;
  let next = 0;
  for (let b = 0; b < count; b++)
    for (let g = 0, word = (b * size + at) >> 1; g < groups; g++, next += half)
      for (let i = 0; i < half; i++, word += 2, next++) {
        // Bytes a, b, c, d: their low nibbles make ab and cd, and so do the high ones.
        const four = source[word]! | (source[word + 1]! << 16);
        const low = four & 0x0f0f0f0f;
        const high = (four >>> 4) & 0x0f0f0f0f;
        const lows = low | (low >>> 4);
        const highs = high | (high >>> 4);
        target[next] = (lows & 0xff) | ((lows >>> 8) & 0xff00);
        target[next + half] = (highs & 0xff) | ((highs >>> 8) & 0xff00);
      }
}

/** Little-endian words over bytes that begin at an even address, as rooms do. */
export function asWords(bytes: Uint8Array): Uint16Array {
  return new Uint16Array(bytes.buffer, bytes.byteOffset, bytes.byteLength >> 1);
}

function packHalves(from: Uint8Array, at: number, bytes: 8 | 16, to: Uint8Array, out: number): void {
  const half = bytes / 2;
  for (let i = 0; i < half; i++) {
    const even = from[at + 2 * i]!;
    const odd = from[at + 2 * i + 1]!;
    to[out + i] = (even & 15) | ((odd & 15) << 4);
    to[out + half + i] = (even >> 4) | (odd & 0xf0);
  }
}
