/** Attention on matrices of bytes: its sizes, the shapes that it takes, and both sides of a cache as its lanes read them. */

import { type AffineKv, affineGroups } from '../../kv.js';
import type { MatrixConfig } from '../kernel.js';
import { ATTENTION_SPLIT } from '../step-buffer.js';
import type { AttendShape } from './attend.js';
import { type WordWidth, wordType, wordWidth } from './attend-words.js';
import { sideOf } from './kv-rows.js';
import { rolledBound } from './rolled.js';

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

/**
 * Keys, or values, with the dims of a lane's piece. Positions come in tiles of TURN; a tile is in one block, or its halves
 * are. A vector is its index in the buffer; those of a lane's own position, offset `lane`, stand at `lane` modulo 16.
 */
export interface BytesSide {
  readonly format: AffineKv;
  readonly groups: number;
  /** Dims, and words, of a piece; words of a vector. */
  readonly dims: number;
  readonly words: number;
  readonly vectorWords: number;
  readonly width: WordWidth;
  readonly type: string;
  /** What `vector` reads, of the tile at position `base` of the split. */
  readonly tile: (base: string) => string;
  /** The vector of position 0 of a tile, for those of either half of it; and the vector `offset` positions into it. */
  readonly half: (tile: string, half: number) => string;
  readonly vector: (tile: string, offset: string) => string;
  /** What holds scales and biases of the vector of a lane's own position, and the word of a group in that. */
  readonly metaType: string;
  readonly meta: (vector: string) => string;
  readonly metaWord: (meta: string, group: number) => string;
}

/** Errors: RangeError, for a side that is not affine. */
export function bytesSide(shape: AttendShape, name: 'keys' | 'values'): BytesSide {
  const { kvHeads, blockTokens, rows } = shape;
  const { format, layout, headDim } = sideOf(name, shape);
  if (format.kind !== 'affine') throw new RangeError('attend bytes: not affine');
  const groups = affineGroups(format, headDim);
  const dims = name === 'keys' && format.bits === 8 ? 16 : PIECE;
  const words = (layout.words * dims) / headDim;
  const width = wordWidth(words);
  const first = name === 'keys' ? rows.keyBase : rows.valueBase;
  const at = (t: string): string =>
    `((entries[(${t}) / ${blockTokens}u]${first === 0 ? '' : ` - ${first}u`}) * ${kvHeads}u + kv) * ${blockTokens}u + (${t}) % ${blockTokens}u`;
  const whole = blockTokens % TURN === 0;
  return {
    format,
    groups,
    dims,
    words,
    vectorWords: layout.words,
    width,
    type: wordType(width),
    tile: (base) =>
      whole ? at(base) : `vec2<u32>(${at(base)}, ${at(`${base} + ${TURN / 2}u`)} - ${TURN / 2}u)`,
    half: (tile, half) => (whole ? tile : `${tile}.${'xy'[half]}`),
    vector: (tile, offset) =>
      whole ? `${tile} + ${offset}` : `select(${tile}.x, ${tile}.y, ${offset} >= ${TURN / 2}u) + ${offset}`,
    ...metasOf(name, groups, width, layout.metaAt),
  };
}

/** As few loads as there can be: a lane takes what is bound at once, which may be another's as well. */
function metasOf(
  name: string,
  groups: number,
  width: WordWidth,
  metaAt: number,
): Pick<BytesSide, 'metaType' | 'meta' | 'metaWord'> {
  const at = `${metaAt / width}u`;
  if (groups === 1)
    return {
      metaType: 'u32',
      meta: (v) =>
        width === 1
          ? `${name}[${at} + ${v}]`
          : `${name}[${at} + ((${v}) >> ${width / 2}u)][lane & ${width - 1}u]`,
      metaWord: (meta) => meta,
    };
  const part = (meta: string, g: number): string => `${meta}.${'xyzw'[g]}`;
  if (width < 4)
    return {
      metaType: 'vec2<u32>',
      meta: (v) =>
        width === 2
          ? `${name}[${at} + ${v}]`
          : `vec2<u32>(${name}[${at} + (${v}) * 2u], ${name}[${at} + (${v}) * 2u + 1u])`,
      metaWord: part,
    };
  return {
    metaType: 'vec4<u32>',
    meta: (v) => `${name}[${at} + ((${v}) >> 1u)]`,
    metaWord: (meta, g) => `select(${part(meta, g)}, ${part(meta, g + 2)}, (lane & 1u) != 0u)`,
  };
}

/**
 * Statement that joins variables, vectors of four, over all lanes: of lanes 16 apart, then 8, down to neighbours. One text for
 * all five levels, where `subgroupAdd` and `subgroupMax` have theirs for every number.
 */
export function overLanes(sums: readonly string[], maxima: readonly string[] = []): string {
  const other = (name: string): string => `subgroupShuffleXor(${name}, ${LANES / 2}u >> level)`;
  return `  for (var level = 0u; level < ${rolledBound(Math.log2(LANES))}; level++) {
${[
  ...sums.map((name) => `    ${name} += ${other(name)};`),
  ...maxima.map((name) => `    ${name} = max(${name}, ${other(name)});`),
].join('\n')}
  }`;
}
