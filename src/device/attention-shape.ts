/** What nodes of attention have in common: the shape of a layer, and what is done to q and k before they meet. */

import type { Vector } from './weights.js';

/** The shape of one attention layer. */
export interface AttentionShape {
  readonly heads: number;
  readonly kvHeads: number;
  readonly headDim: number;
  /**
   * Latent attention (MLA): V is a view of K, its last `valueDim` numbers, and only K is stored. There is one KV head, and what attention
   * gives has heads of `valueDim`. Absent: V is as wide as K, and stored.
   */
  readonly valueDim?: number;
}

/** Per-head RMS norm of q and k, before the rotation (Qwen3) or after it (Hunyuan). */
export interface HeadNorm {
  readonly q: Vector;
  readonly k: Vector;
  readonly eps: number;
  /** Default: before. */
  readonly order?: 'before' | 'after';
}

/** What q is multiplied with at a position p, after all else: `1 + beta · ln(1 + ⌊p / every⌋)` (Ministral 3). */
export interface QueryGrowth {
  readonly beta: number;
  /** Positions with one factor. */
  readonly every: number;
}

/**
 * The mean and scale that quantised keys are stored without (docs/kv-cache.md). A key is stored as `scale ∘ R(p) k − centre(p)`, and queries are
 * `R(p) q / scale`, so that scores stay as they were but for the query's product with the centre, which attention adds.
 * The centre is one vector for the 256 positions from 256 n on: `mean`, rotated by 256 n where `turns` is set; else it is the same
 * everywhere, which softmax does not see, and attention has nothing to add.
 */
export interface KeyCentre {
  /** `[3 · kvHeads · headDim]`: scales of keys, what queries are multiplied with, mean. The two of a rope pair have one scale. */
  readonly vector: Vector;
  readonly turns: boolean;
}
