import { describe, expect, it } from 'vitest';
import { parseModelConfig } from '../families.js';

const SIZES = {
  architectures: ['Cohere2ForCausalLM'],
  vocab_size: 96,
  hidden_size: 64,
  intermediate_size: 128,
  num_hidden_layers: 4,
  num_attention_heads: 4,
};

const windows = (fields: object) =>
  parseModelConfig({ ...SIZES, ...fields }).facts.cache.map(({ window }) => window);

describe('cohere2', () => {
  it('slides in three layers of four, by a pattern or by a list', () => {
    expect(windows({})).toEqual([4096, 4096, 4096, null]);
    expect(windows({ sliding_window: 5, sliding_window_pattern: 2 })).toEqual([5, null, 5, null]);
    const layer_types = ['full_attention', ...Array(3).fill('sliding_attention')];
    expect(windows({ layer_types, sliding_window_pattern: 2 })).toEqual([null, 4096, 4096, 4096]);
    expect(() => windows({ sliding_window: null })).toThrow(
      expect.objectContaining({ code: 'model-config', where: 'sliding_window' }),
    );
  });

  it('means a tied head, a scale of logits and its own ε where a config leaves them out', () => {
    const { facts } = parseModelConfig(SIZES);
    expect(JSON.parse(facts.identity)).toMatchObject({ tied: true, logitScale: 0.0625, normEps: 1e-5 });
  });

  it('refuses norms of q and k, which only the first Cohere has', () => {
    expect(() => windows({ use_qk_norm: true })).toThrow(expect.objectContaining({ where: 'use_qk_norm' }));
    const first = { ...SIZES, architectures: ['CohereForCausalLM'], use_qk_norm: true };
    const { vectors } = parseModelConfig(first).layout;
    expect(vectors.find(({ key }) => key === 'layers.0.q-norm')?.parts[0]?.shape).toEqual([4, 16]);
  });
});
