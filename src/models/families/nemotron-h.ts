/**
 * Nemotron-H and Nemotron 3. Each layer is one of four, `x += mix(norm(x))`: Mamba 2, attention without positions, an MLP, or a mixture
 * of experts and one that sees every token. MLPs and experts have no gate and square what is above 0; experts may work on fewer columns,
 * between two matrices of their own.
 *
 * Source: the model code of transformers (models/nemotron_h).
 */

import type { Tensor } from '../../device/graph.js';
import { attend, attentionWeights } from '../blocks/attention.js';
import { type ExpertNames, expertWeights, mixed, type RouteOptions, routerBias } from '../blocks/experts.js';
import { decoderLayout, type LayerLayout } from '../blocks/layout-builder.js';
import { type Mamba2Shape, mamba2, mamba2Weights, readMamba2 } from '../blocks/mamba2.js';
import { type Layer, recordStack } from '../blocks/stack.js';
import { type DecoderConfig, type DecoderTraits, readDecoderConfig } from '../config.js';
import type { ConfigFields } from '../config-fields.js';
import type { Family } from '../family.js';
import { readGroupedRoute } from './glm4-moe.js';
import { type Mixture, readExperts } from './mixture.js';

type Kind = 'mamba' | 'attention' | 'mlp' | 'moe';

export interface NemotronHConfig extends DecoderConfig {
  /** `[layers]` */
  readonly kinds: readonly Kind[];
  /** Null where no layer is one. */
  readonly mamba: Mamba2Shape | null;
  readonly mixture:
    | (Pick<Mixture, 'experts'> & {
        readonly route: RouteOptions;
        /** Width of the expert that sees every token. */
        readonly sharedSize: number;
        /** Columns that the others work on. */
        readonly latent: number | null;
      })
    | null;
}

const TRAITS: DecoderTraits = {
  bias: (fields) => ({ qkv: false, output: false, mlp: fields.flag('mlp_bias', false) }),
  qkNorm: false,
  window: () => null,
  slides: () => false,
  normEps: { name: 'layer_norm_epsilon', fallback: 1e-5 },
  defaults: { maxPositions: 4096, ropeTheta: 10_000, headDim: 128 },
};

const MAMBA_NAMES = {
  heads: 'mamba_num_heads',
  headDim: 'mamba_head_dim',
  groups: 'n_groups',
  stateSize: 'ssm_state_size',
  taps: 'conv_kernel',
  convBias: 'use_conv_bias',
  biases: ['use_bias', 'mamba_proj_bias'],
};
const MAMBA_DEFAULTS = { heads: 128, headDim: 64, groups: 8, stateSize: 128, taps: 4, convBias: true };

/** As patterns, transformers and older files call them. */
const KINDS: Readonly<Record<string, Kind>> = {
  M: 'mamba',
  mamba: 'mamba',
  linear_attention: 'mamba',
  '*': 'attention',
  attention: 'attention',
  full_attention: 'attention',
  '-': 'mlp',
  mlp: 'mlp',
  E: 'moe',
  moe: 'moe',
};

const BLOCK = 'mixer';
const EXPERTS: ExpertNames = {
  block: BLOCK,
  matrices: ['up_proj', 'up_proj', 'down_proj'],
  ungated: true,
  // MLX's stacks, and those of transformers.
  stacks: (matrix, expert, { experts: stack, rows }) =>
    [
      `${BLOCK}.switch_mlp.${matrix === 2 ? 'fc2' : 'fc1'}.weight`,
      `${BLOCK}.experts.${matrix === 2 ? 'down' : 'up'}_proj`,
    ].map((name) => ({ name, stack, rows: stack * rows, first: expert * rows })),
};

/** A letter for each layer. */
const PATTERN = 'hybrid_override_pattern';

function kindsOf(fields: ConfigFields, name: string): Kind[] {
  const types = name === PATTERN ? [...(fields.text(name) ?? 'ME*-')] : fields.texts(name);
  return (types ?? []).map((type) => {
    const kind = Object.hasOwn(KINDS, type) ? KINDS[type] : undefined;
    if (kind !== undefined) return kind;
    throw fields.unsupported(
      name,
      `a layer of type ${JSON.stringify(type)}`,
      'Use a model whose layers are mamba, attention, mlp or moe.',
    );
  });
}

function readKinds(fields: ConfigFields): Kind[] {
  // The first counts. What the others say must be known too.
  const stated = ['layers_block_type', 'layer_types', PATTERN].filter((name) => fields.has(name));
  const [kinds = []] = (stated.length > 0 ? stated : [PATTERN]).map((name) => kindsOf(fields, name));
  if (kinds.includes('attention') || kinds.includes('mamba')) return kinds;
  throw fields.unsupported(
    stated[0] ?? PATTERN,
    'a Nemotron-H in which no layer sees other tokens',
    'Use one that has layers of Mamba 2 or of attention.',
  );
}

const OF_EXPERTS = [
  'n_routed_experts',
  'num_local_experts',
  'num_experts_per_tok',
  'moe_intermediate_size',
  'moe_shared_expert_intermediate_size',
  'moe_latent_size',
  'n_shared_experts',
  'n_group',
  'topk_group',
  'norm_topk_prob',
  'routed_scaling_factor',
];

function readConfig(fields: ConfigFields, architecture: string): NemotronHConfig {
  const kinds = readKinds(fields);
  const act = fields.text('mlp_hidden_act') ?? 'relu2';
  // What num_hidden_layers says is not looked at, where layers are listed.
  const plain = fields
    .withDefaults({ intermediate_size: 21_504, num_key_value_heads: 8 })
    .replacing('layer_types', null)
    .replacing('num_hidden_layers', kinds.length)
    .replacing('hidden_act', act);
  const config = readDecoderConfig(plain, architecture, TRAITS);
  const mixes = kinds.includes('moe');
  // transformers states what experts would have in models without any.
  if (!mixes) for (const name of OF_EXPERTS) fields.value(name);
  for (const [name, wanted, stated] of [
    ['attention_bias', false, fields.flag('attention_bias', false)],
    ['mamba_hidden_act', 'silu', fields.text('mamba_hidden_act') ?? 'silu'],
    ...(mixes ? [['mlp_hidden_act', 'relu2', act] as const] : []),
  ] as const)
    if (stated !== wanted)
      throw fields.unsupported(
        name,
        `"${name}": ${JSON.stringify(stated)} in a Nemotron-H`,
        'Use a checkpoint as they are published.',
      );
  return {
    ...config,
    kinds,
    mamba: kinds.includes('mamba') ? readMamba2(fields, MAMBA_NAMES, MAMBA_DEFAULTS) : null,
    mixture: mixes ? readMixture(fields) : null,
  };
}

function readMixture(fields: ConfigFields): NonNullable<NemotronHConfig['mixture']> {
  const names = {
    count: ['n_routed_experts', 'num_local_experts'],
    chosen: 'num_experts_per_tok',
    size: 'moe_intermediate_size',
  };
  const experts = readExperts(fields, names, { count: 8, chosen: 2, size: 7688 });
  return {
    experts,
    route: readGroupedRoute(fields, experts.experts, experts.chosen),
    sharedSize: fields.count('moe_shared_expert_intermediate_size', 7688),
    latent: fields.has('moe_latent_size') ? fields.count('moe_latent_size') : null,
  };
}

/** `<block>.{up,down}_proj`, of an MLP or of the expert that sees every token. */
function plainWeights(
  at: LayerLayout,
  block: string,
  hiddenSize: number,
  width: number,
  bias: boolean,
): void {
  at.matrix('mlp', 'up', hiddenSize, [{ tensor: `${block}.up_proj`, rows: width, bias }]);
  at.matrix('mlp', 'down', width, [{ tensor: `${block}.down_proj`, rows: hiddenSize, bias }]);
}

function mixtureWeights(
  at: LayerLayout,
  hiddenSize: number,
  { experts, sharedSize, latent }: NonNullable<NemotronHConfig['mixture']>,
  bias: boolean,
): void {
  if (latent !== null) {
    at.matrix('mlp', 'latent-in', hiddenSize, [{ tensor: `${BLOCK}.fc1_latent_proj`, rows: latent, bias }]);
    at.matrix('mlp', 'latent-out', latent, [{ tensor: `${BLOCK}.fc2_latent_proj`, rows: hiddenSize, bias }]);
  }
  expertWeights(at, latent ?? hiddenSize, experts, EXPERTS, hiddenSize);
  routerBias(at, `${BLOCK}.gate.e_score_correction_bias`, [experts.experts]);
  plainWeights(at, `${BLOCK}.shared_experts`, hiddenSize, sharedSize, bias);
}

/** `sum + down(act(up(normed)))` */
function plain(at: Layer, normed: Tensor, sum: Tensor, activation: NemotronHConfig['activation']): Tensor {
  return at.linear(at.ops.act(at.linear(normed, 'up'), activation), 'down', sum);
}

function mixture(
  at: Layer,
  normed: Tensor,
  sum: Tensor,
  { experts, route, latent }: NonNullable<NemotronHConfig['mixture']>,
): Tensor {
  const base = plain(at, normed, sum, 'relu2');
  // relu(x) · x, of a gate and an up that are the same rows.
  if (latent === null) return mixed(at, normed, experts, route, 'relu', { sum: base });
  const within = at.linear(normed, 'latent-in');
  return at.linear(mixed(at, within, experts, route, 'relu', { routed: normed }), 'latent-out', base);
}

export const nemotronH: Family<NemotronHConfig> = {
  name: 'nemotron_h',
  architectures: ['NemotronHForCausalLM'],
  modelTypes: ['nemotron_h'],
  readConfig,
  layout: (config) => {
    const { hiddenSize, intermediateSize, kinds, mamba, mixture: experts } = config;
    return decoderLayout(config, {
      ropes: [],
      lastNorm: 'norm_f',
      layer: (at) => {
        at.norm('norm', 'norm', hiddenSize);
        const kind = kinds[at.index];
        if (kind === 'attention') attentionWeights(at, { ...config, block: BLOCK, window: null });
        else if (kind === 'mamba' && mamba !== null) mamba2Weights(at, hiddenSize, mamba, BLOCK);
        else if (kind === 'moe' && experts !== null) mixtureWeights(at, hiddenSize, experts, config.bias.mlp);
        else plainWeights(at, BLOCK, hiddenSize, intermediateSize, config.bias.mlp);
      },
    });
  },
  record: (ops, config, weights, options) => {
    const { heads, kvHeads, headDim, qkNorm, kinds, mamba, mixture: experts, activation } = config;
    const attention = { heads, kvHeads, headDim, qkNorm, window: null, rope: null };
    return recordStack(ops, config, weights, options, {
      layer: (x, at) => {
        const kind = kinds[at.index];
        if (kind === 'attention')
          return at.linear(at.wanted(attend(at, at.norm(x, 'norm'), attention)), 'output', at.wanted(x));
        if (kind === 'mamba' && mamba !== null)
          return at.linear(at.wanted(mamba2(at, at.norm(x, 'norm'), mamba)), 'mamba-out', at.wanted(x));
        const sum = at.wanted(x);
        const normed = at.norm(sum, 'norm');
        return kind === 'moe' && experts !== null
          ? mixture(at, normed, sum, experts)
          : plain(at, normed, sum, activation);
      },
    });
  },
};
