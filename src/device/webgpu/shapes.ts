/** Parts of shapes that the runtime and several kernels speak of. */

import type { AttentionShape, QueryGrowth } from '../graph.js';
import type { KvFormat } from '../kv.js';
import type { RopeStyle } from '../rope.js';

/** A float head: the first positions of every sequence lie as floats in blocks of their own, rotated and centred as those behind are. */
export interface KvHead {
  /** Positions, a multiple of 32 and of blockTokens, 256 at most. */
  readonly tokens: number;
  readonly dtype: 'f16' | 'f32';
  /**
   * Blocks of floats that there would be room for before those of the head, in the buffer that is bound as keys, and as values; null
   * where a side is float anyway, and the head's blocks are like all of its.
   */
  readonly keyFirst: number | null;
  readonly valueFirst: number | null;
}

/** A float tail: the newest positions of every sequence, its own included, as floats in a pool of their own, rotated and centred as the others are. */
export interface KvTail {
  /** Positions, 256 at most: a token at position p sees (p − tokens, p] there, and what is before among the others. */
  readonly tokens: number;
  readonly dtype: 'f16' | 'f32';
}

/** Which rows a stage takes, and where their blocks are (kernels/kv-rows.ts). */
export interface KvRows {
  /**
   * Null: all of them. `quantised`, `floatStart`: those of a kind, which is that of the sequence's first block. `head`, `behind`: of all
   * rows the positions of the float head, or those behind it. `tail`: of all rows the newest positions, in blocks of floats.
   */
  readonly only: 'quantised' | 'floatStart' | 'head' | 'behind' | 'tail' | null;
  /** Of `head` and `behind`. */
  readonly head?: KvHead;
  /** Of `tail`, and of all that see what is before it; not of `floatStart`, whose rows see all that they have there. */
  readonly tail?: KvTail;
  /** Ids from here on are of float-start blocks. */
  readonly border: number;
  /** Blocks in the buffer that is bound as keys, and the id of the first of them (of a head it may be below zero); as values likewise. */
  readonly keyBlocks: number;
  readonly keyBase: number;
  readonly valueBlocks: number;
  readonly valueBase: number;
}

/** Norm and rotate q and k, append k and v to the cache, give q (kernels/rope-append.ts). */
export interface RopeAppendShape extends AttentionShape {
  readonly key: KvFormat;
  readonly value: KvFormat;
  readonly rows: KvRows;
  readonly blockTokens: number;
  readonly maxBlocksPerSlot: number;
  /** eps of the head norms, null without. */
  readonly normEps: number | null;
  readonly rope: {
    readonly dims: number;
    readonly style: RopeStyle;
    /** The axis of each pair, where they turn by three positions. */
    readonly axes?: readonly number[];
  } | null;
  /** The head norms follow the rotation. Default: they come first. */
  readonly normAfter?: boolean;
  /** Default: q stays. */
  readonly queryGrowth?: QueryGrowth | null;
  /** Keys are scaled and a vector is taken off them, the same at all positions; queries are scaled (KeyCentre). Default: not. */
  readonly centred?: boolean;
  /** q alone is there, and nothing is appended. Default false. */
  readonly queriesOnly?: boolean;
}

/**
 * Each `rows` features from the first one of a matrix on are a head's, which reads columns of x of its own: from `from` on, `step` to
 * the next. `first`: the head of the shard's first feature.
 */
export interface HeadColumns {
  readonly rows: number;
  readonly from: number;
  readonly step: number;
  readonly first: number;
}

/** Where numbers that are made bytes lie (kernels/linear-bytes.ts): as the product's lanes read them, side by side. */
export interface BytesLayout {
  readonly rows: number;
  readonly k: number;
  /** Of the weight's codes: they decide which columns share a word. */
  readonly bits: 4 | 8;
  /** Columns of a piece: 32 times so many. */
  readonly pieces: 1 | 2;
  readonly planes: 1 | 2;
  /** Pieces side by side in a step, and steps that lie together for all rows. */
  readonly across: number;
  readonly chunkSteps: number;
}
