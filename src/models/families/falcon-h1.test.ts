import { describe, expect, it } from 'vitest';
import { parseModelConfig } from '../families.js';

const FALCON = {
  architectures: ['FalconH1ForCausalLM'],
  vocab_size: 96,
  hidden_size: 64,
  intermediate_size: 96,
  num_hidden_layers: 2,
  num_attention_heads: 4,
  num_key_value_heads: 2,
  mamba_d_ssm: 48,
  mamba_n_heads: 6,
  mamba_d_state: 16,
};

describe('falcon_h1', () => {
  it('has keys and values and a state in each layer', () => {
    const { cache } = parseModelConfig(FALCON).facts;
    expect(cache.map(({ layer, state }) => [layer, state !== undefined])).toEqual([
      [0, false],
      [0, true],
      [1, false],
      [1, true],
    ]);
    expect(cache[1]!.state).toEqual({
      conv: { channels: 48 + 32, taps: 4 },
      matrix: { heads: 6, rows: 16, cols: 8 },
    });
  });

  it('takes the width of Mamba from hidden_size where mamba_d_ssm is null', () => {
    const { cache } = parseModelConfig({ ...FALCON, mamba_d_ssm: null, mamba_n_heads: 8 }).facts;
    expect(cache[1]!.state!.matrix).toEqual({ heads: 8, rows: 16, cols: 16 });
  });

  it.each([
    ['hidden_act', 'gelu', 'model-config-unsupported'],
    ['projectors_bias', true, 'model-config-unsupported'],
    ['mlp_multipliers', [1], 'model-config'],
    ['ssm_multipliers', [1, 1, 1, 1, 0], 'model-config'],
    ['ssm_multipliers', 'ones', 'model-config'],
    ['key_multiplier', 0, 'model-config'],
  ])('refuses "%s": %j', (name, value, code) => {
    expect(() => parseModelConfig({ ...FALCON, [name]: value })).toThrow(
      expect.objectContaining({ code, where: name }),
    );
  });
});
