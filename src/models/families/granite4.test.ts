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

  it.each([
    ['num_local_experts', 1],
    ['num_local_experts', undefined],
    ['layer_types', ['mamba', 'attention']],
    ['layer_types', undefined],
  ])('refuses "%s": %j', (name, value) => {
    expect(() => parseModelConfig({ ...DENSE, [name]: value })).toThrow(
      expect.objectContaining({ code: 'model-config-unsupported', where: name }),
    );
  });
});
