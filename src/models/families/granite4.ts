/**
 * Granite 4, dense: those whose layers are attention alone, without experts. Beside a Granite 3 the MLP has other names, and
 * some have no rotation.
 *
 * Source: the model code of transformers (models/granitemoehybrid).
 */

import { attentionWeights } from '../blocks/attention.js';
import { decoderLayout } from '../blocks/layout-builder.js';
import { preNormWeights } from '../blocks/residual.js';
import type { ConfigFields } from '../config-fields.js';
import type { Family } from '../family.js';
import type { WeightLayout } from '../layout.js';
import { type GraniteConfig, readGranite, recordGranite } from './granite.js';
import { ROPE } from './pre-norm.js';

export interface Granite4Config extends GraniteConfig {
  readonly rotates: boolean;
}

function readConfig(fields: ConfigFields, architecture: string): Granite4Config {
  const experts = fields.count('num_local_experts', 8, 0);
  if (experts > 0)
    throw fields.unsupported(
      'num_local_experts',
      `a mixture of ${experts} experts`,
      'Use a dense Granite 4: its "num_local_experts" is 0.',
    );
  if (!fields.has('layer_types'))
    throw fields.unsupported(
      'layer_types',
      'a Granite 4 whose layers are all Mamba 2 (it states no "layer_types")',
      'Use a Granite 4 whose layers are all attention.',
    );
  // The other one is of the experts.
  const intermediate_size = fields.count('shared_intermediate_size', 1024);
  return {
    ...readGranite(fields.replacing('intermediate_size', intermediate_size), architecture),
    rotates: fields.text('position_embedding_type') === 'rope',
  };
}

function layout(config: Granite4Config): WeightLayout {
  const { hiddenSize, intermediateSize } = config;
  return decoderLayout(config, {
    ropes: config.rotates ? [{ key: ROPE, parameters: config.rope, dims: config.rotaryDims }] : [],
    layer: (at) => {
      preNormWeights(at, hiddenSize);
      attentionWeights(at, { ...config, window: null });
      // Rows of gate, then up; MLX keeps them apart.
      const gateUp = { tensor: 'shared_mlp.input_linear', rows: 2 * intermediateSize };
      const apart = ['gate', 'up'].map((side) => ({ tensor: `mlp.${side}_proj`, rows: intermediateSize }));
      at.matrix('mlp', 'gate-up', hiddenSize, [gateUp], { others: apart });
      const down = ['shared_mlp.output_linear', 'mlp.down_proj'].map((tensor) => [
        { tensor, rows: hiddenSize },
      ]);
      at.matrix('mlp', 'down', intermediateSize, down[0]!, { others: down[1]! });
    },
  });
}

export const granite4: Family<Granite4Config> = {
  name: 'granite4',
  architectures: ['GraniteMoeHybridForCausalLM'],
  modelTypes: ['granitemoehybrid'],
  readConfig,
  layout,
  record: (ops, config, weights, options) =>
    recordGranite(ops, config, weights, options, config.rotates ? ROPE : null),
};
