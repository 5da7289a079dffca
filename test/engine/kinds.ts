/** Kinds of layers, by a fixture whose config is changed so that their K and V may be codes; random weights (random-checkpoint.ts). */

import type { Said } from './asker.js';

const [SLIDING, FULL] = ['sliding_attention', 'full_attention'];
/** Heads of 32 and 64 dims, so that K and V can be codes in every format. */
export const KINDS = [
  ['sliding and full', 'gemma3-list', { num_hidden_layers: 3, layer_types: [SLIDING, FULL, FULL] }],
  ['recurrent', 'qwen3.5', {}],
  ['experts', 'qwen3-moe', { head_dim: 32 }],
  ['sinks', 'gpt-oss', { head_dim: 64, num_hidden_layers: 3, layer_types: [SLIDING, FULL, FULL] }],
  [
    'shared keys and values',
    'gemma4-shared',
    { head_dim: 32, global_head_dim: 64, per_layer_config: { 1: { head_dim: 64 }, 5: { head_dim: 64 } } },
  ],
  ['composite', 'falcon-h1', { head_dim: 32 }],
  ['one mixer a layer', 'nemotron-h', { head_dim: 32 }],
  ['latent attention', 'deepseek-v3', { qk_rope_head_dim: 16, qk_nope_head_dim: 16, v_head_dim: 24 }],
  ['short convolution', 'lfm2', {}],
] as const;

/** Formats, and what the first layer that may have codes is told to have. */
export const WAYS = [
  [{ kvBits: 8, kvSkipLayers: [] }, /^affine8/],
  [{ kvBits: 4, kvSkipLayers: [] }, /^affine4/],
  [{ kvFormat: 'turbo3.5', kvSkipLayers: [] }, /^turbo/],
] as const;
export const FLOATS = [{ kvFormat: 'f16' }, /^f16$/] as const;

/** Tokens and their log-probabilities. */
export const words = (said: readonly Said[]): unknown => said.map(({ ids, logprobs }) => [ids, logprobs]);
