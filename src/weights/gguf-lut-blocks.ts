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
    if (type === 'IQ4_NL') {
      packGroup(blocks, at + 2, data, 16 * b);
      continue;
    }
    for (let g = 0; g < 8; g++) {
      const low = (blocks[at + 4 + (g >> 1)]! >> (4 * (g & 1))) & 15;
      const high = (blocks[at + 2 + (g >> 2)]! >> (2 * (g & 3))) & 3;
      subscales![8 * b + g] = (low | (high << 4)) - 32;
      packGroup(blocks, at + 8 + 16 * g, data, 128 * b + 16 * g);
    }
  }
}

/** 16 bytes of two halves of a group; two neighbours make a byte. */
export function packGroup(from: Uint8Array, at: number, to: Uint8Array, out: number): void {
  packHalves(from, at, 16, to, out);
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
