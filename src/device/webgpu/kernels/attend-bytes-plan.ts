/**
 * Attention on matrices of bytes: its sizes, what it leaves between its passes, and both sides of a cache as its lanes read
 * them.
 */

import { type AffineKv, affineGroups, type TurboKv } from '../../kv.js';
import type { MatrixConfig } from '../kernel.js';
import { ATTENTION_SPLIT } from '../step-buffer.js';
import type { AttendShape } from './attend.js';
import { byteCentre, byteUnit, hasBytes, PLANE_DIMS } from './attend-planes.js';
import { count, type WordWidth, wordOf, wordType, wordWidth } from './attend-words.js';
import { sideOf } from './kv-rows.js';

export interface BytesConfig {
  /** 16 × 16 × 32, i8 to i32. */
  readonly matrix: MatrixConfig;
  /** Lanes of a subgroup: 32. */
  readonly subgroupSize: number;
}

/** Integers of two planes of bytes reach so far. */
export const MOST = 32512;
/**
 * A number of at most MOST, added to this: the low 16 bits of the sum's are the number as an integer and 128, which makes the
 * high byte a rounded one. `ROUNDED_BITS` are those of an integer of zero, without the 128.
 */
export const ROUNDING = '12583040.0';
export const ROUNDED_BITS = 0x4b400000;
export const ROWS = 16;
export const LANES = 32;
export const HEAD_DIM = 128;
/** Heads of a group, with those that are not there. */
export const HEADS = 4;
/** Positions of a turn, of keys and of values; and of keys that are staged at once. */
export const KEY_TURN = 32;
export const VALUE_TURN = 64;
export const KEYS = 16;
/** Dims that a lane unpacks at once. */
export const PIECE = PLANE_DIMS;
/** Dims of values that are summed at once. */
export const VALUE_DIMS = 64;
export const HALVES = HEAD_DIM / VALUE_DIMS;

/**
 * Vectors of 16 bytes from row to row of what is staged: 64 bytes of queries, keys or values, or 16 sums, and one vector
 * more, which keeps rows off each other's banks.
 */
export const STRIDE = 5;
/** The same of sums, whose rows are written two numbers a lane, and read so. */
export const SUM_STRIDE = 6;
/** Vectors of workgroup memory, which everything goes through in turn. */
export const AREA = ROWS * Math.max(STRIDE, SUM_STRIDE);

const SPLIT_QUADS = ATTENTION_SPLIT / 4;
/**
 * What a (item, KV head) leaves, in vectors: of every head, for every four positions of a turn that are `KEYS` apart, their
 * scores, and in the same place then their weights, as two words for either affine group; and behind them a pair of floats
 * for every (head, group).
 */
export const PAIRS_AT = HEADS * SPLIT_QUADS;
export const UNIT = PAIRS_AT + HEADS;

export function bytesFits(shape: AttendShape, c: BytesConfig, workgroupBytes: number): boolean {
  const { key, value, headDim, blockTokens } = shape;
  const { matrix, subgroupSize } = c;
  const taken = [key, value].every(
    (format) =>
      hasBytes(format) && (format.kind !== 'affine' || 2 * HEADS * affineGroups(format, HEAD_DIM) <= ROWS),
  );
  return (
    taken &&
    headDim === HEAD_DIM &&
    shape.heads / shape.kvHeads <= HEADS &&
    matrix.m === ROWS &&
    matrix.n === 16 &&
    matrix.k === 32 &&
    matrix.component === 'i8' &&
    matrix.result === 'i32' &&
    subgroupSize === LANES &&
    blockTokens % KEYS === 0 &&
    ATTENTION_SPLIT % blockTokens === 0 &&
    AREA * 16 + (ATTENTION_SPLIT / blockTokens) * 8 + 8 <= workgroupBytes
  );
}

/** Bytes of `scratchScores` for one item. */
export function itemScoreBytes(shape: AttendShape): number {
  return shape.kvHeads * UNIT * 16;
}

/** Keys, or values, of `PIECE` dims a lane. */
export interface BytesSide {
  readonly format: AffineKv | TurboKv;
  readonly groups: number;
  /** Words of a piece, in loads of `width` words. */
  readonly words: number;
  readonly loads: number;
  readonly width: WordWidth;
  readonly type: string;
  /** Loads from vector to vector. */
  readonly stride: number;
  /** What a byte less its centre stands for, and the centre. */
  readonly unit: number;
  readonly centre: number;
  /** The vector of position `t` of the split. */
  readonly vector: (t: string) => string;
  /** Statements that load what goes with two positions from `t` on, which is even, as variables `NAME_0` …. */
  readonly loadMetas: (name: string, t: string) => string;
  /**
   * Scale and bias, or norm and nothing, of position j of those and a group, as vec2<f32>. Where a load has what goes with
   * four, the upper half is an odd lane's.
   */
  readonly meta: (name: string, j: number, group: number) => string;
}

/** Errors: RangeError, for a side that is not stored as integers of up to 8 bits. */
export function bytesSide(shape: AttendShape, name: 'keys' | 'values'): BytesSide {
  const { kvHeads, blockTokens, rows } = shape;
  const { format, layout, headDim } = sideOf(name, shape);
  if (!hasBytes(format)) throw new RangeError('attend bytes: not bytes');
  const words = (layout.words * PIECE) / headDim;
  const width = wordWidth(words);
  const base = (name === 'keys' ? rows.keyBase : rows.valueBase) * blockTokens;
  const less = (vectors: number): string => (vectors === 0 ? '' : ` - ${vectors}u`);
  const groups = format.kind === 'affine' ? affineGroups(format, headDim) : 1;
  const turbo = format.kind === 'turboquant';
  const vector = (t: string): string => `(entries[(${t}) / ${blockTokens}u].x + ${t}${less(base * kvHeads)})`;
  const metaAt = (t: string): string =>
    turbo
      ? `(entries[(${t}) / ${blockTokens}u].y + ${t}${less(base * layout.metaHeads)})`
      : `${vector(t)} * ${groups}u`;
  const metaWords = 2 * groups;
  const shared = metaWords < width;
  const word = (prefix: string, i: number): string =>
    shared ? `${prefix}_own.${'xy'[i]}` : wordOf(prefix, width, i);
  return {
    format,
    groups,
    words,
    loads: words / width,
    width,
    type: wordType(width),
    stride: layout.words / width,
    unit: byteUnit(format, headDim),
    centre: byteCentre(format),
    vector,
    loadMetas: (prefix, t) =>
      [
        `let ${prefix}_at = (${layout.metaAt}u + ${metaAt(t)}) / ${width}u;`,
        ...count(Math.max(1, metaWords / width)).map(
          (i) => `let ${prefix}_${i} = ${name}[${prefix}_at + ${i}u];`,
        ),
        ...(shared ? [`let ${prefix}_own = select(${prefix}_0.xy, ${prefix}_0.zw, (lane & 1u) != 0u);`] : []),
      ].join('\n'),
    meta: (prefix, j, group) =>
      turbo
        ? `vec2<f32>(unpack2x16float(${word(prefix, j)} >> odd).x, 0.0)`
        : `unpack2x16float(${word(prefix, j * groups + group)})`,
  };
}
