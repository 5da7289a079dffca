/**
 * The simple block types of GGUF as groups of 32: the same numbers, in the layout that devices take.
 *
 * A block has an f16 scale d, maybe an f16 minimum m, and 32 codes q. `Qx_1` means `d · q + m`, which is affine; `Qx_0` means
 * `d · (q − k)` with k in the middle of the codes, which is symmetric.
 *
 * Source of the layouts: ggml's reference quantisation (ggml-quants.c); values are tested against gguf-py.
 */
import type { MatrixFormat, MatrixRows, SymmetricFormat } from '../device/weights.js';
import { packCodes } from './affine.js';
import { asWords, packGroups } from './gguf-lut-blocks.js';
import type { GgufTypeName } from './gguf-types.js';

export const BLOCK_COLS = 32;

type BlockFormat = Extract<MatrixFormat, { kind: 'affine' }> | SymmetricFormat;

interface Layout {
  readonly format: BlockFormat;
  /** Where the fifth bits lie in a block, and the codes. */
  readonly highAt?: number;
  readonly codesAt: number;
}

const affine = (bits: 4 | 5): BlockFormat => ({ kind: 'affine', bits, groupSize: 32, dtype: 'f16' });
const symmetric = (bits: 4 | 5 | 8): BlockFormat => ({
  kind: 'symmetric',
  bits,
  groupSize: 32,
  dtype: 'f16',
});

const LAYOUTS: Partial<Record<GgufTypeName, Layout>> = {
  Q4_0: { format: symmetric(4), codesAt: 2 },
  Q4_1: { format: affine(4), codesAt: 4 },
  Q5_0: { format: symmetric(5), highAt: 2, codesAt: 6 },
  Q5_1: { format: affine(5), highAt: 4, codesAt: 8 },
  Q8_0: { format: symmetric(8), codesAt: 2 },
};

/** The format that a type is exactly; undefined for types that are none of these. */
export function blockFormat(type: GgufTypeName): BlockFormat | undefined {
  return LAYOUTS[type]?.format;
}

/**
 * Takes blocks apart.
 *
 * @param blocks `count` blocks
 * @param rows arrays for them, as {@link MatrixRows} of the type's format says
 */
export function unpackBlocks(
  type: GgufTypeName,
  blocks: Uint8Array,
  count: number,
  { data: codes, scales, biases }: MatrixRows,
): void {
  const { format, highAt, codesAt } = LAYOUTS[type]!;
  const { bits } = format;
  const size = blocks.length / count;
  const codeBytes = 4 * bits;
  const nibbles = { size, at: codesAt, groups: 1, bytes: 16 } as const;
  if (bits === 8) flipSigns(blocks, codes, count);
  else if (highAt === undefined) packGroups(blocks, codes, count, nibbles);
  // An f16 at the front is the scale, and one behind it the bias.
  const words = asWords(blocks);
  const [scaleWords, biasWords] = [asWords(scales!), biases && asWords(biases)];
  for (let b = 0, word = 0; b < count; b++, word += size / 2) {
    scaleWords[b] = words[word]!;
    if (biasWords !== undefined) biasWords[b] = words[word + 1]!;
  }
  if (highAt === undefined) return;
  const levels = new Uint8Array(BLOCK_COLS);
  for (let b = 0, at = 0, to = 0; b < count; b++, at += size, to += codeBytes) {
    const from = at + codesAt;
    const high = at + highAt;
    for (let i = 0; i < 16; i++) {
      const both = blocks[from + i]!;
      levels[i] = (both & 15) | (((blocks[high + (i >> 3)]! >> (i & 7)) & 1) << 4);
      levels[16 + i] = (both >> 4) | (((blocks[high + 2 + (i >> 3)]! >> (i & 7)) & 1) << 4);
    }
    packCodes(levels, bits, codes.subarray(to, to + codeBytes));
  }
}

/** Codes of Q8_0, behind two bytes of scale: signed ones become those that count from the middle. */
function flipSigns(blocks: Uint8Array, codes: Uint8Array, count: number): void {
  const [from, to] = [asWords(blocks), asWords(codes)];
  for (let b = 0, word = 1, next = 0; b < count; b++, word++)
    for (let i = 0; i < BLOCK_COLS / 2; i++) to[next++] = from[word++]! ^ 0x8080;
}
