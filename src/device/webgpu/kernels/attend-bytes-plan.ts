/**
 * Attention on matrices of bytes: its sizes, what it leaves between its passes, and both sides of a cache as its lanes read
 * them.
 */

import type { AffineKv, TurboKv } from '../../kv.js';
import { affineGroups } from '../../kv-formats/affine.js';
import type { Binding, MatrixConfig } from '../kernel.js';
import { ATTENTION_SPLIT } from '../step-buffer.js';
import type { AttendShape } from './attend.js';
import {
  byteCentre,
  byteUnit,
  hasBytes,
  literalMask,
  type Masks,
  OPAQUE_MASKS,
  PLANE_DIMS,
} from './attend-planes.js';
import { type WordWidth, wordType, wordWidth } from './attend-words.js';
import { hasNorm, hasScales, isTransposed } from './kv-formats/list.js';
import { sideOf } from './kv-rows.js';

export interface BytesConfig {
  /** 16 × 8 × 32, i8 to i32. */
  readonly matrix: MatrixConfig;
  /** Lanes of a subgroup: 32. */
  readonly subgroupSize: number;
  /** Storage buffers that a kernel may bind. */
  readonly storageBuffers: number;
}

/** Integers of two planes of bytes reach so far. */
export const MOST = 32512;
/**
 * A number of at most MOST, added to this: the low 16 bits of the sum's are the number as an integer and 128, which makes the
 * high byte a rounded one. `ROUNDED_BITS` are those of an integer of zero, without the 128.
 */
export const ROUNDING = '12583040.0';
export const ROUNDED_BITS = 0x4b400000;
/** Of a matrix on the left, positions or dims; of one on the right, planes of heads; and what is summed over. */
export const ROWS = 16;
export const COLUMNS = 8;
export const DEPTH = 32;
export const LANES = 32;
const HEAD_DIM = 128;
/** Heads of a group, with those that are not there. */
export const HEADS = COLUMNS / 2;
/** Positions of a turn, of keys and of values. */
export const TURN = DEPTH;
/** Dims that a lane unpacks at once, lanes that share a vector, and vectors that a load of all lanes has. */
export const PIECE = PLANE_DIMS;
export const PIECES = HEAD_DIM / PIECE;
export const AT_ONCE = LANES / PIECES;

/**
 * Vectors of 16 bytes from row to row of what is staged: half of a key, all dims of a plane of queries, the positions of a turn
 * of a dim's values or of a plane of weights. One more than they need, which keeps rows off each other's banks.
 */
export const KEY_STRIDE = 5;
export const QUERY_STRIDE = 9;
export const VALUE_STRIDE = 3;
export const WEIGHT_STRIDE = VALUE_STRIDE;
/** The same of keys where a row has one piece of them. */
export const PIECE_STRIDE = 3;
/** The same of sums, which are read whole. */
export const SUM_STRIDE = 2;
/** Tiles of values that are staged at once: one of either half of the dims. */
export const TILES = 2;
/** Where the sums of keys that lanes share are, if there is one group of them: behind what is staged, for a barrier less. */
export const SUMS_AT = ROWS * KEY_STRIDE;
/** Vectors of workgroup memory, which everything goes through in turn. */
export function areaVectors({ ownKey, groups }: BytesSide): number {
  return Math.max(
    ownKey ? TURN * Math.max(PIECE_STRIDE, groups * SUM_STRIDE) : SUMS_AT + ROWS * SUM_STRIDE,
    COLUMNS * QUERY_STRIDE,
    TILES * ROWS * Math.max(VALUE_STRIDE, SUM_STRIDE),
  );
}

/** What a (item, KV head) leaves, in vectors: for every turn, of every lane, two heads' scores at two positions. */
export const UNIT = (ATTENTION_SPLIT / TURN) * LANES;

/** Words of a piece of a key of which a lane takes all: three, which no wide load fits, and four times three, which do. */
const OWN_WORDS = 3;

/** Storage buffers of the kernel: keys and values are bound twice. */
const BUFFERS = 10;

export function bytesFits(shape: AttendShape, c: BytesConfig, workgroupBytes: number): boolean {
  const { key, value, headDim, blockTokens } = shape;
  const { matrix, subgroupSize, storageBuffers } = c;
  const taken = [key, value].every(
    (format) => hasBytes(format) && (!hasScales(format) || affineGroups(format, HEAD_DIM) <= TILES),
  );
  return (
    taken &&
    headDim === HEAD_DIM &&
    shape.heads / shape.kvHeads <= HEADS &&
    matrix.m === ROWS &&
    matrix.n === COLUMNS &&
    matrix.k === DEPTH &&
    matrix.component === 'i8' &&
    matrix.result === 'i32' &&
    subgroupSize === LANES &&
    storageBuffers >= BUFFERS &&
    (blockTokens === ROWS || inOneBlock(blockTokens)) &&
    ATTENTION_SPLIT % blockTokens === 0 &&
    areaVectors(bytesSide(shape, 'keys')) * 16 + (ATTENTION_SPLIT / blockTokens) * 8 <= workgroupBytes
  );
}

/**
 * Whether scores are scaled where they become exponents, not before: one multiplication less. Scales of TurboQuant are of heads
 * alone.
 */
export function scalesLate(shape: AttendShape): boolean {
  return hasNorm(shape.key) && shape.softcap === null;
}

/** Bytes of `scratchScores` for one item. */
export function itemScoreBytes(shape: AttendShape): number {
  return shape.kvHeads * UNIT * 16;
}

/** Of which turn: the name of its first position, a variable of the kernel or `zero`. */
export type Turn = 'zero' | 'base' | 'next';
/** Its first position. */
export const startOf = (at: Turn): string => (at === 'zero' ? '0u' : at);

/** Whether the positions of a turn are in one block; else a block has half of them. */
const inOneBlock = (blockTokens: number): boolean => blockTokens % TURN === 0;

/** Statement that reads the entry of a turn's block, or that of the block of a lane's position, one of a turn each. */
export function entryText({ blockTokens }: AttendShape, at: Turn): string {
  const half = inOneBlock(blockTokens) ? '' : ` + lane / ${ROWS}u`;
  return `let entry_${at} = entries[${startOf(at)} / ${blockTokens}u${half}];`;
}

/** What the lane of a position has, for the lanes that share position `lane / 2` of a block. */
export const ofPosition = (value: string, block: number): string =>
  `subgroupShuffle(${value}, lane / 2u + ${block * ROWS}u)`;

/** Keys, or values, of `PIECE` dims a lane. */
export interface BytesSide {
  readonly format: AffineKv | TurboKv;
  readonly groups: number;
  /** Words of a piece. */
  readonly words: number;
  /** Loads that a lane makes of a vector, of `width` words. */
  readonly loads: number;
  readonly width: WordWidth;
  readonly type: string;
  /** Loads from vector to vector. */
  readonly stride: number;
  /** Lanes take two pieces of a key, in place of one of two keys: a piece has an odd number of words, which only two load in pairs. */
  readonly paired: boolean;
  /** A lane takes all pieces of the key of a position of a turn: loads are as wide as can be, and few. */
  readonly ownKey: boolean;
  /** What a byte less its centre stands for, and the centre. */
  readonly unit: number;
  readonly centre: number;
  /** How its words are mixed. */
  readonly mask: Masks;
  /** Words have four positions of a dim each (kv-layout.ts). */
  readonly transposed: boolean;
  /** The vector of position `t` of the split, of the turn `at`; `byLane`: in the block of the lane's own position. */
  readonly vector: (t: string, at: Turn, byLane?: boolean) => string;
  /** What goes with a vector, a word for each group, and the binding that reads it. */
  readonly metaType: string;
  readonly metas: Binding;
  /** Statement that loads what goes with position `t` of a turn into variable NAME. */
  readonly loadMeta: (name: string, t: string, at: Turn) => string;
  /** It is a word: a lane fetches that of its own position of a turn, and others have it from there (`ofPosition`). */
  readonly handedOn: boolean;
  /** Scale and bias, or norm and nothing, of a group, as vec2<f32>. */
  readonly meta: (name: string, group: number) => string;
}

/** Errors: RangeError, for a side that is not stored as integers of up to 8 bits. */
export function bytesSide(shape: AttendShape, name: 'keys' | 'values'): BytesSide {
  const { kvHeads, blockTokens, rows } = shape;
  const side = sideOf(name, shape);
  const { format, layout, headDim } = side;
  if (!hasBytes(format)) throw new RangeError('attend bytes: not bytes');
  const words = (layout.words * PIECE) / headDim;
  const ownKey = name === 'keys' && words === OWN_WORDS;
  const paired = name === 'keys' && words % 2 === 1 && !ownKey;
  const together = words * (ownKey ? PIECES : paired ? 2 : 1);
  const width = wordWidth(together);
  const base = (name === 'keys' ? rows.keyBase : rows.valueBase) * blockTokens;
  const less = (vectors: number): string => (vectors === 0 ? '' : ` - ${vectors}u`);
  const groups = hasScales(format) ? affineGroups(format, headDim) : 1;
  const turbo = hasNorm(format);
  const entry = (t: string, at: Turn, byLane: boolean): string =>
    byLane || inOneBlock(blockTokens) ? `entry_${at}` : `entries[(${t}) / ${blockTokens}u]`;
  const vector = (t: string, at: Turn, byLane = false): string =>
    `(${entry(t, at, byLane)}.x + ${t}${less(base * kvHeads)})`;
  const metaType = groups === 1 ? 'u32' : 'vec2<u32>';
  const metaAt = (t: string, at: Turn): string =>
    `${layout.metaAt / groups}u + ${turbo ? `(${entry(t, at, true)}.y + ${t}${less(base * layout.metaHeads)})` : vector(t, at)}`;
  return {
    format,
    groups,
    words,
    loads: together / width,
    width,
    type: wordType(width),
    stride: layout.words / width,
    paired,
    ownKey,
    unit: byteUnit(format, headDim, name === 'keys' ? 'key' : 'value'),
    centre: byteCentre(format),
    // Bytes are mixed little, and the masks' registers would be too many.
    mask: format.bits === 8 ? literalMask : OPAQUE_MASKS.mask,
    transposed: isTransposed(side),
    vector,
    metaType,
    handedOn: turbo,
    metas: { name, variable: `${name}_metas`, access: 'read', type: `array<${metaType}>` },
    loadMeta: (prefix, t, turn) => `${prefix} = ${name}_metas[${metaAt(t, turn)}];`,
    meta: (prefix, group) =>
      turbo
        ? `vec2<f32>(unpack2x16float(${prefix} >> odd).x, 0.0)`
        : `unpack2x16float(${prefix}${groups === 1 ? '' : `.${'xy'[group]}`})`,
  };
}
