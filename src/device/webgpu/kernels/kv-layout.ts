/**
 * Where things lie in the buffer of one side, keys or values, of one layer. In u32 words:
 *
 * - the codes (or floats) of all vectors, `[blocks, kvHeads, blockTokens]` times `words`;
 * - what goes with them. Affine: `[blocks, kvHeads, blockTokens, groups]`, scale in the low half, bias in the high
 *   one. TurboQuant: the norms `[blocks, ⌈kvHeads / 2⌉, blockTokens]`, the even head's in the low half;
 * - TurboQuant's tables: signs `[headDim]`, base matrix `[m, m]`, centroids `[2^bits]` by the numbers of their codes, midpoints
 *   `[2^bits − 1]`, f32.
 *
 * Affine codes of 2, 4, 5, 6 and 8 bits, and TurboQuant's of 8, are a stream, least significant bit first. Affine codes of
 * 3 bits go in pairs of six bits: 32 codes fill three words, five pairs each from bit 0 up, and the sixteenth pair takes
 * the top two bits of the three.
 * TurboQuant's codes of 2, 3 and 4 bits are stored by numbers, in runs of 32, of which as many centroids are made at once
 * (attend-planes.ts):
 *
 * - of 2 and 4 bits (plane-codes.ts), but for values of 4 at head_dim 128, as bit planes: word b of a run holds bit b of each. Byte e
 *   of it has codes e, e + 4, e + 8 …, so that a word of centroids as bytes has four that lie side by side. A last run of 8, 16 or
 *   24 codes has planes of as many bits, one after the other, and a quarter of a plane in place of a byte;
 * - of 3 bits (code-fields.ts) in fields of four: byte e of word i has codes 8 i + e, below, and 8 i + 4 + e, and above each, in its
 *   field's top bit, bit i of code 24 + e or 28 + e. A last run of 8, 16 or 24 codes has a word for every eight, and zeros in
 *   those bits.
 *
 * Values of 4 bits at head_dim 128 (code-fields.ts) lie transposed, for it is positions that they are summed over: of 16 positions,
 * `[4, headDim / 2]` words, of which word (p, i) has dims 2 i, below, and 2 i + 1 of positions p, p + 4, p + 8 and p + 12, a byte
 * each. So a word has four tokens, and what stores one changes its byte alone (kv-store.ts).
 */

import { type KvFormat, kvCodeBytes } from '../../kv.js';
import type { KvSide } from '../../turboquant/rotation.js';
import { codecOf } from './kv-formats/list.js';
import type { KvLayout } from './kv-formats/side.js';

export interface KvPlace {
  readonly headDim: number;
  readonly kvHeads: number;
  readonly blockTokens: number;
  readonly blocks: number;
}

const aligned = (words: number): number => Math.ceil(words / 4) * 4;

export function kvLayout(format: KvFormat, place: KvPlace): KvLayout {
  const { headDim, kvHeads, blockTokens, blocks } = place;
  const words = kvCodeBytes(format, headDim) / 4;
  const tokens = blocks * blockTokens;
  const codes = tokens * kvHeads * words;
  const meta = codecOf(format).meta(format, headDim, kvHeads);
  const tables = kvTables(format, headDim, 'key').length;
  if (meta === null && tables === 0)
    return { words, groups: 0, metaHeads: 0, metaAt: codes, tablesAt: codes, bytes: codes * 4 };
  const { groups, metaHeads } = meta ?? { groups: 0, metaHeads: 0 };
  const metaAt = aligned(codes);
  const tablesAt = aligned(metaAt + tokens * metaHeads * groups);
  return { words, groups, metaHeads, metaAt, tablesAt, bytes: (tablesAt + aligned(tables)) * 4 };
}

/** The tables of a side, as they lie at `tablesAt`. */
export function kvTables(format: KvFormat, headDim: number, side: KvSide): Float32Array {
  return codecOf(format).tables(format, headDim, side);
}
