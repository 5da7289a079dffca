/** How Gemma 4 sees: pictures in their own ratio, means of patches, whose tokens see each other in layers that slide, but of E2B and E4B. */

import type { ConfigFields } from '../config-fields.js';
import type { VisionFamily } from './family.js';
import { type Gemma4TowerConfig, gemma4Tower } from './gemma4-tower.js';
import type { VisionDefinition } from './tower.js';
import { onlyAs, readActivation } from './tower-fields.js';

const IMAGE_TOKEN = 258_880;
const BEGIN_TOKEN = 255_999;
const END_TOKEN = 258_882;
/** Tokens of a picture, at most, where the config does not say. */
const MOST = 280;

export const gemma4: VisionFamily = {
  name: 'gemma4',
  read(fields, { facts, layout }) {
    const section = fields.object('vision_config');
    if (section === null) return null;
    const config = readTower(section, facts.hiddenSize);
    return {
      tower: gemma4Tower(config, layout.groups),
      ...gemma4Joining(fields, config.pool, null),
      identity: config,
    };
  },
};

/**
 * How pictures stand in prompts.
 *
 * @param pool patches a side of a token
 * @param looking what `use_bidirectional_attention` is where the text's config leaves it out
 */
export function gemma4Joining(
  fields: ConfigFields,
  pool: number,
  looking: 'vision' | null,
): Omit<VisionDefinition, 'tower'> {
  const most = fields.count('vision_soft_tokens_per_image', MOST);
  const begin = fields.count('boi_token_id', BEGIN_TOKEN, 0);
  const end = fields.count('eoi_token_id', END_TOKEN, 0);
  const { use_bidirectional_attention: ahead = looking } = fields.object('text_config')?.json ?? {};
  return {
    imageToken: fields.count('image_token_id', IMAGE_TOKEN, 0),
    mergeSize: pool,
    axes: false,
    ahead: ahead === 'vision' ? { layers: 'sliding', most } : null,
    placeholder: null,
    pieces: ({ rows, cols }) => [{ token: begin }, (rows * cols) / pool ** 2, { token: end }],
  };
}

function readTower(fields: ConfigFields, width: number): Gemma4TowerConfig {
  const hiddenSize = fields.count('hidden_size', 768);
  const heads = fields.count('num_attention_heads', 12);
  onlyAs(fields, 'num_key_value_heads', heads, heads);
  onlyAs(fields, 'attention_bias', false, false);
  const headDim = fields.count('head_dim', 64);
  if (headDim % 4 !== 0 || headDim > 128) throw fields.odd('head_dim', headDim, 'a multiple of 4 up to 128');
  const activation = readActivation(fields, 'gelu-tanh', 'hidden_activation');
  if (activation !== 'gelu-tanh' && activation !== 'gelu' && activation !== 'silu')
    throw fields.odd('hidden_activation', fields.value('hidden_activation'), 'an activation of gated MLPs');
  return {
    depth: fields.count('num_hidden_layers', 16),
    hiddenSize,
    heads,
    headDim,
    intermediateSize: fields.count('intermediate_size', 3072),
    activation,
    eps: fields.positive('rms_norm_eps', 1e-6),
    theta: fields.object('rope_parameters')?.positiveOrNull('rope_theta') ?? 100,
    patchSize: fields.count('patch_size', 16),
    pool: fields.count('pooling_kernel_size', 3),
    positions: fields.count('position_embedding_size', 10_240),
    standardize: fields.flag('standardize', false),
    bounded: fields.flag('use_clipped_linears', false),
    width,
  };
}
