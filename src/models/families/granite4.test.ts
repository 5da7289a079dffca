import { describe, expect, it } from 'vitest';
import { parseModelConfig } from '../families.js';

const DENSE = {
  architectures: ['GraniteMoeHybridForCausalLM'],
  vocab_size: 96,
  hidden_size: 64,
  intermediate_size: 128,
  shared_intermediate_size: 48,
  num_hidden_layers: 2,
  num_attention_heads: 4,
  num_local_experts: 0,
  layer_types: ['attention', 'full_attention'],
};

describe('granite4', () => {
  it('has the width of the shared MLP, and rotates only where it says so', () => {
    const plain = parseModelConfig(DENSE);
    expect(plain.facts).toMatchObject({ family: 'granite4', intermediateSize: 48, rope: 'none' });
    const rotated = parseModelConfig({ ...DENSE, position_embedding_type: 'rope' });
    expect(rotated.facts.rope).toBe('default, theta 10000');
  });

  it('has a state in layers of Mamba 2, and experts where it says so', () => {
    const hybrid = {
      ...DENSE,
      layer_types: ['mamba', 'attention'],
      mamba_n_heads: 8,
      mamba_d_state: 16,
      num_local_experts: 3,
    };
    const { facts, layout } = parseModelConfig(hybrid);
    const [state, kv] = facts.cache;
    expect(state).toMatchObject({
      layer: 0,
      state: { conv: { channels: 128 + 32, taps: 4 }, matrix: { heads: 8, rows: 16, cols: 16 } },
    });
    expect(kv).toMatchObject({ layer: 1, kvHeads: 4, headDim: 16 });
    expect(kv?.state).toBeUndefined();
    expect(layout.matrices.some(({ key }) => key === 'layers.0.expert-down')).toBe(true);
  });

  it('may attend nowhere, and does not where layers are not listed', () => {
    const hybrid = { ...DENSE, mamba_n_heads: 8, mamba_d_state: 16 };
    for (const layer_types of [['mamba', 'mamba'], undefined]) {
      const { facts } = parseModelConfig({ ...hybrid, layer_types });
      expect(facts.cache.map(({ state }) => state !== undefined)).toEqual([true, true]);
    }
  });

  it.each([
    ['layer_types', ['mamba', 'sliding_attention'], 'model-config-unsupported'],
    ['layer_types', ['mamba'], 'model-config'],
    ['hidden_act', 'gelu', 'model-config-unsupported'],
    ['mamba_proj_bias', true, 'model-config-unsupported'],
    ['mamba_n_groups', 3, 'model-config'],
    ['mamba_n_heads', 7, 'model-config'],
    ['mamba_d_head', 8, 'model-config'],
    ['mamba_d_state', 18, 'model-config-unsupported'],
    ['time_step_limit', [1, 0], 'model-config'],
    ['time_step_limit', 'all', 'model-config'],
    ['num_local_experts', 1, 'model-config'],
  ])('refuses "%s": %j', (name, value, code) => {
    const hybrid = { ...DENSE, layer_types: ['mamba', 'attention'], mamba_n_heads: 8, mamba_d_state: 16 };
    expect(() => parseModelConfig({ ...hybrid, [name]: value })).toThrow(expect.objectContaining({ code }));
  });

  it('reads limits of time steps that transformers writes as objects', () => {
    const limits = [0, { __float__: 'Infinity' }];
    const hybrid = { ...DENSE, layer_types: ['mamba', 'attention'], mamba_n_heads: 8, mamba_d_state: 16 };
    expect(parseModelConfig({ ...hybrid, time_step_limit: limits }).facts.identity).toEqual(
      parseModelConfig(hybrid).facts.identity,
    );
  });
});
