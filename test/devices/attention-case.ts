/** One attention layer that devices are asked about. */
import type { AttentionShape, QueryGrowth } from '../../src/device/graph.js';
import type { KvFormat } from '../../src/device/kv.js';
import type { RopeSections, RopeStyle } from '../../src/device/rope.js';

export interface AttentionCase extends AttentionShape {
  readonly key: KvFormat;
  readonly value: KvFormat;
  readonly norm?: boolean;
  /** The norms follow the rotation. */
  readonly normAfter?: boolean;
  readonly growth?: QueryGrowth;
  readonly rope?: RopeStyle | null;
  readonly ropeDims?: number;
  /** Pairs turn by one of three positions each. */
  readonly sections?: RopeSections;
  readonly window?: number | null;
  readonly softcap?: number | null;
  /** Each head has one more score, drawn normal, times this. */
  readonly sinks?: number;
  /** Tokens see up to the end of the picture that they are in. */
  readonly ahead?: boolean;
  readonly blockTokens?: number;
  /** Slots that are kept as floats of this type until they are converted. */
  readonly floatStart?: { readonly dtype: 'f16' | 'f32'; readonly slots: readonly number[] };
  /** The first tokens of every slot are kept as floats for good. */
  readonly head?: { readonly dtype: 'f16' | 'f32'; readonly tokens: number };
  /** Each token reads the newest positions as floats, its own included. */
  readonly tail?: { readonly dtype: 'f16' | 'f32'; readonly tokens: number };
  /** Keys, values and queries are drawn normal, times this. */
  readonly spread?: number;
  /** Keys are stored scaled, and without a mean that is rotated with every 256 positions, or is the same everywhere. */
  readonly centre?: 'turning' | 'flat';
}

/** Where a sequence's tokens stand: so far from their cache indexes, or at time, height and width of each. */
export type Standing = number | readonly (readonly [number, number, number])[];

/** Runs of cache indexes, `[from, to)`: the pictures of a sequence. */
export type Pictures = readonly (readonly [from: number, to: number])[];
