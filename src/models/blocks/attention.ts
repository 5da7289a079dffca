/** Attention of a layer: q, k and v are one matrix, for they read the same input and one launch reads it once. */

import type { AttentionShape, HeadNorm, QueryGrowth, Tensor } from '../../device/graph.js';
import type { LayerLayout, LayerPart } from './layout-builder.js';
import type { Layer } from './stack.js';

export interface AttentionWeights extends AttentionShape {
  readonly hiddenSize: number;
  readonly bias: { readonly qkv: boolean; readonly output: boolean };
  /** RMS norm of q and k, each head by itself. */
  readonly qkNorm: boolean;
  /** Tokens the layer looks back, itself included; null for all. */
  readonly window: number | null;
  /** Rows of `q_proj` are, by head, those of q and then those of a gate: see {@link outputGate}. Default: q alone. */
  readonly gated?: boolean;
  /** Values are what `k_proj` makes, before norm and rotation. Default false. */
  readonly sameKv?: boolean;
  /** The layer looks at another one's keys and values, and has none. Default false. */
  readonly queriesOnly?: boolean;
  /** What they stand below. Default: `self_attn`. */
  readonly block?: string;
  /** What tensors are called, where it is not Llama's way. */
  readonly names?: { readonly output: string; readonly qNorm: string; readonly kNorm: string };
}

/** `self_attn.{q,k,v,o}_proj`, and `q_norm` and `k_norm` where heads are normed. */
export function attentionWeights(at: LayerLayout, parts: AttentionWeights): void {
  const { hiddenSize, heads, kvHeads, headDim, bias, qkNorm, window } = parts;
  const names = parts.names ?? { output: 'o_proj', qNorm: 'q_norm', kNorm: 'k_norm' };
  const queriesOnly = parts.queriesOnly === true;
  const { block = 'self_attn' } = parts;
  const half = (which: 0 | 1): Pick<LayerPart, 'pick'> =>
    parts.gated === true ? { pick: { take: headDim, of: 2 * headDim, from: which * headDim } } : {};
  const keys: LayerPart = { tensor: `${block}.k_proj`, rows: kvHeads * headDim, bias: bias.qkv };
  const values: LayerPart =
    parts.sameKv === true ? { ...keys, again: true } : { ...keys, tensor: `${block}.v_proj` };
  at.matrix('attention', 'qkv', hiddenSize, [
    { tensor: `${block}.q_proj`, rows: heads * headDim, bias: bias.qkv, ...half(0) },
    ...(queriesOnly ? [] : [keys, values]),
  ]);
  if (parts.gated === true)
    at.matrix('attention', 'gate', hiddenSize, [
      { tensor: `${block}.q_proj`, rows: heads * headDim, ...half(1) },
    ]);
  at.matrix('attention', 'output', heads * headDim, [
    { tensor: `${block}.${names.output}`, rows: hiddenSize, bias: bias.output },
  ]);
  if (qkNorm) {
    at.norm('q-norm', `${block}.${names.qNorm}`, headDim);
    if (!queriesOnly) at.norm('k-norm', `${block}.${names.kNorm}`, headDim);
  }
  if (!queriesOnly) at.cache(parts, window);
}

export interface AttentionOptions extends AttentionShape {
  readonly qkNorm: boolean;
  readonly window: number | null;
  /** Key of the rotation; null where positions are not rotated. */
  readonly rope: string | null;
  /** Multiplies the scores. Default `1 / sqrt(headDim)`. */
  readonly scale?: number;
  /** Scores become `cap · tanh(score / cap)`. Default: they stay. */
  readonly softcap?: number | null;
  /** What becomes of q, k and v, side by side, before they are rotated. Default: nothing. */
  readonly prepare?: (qkv: Tensor) => Tensor;
  /** Where heads are normed: before they rotate or after. Default: before. */
  readonly normOrder?: HeadNorm['order'];
  /** Multiplies q by its position. Default: it stays. */
  readonly queryGrowth?: QueryGrowth | null;
  /** The layer has {@link sinkWeights}. Default false. */
  readonly sinks?: boolean;
  /** The layer whose keys and values are looked at, where it has none of its own. Default: itself. */
  readonly cacheOf?: number;
}

/** `self_attn.sinks`: one more score of each head, without a value. */
export function sinkWeights(at: LayerLayout, heads: number): void {
  at.vector('sinks', [{ name: 'self_attn.sinks', shape: [heads] }]);
}

/** Attends with normed hidden states. Returns `[tokens, heads · headDim]`, before the output matrix. */
export function attend(at: Layer, normed: Tensor, options: AttentionOptions): Tensor {
  const { heads, kvHeads, headDim, window, scale, softcap } = options;
  const shape = { heads, kvHeads, headDim };
  const { prepare = (qkv) => qkv, normOrder: order = 'before', queryGrowth = null } = options;
  const queriesOnly = options.cacheOf !== undefined;
  const layer = at.cacheOf(options.cacheOf ?? at.index, 'kv');
  const ownNorm = options.qkNorm ? at.vector('q-norm') : null;
  const norm = ownNorm && {
    q: ownNorm,
    k: queriesOnly ? ownNorm : at.vector('k-norm'),
    eps: at.eps,
    order,
  };
  const rope = options.rope === null ? null : at.rope(options.rope);
  const qkv = prepare(at.linear(normed, 'qkv'));
  const centre = at.centreOf(layer);
  const q = at.ops.ropeAppend(qkv, { layer, ...shape, norm, rope, queryGrowth, queriesOnly, centre });
  return at.ops.attend(q, {
    layer,
    ...shape,
    window,
    ahead: at.looksAhead(window),
    ...(options.sinks === true && { sinks: at.vector('sinks') }),
    ...(scale === undefined ? {} : { scale }),
    ...(softcap === undefined ? {} : { softcap }),
    ...(centre?.turns === true && rope !== null ? { centre: { ...centre, rope } } : {}),
  });
}

/** `attended · σ(gate(x))`, by element. */
export function outputGate(at: Layer, attended: Tensor, normed: Tensor): Tensor {
  return at.ops.gate(attended, at.linear(normed, 'gate'), 'sigmoid');
}
