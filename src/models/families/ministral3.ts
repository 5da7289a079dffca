/**
 * Ministral 3: a Mistral whose queries grow with their position, by `1 + beta · ln(1 + ⌊p / original context⌋)`.
 *
 * Source: the model code of transformers (models/ministral3).
 */

import type { QueryGrowth, Tensor } from '../../device/graph.js';
import type { Ops } from '../../device/ops.js';
import { preNorm } from '../blocks/residual.js';
import { recordStack } from '../blocks/stack.js';
import { type DecoderConfig, type DecoderTraits, readDecoderConfig } from '../config.js';
import type { ConfigFields } from '../config-fields.js';
import type { Family, RecordOptions } from '../family.js';
import type { Weights } from '../layout.js';
import { ropeSection } from '../rope-config.js';
import type { RopeParameters } from '../rope-frequencies.js';
import { refuseOtherLayers } from '../structure-fields.js';
import { preNormLayout, ROPE } from './pre-norm.js';

export interface Ministral3Config extends DecoderConfig {
  /** Null: queries stay. */
  readonly queryGrowth: QueryGrowth | null;
}

const TRAITS: DecoderTraits = {
  bias: () => ({ qkv: false, output: false, mlp: false }),
  qkNorm: false,
  rotation: { queryGrowth: true },
  window: (fields) => (fields.has('sliding_window') ? fields.count('sliding_window') : null),
  slides: () => true,
  defaults: { maxPositions: 262_144, ropeTheta: 10_000 },
};

/** What configs mean that leave fields out. */
const DEFAULTS = { rms_norm_eps: 1e-5, head_dim: 128, num_key_value_heads: 8 };
const DEFAULT_ROPE = {
  rope_type: 'yarn',
  rope_theta: 1e6,
  factor: 16,
  original_max_position_embeddings: 16_384,
  mscale: 1,
  mscale_all_dim: 1,
  llama_4_scaling_beta: 0.1,
};

function readConfig(stated: ConfigFields, architecture: string): Ministral3Config {
  // All layers slide, or none does, whatever their list says.
  refuseOtherLayers(stated, ['full_attention', 'attention', 'sliding_attention'], 'ministral3');
  const whole = stated.whereAbsent(DEFAULTS).replacing('layer_types', null);
  const fields = ropeSection(whole) === null ? whole.replacing('rope_parameters', DEFAULT_ROPE) : whole;
  const config = readDecoderConfig(fields, architecture, TRAITS);
  return { ...config, queryGrowth: readGrowth(ropeSection(fields), config.rope) };
}

/** `section`: of the rotation in config.json. */
export function readGrowth(section: ConfigFields | null, rope: RopeParameters): QueryGrowth | null {
  // 0 is as good as none.
  const beta = section?.atLeastZero('llama_4_scaling_beta', 0) ?? 0;
  if (section === null || beta === 0) return null;
  const original = 'originalMaxPositions' in rope ? rope.originalMaxPositions : undefined;
  return { beta, every: original ?? section.count('original_max_position_embeddings') };
}

/** Returns logits `[outputs, vocab]`. */
function record(ops: Ops, config: Ministral3Config, weights: Weights, options: RecordOptions): Tensor {
  const { heads, kvHeads, headDim, qkNorm, windows, queryGrowth, activation } = config;
  return recordStack(ops, config, weights, options, {
    layer: (x, at) => {
      const window = windows[at.index] ?? null;
      return preNorm(x, at, { heads, kvHeads, headDim, qkNorm, window, rope: ROPE, queryGrowth }, activation);
    },
  });
}

export const ministral3: Family<Ministral3Config> = {
  name: 'ministral3',
  architectures: ['Ministral3ForCausalLM'],
  modelTypes: ['ministral3'],
  readConfig,
  layout: preNormLayout,
  record,
};
