import { describe, expect, it } from 'vitest';
import type { KvantError } from '../errors.js';
import type { JsonObject } from '../weights/folder-files.js';
import type { DecoderConfig } from './config.js';
import { knownArchitectures, parseModelConfig } from './families.js';

const LLAMA: JsonObject = {
  architectures: ['LlamaForCausalLM'],
  vocab_size: 1000,
  hidden_size: 64,
  intermediate_size: 128,
  num_hidden_layers: 2,
  num_attention_heads: 4,
};

/** What the family read, and what others are told. */
function parse(fields: JsonObject) {
  const { facts } = parseModelConfig({ ...LLAMA, ...fields });
  return { ...facts, ...(JSON.parse(facts.identity) as DecoderConfig) };
}

function failure(fields: JsonObject): KvantError {
  try {
    parse(fields);
  } catch (error) {
    return error as KvantError;
  }
  throw new Error('the config was accepted');
}

describe('parseModelConfig', () => {
  it('fills in what a config leaves out', () => {
    expect(parse({})).toMatchObject({
      family: 'llama',
      headDim: 16,
      kvHeads: 4,
      activation: 'silu',
      normEps: 1e-6,
      maxPositions: 2048,
      rope: { type: 'default', theta: 10_000 },
      bias: { qkv: false, output: false, mlp: false },
      qkNorm: false,
      windows: [null, null],
      tied: false,
      dtype: null,
      eosTokenIds: [],
    });
  });

  it('takes null as absent', () => {
    expect(parse({ num_key_value_heads: null, head_dim: null, rope_scaling: null })).toEqual(parse({}));
  });

  it('reads both spellings of the dtype, and several EOS ids', () => {
    expect(parse({ torch_dtype: 'bfloat16' }).dtype).toBe('bf16');
    expect(parse({ dtype: 'torch.float16' }).dtype).toBe('f16');
    expect(parse({ eos_token_id: [7, 8], bos_token_id: 1 })).toMatchObject({
      eosTokenIds: [7, 8],
      bosTokenIds: [1],
    });
  });

  it('finds the family by architecture, whatever its case, or by model type', () => {
    expect(parse({ architectures: ['LLaMAForCausalLM'] }).family).toBe('llama');
    expect(parse({ architectures: null, model_type: 'qwen3' }).family).toBe('qwen3');
    expect(parse({ architectures: 'MistralForCausalLM' }).family).toBe('mistral');
    expect(parse({ architectures: ['MistralForCausalLM'], model_type: 'made-up' }).family).toBe('mistral');
  });

  it('goes by the model type where it knows it, as transformers does, and says so', () => {
    const both = parse({ architectures: ['MistralForCausalLM'], model_type: 'llama' });
    expect(both.family).toBe('llama');
    expect(both.notices).toMatchObject([
      { fields: { architecture: 'MistralForCausalLM', modelType: 'llama' } },
    ]);
    expect(parse({ architectures: ['MyLlamaForCausalLM'], model_type: 'llama' }).notices).toHaveLength(1);
    expect(parse({ model_type: 'llama' }).notices).toEqual([]);
  });

  it.each(['LlamaForSequenceClassification', 'Qwen2ForRewardModel', 'LlamaForTokenClassification'])(
    'does not read %s as a model that writes',
    (name) => {
      expect(failure({ architectures: [name], model_type: 'llama' }).code).toBe('model-architecture-unknown');
    },
  );

  it('reads numbers written as text, and token ids that stand for none', () => {
    expect(parse({ rms_norm_eps: '1e-5', rope_theta: '500000' })).toMatchObject({
      normEps: 1e-5,
      rope: { theta: 500_000 },
    });
    expect(parse({ rms_norm_eps: 0 }).normEps).toBe(0);
    expect(parse({ eos_token_id: -1, bos_token_id: -1 })).toMatchObject({ eosTokenIds: [], bosTokenIds: [] });
    expect(parse({ eos_token_id: [2, -1, null, '5'] }).eosTokenIds).toEqual([2, 5]);
  });

  it('names the nearest architectures and lists all where it knows none', () => {
    const error = failure({ architectures: ['Qwen9MoeForCausalLM'] });
    expect(error.code).toBe('model-architecture-unknown');
    expect(error.message).toContain('"Qwen9MoeForCausalLM"');
    expect(error.message).toContain('experts that are chosen');
    expect(error.message).toContain('nearest known ones are Qwen2MoeForCausalLM, Qwen');
    for (const name of knownArchitectures()) expect(error.fix).toContain(name.split(/_?For/)[0]);
    expect(failure({ architectures: null }).message).toContain('neither');
  });

  it.each([
    ['BloomForCausalLM', {}, 'ALiBi'],
    ['BaichuanForCausalLM', { use_alibi: true }, 'ALiBi'],
    ['MPTForCausalLM', { attn_config: { alibi: true } }, 'ALiBi'],
    ['GPT2LMHeadModel', {}, 'learned positions'],
    ['MambaForCausalLM', {}, 'recurrent layers'],
    ['DeepseekV32ForCausalLM', {}, 'an indexer'],
    ['GlmMoeDsaForCausalLM', {}, 'an indexer'],
    ['DeepseekV4ForCausalLM', {}, 'compresses'],
    ['KimiLinearForCausalLM', {}, 'linear attention'],
  ])('says what a %s has that no family has', (name, fields, what) => {
    expect(failure({ architectures: [name], model_type: 'other', ...fields }).message).toContain(`it has`);
    expect(failure({ architectures: [name], model_type: 'other', ...fields }).message).toContain(what);
  });

  it('reads Llamas that name themselves otherwise, with their names of biases', () => {
    for (const name of ['AquilaForCausalLM', 'XverseForCausalLM', 'InternLM3ForCausalLM'])
      expect(parse({ architectures: [name], model_type: 'other' }).bias).toEqual({
        qkv: false,
        output: false,
        mlp: false,
      });
    const intern = { architectures: ['InternLMForCausalLM'], model_type: 'internlm' };
    expect(parse(intern).bias).toEqual({ qkv: true, output: true, mlp: false });
    expect(parse({ ...intern, bias: false }).bias).toEqual({ qkv: false, output: false, mlp: false });
    const rotary = (fields: object) => parse({ ...intern, rope_theta: null, rotary: fields });
    expect(rotary({ base: 500, type: 'dynamic' }).rope).toMatchObject({ type: 'default', theta: 500 });
    expect(failure({ ...intern, rotary: { base: 500, type: 'other' } }).message).toContain('"other"');
    expect(failure({ rotary: { base: 500, type: 'dynamic' } }).message).toContain('rotary');
    const three = { architectures: ['InternLM3ForCausalLM'], model_type: 'internlm3' };
    expect(parse({ ...three, qkv_bias: true }).bias).toEqual({ qkv: true, output: false, mlp: false });
    expect(parse({ ...three, bias: true }).bias).toEqual({ qkv: false, output: true, mlp: true });
  });

  it('knows the biases of each family', () => {
    expect(parse({ attention_bias: true }).bias).toEqual({ qkv: true, output: true, mlp: false });
    expect(parse({ mlp_bias: true }).bias).toEqual({ qkv: false, output: false, mlp: true });
    expect(parse({ architectures: ['Qwen2ForCausalLM'] }).bias).toEqual({
      qkv: true,
      output: false,
      mlp: false,
    });
    expect(parse({ architectures: ['Qwen3ForCausalLM'], attention_bias: true }).bias.output).toBe(true);
  });

  it('takes head_dim as stated, and 128 for a Qwen3 without', () => {
    expect(parse({ head_dim: 32 }).headDim).toBe(32);
    expect(parse({ architectures: ['Qwen3ForCausalLM'] })).toMatchObject({ headDim: 128, qkNorm: true });
  });

  // Defaults of the classes of transformers 5.24; null is as many as heads where a class takes it.
  it.each([
    ['LlamaForCausalLM', {}, 16],
    ['MistralForCausalLM', {}, 8],
    ['MixtralForCausalLM', {}, 8],
    ['SmolLM3ForCausalLM', {}, 4],
    ['SeedOssForCausalLM', { head_dim: 64 }, 8],
    ['Gemma2ForCausalLM', { sliding_window: 64, query_pre_attn_scalar: 64 }, 4],
    ['Qwen3MoeForCausalLM', {}, 4],
    ['MiniMaxM2ForCausalLM', {}, 8],
    ['Lfm2ForCausalLM', {}, 8],
    ['Qwen3_5ForCausalLM', {}, 4],
    ['Qwen3_5MoeForCausalLM', {}, 2],
    ['Qwen3NextForCausalLM', {}, 2],
  ])('takes the heads of K and V that %s leaves out as its class does', (architecture, more, expected) => {
    const config = {
      ...LLAMA,
      num_hidden_layers: 4,
      architectures: [architecture],
      hidden_size: 1024,
      num_attention_heads: 16,
      ...more,
    };
    expect(parseModelConfig(config).facts.kvHeads).toBe(expected);
    if (/^(Llama|SmolLM3|SeedOss)/.test(architecture))
      expect(parseModelConfig({ ...config, num_key_value_heads: null }).facts.kvHeads).toBe(16);
  });

  it('gives windows to the layers that slide', () => {
    const mistral = { architectures: ['MistralForCausalLM'] };
    expect(parse({ ...mistral, sliding_window: 64 }).windows).toEqual([64, 64]);
    expect(parse({ ...mistral, sliding_window: null }).windows).toEqual([null, null]);
    expect(parse(mistral).windows).toEqual([4096, 4096]);
    const qwen = { architectures: ['Qwen2ForCausalLM'], sliding_window: 32, max_window_layers: 1 };
    expect(parse(qwen).windows).toEqual([null, null]);
    expect(parse({ ...qwen, use_sliding_window: true }).windows).toEqual([null, 32]);
    expect(parse({ ...qwen, use_sliding_window: true, sliding_window: null }).windows).toEqual([null, null]);
    expect(parse({ layer_types: ['attention', 'full_attention'] }).windows).toEqual([null, null]);
    const types = ['sliding_attention', 'full_attention'];
    expect(parse({ ...qwen, use_sliding_window: true, layer_types: types }).windows).toEqual([32, null]);
    expect(failure({ ...qwen, layer_types: types }).where).toBe('sliding_window');
    expect(failure({ layer_types: ['full_attention'] }).where).toBe('layer_types');
    expect(failure({ layer_types: ['full_attention', 'linear_attention'] }).code).toBe(
      'model-config-unsupported',
    );
  });

  it.each(['vocab_size', 'hidden_size', 'intermediate_size', 'num_hidden_layers', 'num_attention_heads'])(
    'misses %s by name',
    (name) => {
      const error = failure({ [name]: undefined });
      expect(error).toMatchObject({ code: 'model-config', where: name });
      expect(error.message).toContain(name);
      expect(error.fix).toBeDefined();
    },
  );

  it.each([
    ['hidden_size', '64'],
    ['hidden_size', -1],
    ['hidden_size', 1.5],
    ['num_hidden_layers', 1e9],
    ['num_attention_heads', 3],
    ['num_key_value_heads', 3],
    ['head_dim', 15],
    ['rms_norm_eps', -1],
    ['rms_norm_eps', ''],
    ['rms_norm_eps', Number.NaN],
    ['rope_theta', Number.POSITIVE_INFINITY],
    ['rope_theta', '10k'],
    ['tie_word_embeddings', 'yes'],
    ['architectures', 7],
    ['eos_token_id', 1.5],
    ['eos_token_id', '</s>'],
    ['eos_token_id', true],
    ['rope_scaling', [1]],
  ])('refuses %s: %j', (name, value) => {
    expect(failure({ [name]: value })).toMatchObject({ code: 'model-config', where: name });
  });

  it('names an activation that it cannot compute', () => {
    const error = failure({ hidden_act: 'mish' });
    expect(error).toMatchObject({ code: 'model-config-unsupported', where: 'hidden_act' });
    expect(error.message).toContain('mish');
    expect(parse({ hidden_act: 'gelu_pytorch_tanh' }).activation).toBe('gelu-tanh');
  });

  it('stretches the context with the rotation', () => {
    const scaled = (rope_scaling: JsonObject, max_position_embeddings: number) =>
      parse({ rope_scaling, max_position_embeddings }).maxPositions;
    expect(scaled({ type: 'linear', factor: 4 }, 4096)).toBe(16_384);
    const yarn = { rope_type: 'yarn', factor: 4, original_max_position_embeddings: 32_768 };
    expect(scaled(yarn, 40_960)).toBe(131_072);
    expect(scaled(yarn, 262_144)).toBe(262_144);
    expect(scaled({ rope_type: 'dynamic', factor: 2 }, 4096)).toBe(4096);
  });
});
