/**
 * The K types of GGUF as k-quants (device/weights.ts): superblocks of 256 columns, taken apart and nothing rounded.
 *
 * A superblock holds f16 `d`, maybe f16 `dmin`, subscales of 4, 6 or 8 bits, and codes whose bits lie in one plane or two. Columns are
 * dealt to bytes in runs of 32: within 64 (nibbles) or 128 (pairs of bits) of them byte l has columns l, l + 32, ….
 *
 * Source of the layouts: ggml's reference quantisation (ggml-quants.c); values are tested against gguf-py.
 */
import { type KQuantBits, type KQuantFormat, type MatrixRows, SUPERBLOCK } from '../device/weights.js';
import { packCodes } from './affine.js';
import { packGroups } from './gguf-lut-blocks.js';
import type { GgufTypeName } from './gguf-types.js';

interface KLayout {
  readonly bits: KQuantBits;
  /** Where d and dmin lie in a superblock, the subscales, and the codes. */
  readonly scaleAt: number;
  readonly minimumAt?: number;
  readonly subscalesAt: number;
  /** To 16 bytes, as MatrixRows has them. */
  readonly subscales: (from: Uint8Array, at: number, to: Uint8Array, out: number) => void;
  /** Codes of a superblock, a byte each. */
  readonly codes: (from: Uint8Array, at: number, levels: Uint8Array) => void;
}

const LAYOUTS: Partial<Record<GgufTypeName, KLayout>> = {
  Q2_K: {
    bits: 2,
    scaleAt: 80,
    minimumAt: 82,
    subscalesAt: 0,
    subscales: copied,
    codes: (from, at, levels) => pairs(from, at + 16, levels),
  },
  Q3_K: {
    bits: 3,
    scaleAt: 108,
    subscalesAt: 96,
    subscales: centredSixBits,
    codes: (from, at, levels) => {
      pairs(from, at + 32, levels);
      addBits(from, at, levels, 2);
    },
  },
  Q4_K: {
    bits: 4,
    scaleAt: 0,
    minimumAt: 2,
    subscalesAt: 4,
    subscales: sixBitPairs,
    codes: (from, at, levels) => nibbles(from, at + 16, levels),
  },
  Q5_K: {
    bits: 5,
    scaleAt: 0,
    minimumAt: 2,
    subscalesAt: 4,
    subscales: sixBitPairs,
    codes: (from, at, levels) => {
      nibbles(from, at + 48, levels);
      addBits(from, at + 16, levels, 4);
    },
  },
  Q6_K: {
    bits: 6,
    scaleAt: 208,
    subscalesAt: 192,
    subscales: copied,
    codes: sixBits,
  },
};

/** The k-quant that a type is; undefined for types that are none. */
export function kQuantFormat(type: GgufTypeName): KQuantFormat | undefined {
  const layout = LAYOUTS[type];
  return layout && { kind: 'k-quant', bits: layout.bits, dtype: 'f16' };
}

/**
 * Takes superblocks apart.
 *
 * @param blocks `count` superblocks of the type
 * @param rows arrays for them, as {@link MatrixRows} of the type's format says
 */
export function unpackKBlocks(type: GgufTypeName, blocks: Uint8Array, count: number, rows: MatrixRows): void {
  const layout = LAYOUTS[type]!;
  const { bits, scaleAt, minimumAt, subscalesAt } = layout;
  const { data, scales, biases, subscales } = rows;
  const size = blocks.length / count;
  const codeBytes = (SUPERBLOCK * bits) / 8;
  const levels = new Uint8Array(SUPERBLOCK);
  if (bits === 4) packGroups(blocks, data, count, { size, at: 16, groups: 4, bytes: 32 });
  for (let b = 0, at = 0; b < count; b++, at += size) {
    scales![2 * b] = blocks[at + scaleAt]!;
    scales![2 * b + 1] = blocks[at + scaleAt + 1]!;
    if (minimumAt !== undefined) {
      biases![2 * b] = blocks[at + minimumAt]!;
      biases![2 * b + 1] = blocks[at + minimumAt + 1]!;
    }
    layout.subscales(blocks, at + subscalesAt, subscales!, 16 * b);
    if (bits === 4) continue;
    layout.codes(blocks, at, levels);
    packCodes(levels, bits, data.subarray(b * codeBytes, (b + 1) * codeBytes));
  }
}

function nibbles(from: Uint8Array, at: number, levels: Uint8Array): void {
  for (let run = 0; run < 4; run++) {
    for (let l = 0; l < 32; l++) {
      const both = from[at + 32 * run + l]!;
      levels[64 * run + l] = both & 15;
      levels[64 * run + 32 + l] = both >> 4;
    }
  }
}

function pairs(from: Uint8Array, at: number, levels: Uint8Array): void {
  for (let half = 0; half < 2; half++) {
    for (let l = 0; l < 32; l++) {
      const four = from[at + 32 * half + l]!;
      for (let j = 0; j < 4; j++) levels[128 * half + 32 * j + l] = (four >> (2 * j)) & 3;
    }
  }
}

/** The bit above the others: bit g of byte l belongs to column l of run g. */
function addBits(from: Uint8Array, at: number, levels: Uint8Array, position: number): void {
  for (let l = 0; l < 32; l++) {
    const eight = from[at + l]!;
    for (let g = 0; g < 8; g++) levels[32 * g + l]! |= ((eight >> g) & 1) << position;
  }
}

/** Nibbles in runs of 128 columns: low ones of 64 bytes, then high ones; above them pairs. */
function sixBits(from: Uint8Array, at: number, levels: Uint8Array): void {
  for (let half = 0; half < 2; half++) {
    const low = at + 64 * half;
    const high = at + 128 + 32 * half;
    for (let l = 0; l < 32; l++) {
      const a = from[low + l]!;
      const b = from[low + 32 + l]!;
      const four = from[high + l]!;
      const to = 128 * half + l;
      levels[to] = (a & 15) | ((four & 3) << 4);
      levels[to + 32] = (b & 15) | (((four >> 2) & 3) << 4);
      levels[to + 64] = (a >> 4) | (((four >> 4) & 3) << 4);
      levels[to + 96] = (b >> 4) | ((four >> 6) << 4);
    }
  }
}

function copied(from: Uint8Array, at: number, to: Uint8Array, out: number): void {
  for (let i = 0; i < 16; i++) to[out + i] = from[at + i]!;
}

/** Eight scales and eight minima of 6 bits in 12 bytes, to pairs. */
function sixBitPairs(from: Uint8Array, at: number, to: Uint8Array, out: number): void {
  for (let g = 0; g < 4; g++) {
    const scale = from[at + g]!;
    const minimum = from[at + 4 + g]!;
    const both = from[at + 8 + g]!;
    to[out + 2 * g] = scale & 63;
    to[out + 2 * g + 1] = minimum & 63;
    to[out + 8 + 2 * g] = (both & 15) | ((scale >> 6) << 4);
    to[out + 8 + 2 * g + 1] = (both >> 4) | ((minimum >> 6) << 4);
  }
}

/** Sixteen scales of 6 bits that count from 32, in 12 bytes: nibbles, then pairs. */
function centredSixBits(from: Uint8Array, at: number, to: Uint8Array, out: number): void {
  for (let g = 0; g < 16; g++) {
    const nibble = g < 8 ? from[at + g]! & 15 : from[at + g - 8]! >> 4;
    const pair = (from[at + 8 + (g & 3)]! >> (2 * (g >> 2))) & 3;
    to[out + g] = (nibble | (pair << 4)) - 32;
  }
}
