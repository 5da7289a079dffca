import { describe, expect, it } from 'vitest';
import { parseModelConfig } from '../families.js';

const LITE = {
  architectures: ['DeepseekV2ForCausalLM'],
  vocab_size: 96,
  hidden_size: 64,
  intermediate_size: 96,
  num_hidden_layers: 2,
  num_attention_heads: 4,
  q_lora_rank: null,
  kv_lora_rank: 16,
  qk_rope_head_dim: 8,
  qk_nope_head_dim: 16,
  v_head_dim: 16,
  n_routed_experts: 4,
  n_shared_experts: 1,
  num_experts_per_tok: 3,
  moe_intermediate_size: 32,
  n_group: 3,
  topk_group: 1,
};

describe('deepseek_v2', () => {
  it('looks at no groups of experts where the best of all are chosen', () => {
    expect(parseModelConfig({ ...LITE, topk_method: 'greedy' }).facts.family).toBe('deepseek_v2');
    expect(() => parseModelConfig({ ...LITE, topk_method: 'group_limited_greedy' })).toThrow(
      expect.objectContaining({ code: 'model-config', where: 'n_group' }),
    );
  });
});
