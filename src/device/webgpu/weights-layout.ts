/**
 * How weights lie in GPU memory.
 *
 * A matrix is cut by rows into shards: each has one format and fits one binding. A shard has two planes, row after
 * row without padding between rows but for what `rowWords` says:
 * - `codes`, u32 words. Affine: `[n, k · bits / 32]`, a row one little-endian bit stream, lowest column in the lowest
 *   bits; 32 columns are exactly `bits` words. Float: elements of the dtype, two 16-bit ones to a word, a row padded
 *   with zeros to 16 bytes.
 * - `metas`, one per group of columns, `[n, k / groupSize]`: scale and bias, `w = scale · code + bias`.
 *   `f16` and `bf16`: one u32, scale in the low half, bias in the high half. `f32`: two words, scale then bias.
 *   Symmetric, a row: the f16 scales of its groups of 32, two to a word.
 *   K-quant, a row: the subscales, 16 bits for every 32 columns as MatrixRows has them; then the f16 numbers of its superblocks, `d`
 *   alone (two to a word) or `d` and `dmin` (one word, d low).
 *   Lut4, a row: f16 scales, two to a word; or the bytes of scales or subscales, and then the f16 numbers of superblocks, two to a word,
 *   or the f32 number of the row.
 *   With f16 kernels on, affine metas are f16 whatever the checkpoint has; otherwise they keep the checkpoint's dtype.
 */

import type {
  AffineBits,
  FloatDtype,
  GroupSize,
  KQuantBits,
  Lut4Scale,
  Lut4Table,
  MatrixFormat,
} from '../weights.js';
import { hasMinima, lut4Group, SUPERBLOCK } from '../weights.js';

export type ShardLayout =
  | { readonly kind: 'float'; readonly dtype: FloatDtype }
  | {
      readonly kind: 'affine';
      readonly bits: AffineBits;
      readonly groupSize: GroupSize;
      readonly meta: FloatDtype;
    }
  | { readonly kind: 'symmetric'; readonly bits: 4 | 5 | 8 }
  | { readonly kind: 'k-quant'; readonly bits: KQuantBits }
  | { readonly kind: 'lut4'; readonly bits: 4; readonly table: Lut4Table; readonly scale: Lut4Scale };

export function shardLayout(format: MatrixFormat, f16: boolean): ShardLayout {
  if (format.kind === 'float') return { kind: 'float', dtype: format.dtype };
  switch (format.kind) {
    case 'symmetric':
      return { kind: 'symmetric', bits: format.bits };
    case 'k-quant':
      return { kind: 'k-quant', bits: format.bits };
    case 'lut4':
      return { kind: 'lut4', bits: 4, table: format.table, scale: format.scale };
    default: {
      const { bits, groupSize, dtype } = format;
      return { kind: 'affine', bits, groupSize, meta: f16 ? 'f16' : dtype };
    }
  }
}

/** u32 words of one row of codes. */
export function rowWords(layout: ShardLayout, cols: number): number {
  if (layout.kind !== 'float') return (cols * layout.bits) / 32;
  const words = layout.dtype === 'f32' ? cols : Math.ceil(cols / 2);
  return Math.ceil(words / 4) * 4;
}

/** u32 words of one row of metas; 0 for floats. */
export function rowMetaWords(layout: ShardLayout, cols: number): number {
  if (layout.kind === 'float') return 0;
  if (layout.kind === 'symmetric') return Math.ceil(cols / 64);
  if (layout.kind === 'k-quant') {
    const superblocks = cols / SUPERBLOCK;
    return cols / 64 + (hasMinima(layout.bits) ? superblocks : Math.ceil(superblocks / 2));
  }
  if (layout.kind === 'lut4') {
    const groups = cols / lut4Group(layout);
    if (layout.scale === 'f32-e4m3') return Math.ceil(groups / 4) + 1;
    if (layout.scale === 'f16') return Math.ceil(groups / 2);
    return Math.ceil(groups / 4) + (layout.scale === 'e8m0' ? 0 : Math.ceil(cols / SUPERBLOCK / 2));
  }
  return (cols / layout.groupSize) * (layout.meta === 'f32' ? 2 : 1);
}
