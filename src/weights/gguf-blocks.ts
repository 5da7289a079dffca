/**
 * What the types of GGUF are on a device: the same numbers, and nothing rounded. `Qx_1` are affine groups of 32, `Qx_0` codes about the
 * middle, the K types k-quants, and the types whose codes stand for numbers of a table `lut4` (device/weights.ts). Bytes of a block, f16 the
 * numbers before codes unless said:
 *
 *     Q4_0, Q4_1      d, with m in Q4_1; 16 bytes of codes                                          for 32 columns
 *     Q5_0, Q5_1      as these, with 4 bytes of fifth bits before the codes                         for 32
 *     Q8_0            d; 32 signed bytes                                                            for 32
 *     Q4_K, Q5_K      d, dmin; 12 bytes of subscales of 6 bits; (32 of fifth bits); 128 of codes    for 256
 *     Q6_K            128 bytes of nibbles, 64 of pairs of bits; 16 subscales; d                    for 256
 *     Q3_K            32 bytes of third bits, 64 of pairs; 12 of subscales of 6 bits; d             for 256
 *     Q2_K            16 bytes of subscales of 4 bits; 64 of pairs; d, dmin                         for 256
 *     IQ4_NL          d; 16 bytes of codes                                                          for 32
 *     IQ4_XS          d; 16 bits and 4 bytes of subscales of 6 bits; 128 bytes of codes             for 256
 *     MXFP4           a byte e, 2^(e − 127); 16 bytes of codes                                      for 32
 *     NVFP4           4 floats of 8 bits, one for 16 columns each; 32 bytes of codes                for 64
 *
 * Byte j of 16 has columns j and j + 16; of NVFP4, byte j of 8 columns j and j + 8. Of a K type columns are dealt to bytes in runs of 32:
 * within 64 (nibbles) or 128 (pairs of bits) of them byte l has columns l, l + 32, …. Of IQ4_XS and of the simple types runs have 16 bytes.
 *
 * Source of the layouts: ggml's reference quantisation (ggml-quants.c); values are tested against gguf-py.
 */
import type { KQuantBits, MatrixFormat } from '../device/weights.js';
import type { GgufTypeName } from './gguf-types.js';

const affine = (bits: 4 | 5): MatrixFormat => ({ kind: 'affine', bits, groupSize: 32, dtype: 'f16' });
const symmetric = (bits: 4 | 5 | 8): MatrixFormat => ({
  kind: 'symmetric',
  bits,
  groupSize: 32,
  dtype: 'f16',
});
const kQuant = (bits: KQuantBits): MatrixFormat => ({ kind: 'k-quant', bits, dtype: 'f16' });

const FORMATS: Partial<Record<GgufTypeName, MatrixFormat>> = {
  F32: { kind: 'float', dtype: 'f32' },
  F16: { kind: 'float', dtype: 'f16' },
  BF16: { kind: 'float', dtype: 'bf16' },
  Q8_0: symmetric(8),
  Q4_0: symmetric(4),
  Q4_1: affine(4),
  Q5_0: symmetric(5),
  Q5_1: affine(5),
  Q2_K: kQuant(2),
  Q3_K: kQuant(3),
  Q4_K: kQuant(4),
  Q5_K: kQuant(5),
  Q6_K: kQuant(6),
  IQ4_NL: { kind: 'lut4', bits: 4, table: 'iq4', scale: 'f16', dtype: 'f16' },
  IQ4_XS: { kind: 'lut4', bits: 4, table: 'iq4', scale: 'f16-i8', dtype: 'f16' },
  MXFP4: { kind: 'lut4', bits: 4, table: 'e2m1', scale: 'e8m0', dtype: 'f16' },
  NVFP4: { kind: 'lut4', bits: 4, table: 'e2m1', scale: 'f32-e4m3', dtype: 'f32' },
};

/** Types that are read. */
export const READ_TYPES = Object.keys(FORMATS) as readonly GgufTypeName[];

/** The format that a type is exactly; undefined for types that are not read. */
export function blockFormat(type: GgufTypeName): MatrixFormat | undefined {
  return FORMATS[type];
}
