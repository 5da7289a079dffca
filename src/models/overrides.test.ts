import { describe, expect, it } from 'vitest';
import type { KvantError } from '../errors.js';
import type { JsonObject } from '../weights/folder-files.js';
import type { DecoderConfig } from './config.js';
import { parseModelConfig } from './families.js';

const LLAMA: JsonObject = {
  architectures: ['LlamaForCausalLM'],
  vocab_size: 1000,
  hidden_size: 64,
  intermediate_size: 128,
  num_hidden_layers: 2,
  num_attention_heads: 4,
};
const VL: JsonObject = {
  architectures: ['Mistral3ForConditionalGeneration'],
  text_config: { ...LLAMA, model_type: 'mistral', architectures: undefined },
};

function parse(config: JsonObject, overrides: JsonObject) {
  const { facts } = parseModelConfig(config, 'config.json', undefined, overrides);
  return { ...facts, ...(JSON.parse(facts.identity) as DecoderConfig) };
}

function failure(config: JsonObject, overrides: JsonObject): KvantError {
  try {
    parse(config, overrides);
  } catch (error) {
    return error as KvantError;
  }
  throw new Error('the overrides were accepted');
}

describe('overrides of config.json', () => {
  it('replace what the file says, wherever it says it', () => {
    const yarn = { rope_type: 'yarn', factor: 4, original_max_position_embeddings: 2048 };
    const old = { ...LLAMA, rope_theta: 1e4 };
    const nested = { ...LLAMA, rope_parameters: { rope_type: 'default', rope_theta: 1e4 } };
    for (const config of [LLAMA, old, nested]) {
      expect(parse(config, { rope_theta: 1e6 }).rope).toEqual({ type: 'default', theta: 1e6 });
      expect(parse(config, { rope_scaling: yarn })).toMatchObject({
        maxPositions: 8192,
        rope: { type: 'yarn', theta: 1e4 },
      });
      expect(parse(config, { rope_scaling: yarn, rope_theta: 1e6 }).rope).toMatchObject({ theta: 1e6 });
    }
    const scaled = { ...LLAMA, rope_scaling: yarn };
    expect(parse(scaled, { rope_parameters: { rope_type: 'linear', factor: 2 } }).rope).toMatchObject({
      type: 'linear',
    });
    expect(parse(scaled, { rope_scaling: null }).rope).toMatchObject({ type: 'default' });
    expect(parse(LLAMA, { architectures: ['Qwen3ForCausalLM'] })).toMatchObject({ family: 'qwen3' });
  });

  it('reach the decoder of a wrapper', () => {
    const theta = (overrides: JsonObject) => parse(VL, overrides).rope.theta;
    expect(theta({ rope_theta: 17 })).toBe(17);
    expect(theta({ text_config: { rope_theta: 18 } })).toBe(18);
    expect(parse({ ...VL, tie_word_embeddings: false }, { tie_word_embeddings: true }).tied).toBe(true);
    expect(failure(VL, { text_config: { rope_teta: 18 } }).where).toBe('rope_teta');
  });

  it('are part of what tells models apart', () => {
    expect(parse(LLAMA, { rope_theta: 17 }).identity).not.toBe(parse(LLAMA, {}).identity);
  });

  it('are refused where nothing is made of them', () => {
    const error = failure(LLAMA, { rope_teta: 1e6 });
    expect([error.code, error.where]).toEqual(['invalid-option', 'rope_teta']);
    expect(error.fix).toContain('rope_theta');
    const scaling = { rope_type: 'yarn', factr: 4 };
    expect(failure(LLAMA, { rope_scaling: scaling }).where).toBe('rope_scaling.factr');
    expect(failure(LLAMA, { eos_token_id: 3 }).message).toMatch(/"eos_token_id" cannot be set/);
    expect(failure(LLAMA, { text_config: { rope_theta: 1 } }).message).toMatch(/has no "text_config"/);
    expect(failure(LLAMA, { text_config: 3 }).message).toMatch(/no object/);
  });

  it('are read as the file is: a value that makes no sense is named', () => {
    expect(failure(LLAMA, { rope_theta: 'high' })).toMatchObject({
      code: 'model-config',
      where: 'rope_theta',
    });
    expect(failure(LLAMA, { clip_qkv: 8 })).toMatchObject({ where: 'clip_qkv' });
  });
});
