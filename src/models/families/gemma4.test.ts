import { describe, expect, it } from 'vitest';
import { parseModelConfig } from '../families.js';
import { inspectModel } from '../inspect.js';
import { parameterCount } from '../layout.js';
import { RandomWeights } from '../shapes.js';

/** Of 31B, as far as its sizes go. */
const DENSE = {
  architectures: ['Gemma4ForConditionalGeneration'],
  model_type: 'gemma4',
  text_config: {
    model_type: 'gemma4_text',
    hidden_size: 5376,
    intermediate_size: 21_504,
    num_hidden_layers: 60,
    num_attention_heads: 32,
    num_key_value_heads: 16,
    num_global_key_value_heads: 4,
    attention_k_eq_v: true,
    head_dim: 256,
    global_head_dim: 512,
    hidden_size_per_layer_input: 0,
    sliding_window: 1024,
    vocab_size: 262_144,
  },
};
const SLIDING = 'sliding_attention';

function read(changes: Readonly<Record<string, unknown>> = {}) {
  return parseModelConfig({ ...DENSE, text_config: { ...DENSE.text_config, ...changes } });
}

describe('Gemma 4', () => {
  it('has wide heads, and few that hold keys, in layers that see all', () => {
    const { cache } = read().facts;
    expect(cache).toHaveLength(60);
    const all = { heads: 32, kvHeads: 4, headDim: 512, window: null };
    expect(cache[5]).toMatchObject(all);
    expect(cache[4]).toMatchObject({ heads: 32, kvHeads: 16, headDim: 256, window: 1024 });
    // Also as transformers 5 writes it, by layer.
    const by = (own: object) =>
      Object.fromEntries(Array.from({ length: 10 }, (_, i) => [String(6 * i + 5).padStart(2, '0'), own]));
    const layers = { per_layer_config: by({ head_dim: 128, num_key_value_heads: 8 }), global_head_dim: null };
    expect(read(layers).facts.cache[11]).toMatchObject({ headDim: 128, kvHeads: 8 });
    // There it leaves out what is as in the other layers, and means that by what is not there.
    const plain = { headDim: 256, kvHeads: 16 };
    expect(read({ per_layer_config: {} }).facts.cache[11]).toMatchObject(plain);
    const fewer = read({ per_layer_config: by({ num_key_value_heads: 8 }) });
    expect(fewer.facts.cache[11]).toMatchObject({ headDim: 256, kvHeads: 8 });
    expect(fewer.facts.cache[10]).toMatchObject(plain);
    for (const [own, name] of [
      [{ 5: { head_dim: 128 } }, '11'],
      [{ ...by({ head_dim: 128 }), 4: { head_dim: 64 } }, '4'],
      [by({ sliding_window: 4 }), '11'],
      [{ 60: { head_dim: 64 } }, '60'],
      [{ full: { head_dim: 64 } }, 'full'],
    ] as const)
      expect(() => read({ per_layer_config: own })).toThrow(
        expect.objectContaining({ code: 'model-config-unsupported', where: name }),
      );
    // Where values are their own there are as many of them as in the others.
    expect(read({ attention_k_eq_v: false }).facts.cache[5]).toMatchObject({ kvHeads: 16, headDim: 512 });
  });

  it('holds 3.5 GB of f16 at 32k tokens, where all positions of all layers were 29', () => {
    const { groups, kvBytesPerToken } = inspectModel(new RandomWeights(), read());
    const [full, sliding] = groups;
    expect([full!.window, sliding!.window]).toEqual([null, 1024]);
    const tokens = 32_768;
    const kept = tokens * full!.bytesPerToken + 1024 * sliding!.bytesPerToken;
    expect(kept).toBe(10 * tokens * 2 * 4 * 512 * 2 + 50 * 1024 * 2 * 16 * 256 * 2);
    expect(kept / 1e9).toBeCloseTo(3.5, 1);
    expect((tokens * kvBytesPerToken) / 1e9).toBeCloseTo(29.5, 1);
  });

  it('counts keys that are values once', () => {
    const count = (own: boolean): number => parameterCount(read({ attention_k_eq_v: own }).layout);
    // Ten layers: 16 heads of v, and 12 more of k.
    expect(count(false) - count(true)).toBe(10 * (16 + 12) * 512 * 5376);
  });

  it('sees all in its last layer, whatever the list says', () => {
    const { cache } = read({ layer_types: Array(60).fill(SLIDING) }).facts;
    expect(cache.map(({ window }) => window).indexOf(null)).toBe(59);
  });

  it('keeps nothing for layers that look at others, and passes over what files have for them', () => {
    const { layout, facts } = read({ num_kv_shared_layers: 20, attention_k_eq_v: false });
    expect(facts.cache).toHaveLength(40);
    const passed = (name: string): boolean => layout.harmless.some((pattern) => pattern.test(name));
    expect(passed('model.layers.40.self_attn.k_proj.weight')).toBe(true);
    expect(passed('model.layers.39.self_attn.k_proj.weight')).toBe(false);
    expect(() => read({ num_kv_shared_layers: 56 })).toThrow(/num_kv_shared_layers/);
  });

  it('has no embeddings of layers where a 12B does not speak of them', () => {
    const { hidden_size_per_layer_input: _, ...text } = DENSE.text_config;
    const config = { architectures: ['Gemma4UnifiedForConditionalGeneration'], model_type: 'gemma4_unified' };
    const unified = { ...config, text_config: { ...text, model_type: 'gemma4_unified_text' } };
    const keys = (model: object): string[] =>
      parseModelConfig(model as typeof DENSE).layout.matrices.map(({ key }) => key);
    expect(keys(unified)).not.toContain('per-layer-embedding');
    expect(keys({ ...DENSE, text_config: text })).toContain('per-layer-embedding');
  });

  it('refuses attention that looks ahead, but of pictures', () => {
    expect(() => read({ use_bidirectional_attention: 'all' })).toThrow(/looks ahead/);
    expect(read({ use_bidirectional_attention: 'vision' }).facts.family).toBe('gemma4');
  });
});
