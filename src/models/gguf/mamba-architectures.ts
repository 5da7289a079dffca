/**
 * The architectures of GGUF files with Mamba 2: Granite 4, Nemotron-H and 3, Falcon-H1. Decays are stored as they are used, norms of groups
 * with a row for each group.
 *
 * Source: what llama.cpp's converters write for each architecture (conversion/{granite,nemotron,falcon_h1,mamba}.py), and what its graphs
 * take for granted.
 */

import type { JsonObject } from '../../weights/folder-files.js';
import type { GgufArchitecture, MetadataReader } from './architecture.js';
import { experts, hasAny, ROUTER_BIAS, stacks } from './expert-architectures.js';

const mambaNames = (block: string): Record<string, string> => ({
  ssm_in: `${block}.in_proj`,
  ssm_conv1d: `${block}.conv1d`,
  ssm_norm: `${block}.norm`,
  ssm_out: `${block}.out_proj`,
});
const mambaWholeNames = (block: string): Record<string, string> => ({
  ssm_a: `${block}.A_log`,
  ssm_d: `${block}.D`,
  'ssm_dt.bias': `${block}.dt_bias`,
});

interface MambaSizes {
  readonly heads: number | null;
  readonly headDim: number | null;
  readonly inner: number | null;
  readonly groups: number | null;
  readonly stateSize: number | null;
  readonly taps: number | null;
  readonly convBias: boolean;
}

function mambaSizes(read: MetadataReader): MambaSizes {
  const heads = read.count('ssm.time_step_rank') ?? null;
  const inner = read.count('ssm.inner_size') ?? null;
  return {
    heads,
    inner,
    headDim: heads === null || inner === null ? null : inner / heads,
    groups: read.count('ssm.group_count') ?? null,
    stateSize: read.count('ssm.state_size') ?? null,
    taps: read.count('ssm.conv_kernel') ?? null,
    convBias: hasAny(read, 'ssm_conv1d.bias'),
  };
}

/** As Granite and Falcon call them. */
function mambaFields(read: MetadataReader): JsonObject {
  const sizes = mambaSizes(read);
  return {
    mamba_n_heads: sizes.heads,
    mamba_d_head: sizes.headDim,
    mamba_n_groups: sizes.groups,
    mamba_d_state: sizes.stateSize,
    mamba_d_conv: sizes.taps,
    mamba_conv_bias: sizes.convBias,
  };
}

function granite4(read: MetadataReader): JsonObject {
  const inner = read.count('ssm.inner_size');
  const shared = read.rows('blk.0.ffn_gate_shexp.weight') ?? read.rows('blk.0.ffn_gate.weight');
  return {
    embedding_multiplier: read.number('embedding_scale') ?? 1,
    residual_multiplier: read.number('residual_scale') ?? 1,
    logits_scaling: read.number('logit_scale') ?? 1,
    attention_multiplier: read.number('attention.scale') ?? read.headDim ** -0.5,
    // So converters say that layers do not rotate.
    position_embedding_type: read.flag('rope.scaling.finetuned') === false ? null : 'rope',
    layer_types: Array.from({ length: read.layers }, (_, layer) =>
      read.hasTensor(`blk.${layer}.ssm_in.weight`) ? 'mamba' : 'attention',
    ),
    ...mambaFields(read),
    ...(inner === undefined ? {} : { mamba_expand: inner / read.hidden }),
    shared_intermediate_size: shared ?? null,
    num_local_experts: read.count('expert_count', 0) ?? 0,
    num_experts_per_tok: read.count('expert_used_count', 0) ?? 0,
  };
}

function falconH1(read: MetadataReader): JsonObject {
  return {
    attention_bias: read.hasTensor('blk.0.attn_q.bias'),
    mlp_bias: read.hasTensor('blk.0.ffn_up.bias'),
    ...mambaFields(read),
    mamba_d_ssm: read.count('ssm.inner_size') ?? null,
    // Its graph gates first.
    mamba_rms_norm: hasAny(read, 'ssm_norm.weight'),
    mamba_norm_before_gate: false,
  };
}

function nemotronH(read: MetadataReader, { rms_norm_eps }: JsonObject): JsonObject {
  const { heads, headDim, groups, stateSize, taps, convBias } = mambaSizes(read);
  const layers = Array.from({ length: read.layers }, (_, layer) => layer);
  const has = (layer: number, tensor: string): boolean => read.hasTensor(`blk.${layer}.${tensor}.weight`);
  const kind = (layer: number): string =>
    has(layer, 'ssm_in')
      ? 'mamba'
      : has(layer, 'attn_q')
        ? 'attention'
        : has(layer, 'ffn_gate_inp')
          ? 'moe'
          : 'mlp';
  const plain = layers.find((layer) => kind(layer) === 'mlp');
  const shared = layers.find((layer) => has(layer, 'ffn_up_shexp'));
  return {
    layers_block_type: layers.map(kind),
    layer_norm_epsilon: rms_norm_eps,
    intermediate_size: (plain === undefined ? undefined : read.rows(`blk.${plain}.ffn_up.weight`)) ?? null,
    mlp_bias: ['ffn_up', 'ffn_up_shexp'].some((tensor) => hasAny(read, `${tensor}.bias`)),
    mamba_num_heads: heads,
    mamba_head_dim: headDim,
    n_groups: groups,
    ssm_state_size: stateSize,
    conv_kernel: taps,
    use_conv_bias: convBias,
    ...experts(read, 'n_routed_experts', 'moe_intermediate_size'),
    moe_shared_expert_intermediate_size:
      (shared === undefined ? undefined : read.rows(`blk.${shared}.ffn_up_shexp.weight`)) ?? null,
    moe_latent_size: read.count('moe_latent_size') ?? null,
    n_group: read.count('expert_group_count') ?? 1,
    topk_group: read.count('expert_group_used_count') ?? 1,
    norm_topk_prob: read.flag('expert_weights_norm') ?? true,
    routed_scaling_factor: read.number('expert_weights_scale') ?? 1,
  };
}

/** Rows of q and k lie in pairs in these files, which changes no score: nothing rotates them. */
const NEMOTRON_H: Omit<GgufArchitecture, 'name'> = {
  modelType: 'nemotron_h',
  className: 'NemotronHForCausalLM',
  bakedDecays: true,
  someAttend: true,
  lists: ['feed_forward_length'],
  topNames: { output_norm: 'model.norm_f' },
  names: {
    attn_norm: 'norm',
    attn_q: 'mixer.q_proj',
    attn_k: 'mixer.k_proj',
    attn_v: 'mixer.v_proj',
    attn_output: 'mixer.o_proj',
    ffn_up: 'mixer.up_proj',
    ffn_down: 'mixer.down_proj',
    ffn_gate_inp: 'mixer.gate',
    ffn_up_exps: 'mixer.switch_mlp.fc1',
    ffn_down_exps: 'mixer.switch_mlp.fc2',
    ffn_up_shexp: 'mixer.shared_experts.up_proj',
    ffn_down_shexp: 'mixer.shared_experts.down_proj',
    ffn_latent_down: 'mixer.fc1_latent_proj',
    ffn_latent_up: 'mixer.fc2_latent_proj',
    ...mambaNames('mixer'),
  },
  wholeNames: { [ROUTER_BIAS]: 'mixer.gate.e_score_correction_bias', ...mambaWholeNames('mixer') },
  reads: ['expert_count'],
  scores: 'sigmoid',
  fields: nemotronH,
};

export const MAMBA_ARCHITECTURES: readonly GgufArchitecture[] = [
  {
    name: 'granitehybrid',
    modelType: 'granitemoehybrid',
    className: 'GraniteMoeHybridForCausalLM',
    pairedRows: true,
    bakedDecays: true,
    someAttend: true,
    names: {
      ffn_gate_shexp: 'mlp.gate_proj',
      ffn_up_shexp: 'mlp.up_proj',
      ffn_down_shexp: 'mlp.down_proj',
      ffn_gate_inp: 'block_sparse_moe.router.layer',
      ...stacks('block_sparse_moe.switch_mlp'),
      ...mambaNames('mamba'),
    },
    wholeNames: mambaWholeNames('mamba'),
    reads: ['expert_count', 'logit_scale', 'embedding_scale', 'residual_scale'],
    fields: granite4,
  },
  { name: 'nemotron_h', ...NEMOTRON_H },
  { name: 'nemotron_h_moe', ...NEMOTRON_H },
  {
    // All multipliers are in the weights.
    name: 'falcon-h1',
    modelType: 'falcon_h1',
    className: 'FalconH1ForCausalLM',
    bakedDecays: true,
    topNames: { output_norm: 'model.final_layernorm' },
    names: {
      ffn_norm: 'pre_ff_layernorm',
      ffn_gate: 'feed_forward.gate_proj',
      ffn_up: 'feed_forward.up_proj',
      ffn_down: 'feed_forward.down_proj',
      ...mambaNames('mamba'),
    },
    wholeNames: mambaWholeNames('mamba'),
    fields: falconH1,
  },
];
