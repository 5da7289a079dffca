/**
 * Granite 3 with a mixture of experts: a Granite 3 whose layers have experts in the place of the MLP.
 *
 * Source: the model code of transformers (models/granitemoe).
 */

import { attentionWeights } from '../blocks/attention.js';
import { expertWeights, mixed } from '../blocks/experts.js';
import { decoderLayout } from '../blocks/layout-builder.js';
import { preNormWeights } from '../blocks/residual.js';
import type { Family } from '../family.js';
import { type GraniteConfig, readGranite, recordGranite } from './granite.js';
import { GRANITE_EXPERTS, readGraniteMixture } from './granite4.js';
import type { Mixture } from './mixture.js';
import { ROPE } from './pre-norm.js';

interface GraniteMoeConfig extends GraniteConfig {
  readonly mixture: Pick<Mixture, 'experts' | 'route'>;
}

export const graniteMoe: Family<GraniteMoeConfig> = {
  name: 'granite-moe',
  architectures: ['GraniteMoeForCausalLM'],
  modelTypes: ['granitemoe'],
  readConfig: (fields, architecture) => ({
    ...readGranite(fields, architecture),
    mixture: readGraniteMixture(fields),
  }),
  layout: (config) =>
    decoderLayout(config, {
      ropes: [{ key: ROPE, parameters: config.rope, dims: config.rotaryDims }],
      layer: (at) => {
        preNormWeights(at, config.hiddenSize);
        attentionWeights(at, { ...config, window: null });
        expertWeights(at, config.hiddenSize, config.mixture.experts, GRANITE_EXPERTS);
      },
    }),
  record: (ops, config, weights, options) => {
    const { mixture, activation } = config;
    return recordGranite(ops, config, weights, options, ROPE, {
      mlp: (at, normed) => mixed(at, normed, mixture.experts, mixture.route, activation),
    });
  },
};
