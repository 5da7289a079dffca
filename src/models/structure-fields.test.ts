/** Structure that a family knows nothing of is refused by its field; values that change nothing are not. */
import { describe, expect, it } from 'vitest';
import type { JsonObject } from '../weights/folder-files.js';
import { parseModelConfig } from './families.js';

const LLAMA: JsonObject = {
  architectures: ['LlamaForCausalLM'],
  vocab_size: 64,
  hidden_size: 32,
  intermediate_size: 64,
  num_hidden_layers: 2,
  num_attention_heads: 4,
  num_key_value_heads: 2,
};

describe('structure fields', () => {
  it.each([
    ['layer_types', ['full_attention', 'linear_attention']],
    ['mlp_layer_types', ['dense', 'sparse']],
    ['is_causal', false],
    ['use_bidirectional_attention', true],
    ['index_topk', 2048],
    ['compress_ratios', [4, 128]],
    ['linear_attn_config', { kda_layers: [1] }],
    ['hc_mult', 4],
    ['altup_num_inputs', 4],
    ['activation_sparsity_pattern', [0.95, 0]],
    ['scoring_func', 'sqrtsoftplus'],
    ['topk_method', 'hash'],
    ['n_group', 8],
    // As no family spells it.
    ['mhc_num_streams', 4],
    ['num_residual_streams', 4],
    ['use_hyper_connections', true],
    ['indexer_topk', 64],
    ['use_moba', true],
    ['sparse_attention', true],
    ['linear_attention_config', { kernel: 4 }],
    ['attention_sinks', true],
    ['attn_output_gate', true],
    ['kv_sharing', true],
    ['scoring_function', 'tanh'],
    ['router_activation', 'relu'],
    ['moe_router_activation_func', 'tanh'],
    ['position_embedding_type', 'alibi'],
    ['block_types', ['a', 'b']],
    ['kv_heads_of_layer', [2, 1]],
  ])('refuses "%s": %j', (name, value) => {
    expect(() => parseModelConfig({ ...LLAMA, [name]: value })).toThrow(
      expect.objectContaining({ code: 'model-config-unsupported', where: name }),
    );
  });

  it('takes values that change nothing', () => {
    const plain = parseModelConfig(LLAMA).facts.identity;
    const more = {
      layer_types: ['full_attention', 'full_attention'],
      mlp_layer_types: ['dense', 'dense'],
      is_causal: true,
      use_bidirectional_attention: false,
      index_topk: null,
      hc_mult: 1,
      activation_sparsity_pattern: [0, 0],
      scoring_func: 'softmax',
      n_group: 1,
      num_residual_streams: 1,
      use_moba: false,
      indexer_topk: null,
      attention_sinks: false,
      cross_attention_layers: [],
      scoring_function: 'sigmoid',
      position_embedding_type: 'rope',
      // Of layers that draft, and of training.
      num_nextn_predict_layers: 1,
      mtp_layers_block_type: ['attention', 'moe'],
      router_aux_loss_coef: 0.001,
      router_jitter_noise: 0.1,
      output_router_logits: false,
      block_types: ['a', 'a'],
      attention_layers: [0, 1],
    };
    expect(parseModelConfig({ ...LLAMA, ...more }).facts.identity).toBe(plain);
  });

  it.each([
    ['Ministral3ForCausalLM', 'layer_types', {}],
    ['FalconH1ForCausalLM', 'layer_types', { mamba_d_ssm: 32, mamba_n_heads: 2 }],
    ['NemotronHForCausalLM', 'layer_types', { layers_block_type: ['mamba', 'attention'] }],
  ])('refuses an unknown layer of %s in its list', (name, field, more) => {
    expect(() =>
      parseModelConfig({ ...LLAMA, ...more, architectures: [name], [field]: ['full_attention', 'zebra'] }),
    ).toThrow(expect.objectContaining({ where: field, message: expect.stringContaining('zebra') }));
  });
});
