/**
 * Latent attention (MLA, arXiv:2405.04434), with the latents themselves in the cache. A token has one vector for all heads: what of a key
 * rotates, then the normed latent c that K and V of every head are made of. A head's share of a score is `q · (Wk c) = (Wkᵀ q) · c`, and its
 * result `Σ p (Wv c) = Wv (Σ p c)`: so Wk goes into the query and Wv behind attention, and attention is that of many query heads
 * to one KV head, whose values are a part of its keys.
 *
 * Prompts are computed the same way, although to make K and V of them would take fewer operations: sums would have another order, and
 * how a prompt was cut would show.
 */

import type { AttentionShape, QueryGrowth, Tensor } from '../../device/graph.js';
import type { StackedRows } from '../layout.js';
import type { LayerLayout } from './layout-builder.js';
import type { Layer } from './stack.js';

export interface LatentShape {
  readonly heads: number;
  /** Of q and k in a head: what rotates, and what does not. */
  readonly rotaryDim: number;
  readonly plainDim: number;
  readonly valueDim: number;
  /** Width of the latent of K and V, and of that of q; null: q is made directly. */
  readonly kvRank: number;
  readonly qRank: number | null;
}

/** Of the norms of latents, whatever the model's others have. */
const EPS = 1e-6;

/** Numbers of a token in the cache. */
export function latentDim({ rotaryDim, kvRank }: LatentShape): number {
  return rotaryDim + kvRank;
}

/** What the cache of a layer keeps. */
const cached = (shape: LatentShape): AttentionShape => ({
  heads: shape.heads,
  kvHeads: 1,
  headDim: latentDim(shape),
  valueDim: shape.kvRank,
});

/** `self_attn.{q_proj | q_a_proj, q_b_proj}`, `self_attn.{kv_a_proj_with_mqa, kv_b_proj, o_proj}` and norms of latents. */
export function latentWeights(at: LayerLayout, hiddenSize: number, shape: LatentShape): void {
  const { heads, rotaryDim, plainDim, valueDim, kvRank, qRank } = shape;
  const queries = heads * (rotaryDim + plainDim);
  // What reads a normed row: q or its latent, the latent of K and V, what of a key rotates.
  const first =
    qRank === null
      ? { tensor: 'self_attn.q_proj', rows: queries }
      : { tensor: 'self_attn.q_a_proj', rows: qRank };
  at.matrix('attention', 'latents', hiddenSize, [
    first,
    { tensor: 'self_attn.kv_a_proj_with_mqa', rows: kvRank + rotaryDim },
  ]);
  if (qRank !== null) {
    at.norm('q-latent-norm', 'self_attn.q_a_layernorm', qRank);
    at.matrix('attention', 'q', qRank, [{ tensor: 'self_attn.q_b_proj', rows: queries }]);
  }
  at.norm('kv-latent-norm', 'self_attn.kv_a_layernorm', kvRank);
  // Of kv_b_proj a head has rows of K, then rows of V. Some converters have the parts as they are used here.
  const each = plainDim + valueDim;
  const stack = (tensor: string, rows: number): readonly StackedRows[] => [
    { name: `self_attn.${tensor}.weight`, stack: heads, rows: heads * rows, first: 0 },
  ];
  const tensor = 'self_attn.kv_b_proj';
  const ofKeys = { take: plainDim, of: each, from: 0 };
  const ofValues = { take: valueDim, of: each, from: plainDim };
  at.matrix(
    'attention',
    'k-heads',
    plainDim,
    [{ tensor, rows: heads * kvRank, pick: ofKeys, transposed: heads, within: stack('embed_q', kvRank) }],
    { heads: { count: heads } },
  );
  at.matrix(
    'attention',
    'v-heads',
    kvRank,
    [{ tensor, rows: heads * valueDim, pick: ofValues, within: stack('unembed_out', valueDim) }],
    { heads: { count: heads } },
  );
  at.matrix('attention', 'output', heads * valueDim, [{ tensor: 'self_attn.o_proj', rows: hiddenSize }]);
  at.cache(cached(shape), null);
}

export interface LatentOptions {
  /** The key of its rotation. */
  readonly rope: string;
  /** Multiplies the scores. */
  readonly scale: number;
  readonly queryGrowth?: QueryGrowth | null;
}

/** Attends with normed hidden states. Returns `[rows wanted, heads · valueDim]`, before the output matrix. */
export function attendLatent(
  at: Layer,
  normed: Tensor,
  shape: LatentShape,
  { rope, scale, queryGrowth = null }: LatentOptions,
): Tensor {
  const { ops } = at;
  const { heads, rotaryDim, plainDim, kvRank, qRank } = shape;
  const headDim = latentDim(shape);
  const latents = at.linear(normed, 'latents');
  const ofQ = latents.cols - kvRank - rotaryDim;
  const queries = (from: number): Tensor => {
    const run = { x: latents, from: 0, to: 0, cols: from, count: 1, fromStep: 0, toStep: from };
    return at.linear(ops.rmsNorm(ops.columns(from, [run]), at.vector('q-latent-norm'), EPS), 'q');
  };
  const q = qRank === null ? latents : queries(qRank);
  const of = { heads, step: plainDim + rotaryDim };
  const absorbed = ops.headLinear(q, at.matrix('k-heads'), of);
  const latent = { from: ofQ, cols: kvRank, groups: 1, weight: at.vector('kv-latent-norm'), bias: null };
  const c = ops.norm(latents, 'rms', [latent], EPS);
  const each = { count: heads, toStep: headDim };
  const key = { x: c, count: 1, fromStep: 0 };
  const keys = heads * headDim;
  const qk = ops.columns(keys + headDim, [
    { ...each, x: q, fromStep: of.step, from: plainDim, to: 0, cols: rotaryDim },
    { ...each, x: absorbed, fromStep: kvRank, from: 0, to: rotaryDim, cols: kvRank },
    { ...key, from: ofQ + kvRank, toStep: rotaryDim, to: keys, cols: rotaryDim },
    { ...key, from: ofQ, toStep: kvRank, to: keys + rotaryDim, cols: kvRank },
  ]);
  const cache = { layer: at.cache('kv'), ...cached(shape) };
  const rotated = ops.ropeAppend(qk, { ...cache, rope: at.rope(rope), queryGrowth });
  return ops.headLinear(at.wanted(ops.attend(rotated, { ...cache, scale })), at.matrix('v-heads'), { heads });
}
