import { describe, expect, it } from 'vitest';
import { parseModelConfig } from '../families.js';

const HYBRID = {
  architectures: ['NemotronHForCausalLM'],
  model_type: 'nemotron_h',
  vocab_size: 96,
  hidden_size: 64,
  intermediate_size: 96,
  num_hidden_layers: 3,
  num_attention_heads: 4,
  num_key_value_heads: 2,
  head_dim: 16,
  hybrid_override_pattern: 'M-*EM',
  mamba_num_heads: 8,
  mamba_head_dim: 8,
  n_groups: 2,
  ssm_state_size: 16,
  n_routed_experts: 4,
  moe_intermediate_size: 32,
  moe_shared_expert_intermediate_size: 48,
};

describe('nemotron_h', () => {
  it('has the layers of its pattern, whatever their number is said to be', () => {
    const { facts } = parseModelConfig(HYBRID);
    expect(facts).toMatchObject({ family: 'nemotron_h', layers: 5, rope: 'none' });
    expect(facts.cache.map(({ layer, state }) => [layer, state !== undefined])).toEqual([
      [0, true],
      [2, false],
      [4, true],
    ]);
    const listed = { ...HYBRID, layers_block_type: ['mamba', 'mlp', 'attention', 'moe', 'linear_attention'] };
    expect(parseModelConfig(listed).facts.identity).toBe(facts.identity);
  });

  it('may attend nowhere', () => {
    const { facts } = parseModelConfig({ ...HYBRID, hybrid_override_pattern: 'MM-' });
    expect(facts.cache.map(({ state }) => state !== undefined)).toEqual([true, true]);
  });

  it('takes what experts would have, where it has none', () => {
    const plain = { ...HYBRID, hybrid_override_pattern: 'M-*', moe_latent_size: 8, n_group: 2 };
    const { layout } = parseModelConfig(plain);
    expect(layout.matrices.some(({ key }) => key.includes('expert'))).toBe(false);
  });

  it.each([
    ['hybrid_override_pattern', 'MX*'],
    ['hybrid_override_pattern', '-E-'],
    ['mlp_hidden_act', 'silu'],
    ['mamba_hidden_act', 'gelu'],
    ['attention_bias', true],
    ['use_bias', true],
  ])('refuses "%s": %j', (name, value) => {
    expect(() => parseModelConfig({ ...HYBRID, [name]: value })).toThrow(
      expect.objectContaining({ code: 'model-config-unsupported', where: name }),
    );
  });
});
