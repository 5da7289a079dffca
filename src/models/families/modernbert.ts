/**
 * ModernBERT: an encoder. Beside a Llama:
 *
 * - all tokens of a text see each other: in every third layer all, in the others those within half of `local_attention` on each side. Each
 *   kind has a rotation of its own;
 * - layer norms, mostly without a bias: behind the embedding, before attention (but for the first layer) and the MLP, and behind the last layer;
 * - q, k and v are one tensor, and so are gate and up.
 *
 * Source: the model code of transformers (models/modernbert).
 */

import type { Tensor } from '../../device/graph.js';
import type { Ops } from '../../device/ops.js';
import { attend } from '../blocks/attention.js';
import { gated } from '../blocks/gated-mlp.js';
import { biasKey } from '../blocks/keys.js';
import { decoderLayout } from '../blocks/layout-builder.js';
import { recordStack } from '../blocks/stack.js';
import { type DecoderConfig, type DecoderTraits, readDecoderConfig } from '../config.js';
import type { ConfigFields } from '../config-fields.js';
import type { Family, RecordOptions } from '../family.js';
import type { WeightLayout, Weights } from '../layout.js';
import { parseRope } from '../rope-config.js';
import type { RopeParameters } from '../rope-frequencies.js';
import { EMBEDDING_NORM, HEADS } from './bert.js';

export interface ModernBertConfig extends DecoderConfig {
  /** Rotation of the layers that slide; `rope` is that of the others. */
  readonly slidingRope: RopeParameters;
  readonly normBias: boolean;
}

const DEFAULT_EVERY = 3;
const GLOBAL_THETA = 160_000;
const LOCAL_THETA = 10_000;

const TRAITS: DecoderTraits = {
  bias: (fields) => {
    const attention = fields.flag('attention_bias', false);
    return { qkv: attention, output: attention, mlp: fields.flag('mlp_bias', false) };
  },
  qkNorm: false,
  // It counts both sides, and not the token itself.
  window: (fields) => Math.floor(fields.count('local_attention', 128) / 2) + 1,
  slides: (fields, layer) => layer % fields.count('global_attn_every_n_layers', DEFAULT_EVERY) !== 0,
  normEps: { name: 'norm_eps', fallback: 1e-5 },
  defaults: { maxPositions: 8192, ropeTheta: GLOBAL_THETA },
};

const FULL_ROPE = 'full';
const SLIDING_ROPE = 'sliding';

function readConfig(stated: ConfigFields, architecture: string): ModernBertConfig {
  const fields = stated.withDefaults({ hidden_activation: 'gelu' }).replacing('hidden_act', null);
  const parameters = fields.object('rope_parameters');
  const rope = (kind: string, name: string, theta: number): ConfigFields =>
    fields
      .replacing('rope_parameters', {
        rope_type: 'default',
        rope_theta: fields.positiveOrNull(name) ?? theta,
        ...parameters?.object(kind)?.json,
      })
      .replacing('rope_theta', null)
      .replacing('rope_scaling', null);
  const config = readDecoderConfig(
    rope('full_attention', 'global_rope_theta', GLOBAL_THETA),
    architecture,
    TRAITS,
  );
  const local = rope('sliding_attention', 'local_rope_theta', LOCAL_THETA);
  return {
    ...config,
    encoder: true,
    // The head of its training is no part of it.
    tied: true,
    slidingRope: parseRope(local, config.maxPositions, LOCAL_THETA, config.rotaryDims),
    normBias: fields.flag('norm_bias', false),
  };
}

function layout(config: ModernBertConfig): WeightLayout {
  const { hiddenSize, intermediateSize, heads, headDim, bias, normBias, windows } = config;
  const at = 'model.embeddings.norm';
  return decoderLayout(config, {
    ropes: [
      { key: FULL_ROPE, parameters: config.rope, dims: config.rotaryDims },
      { key: SLIDING_ROPE, parameters: config.slidingRope, dims: config.rotaryDims },
    ],
    normBias,
    vectors: [
      { key: EMBEDDING_NORM, parts: [{ name: `${at}.weight`, shape: [hiddenSize] }] },
      ...(normBias
        ? [{ key: biasKey(EMBEDDING_NORM), parts: [{ name: `${at}.bias`, shape: [hiddenSize] }] }]
        : []),
    ],
    harmless: HEADS,
    layer: (layer) => {
      if (layer.index > 0) layer.norm('input-norm', 'attn_norm', hiddenSize);
      const qkv = { tensor: 'self_attn.Wqkv', rows: 3 * heads * headDim, bias: bias.qkv };
      layer.matrix('attention', 'qkv', hiddenSize, [qkv]);
      const output = { tensor: 'self_attn.o_proj', rows: hiddenSize, bias: bias.output };
      layer.matrix('attention', 'output', heads * headDim, [output]);
      layer.cache(config, windows[layer.index] ?? null);
      layer.norm('mlp-norm', 'mlp_norm', hiddenSize);
      const gateUp = { tensor: 'mlp.Wi', rows: 2 * intermediateSize, bias: bias.mlp };
      layer.matrix('mlp', 'gate-up', hiddenSize, [gateUp]);
      layer.matrix('mlp', 'down', intermediateSize, [
        { tensor: 'mlp.down_proj', rows: hiddenSize, bias: bias.mlp },
      ]);
    },
  });
}

/** Returns the hidden states of all tokens: `[tokens, hidden]`. */
function record(ops: Ops, config: ModernBertConfig, weights: Weights, options: RecordOptions): Tensor {
  const { heads, kvHeads, headDim, qkNorm, windows, activation, normEps, normBias } = config;
  return recordStack(
    ops,
    config,
    weights,
    { ...options, ahead: 'both' },
    {
      norms: { kind: 'layer', bias: normBias },
      embedded: (x) => {
        const offset = normBias ? weights.vector(biasKey(EMBEDDING_NORM)) : null;
        return ops.layerNorm(x, weights.vector(EMBEDDING_NORM), offset, normEps);
      },
      layer: (x, at) => {
        const window = windows[at.index] ?? null;
        const rope = window === null ? FULL_ROPE : SLIDING_ROPE;
        const normed = at.index === 0 ? x : at.norm(x, 'input-norm');
        const attended = at.wanted(attend(at, normed, { heads, kvHeads, headDim, qkNorm, window, rope }));
        const sum = at.linear(attended, 'output', at.wanted(x));
        return at.linear(gated(at, at.norm(sum, 'mlp-norm'), activation), 'down', sum);
      },
    },
  );
}

export const modernBert: Family<ModernBertConfig> = {
  name: 'modernbert',
  architectures: ['ModernBertModel', 'ModernBertForMaskedLM', 'ModernBertForSequenceClassification'],
  modelTypes: ['modernbert'],
  readConfig,
  layout,
  record,
};
