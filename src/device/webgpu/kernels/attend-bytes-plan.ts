/** Attention on matrices of bytes: its sizes, the shapes that it takes, and both sides of a cache as its lanes read them. */

import { type AffineKv, affineGroups } from '../../kv.js';
import type { MatrixConfig } from '../kernel.js';
import { ATTENTION_SPLIT } from '../step-buffer.js';
import type { AttendShape } from './attend.js';
import { type WordWidth, wordAt, wordType, wordWidth } from './attend-words.js';
import { sideOf } from './kv-rows.js';

export interface BytesConfig {
  /** 16 × 16 × 32, i8 to i32. */
  readonly matrix: MatrixConfig;
  /** Lanes of a subgroup: 32. */
  readonly subgroupSize: number;
  /** Positions of K that are staged at once. */
  readonly keyTokens: 16 | 32;
}

/** Integers of two planes of bytes reach so far. */
export const MOST = 32512;
export const ROWS = 16;
export const LANES = 32;
export const HEAD_DIM = 128;
/** Heads of a group, with those that are not there. */
export const HEADS = 4;
/** Positions of a turn: each lane has one. */
export const TURN = 32;
/** Dims that a lane unpacks at once; those of 8 bits are two loads. */
export const PIECE = 32;

// Strides in vectors of 16 bytes: of a staged key, of a position's sums, of a dim of values, of weights, of the end's sums.
export const KEY = HEAD_DIM / 16 + 1;
export const SUMS = 5;
export const VALUE = TURN / 16 + 1;
export const OUT = 9;
/** Values are staged half of the dims at a time; the weights lie behind them. */
export const HALF_ROWS = HEAD_DIM / 2;
export const WEIGHTS_AT = HALF_ROWS * VALUE;

/** Vectors of workgroup memory, which everything goes through in turn. */
export function areaOf(c: BytesConfig): number {
  return Math.max(c.keyTokens * KEY, TURN * SUMS, ROWS * KEY, WEIGHTS_AT + ROWS * VALUE, ROWS * OUT);
}

function bytesOf(shape: AttendShape, c: BytesConfig): number {
  return areaOf(c) * 16 + (ATTENTION_SPLIT / shape.blockTokens) * 4;
}

export function bytesFits(shape: AttendShape, c: BytesConfig, workgroupBytes: number): boolean {
  const { key, value, headDim, blockTokens } = shape;
  const { matrix, subgroupSize } = c;
  return (
    key.kind === 'affine' &&
    value.kind === 'affine' &&
    headDim === HEAD_DIM &&
    shape.heads / shape.kvHeads <= HEADS &&
    matrix.m === ROWS &&
    matrix.n === 16 &&
    matrix.k === 32 &&
    matrix.component === 'i8' &&
    matrix.result === 'i32' &&
    subgroupSize === LANES &&
    2 * HEADS * Math.max(affineGroups(key, HEAD_DIM), affineGroups(value, HEAD_DIM)) <= ROWS &&
    blockTokens % 16 === 0 &&
    bytesOf(shape, c) <= workgroupBytes
  );
}

/** Bytes of `scratchScores` for one item. */
export function itemScoreBytes(shape: AttendShape): number {
  return shape.kvHeads * ATTENTION_SPLIT * HEADS * 4;
}

/** Keys, or values, with the dims of a lane's piece; `t` is a position of the split. */
export interface BytesSide {
  readonly format: AffineKv;
  readonly groups: number;
  /** Dims, and words, of a piece; words of a vector. */
  readonly dims: number;
  readonly words: number;
  readonly vectorWords: number;
  readonly width: WordWidth;
  readonly type: string;
  /** Index of a vector of the buffer. */
  readonly vector: (t: string) => string;
  /** Word that holds scale and bias of group 0. */
  readonly metaAt: (t: string) => string;
  readonly word: (at: string) => string;
}

/** Errors: RangeError, for a side that is not affine. */
export function bytesSide(shape: AttendShape, name: 'keys' | 'values'): BytesSide {
  const { kvHeads, blockTokens, rows } = shape;
  const { format, layout, headDim } = sideOf(name, shape);
  if (format.kind !== 'affine') throw new RangeError('attend bytes: not affine');
  const dims = name === 'keys' && format.bits === 8 ? 16 : PIECE;
  const words = (layout.words * dims) / headDim;
  const width = wordWidth(words);
  const base = name === 'keys' ? rows.keyBase : rows.valueBase;
  const block = (t: string): string =>
    `(entries[(${t}) / ${blockTokens}u]${base === 0 ? '' : ` - ${base}u`})`;
  const vector = (t: string): string =>
    `(${block(t)} * ${kvHeads}u + kv) * ${blockTokens}u + (${t}) % ${blockTokens}u`;
  return {
    format,
    groups: affineGroups(format, headDim),
    dims,
    words,
    vectorWords: layout.words,
    width,
    type: wordType(width),
    vector,
    metaAt: (t) => `${layout.metaAt}u + (${vector(t)}) * ${layout.groups}u`,
    word: (at) => wordAt(name, width, at),
  };
}
