/** Configs of models that see, read wrongly or not at all: each is refused by the name of its field. */
import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { readProcessor } from '../../media/read-processor.js';
import { parseModelConfig } from '../families.js';
import { towerInput } from './tower.js';

type Json = Record<string, unknown>;

const read = (name: string, file: string): Json =>
  JSON.parse(
    readFileSync(new URL(`../../../test/fixtures/vision-families/${name}/${file}`, import.meta.url), 'utf8'),
  ) as Json;

/** The config with a field of it changed; those of what sees begin with `vision.`. */
function changed(name: string, field: string, value: unknown): Json {
  const config = read(name, 'config.json');
  if (!field.startsWith('vision.')) return { ...config, [field]: value };
  return { ...config, vision_config: { ...(config.vision_config as Json), [field.slice(7)]: value } };
}

describe('configs of models that see', () => {
  it.each([
    ['qwen3-vl', 'vision.out_hidden_size', 32, 'model-config'],
    ['qwen3-vl', 'vision.num_heads', 3, 'model-config'],
    ['qwen3-vl', 'vision.num_position_embeddings', 50, 'model-config'],
    ['qwen3-vl', 'vision.deepstack_visual_indexes', [1, 0], 'model-config'],
    ['qwen3-vl', 'vision.deepstack_visual_indexes', [0, 1, 2], 'model-config'],
    ['qwen3-vl', 'vision.hidden_act', 'mish', 'model-config-unsupported'],
    ['aya-vision', 'downsample_factor', 3, 'model-config'],
    ['aya-vision', 'alignment_intermediate_size', 20, 'model-config'],
    ['aya-vision', 'vision_feature_select_strategy', 'default', 'model-config-unsupported'],
    ['aya-vision', 'vision.model_type', 'clip_vision_model', 'model-config-unsupported'],
    ['glm4v', 'vision.out_hidden_size', 32, 'model-config'],
    ['glm4v', 'vision.num_heads', 3, 'model-config'],
    ['glm4v', 'vision.hidden_act', 'quick_gelu', 'model-config'],
    ['glm4v', 'vision.image_size', 3, 'model-config'],
    ['glm-ocr', 'vision.in_channels', 1, 'model-config'],
    ['smolvlm', 'scale_factor', 3, 'model-config'],
    ['smolvlm', 'vision.num_channels', 1, 'model-config'],
    ['internvl', 'vision.use_qk_norm', true, 'model-config-unsupported'],
    ['internvl', 'vision.norm_type', 'rms_norm', 'model-config-unsupported'],
    ['internvl', 'vision.patch_size', [4, 2], 'model-config'],
    ['internvl', 'downsample_ratio', 0.4, 'model-config'],
    ['lfm2-vl', 'vision.num_patches', 24, 'model-config'],
    ['lfm2-vl', 'vision.hidden_act', 'mish', 'model-config-unsupported'],
    ['lfm2-vl', 'vision_feature_layer', -2, 'model-config-unsupported'],
    ['lfm2-vl', 'use_image_special_tokens', false, 'model-config-unsupported'],
    ['llava-next', 'vision_feature_select_strategy', 'full', 'model-config-unsupported'],
    ['llava-next', 'vision.model_type', 'pixtral', 'model-config-unsupported'],
    ['llava-onevision', 'vision_aspect_ratio', 'anyres', 'model-config'],
    ['llava', 'vision_feature_layer', [-2, -1], 'model-config-unsupported'],
    ['llava', 'vision_feature_layer', 9, 'model-config'],
    ['llava', 'vision_feature_select_strategy', 'full', 'model-config-unsupported'],
    ['llava', 'projector_hidden_act', 'tanh', 'model-config-unsupported'],
    ['llava', 'vision.model_type', 'eva', 'model-config-unsupported'],
    ['mistral3', 'vision.hidden_act', 'quick_gelu', 'model-config'],
    ['muse-glimmer', 'out_hidden_size', 32, 'model-config'],
    ['muse-glimmer', 'projector_hidden_act', 'tanh', 'model-config-unsupported'],
    ['muse-glimmer', 'vision.num_attention_heads', 3, 'model-config'],
    ['muse-glimmer', 'vision.layer_types', ['window_attention'], 'model-config'],
    ['muse-glimmer', 'vision.layer_types', Array(2).fill('sliding_attention'), 'model-config'],
    ['muse-glimmer', 'vision.pos_emb_width', 8, 'model-config-unsupported'],
    ['muse-glimmer', 'vision.pos_emb_width', null, 'model-config-unsupported'],
    ['muse-glimmer', 'vision.merge_size', 3, 'model-config-unsupported'],
    ['gemma4', 'vision.head_dim', 10, 'model-config'],
    ['gemma4', 'vision.num_key_value_heads', 1, 'model-config-unsupported'],
    ['gemma4', 'vision.hidden_activation', 'quick_gelu', 'model-config'],
    ['gemma4-unified', 'vision.model_patch_size', 9, 'model-config'],
    ['gemma4-unified', 'vision.output_proj_dims', 12, 'model-config'],
  ])('%s: %s of %j', (name, field, value, code) => {
    expect(() => parseModelConfig(changed(name, field, value))).toThrow(
      expect.objectContaining({ code, where: field.replace('vision.', '') }),
    );
  });

  it.each(['glm4v', 'glm4v-moe', 'glm-ocr', 'qwen3-vl'])(
    'has no eyes where %s has no axes that fit its heads',
    (name) => {
      expect(parseModelConfig(read(name, 'config.json')).vision).not.toBeNull();
      const { text_config } = read(name, 'config.json') as { text_config: { rope_parameters: Json } };
      const rope_parameters = { ...text_config.rope_parameters, mrope_section: [2, 2, 2] };
      const config = changed(name, 'text_config', { ...text_config, rope_parameters });
      expect(parseModelConfig(config).vision).toBeNull();
    },
  );

  it.each([
    ['gemma4', undefined, null],
    ['gemma4-unified', undefined, 'sliding'],
    ['gemma4-unified', null, null],
  ])('of %s whose text says %s of looking ahead, pictures do so in layers: %s', (name, value, layers) => {
    const { text_config } = read(name, 'config.json') as { text_config: Json };
    const config = changed(name, 'text_config', { ...text_config, use_bidirectional_attention: value });
    expect(parseModelConfig(config).vision!.ahead?.layers ?? null).toBe(layers);
  });

  it('a rotation of another type than the one there is', () => {
    const config = changed('muse-glimmer', 'vision.rope_parameters', { rope_type: 'yarn', rope_theta: 100 });
    expect(() => parseModelConfig(config)).toThrow(
      expect.objectContaining({ code: 'model-config-unsupported', where: 'rope_type' }),
    );
  });

  it.each([
    ['llava', 'default'],
    ['llava-next', 'default'],
    ['llava-onevision', 'full'],
    ['pixtral', 'default'],
  ])('of %s without vision_feature_select_strategy take "%s", as its class does', (name, strategy) => {
    const field = 'vision_feature_select_strategy';
    const parsed = (value: unknown): unknown => {
      try {
        return parseModelConfig(changed(name, field, value)).facts.identity;
      } catch (error) {
        return (error as Error).message.replace(/^.*: (?=")/, '');
      }
    };
    expect(parsed(undefined)).toEqual(parsed(strategy));
    expect(parsed(undefined)).not.toEqual(parsed(strategy === 'full' ? 'default' : 'full'));
  });

  it('has no eyes where patches do not divide into tokens', () => {
    expect(parseModelConfig(read('gemma3', 'config.json')).vision).not.toBeNull();
    for (const tokens of [15, 9, 256])
      expect(parseModelConfig(changed('gemma3', 'mm_tokens_per_image', tokens)).vision).toBeNull();
  });

  it.each([
    ['smolvlm', { max_image_size: { longest_edge: 20 } }, 'max_image_size'],
    ['smolvlm', { do_resize: false }, 'do_resize'],
    ['internvl', { size: { height: 32, width: 32 } }, 'size'],
    ['internvl', { size: { height: 16, width: 32 } }, 'size'],
    ['internvl', { max_patches: 1, min_patches: 2 }, 'max_patches'],
    ['lfm2-vl', { encoder_patch_size: 8 }, 'encoder_patch_size'],
    ['lfm2-vl', { downsample_factor: 4 }, 'downsample_factor'],
    ['lfm2-vl', { tile_size: 20 }, 'tile_size'],
    ['lfm2-vl', { min_tiles: 1 }, 'min_tiles'],
    ['lfm2-vl', { max_tiles: 1 }, 'max_tiles'],
    ['lfm2-vl', { max_image_tokens: 2 }, 'max_image_tokens'],
    ['llava-next', { image_grid_pinpoints: [[16, 20]] }, 'image_grid_pinpoints'],
    ['llava-next', { image_grid_pinpoints: [[160, 160]] }, 'image_grid_pinpoints'],
    ['llava-next', { crop_size: { height: 12, width: 12 } }, 'crop_size'],
    ['llava-next', { size: { shortest_edge: 8 }, crop_size: 8 }, 'size'],
    ['llava-onevision', { do_center_crop: true }, 'do_center_crop'],
    ['llava-onevision', { size: { height: 16, width: 32 } }, 'size'],
    ['llava', { crop_size: { height: 12, width: 12 } }, 'crop_size'],
    ['llava', { size: { shortest_edge: 8 } }, 'size'],
    ['llava', { do_center_crop: false }, 'do_center_crop'],
    ['mistral3', { patch_size: 16 }, 'patch_size'],
    ['qwen3-vl', { patch_size: 14 }, 'patch_size'],
    ['glm4v', { merge_size: 4 }, 'merge_size'],
    ['muse-glimmer', { patch_size: 14 }, 'patch_size'],
    ['muse-glimmer', { merge_size: 4 }, 'merge_size'],
    ['muse-glimmer', { do_resize: false }, 'do_resize'],
    ['gemma3', { do_pan_and_scan: true }, 'do_pan_and_scan'],
    ['gemma4', { max_soft_tokens: 100 }, 'max_soft_tokens'],
    ['gemma4', { pooling_kernel_size: 2 }, 'pooling_kernel_size'],
    ['gemma4-unified', { patch_size: 4 }, 'patch_size'],
    ['gemma4-unified', { max_soft_tokens: 100 }, 'max_soft_tokens'],
    ['gemma3', { size: { height: 16, width: 16 } }, 'size'],
  ])('%s: a processor of %j', (name, fields, where) => {
    const { vision } = parseModelConfig(read(name, 'config.json'));
    const config = { ...read(name, 'preprocessor_config.json'), ...fields };
    expect(() => readProcessor(config, towerInput(vision!))).toThrow(
      expect.objectContaining({ code: 'invalid-preprocessor', where }),
    );
  });
});
