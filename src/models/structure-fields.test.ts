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
    };
    expect(parseModelConfig({ ...LLAMA, ...more }).facts.identity).toBe(plain);
  });
});
