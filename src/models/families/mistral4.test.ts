import { describe, expect, it } from 'vitest';
import { parseModelConfig } from '../families.js';

const TINY = {
  architectures: ['Mistral4ForCausalLM'],
  vocab_size: 96,
  hidden_size: 64,
  intermediate_size: 96,
  num_hidden_layers: 1,
  num_attention_heads: 4,
  q_lora_rank: 16,
  kv_lora_rank: 16,
  qk_rope_head_dim: 8,
  qk_nope_head_dim: 24,
  v_head_dim: 16,
  n_routed_experts: 4,
  num_experts_per_tok: 2,
  moe_intermediate_size: 32,
};
const YARN = { rope_type: 'yarn', factor: 4, original_max_position_embeddings: 16 };

describe('mistral4', () => {
  it.each([
    [
      'among the fields of the rotation',
      (factor: number) => ({
        rope_parameters: { ...YARN, rope_theta: 1e4, partial_rotary_factor: factor },
      }),
    ],
    [
      'beside them',
      (factor: number) => ({ rope_theta: 1e4, rope_scaling: YARN, partial_rotary_factor: factor }),
    ],
  ])('has a part of a head that rotates, as the factor says %s', (_, stated) => {
    const { facts } = parseModelConfig({ ...TINY, ...stated(0.25) });
    expect(facts).toMatchObject({ family: 'mistral4', rope: expect.stringContaining('yarn') });
    expect(() => parseModelConfig({ ...TINY, ...stated(0.5) })).toThrow(
      expect.objectContaining({
        code: 'model-config',
        where: expect.stringContaining('partial_rotary_factor'),
      }),
    );
  });
});
