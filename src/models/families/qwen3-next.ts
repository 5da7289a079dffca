/**
 * Qwen3-Next: the hybrid of qwen-hybrid.ts with experts, and the matrices of its DeltaNet grouped by key head.
 *
 * Source: the model code of transformers (models/qwen3_next).
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

const TRAITS: QwenHybridTraits = {
  mixture: (fields, layers) => {
    const mixture = readQwenMixture(fields, { count: 512, chosen: 10 }, fields.flag('norm_topk_prob', true));
    const every = fields.count('decoder_sparse_step', 1);
    const plain = fields.numbers('mlp_only_layers') ?? [];
    const mixes = (layer: number): boolean => !plain.includes(layer) && (layer + 1) % every === 0;
    return { ...mixture, mixes: Array.from({ length: layers }, (_, layer) => mixes(layer)) };
  },
  intermediateSize: () => 5632,
  byKeyHead: true,
};

export const qwen3Next: Family<QwenHybridConfig> = {
  name: 'qwen3_next',
  architectures: ['Qwen3NextForCausalLM'],
  modelTypes: ['qwen3_next'],
  readConfig: (fields, architecture) => readQwenHybrid(fields, architecture, TRAITS),
  layout: (config) => qwenHybridLayout(config, TRAITS),
  record: recordQwenHybrid,
};
