import { describe, expect, it } from 'vitest';
import { parseModelConfig } from '../families.js';

const SIZES = {
  architectures: ['Olmo3ForCausalLM'],
  vocab_size: 96,
  hidden_size: 64,
  intermediate_size: 128,
  num_hidden_layers: 4,
  num_attention_heads: 4,
};

const read = (fields: object) => {
  const { facts } = parseModelConfig({ ...SIZES, ...fields });
  const { rope, slidingRope } = JSON.parse(facts.identity);
  return { rope, slidingRope, windows: facts.cache.map(({ window }) => window) };
};

describe('olmo3', () => {
  it('slides in three layers of four, where a config does not list them', () => {
    expect(read({}).windows).toEqual([4096, 4096, 4096, null]);
    expect(read({ sliding_window: 7 }).windows).toEqual([7, 7, 7, null]);
  });

  it('scales the rotation of full layers alone, however a config says so', () => {
    const yarn = { rope_type: 'yarn', factor: 8, original_max_position_embeddings: 128 };
    const plain = { type: 'default', theta: 500_000 };
    const nested = {
      rope_parameters: { full_attention: { ...yarn, rope_theta: 7 }, sliding_attention: { rope_theta: 5 } },
    };
    expect(read(nested)).toMatchObject({
      rope: { type: 'yarn', factor: 8, theta: 7 },
      slidingRope: { type: 'default', theta: 5 },
    });
    expect(read({ rope_theta: 500_000, rope_scaling: yarn })).toMatchObject({
      rope: { type: 'yarn', theta: 500_000 },
      slidingRope: plain,
    });
    const { rope_parameters } = nested;
    const both = { rope_parameters, rope_scaling: { rope_type: 'linear', factor: 2 } };
    expect(read(both)).toMatchObject({
      rope: { type: 'linear', factor: 2, theta: 7 },
      slidingRope: { theta: 5 },
    });
    expect(read({})).toMatchObject({ rope: plain, slidingRope: plain });
  });

  it('refuses a rotation that is not said to be of which layers', () => {
    expect(() => read({ rope_theta: 10_000 })).toThrow(
      expect.objectContaining({ code: 'model-config-unsupported', where: 'rope_theta' }),
    );
    expect(() => read({ rope_parameters: { rope_type: 'default', rope_theta: 1e4 } })).toThrow(
      expect.objectContaining({ code: 'model-config', where: 'rope_parameters' }),
    );
  });
});
