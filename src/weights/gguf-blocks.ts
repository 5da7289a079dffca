/**
 * The simple block types of GGUF as affine groups of 32: the same numbers, in the layout that devices take.
 *
 * A block has an f16 scale d, maybe an f16 minimum m, and 32 codes q. `Qx_1` means `d · q + m`, which is affine as it stands;
 * `Qx_0` means `d · (q − k)`, so the bias is `−k · d`. k is a power of two: in f16 that is exact unless it overflows, which no
 * model's weights come near; a file in which it does is refused.
 *
 * Source of the layouts: ggml's reference quantisation (ggml-quants.c); values are tested against gguf-py.
 */

import type { AffineBits, MatrixFormat } from '../device/weights.js';
import { packCodes } from './affine.js';
import { f16ToNumber, numberToF16 } from './dtypes.js';
import type { GgufTypeName } from './gguf-types.js';

export const BLOCK_COLS = 32;

interface Layout {
  readonly bits: AffineBits;
  /** k of `d · (q − k)`; 0 where the block has a minimum of its own. */
  readonly centre: number;
  /** Where the fifth bits lie in a block, and the codes. */
  readonly highAt?: number;
  readonly codesAt: number;
}

const LAYOUTS: Partial<Record<GgufTypeName, Layout>> = {
  Q4_0: { bits: 4, centre: 8, codesAt: 2 },
  Q4_1: { bits: 4, centre: 0, codesAt: 4 },
  Q5_0: { bits: 5, centre: 16, highAt: 2, codesAt: 6 },
  Q5_1: { bits: 5, centre: 0, highAt: 4, codesAt: 8 },
  Q8_0: { bits: 8, centre: 128, codesAt: 2 },
};

/** The affine format that a type is exactly; undefined for types that are none. */
export function affineFormat(type: GgufTypeName): Extract<MatrixFormat, { kind: 'affine' }> | undefined {
  const layout = LAYOUTS[type];
  if (layout === undefined) return undefined;
  return { kind: 'affine', bits: layout.bits, groupSize: BLOCK_COLS, dtype: 'f16' };
}

/** What stands for a bias that f16 cannot hold. */
const INFINITY_BITS = 0x7c00;
const biasTables = new Map<number, Uint16Array>();

/** Bits of `−centre · d` for all bits of d. NaN and infinities stay what they are. */
function biasTable(centre: number): Uint16Array {
  let table = biasTables.get(centre);
  if (table === undefined) {
    table = Uint16Array.from({ length: 65_536 }, (_, bits) => numberToF16(-centre * f16ToNumber(bits)));
    biasTables.set(centre, table);
  }
  return table;
}

/**
 * Takes blocks apart.
 *
 * @param blocks `count` blocks
 * @param codes `count · 4 · bits` bytes
 * @param scales `[count]` bits of f16
 * @param biases `[count]` bits of f16
 * @returns the first block whose bias is more than f16 holds though its scale is finite; -1 if all fit
 */
export function unpackBlocks(
  type: GgufTypeName,
  blocks: Uint8Array,
  count: number,
  codes: Uint8Array,
  scales: Uint16Array,
  biases: Uint16Array,
): number {
  const { bits, centre, highAt, codesAt } = LAYOUTS[type]!;
  const size = blocks.length / count;
  const codeBytes = 4 * bits;
  const table = centre === 0 ? undefined : biasTable(centre);
  const levels = new Uint8Array(BLOCK_COLS);
  let overflow = -1;
  for (let b = 0, at = 0, to = 0; b < count; b++, at += size, to += codeBytes) {
    const scale = blocks[at]! | (blocks[at + 1]! << 8);
    const bias = table === undefined ? blocks[at + 2]! | (blocks[at + 3]! << 8) : table[scale]!;
    scales[b] = scale;
    biases[b] = bias;
    if (table !== undefined && (bias & 0x7fff) === INFINITY_BITS && (scale & 0x7fff) < INFINITY_BITS)
      overflow = overflow < 0 ? b : overflow;
    const from = at + codesAt;
    if (bits === 8) {
      for (let i = 0; i < BLOCK_COLS; i++) codes[to + i] = blocks[from + i]! ^ 0x80;
    } else if (highAt === undefined) {
      // Low nibbles are columns 0 to 15, high ones 16 to 31; two neighbours make a byte.
      for (let i = 0; i < 8; i++) {
        const even = blocks[from + 2 * i]!;
        const odd = blocks[from + 2 * i + 1]!;
        codes[to + i] = (even & 15) | ((odd & 15) << 4);
        codes[to + 8 + i] = (even >> 4) | (odd & 0xf0);
      }
    } else {
      const high = at + highAt;
      for (let i = 0; i < 16; i++) {
        const both = blocks[from + i]!;
        levels[i] = (both & 15) | (((blocks[high + (i >> 3)]! >> (i & 7)) & 1) << 4);
        levels[16 + i] = (both >> 4) | (((blocks[high + 2 + (i >> 3)]! >> (i & 7)) & 1) << 4);
      }
      packCodes(levels, bits, codes.subarray(to, to + codeBytes));
    }
  }
  return overflow;
}
