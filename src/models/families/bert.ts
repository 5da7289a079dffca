/**
 * BERT, RoBERTa and XLM-RoBERTa (bge, e5, gte and others): encoders. Beside a Llama:
 *
 * - all tokens of a text see each other;
 * - positions are learnt, and added to the embedding with the row of the first token type; then comes a norm. RoBERTa's begin behind the
 *   padding's;
 * - layer norms with a bias stand behind attention and the MLP, `x = norm(x + …)`, and none behind the last layer;
 * - all matrices have a bias, and the MLP has no gate.
 *
 * Source: the model code of transformers (models/bert, models/xlm_roberta).
 */

import type { Tensor } from '../../device/graph.js';
import type { Ops } from '../../device/ops.js';
import { attend, attentionWeights } from '../blocks/attention.js';
import { biasKey } from '../blocks/keys.js';
import { decoderLayout } from '../blocks/layout-builder.js';
import { activated, plainMlpWeights } from '../blocks/plain-mlp.js';
import { type Layer, recordStack } from '../blocks/stack.js';
import { type DecoderConfig, type DecoderTraits, readDecoderConfig } from '../config.js';
import type { ConfigFields } from '../config-fields.js';
import type { Family, RecordOptions } from '../family.js';
import type { WeightLayout, Weights } from '../layout.js';

export interface BertConfig extends DecoderConfig {
  /** Rows of the table of positions, and that of the first token. */
  readonly positionRows: number;
  readonly firstPosition: number;
  readonly tokenTypes: number;
}

const TRAITS: DecoderTraits = {
  bias: () => ({ qkv: true, output: true, mlp: true }),
  qkNorm: false,
  window: () => null,
  slides: () => false,
  normEps: { name: 'layer_norm_eps', fallback: 1e-12 },
  defaults: { maxPositions: 512, ropeTheta: 10_000 },
};

const POSITIONS = 'positions';
/** Of embedding and positions together. */
export const EMBEDDING_NORM = 'embedding-norm';

function readConfig(given: ConfigFields, architecture: string, firstPosition: number): BertConfig {
  const fields = given.withDefaults({ hidden_act: 'gelu' });
  const positions = fields.text('position_embedding_type') ?? 'absolute';
  if (positions !== 'absolute')
    throw fields.unsupported(
      'position_embedding_type',
      `positions that are ${positions}`,
      'Use a BERT as published.',
    );
  if (fields.flag('is_decoder', false))
    throw fields.unsupported('is_decoder', 'a BERT that decodes', 'Use one that is an encoder.');
  const positionRows = fields.count('max_position_embeddings', TRAITS.defaults.maxPositions);
  const config = readDecoderConfig(fields, architecture, TRAITS);
  return {
    ...config,
    encoder: true,
    // The head of its training is no part of it.
    tied: true,
    maxPositions: positionRows - firstPosition,
    positionRows,
    firstPosition,
    tokenTypes: fields.count('type_vocab_size', 2),
  };
}

function layout(config: BertConfig): WeightLayout {
  const { hiddenSize, positionRows, firstPosition, tokenTypes, bias } = config;
  const at = 'model.embeddings.';
  return decoderLayout(config, {
    ropes: [],
    lastNorm: null,
    normBias: true,
    vectors: [
      {
        key: POSITIONS,
        parts: [
          { name: `${at}position_embeddings.weight`, shape: [positionRows, hiddenSize] },
          { name: `${at}token_type_embeddings.weight`, shape: [tokenTypes, hiddenSize] },
        ],
        // All tokens are of the first type. As many numbers as were stored: rows behind the last position are not read.
        make: (values) => {
          const first = firstPosition * hiddenSize;
          const types = positionRows * hiddenSize;
          const placed = new Float32Array(values.length);
          for (let i = 0; i < types - first; i++)
            placed[i] = values[first + i]! + values[types + (i % hiddenSize)]!;
          return placed;
        },
      },
      { key: EMBEDDING_NORM, parts: [{ name: `${at}LayerNorm.weight`, shape: [hiddenSize] }] },
      { key: biasKey(EMBEDDING_NORM), parts: [{ name: `${at}LayerNorm.bias`, shape: [hiddenSize] }] },
    ],
    harmless: HEADS,
    layer: (layer) => {
      attentionWeights(layer, { ...config, window: null });
      layer.norm('attention-norm', 'attention_norm', hiddenSize);
      plainMlpWeights(layer, { ...config, bias: bias.mlp });
      layer.norm('output-norm', 'output_norm', hiddenSize);
    },
  });
}

/** What stands behind the encoder for its training, and buffers. */
export const HEADS: readonly RegExp[] = [
  /^(cls|lm_head|classifier|head|decoder)\./,
  /(^|\.)pooler\./,
  /position_ids$/,
];

/** What encoders whose norms follow their sums do in their own way. */
export interface PostNorm {
  /** Key of the table whose row, by position, is added to the embedding. */
  readonly table: string;
  readonly rope: string | null;
  /** From the normed sum to what the second product of the MLP takes. */
  readonly inner: (at: Layer, normed: Tensor) => Tensor;
}

/** Returns the hidden states of all tokens: `[tokens, hidden]`. */
export function recordPostNorm(
  ops: Ops,
  config: DecoderConfig,
  weights: Weights,
  options: RecordOptions,
  { table, rope, inner }: PostNorm,
): Tensor {
  const { heads, kvHeads, headDim, normEps } = config;
  const attention = { heads, kvHeads, headDim, qkNorm: false, window: null, rope };
  return recordStack(
    ops,
    config,
    weights,
    { ...options, ahead: 'both' },
    {
      norms: { kind: 'layer', bias: true },
      lastNorm: false,
      embedded: (x) => {
        const sum = ops.addGathered(x, weights.vector(table), 'position');
        const bias = weights.vector(biasKey(EMBEDDING_NORM));
        return ops.layerNorm(sum, weights.vector(EMBEDDING_NORM), bias, normEps);
      },
      layer: (x, at) => {
        const attended = at.wanted(attend(at, x, attention));
        const sum = at.norm(at.linear(attended, 'output', at.wanted(x)), 'attention-norm');
        return at.norm(at.linear(inner(at, sum), 'down', sum), 'output-norm');
      },
    },
  );
}

function record(ops: Ops, config: BertConfig, weights: Weights, options: RecordOptions): Tensor {
  const inner: PostNorm['inner'] = (at, normed) => activated(at, normed, config.activation);
  return recordPostNorm(ops, config, weights, options, { table: POSITIONS, rope: null, inner });
}

export const bert: Family<BertConfig> = {
  name: 'bert',
  architectures: ['BertModel', 'BertForMaskedLM'],
  modelTypes: ['bert'],
  readConfig: (fields, architecture) => readConfig(fields, architecture, 0),
  layout,
  record,
};

export const roberta: Family<BertConfig> = {
  name: 'roberta',
  architectures: [
    'RobertaModel',
    'RobertaForMaskedLM',
    'RobertaForSequenceClassification',
    'XLMRobertaModel',
    'XLMRobertaForMaskedLM',
    'XLMRobertaForSequenceClassification',
  ],
  modelTypes: ['roberta', 'xlm-roberta'],
  readConfig: (fields, architecture) =>
    readConfig(fields, architecture, fields.count('pad_token_id', 1, 0) + 1),
  layout,
  record,
};
