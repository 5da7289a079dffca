/**
 * Latent attention (MLA, arXiv:2405.04434), in its plain form: of a latent of each token K and V are made for every head, and those are
 * cached. Part of a key, the same in all heads, is what rotates. A head of the cache has the rotating part first, then the rest; V, where
 * it is narrower, is filled up with zeros.
 *
 * A cache of latents would be smaller by an order of magnitude. It takes kernels whose keys are wider than 512 and whose values are a
 * part of them.
 */

import type { Tensor } from '../../device/graph.js';
import type { LayerLayout, LayerPart } from './layout-builder.js';
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

/** Elements of a head as it is cached. */
export function latentHeadDim({ rotaryDim, plainDim, valueDim }: LatentShape): number {
  return Math.max(rotaryDim + plainDim, valueDim);
}

/** `self_attn.{q_proj | q_a_proj, q_b_proj}`, `self_attn.{kv_a_proj_with_mqa, kv_b_proj, o_proj}` and norms of latents. */
export function latentWeights(at: LayerLayout, hiddenSize: number, shape: LatentShape): void {
  const { heads, rotaryDim, plainDim, valueDim, kvRank, qRank } = shape;
  const queries = heads * (rotaryDim + plainDim);
  if (qRank === null)
    at.matrix('attention', 'q', hiddenSize, [{ tensor: 'self_attn.q_proj', rows: queries }]);
  else {
    at.matrix('attention', 'q-latent', hiddenSize, [{ tensor: 'self_attn.q_a_proj', rows: qRank }]);
    at.norm('q-latent-norm', 'self_attn.q_a_layernorm', qRank);
    at.matrix('attention', 'q', qRank, [{ tensor: 'self_attn.q_b_proj', rows: queries }]);
  }
  const of = kvRank + rotaryDim;
  const part = (take: number, from: number): readonly LayerPart[] => [
    { tensor: 'self_attn.kv_a_proj_with_mqa', rows: take, pick: { take, of, from } },
  ];
  at.matrix('attention', 'kv-latent', hiddenSize, part(kvRank, 0));
  at.matrix('attention', 'k-rotary', hiddenSize, part(rotaryDim, kvRank));
  at.norm('kv-latent-norm', 'self_attn.kv_a_layernorm', kvRank);
  at.matrix('attention', 'kv', kvRank, [
    { tensor: 'self_attn.kv_b_proj', rows: heads * (plainDim + valueDim) },
  ]);
  at.matrix('attention', 'output', heads * valueDim, [{ tensor: 'self_attn.o_proj', rows: hiddenSize }]);
  at.cache({ heads, kvHeads: heads, headDim: latentHeadDim(shape) }, null);
}

/** Attends with normed hidden states. Returns `[tokens, heads · valueDim]`, before the output matrix. `scale`: multiplies the scores. */
export function attendLatent(
  at: Layer,
  normed: Tensor,
  shape: LatentShape,
  { rope, scale }: { readonly rope: string; readonly scale: number },
): Tensor {
  const { ops } = at;
  const { heads, rotaryDim, plainDim, valueDim, qRank } = shape;
  const headDim = latentHeadDim(shape);
  const latent = (name: string): Tensor =>
    ops.rmsNorm(at.linear(normed, name), at.vector(`${name}-norm`), EPS);
  const q = at.linear(qRank === null ? normed : latent('q-latent'), 'q');
  const kv = at.linear(latent('kv-latent'), 'kv');
  const rotary = at.linear(normed, 'k-rotary');
  const each = { count: heads, toStep: headDim };
  const [keys, values] = [heads * headDim, 2 * heads * headDim];
  const fromQ = { ...each, x: q, fromStep: plainDim + rotaryDim };
  const fromKv = { ...each, x: kv, fromStep: plainDim + valueDim };
  const qkv = ops.columns(3 * heads * headDim, [
    { ...fromQ, from: plainDim, to: 0, cols: rotaryDim },
    { ...fromQ, from: 0, to: rotaryDim, cols: plainDim },
    { ...each, x: rotary, fromStep: 0, from: 0, to: keys, cols: rotaryDim },
    { ...fromKv, from: 0, to: keys + rotaryDim, cols: plainDim },
    { ...fromKv, from: plainDim, to: values, cols: valueDim },
  ]);
  const layer = at.cache('kv');
  const cached = { layer, heads, kvHeads: heads, headDim };
  const centre = at.centreOf(layer);
  const table = at.rope(rope);
  const rotated = ops.ropeAppend(qkv, { ...cached, rope: table, centre });
  const attended = ops.attend(rotated, {
    ...cached,
    scale,
    ...(centre?.turns === true ? { centre: { ...centre, rope: table } } : {}),
  });
  if (valueDim === headDim) return attended;
  const part = { x: attended, from: 0, to: 0, cols: valueDim, count: heads };
  return ops.columns(heads * valueDim, [{ ...part, fromStep: headDim, toStep: valueDim }]);
}
