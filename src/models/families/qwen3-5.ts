/**
 * Qwen3.5, 3.6 and 3.8: the hybrids of qwen-hybrid.ts, dense, or with experts in every layer.
 *
 * Source: the model code of transformers (models/qwen3_5, models/qwen3_5_moe).
 */

import type { Family } from '../family.js';
import {
  type QwenHybridConfig,
  type QwenHybridTraits,
  qwenHybridLayout,
  readQwenHybrid,
  readQwenMixture,
  recordQwenHybrid,
} from './qwen-hybrid.js';

const MOE: QwenHybridTraits = {
  mixture: (fields, layers) => ({
    ...readQwenMixture(fields, { count: 256, chosen: 8 }, true),
    mixes: Array.from({ length: layers }, () => true),
  }),
  // There is no MLP: the widest is the expert that all tokens see.
  intermediateSize: (fields) => fields.count('shared_expert_intermediate_size', 512),
};

export const qwen35: Family<QwenHybridConfig> = {
  name: 'qwen3.5',
  architectures: ['Qwen3_5ForCausalLM'],
  modelTypes: ['qwen3_5_text'],
  readConfig: (fields, architecture) => readQwenHybrid(fields, architecture),
  layout: (config) => qwenHybridLayout(config),
  record: recordQwenHybrid,
};

export const qwen35Moe: Family<QwenHybridConfig> = {
  name: 'qwen3.5_moe',
  architectures: ['Qwen3_5MoeForCausalLM'],
  modelTypes: ['qwen3_5_moe_text'],
  readConfig: (fields, architecture) => readQwenHybrid(fields, architecture, MOE),
  layout: (config) => qwenHybridLayout(config),
  record: recordQwenHybrid,
};
