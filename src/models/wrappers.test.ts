import { describe, expect, it } from 'vitest';
import { parseModelConfig } from './families.js';

const TEXT = {
  vocab_size: 1000,
  hidden_size: 64,
  intermediate_size: 128,
  num_hidden_layers: 2,
  num_attention_heads: 4,
};
const MROPE = { type: 'mrope', mrope_section: [2, 3, 3] };

describe.each([
  ['Qwen2VLForConditionalGeneration', 'qwen2_vl'],
  ['Qwen2_5_VLForConditionalGeneration', 'qwen2_5_vl'],
])('%s', (architecture, modelType) => {
  const read = (fields: Record<string, unknown>) =>
    parseModelConfig({ architectures: [architecture], model_type: modelType, ...fields }).facts;

  it('means what its own config class does by fields that are left out, nested and flat', () => {
    const flat = read(TEXT);
    // Of the config classes in transformers; a Qwen2 means 1e-6 and 10000.
    expect(JSON.parse(flat.identity)).toMatchObject({ normEps: 1e-5, rope: { theta: 1e6 } });
    expect(read({ text_config: { ...TEXT, model_type: `${modelType}_text` } })).toEqual(flat);
    const sliding = read({ ...TEXT, num_hidden_layers: 81, use_sliding_window: true, sliding_window: 32 });
    expect(sliding.cache.map(({ window }) => window)).toEqual([...new Array(80).fill(null), 32]);
    const none = read({ ...TEXT, max_window_layers: 0, use_sliding_window: true, sliding_window: null });
    expect(none.cache.map(({ window }) => window)).toEqual([null, null]);
  });

  it('takes the rotation of three axes as that of text, in either object', () => {
    const old = read({ ...TEXT, rope_theta: 5e5, rope_scaling: MROPE });
    const parameters = read({ ...TEXT, rope_parameters: { ...MROPE, rope_theta: 5e5 } });
    expect([old.rope, parameters.rope]).toEqual(['default, theta 500000', 'default, theta 500000']);
  });
});

describe('Qwen3VLMoeForConditionalGeneration', () => {
  it('has weights of experts that sum to 1, whatever its config says', () => {
    const wrapper = { architectures: ['Qwen3VLMoeForConditionalGeneration'], model_type: 'qwen3_vl_moe' };
    const read = (fields: Record<string, unknown>) => {
      const text = { ...TEXT, model_type: 'qwen3_vl_moe_text', num_experts: 4, ...fields };
      return parseModelConfig({ ...wrapper, text_config: text }).facts;
    };
    const stated = read({ norm_topk_prob: true });
    expect(stated.family).toBe('qwen3_moe');
    for (const fields of [{}, { norm_topk_prob: false }]) expect(read(fields)).toEqual(stated);
  });
});

describe('LlavaForConditionalGeneration', () => {
  const llava = { architectures: ['LlavaForConditionalGeneration'], model_type: 'llava' };

  it('has the sizes of a Llama or a Mistral of 7B where its config leaves them out', () => {
    const read = (text: Record<string, unknown>) => parseModelConfig({ ...llava, text_config: text }).facts;
    expect(read({ model_type: 'llama', vocab_size: 32064 })).toMatchObject({
      family: 'llama',
      layers: 32,
      hiddenSize: 4096,
      intermediateSize: 11008,
      kvHeads: 32,
    });
    const mistral = read({ model_type: 'mistral', vocab_size: 32064, num_hidden_layers: 2 });
    expect(mistral).toMatchObject({ layers: 2, hiddenSize: 4096, intermediateSize: 14336, kvHeads: 8 });
  });
});

describe('Kimi', () => {
  const latent = {
    kv_lora_rank: 16,
    q_lora_rank: null,
    qk_rope_head_dim: 8,
    qk_nope_head_dim: 8,
    v_head_dim: 8,
  };
  const experts = {
    n_routed_experts: 4,
    num_experts_per_tok: 2,
    moe_intermediate_size: 32,
    n_group: 1,
    topk_group: 1,
  };
  const text = { ...TEXT, ...latent, ...experts };

  it.each([
    ['KimiK25ForConditionalGeneration', 'kimi_k25', 'kimi_k2'],
    ['Kimi_K25ForConditionalGeneration', 'kimi_k25', 'deepseek_v3'],
    ['KimiVLForConditionalGeneration', 'kimi_vl', 'deepseek_v3'],
  ])('%s has a DeepSeek V3, and what sees is left out', (architecture, modelType, own) => {
    const text_config = { ...text, model_type: own };
    const config = { architectures: [architecture], model_type: modelType, vision_config: {}, text_config };
    const { facts, vision } = parseModelConfig(config);
    expect([facts.family, vision]).toEqual(['deepseek_v3', null]);
    const { facts: plain } = parseModelConfig({ ...text, architectures: ['DeepseekV3ForCausalLM'] });
    expect(JSON.parse(facts.identity)).toMatchObject({ latent: JSON.parse(plain.identity).latent });
  });
});

describe('a decoder in a wrapper', () => {
  // Of the config classes in transformers 5.24, read from a text_config without these fields.
  it.each([
    ['Glm4vForConditionalGeneration', 'glm4v_text', 1e-5, 32_768],
    ['GlmOcrForConditionalGeneration', 'glm_ocr_text', 1e-5, 131_072],
    ['Qwen3VLForConditionalGeneration', 'qwen3_vl_text', 1e-6, 128_000],
    ['Qwen3VLMoeForConditionalGeneration', 'qwen3_vl_moe_text', 1e-6, 128_000],
    ['Idefics3ForConditionalGeneration', 'llama', 1e-6, 2048],
    ['SmolVLMForConditionalGeneration', 'llama', 1e-6, 2048],
  ])(
    '%s means what its own class does by an ε and a length that are left out',
    (wrapper, type, normEps, length) => {
      const { identity, maxPositions } = parseModelConfig({
        architectures: [wrapper],
        text_config: {
          ...TEXT,
          model_type: type,
          num_key_value_heads: 2,
          ...(type.includes('moe') ? { num_experts: 4 } : {}),
        },
      }).facts;
      expect(JSON.parse(identity)).toMatchObject({ normEps });
      expect(maxPositions).toBe(length);
    },
  );
});
