/**
 * nomic-bert (nomic-embed-text v1 and v1.5): an encoder. Beside a BERT:
 *
 * - positions are rotated, with a base of 1,000; only the first token type is added to the embedding;
 * - the MLP has a gate, `down(silu(gate(x)) · up(x))`, and no matrix has a bias.
 *
 * Its config goes by GPT-2's names, or by those of transformers. Source: the model code of transformers (models/nomic_bert).
 */

import type { Tensor } from '../../device/graph.js';
import type { Ops } from '../../device/ops.js';
import { gated, gatedMlpWeights } from '../blocks/gated-mlp.js';
import { biasKey } from '../blocks/keys.js';
import { decoderLayout } from '../blocks/layout-builder.js';
import { type DecoderConfig, type DecoderTraits, readDecoderConfig } from '../config.js';
import type { ConfigFields } from '../config-fields.js';
import type { Family, RecordOptions } from '../family.js';
import type { WeightLayout, Weights } from '../layout.js';
import { EMBEDDING_NORM, HEADS, type PostNorm, recordPostNorm } from './bert.js';
import { ROPE } from './pre-norm.js';

export interface NomicBertConfig extends DecoderConfig {
  readonly tokenTypes: number;
}

/** GPT-2's names for what others call so. */
const NAMES: Readonly<Record<string, string>> = {
  n_embd: 'hidden_size',
  n_layer: 'num_hidden_layers',
  n_head: 'num_attention_heads',
  n_inner: 'intermediate_size',
  n_positions: 'max_position_embeddings',
  layer_norm_epsilon: 'layer_norm_eps',
  rotary_emb_base: 'rope_theta',
};

const TRAITS: DecoderTraits = {
  bias: () => ({ qkv: false, output: false, mlp: false }),
  qkNorm: false,
  window: () => null,
  slides: () => false,
  normEps: { name: 'layer_norm_eps', fallback: 1e-12 },
  defaults: { maxPositions: 2048, ropeTheta: 1000 },
};

/** What every published one has: with any other value it would be another model. */
const AS_PUBLISHED: Readonly<Record<string, unknown>> = {
  activation_function: 'swiglu',
  prenorm: false,
  parallel_block: false,
  qkv_proj_bias: false,
  mlp_fc1_bias: false,
  mlp_fc2_bias: false,
  rotary_emb_fraction: 1,
  rotary_emb_interleaved: false,
  use_rms_norm: false,
  causal: false,
};

const TYPES = 'token-types';

function readConfig(stated: ConfigFields, architecture: string): NomicBertConfig {
  for (const [name, value] of Object.entries(AS_PUBLISHED)) {
    const given = stated.value(name);
    if (given !== undefined && given !== null && given !== value)
      throw stated.unsupported(
        name,
        `"${name}": ${JSON.stringify(given)} in a nomic-bert`,
        `Use a checkpoint as published, with ${JSON.stringify(value)}.`,
      );
  }
  if ((stated.positiveOrNull('moe_every_n_layers') ?? 0) > 0)
    throw stated.unsupported(
      'moe_every_n_layers',
      'experts in a nomic-bert',
      'Use nomic-embed-text v1 or v1.5.',
    );
  let fields = stated.withDefaults({ hidden_act: 'silu' });
  for (const [gpt, name] of Object.entries(NAMES))
    if (stated.has(gpt) && !stated.has(name)) fields = fields.replacing(name, stated.value(gpt));
  return {
    ...readDecoderConfig(fields, architecture, TRAITS),
    encoder: true,
    tied: true,
    tokenTypes: fields.count('type_vocab_size', 2),
  };
}

function layout(config: NomicBertConfig): WeightLayout {
  const { hiddenSize, heads, headDim, tokenTypes, bias } = config;
  const at = 'model.embeddings.';
  return decoderLayout(config, {
    ropes: [{ key: ROPE, parameters: config.rope, dims: config.rotaryDims }],
    lastNorm: null,
    normBias: true,
    vectors: [
      {
        key: TYPES,
        parts: [{ name: `${at}token_type_embeddings.weight`, shape: [tokenTypes, hiddenSize] }],
        // All tokens are of the first type: each row is its.
        make: (values) => values.map((_, i) => values[i % hiddenSize]!),
      },
      { key: EMBEDDING_NORM, parts: [{ name: `${at}LayerNorm.weight`, shape: [hiddenSize] }] },
      { key: biasKey(EMBEDDING_NORM), parts: [{ name: `${at}LayerNorm.bias`, shape: [hiddenSize] }] },
    ],
    harmless: HEADS,
    layer: (layer) => {
      const qkv = { tensor: 'self_attn.Wqkv', rows: 3 * heads * headDim };
      layer.matrix('attention', 'qkv', hiddenSize, [qkv]);
      layer.matrix('attention', 'output', heads * headDim, [
        { tensor: 'self_attn.o_proj', rows: hiddenSize },
      ]);
      layer.cache(config, null);
      layer.norm('attention-norm', 'attention_norm', hiddenSize);
      gatedMlpWeights(layer, { ...config, bias: bias.mlp });
      layer.norm('output-norm', 'output_norm', hiddenSize);
    },
  });
}

function record(ops: Ops, config: NomicBertConfig, weights: Weights, options: RecordOptions): Tensor {
  const inner: PostNorm['inner'] = (at, normed) => gated(at, normed, config.activation);
  return recordPostNorm(ops, config, weights, options, { table: TYPES, rope: ROPE, inner });
}

export const nomicBert: Family<NomicBertConfig> = {
  name: 'nomic-bert',
  architectures: ['NomicBertModel', 'NomicBertForMaskedLM'],
  modelTypes: ['nomic_bert'],
  readConfig,
  layout,
  record,
};
