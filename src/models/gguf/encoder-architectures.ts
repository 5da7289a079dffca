/**
 * The architectures of GGUF files that are encoders, for embeddings. Files of RoBERTa and XLM-R are a `bert`: rows of positions that
 * stand before the first token's are left out.
 *
 * Source: what llama.cpp's converters write for each architecture (conversion/bert.py), and what its graphs take for granted.
 */

import type { JsonObject } from '../../weights/folder-files.js';
import type { GgufArchitecture, MetadataReader } from './architecture.js';

const EMBEDDINGS = 'model.embeddings';
const TOP = {
  token_embd_norm: `${EMBEDDINGS}.LayerNorm`,
  token_types: `${EMBEDDINGS}.token_type_embeddings`,
  position_embd: `${EMBEDDINGS}.position_embeddings`,
};
const POST_NORM = { attn_output_norm: 'attention_norm', layer_output_norm: 'output_norm' };
/** An encoder looks ahead. */
const READS = ['attention.causal'];
const DEFAULT_EVERY = 3;
const LOCAL_THETA = 10_000;

export const ENCODER_ARCHITECTURES: readonly GgufArchitecture[] = [
  {
    name: 'bert',
    modelType: 'bert',
    className: 'BertModel',
    names: POST_NORM,
    topNames: TOP,
    layerNormEps: 'layer_norm_eps',
    reads: READS,
    fields: (read) => ({
      max_position_embeddings: read.rows('position_embd.weight') ?? null,
      type_vocab_size: tokenTypes(read),
    }),
  },
  {
    name: 'nomic-bert',
    modelType: 'nomic_bert',
    className: 'NomicBertModel',
    names: { ...POST_NORM, attn_qkv: 'self_attn.Wqkv' },
    topNames: TOP,
    layerNormEps: 'layer_norm_eps',
    reads: READS,
    fields: (read) => ({ type_vocab_size: tokenTypes(read) }),
  },
  {
    name: 'modern-bert',
    modelType: 'modernbert',
    className: 'ModernBertModel',
    names: {
      attn_norm: 'attn_norm',
      attn_qkv: 'self_attn.Wqkv',
      ffn_norm: 'mlp_norm',
      ffn_up: 'mlp.Wi',
    },
    topNames: { token_embd_norm: `${EMBEDDINGS}.norm` },
    layerNormEps: 'norm_eps',
    reads: [...READS, 'rope.freq_base_swa'],
    fields: modern,
  },
];

/** One where the file has a list of numbers. */
function tokenTypes(read: MetadataReader): number {
  const rows = read.rows('token_types.weight') ?? 1;
  return rows === read.hidden ? 1 : rows;
}

function modern(read: MetadataReader, { rope_theta }: JsonObject): JsonObject {
  const every = read.pattern('attention.sliding_window_pattern') ?? DEFAULT_EVERY;
  const second = typeof every === 'number' ? every : every.indexOf(false, 1);
  return {
    local_attention: read.count('attention.sliding_window') ?? null,
    // Of a list: how far it is to the second layer that does not slide.
    global_attn_every_n_layers: second < 0 ? read.layers : second,
    global_rope_theta: rope_theta,
    local_rope_theta: read.number('rope.freq_base_swa') ?? LOCAL_THETA,
    hidden_activation: read.text('hidden_activation') ?? 'gelu',
  };
}
