/**
 * Cohere 2 (Command R7B, Command A): a Cohere in which three layers of four slide and rotate. The fourth sees everything and
 * has no rotation.
 *
 * Source: the model code of transformers (models/cohere2).
 */

import type { DecoderTraits } from '../config.js';
import type { Family } from '../family.js';
import { COHERE_TRAITS, type CohereConfig, cohereLayout, readCohere, recordCohere } from './cohere.js';

/** One layer in so many sees everything, where a config does not list them. */
const PATTERN = 4;

const TRAITS: DecoderTraits = {
  ...COHERE_TRAITS,
  window: (fields) => {
    if (fields.states('sliding_window') && !fields.has('sliding_window'))
      throw fields.odd('sliding_window', null, 'a number of tokens');
    return fields.count('sliding_window', 4096);
  },
  slides: (fields, layer) => (layer + 1) % fields.count('sliding_window_pattern', PATTERN) !== 0,
  defaults: { maxPositions: 8192, ropeTheta: 10_000 },
};

export const cohere2: Family<CohereConfig> = {
  name: 'cohere2',
  architectures: ['Cohere2ForCausalLM'],
  modelTypes: ['cohere2'],
  readConfig: (fields, architecture) => ({
    ...readCohere(fields, architecture, TRAITS),
    headNorms: false,
  }),
  layout: cohereLayout,
  record: (ops, config, weights, options) =>
    recordCohere(ops, config, weights, options, (window) => window !== null),
};
