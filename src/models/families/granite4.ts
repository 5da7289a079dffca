/**
 * Granite 4. Most layers of those called H are Mamba 2, the others attend; MLPs may have a mixture of experts beside them. Beside a
 * Granite 3 the MLP has other names, and some have no rotation.
 *
 *     each layer:  x += r · out(mix(norm(x))),  mix Mamba 2 or attention
 *                  x += r · (mlp(norm(x)) + Σ weight · expert(norm(x)))
 *
 * Source: the model code of transformers (models/granitemoehybrid).
 */

import { attentionWeights } from '../blocks/attention.js';
import { type ExpertNames, expertWeights, mixed } from '../blocks/experts.js';
import { gated } from '../blocks/gated-mlp.js';
import { decoderLayout } from '../blocks/layout-builder.js';
import { type Mamba2Shape, mamba2, mamba2Weights, readMamba2 } from '../blocks/mamba2.js';
import { preNormWeights } from '../blocks/residual.js';
import type { ConfigFields } from '../config-fields.js';
import type { Family } from '../family.js';
import type { WeightLayout } from '../layout.js';
import { type GraniteConfig, readGranite, recordGranite } from './granite.js';
import { type Mixture, readExperts } from './mixture.js';
import { ROPE } from './pre-norm.js';

export interface Granite4Config extends GraniteConfig {
  readonly rotates: boolean;
  /** `[layers]`: it attends, where it is no Mamba 2. */
  readonly attends: readonly boolean[];
  /** Null where all layers attend. */
  readonly mamba: Mamba2Shape | null;
  /** Null where MLPs are alone. */
  readonly mixture: Pick<Mixture, 'experts' | 'route'> | null;
}

const MAMBA_NAMES = {
  heads: 'mamba_n_heads',
  headDim: 'mamba_d_head',
  groups: 'mamba_n_groups',
  stateSize: 'mamba_d_state',
  taps: 'mamba_d_conv',
  convBias: 'mamba_conv_bias',
  biases: ['mamba_proj_bias'],
};
const MAMBA_DEFAULTS = { heads: 128, groups: 1, stateSize: 256, taps: 4, convBias: true };

const BLOCK = 'block_sparse_moe';
/** Also of Granite 3. */
export const GRANITE_EXPERTS: ExpertNames = {
  block: BLOCK,
  router: `${BLOCK}.router.layer`,
  // Gate beside up in one stack; MLX has three.
  stacks: (matrix, expert, { experts: stack, rows }) => [
    matrix === 2
      ? { name: `${BLOCK}.output_linear.weight`, stack, rows: stack * rows, first: expert * rows }
      : {
          name: `${BLOCK}.input_linear.weight`,
          stack,
          rows: 2 * stack * rows,
          first: (2 * expert + matrix) * rows,
        },
    {
      name: `${BLOCK}.switch_mlp.${['gate', 'up', 'down'][matrix]}_proj.weight`,
      stack,
      rows: stack * rows,
      first: expert * rows,
    },
  ],
};

function readConfig(fields: ConfigFields, architecture: string): Granite4Config {
  // The other width is of the experts.
  const intermediate_size = fields.count('shared_intermediate_size', 1024);
  const plain = fields.replacing('intermediate_size', intermediate_size).replacing('layer_types', null);
  const granite = readGranite(plain, architecture);
  const attends = readAttends(fields, granite.layers);
  const width = fields.count('mamba_expand', 2) * granite.hiddenSize;
  // It is that of the convolutions as well.
  if (attends.includes(false) && granite.activation !== 'silu')
    throw fields.unsupported('hidden_act', 'Mamba 2 without SiLU', 'Use one that has "hidden_act": "silu".');
  return {
    ...granite,
    rotates: fields.text('position_embedding_type') === 'rope',
    attends,
    mamba: attends.every(Boolean) ? null : readMamba2(fields, MAMBA_NAMES, MAMBA_DEFAULTS, width),
    mixture: readMixture(fields),
  };
}

function readAttends(fields: ConfigFields, layers: number): boolean[] {
  const types = fields.texts('layer_types') ?? Array.from({ length: layers }, () => 'mamba');
  if (types.length !== layers)
    throw fields.odd('layer_types', types, `one entry for each of the ${layers} layers`);
  return types.map((type) => {
    if (type === 'attention' || type === 'full_attention') return true;
    if (type === 'mamba' || type === 'linear_attention') return false;
    throw fields.unsupported(
      'layer_types',
      `a layer of type ${JSON.stringify(type)}`,
      'Use a model whose layers are mamba or attention.',
    );
  });
}

function readMixture(fields: ConfigFields): Granite4Config['mixture'] {
  return fields.count('num_local_experts', 8, 0) === 0 ? null : readGraniteMixture(fields);
}

export function readGraniteMixture(fields: ConfigFields): Pick<Mixture, 'experts' | 'route'> {
  const names = { count: 'num_local_experts', chosen: 'num_experts_per_tok', size: 'intermediate_size' };
  return {
    experts: readExperts(fields, names, { count: 8, chosen: 2, size: 11_008 }),
    // Of those chosen alone: the scores of all, divided by the sum of these.
    route: { score: 'softmax', bias: false, groups: null, normalise: { least: 0, add: 0 }, scale: 1 },
  };
}

function layout(config: Granite4Config): WeightLayout {
  const { hiddenSize, intermediateSize, attends, mamba, mixture } = config;
  return decoderLayout(config, {
    ropes: config.rotates ? [{ key: ROPE, parameters: config.rope, dims: config.rotaryDims }] : [],
    layer: (at) => {
      preNormWeights(at, hiddenSize);
      if (mamba === null || attends[at.index]) attentionWeights(at, { ...config, window: null });
      else mamba2Weights(at, hiddenSize, mamba, 'mamba');
      if (mixture !== null) expertWeights(at, hiddenSize, mixture.experts, GRANITE_EXPERTS);
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
  record: (ops, config, weights, options) => {
    const { attends, mamba, mixture, activation } = config;
    return recordGranite(ops, config, weights, options, config.rotates ? ROPE : null, {
      mixed: (at, normed) =>
        mamba === null || attends[at.index]
          ? null
          : at.linear(at.wanted(mamba2(at, normed, mamba)), 'mamba-out'),
      mlp: (at, normed) => {
        if (mixture === null) return null;
        const sum = at.linear(gated(at, normed, activation), 'down');
        return mixed(at, normed, mixture.experts, mixture.route, activation, { sum });
      },
    });
  },
};
