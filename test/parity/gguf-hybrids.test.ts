/**
 * GGUF files of models of which only some layers attend, and of two more mixtures: the fixture checkpoints are written with the names and
 * the changes of llama.cpp's converters, and must give the logits that were computed elsewhere.
 */

import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { openModel } from '../../src/models/open.js';
import { bool, f32, u32, type Value } from '../setup/gguf-writer.js';
import type { Fields, Named } from '../setup/published-tensors.js';
import { type At, convertHybrid, type HybridConversion, renamed, rotation } from './gguf-hybrid-convert.js';
import { createReferenceDevice } from './reference-device.js';
import { expectPublished, loadFolder } from './runner.js';

const layerTypes = (config: Fields): readonly string[] => config.layer_types as unknown as string[];

const sharedNames = (path: string): Record<string, string> =>
  Object.fromEntries(['gate', 'up', 'down'].map((part) => [`${path}.${part}_proj`, `ffn_${part}_shexp`]));

const LFM2: Record<string, string> = {
  operator_norm: 'attn_norm',
  ffn_norm: 'ffn_norm',
  'self_attn.out_proj': 'attn_output',
  'self_attn.q_layernorm': 'attn_q_norm',
  'self_attn.k_layernorm': 'attn_k_norm',
  'conv.conv': 'shortconv.conv',
  'conv.in_proj': 'shortconv.in_proj',
  'conv.out_proj': 'shortconv.out_proj',
  'feed_forward.w1': 'ffn_gate',
  'feed_forward.w3': 'ffn_up',
  'feed_forward.w2': 'ffn_down',
  'feed_forward.gate': 'ffn_gate_inp',
};
const DELTA: Record<string, string> = {
  post_attention_layernorm: 'post_attention_norm',
  'linear_attn.in_proj_qkv': 'attn_qkv',
  'linear_attn.in_proj_z': 'attn_gate',
  'linear_attn.in_proj_ba': 'ssm_ba',
  'linear_attn.in_proj_b': 'ssm_beta',
  'linear_attn.in_proj_a': 'ssm_alpha',
  'linear_attn.conv1d': 'ssm_conv1d',
  'linear_attn.norm': 'ssm_norm',
  'linear_attn.out_proj': 'ssm_out',
  ...sharedNames('mlp.shared_expert'),
  'mlp.shared_expert_gate': 'ffn_gate_inp_shexp',
};

const lfm2 = (config: Fields, at: At): Record<string, Value> => ({
  [at('attention.head_count_kv')]: {
    type: 'i32s',
    value: layerTypes(config).map((type) => (type === 'full_attention' ? config.num_key_value_heads! : 0)),
  },
  [at('shortconv.l_cache')]: u32(config.conv_L_cache!),
  [at('attention.layer_norm_rms_epsilon')]: f32(config.norm_eps!),
});

function delta(config: Fields, at: At): Record<string, Value> {
  const { linear_num_value_heads: heads, linear_value_head_dim: dim } = config;
  return {
    [at('ssm.conv_kernel')]: u32(config.linear_conv_kernel_dim!),
    [at('ssm.state_size')]: u32(config.linear_key_head_dim!),
    [at('ssm.group_count')]: u32(config.linear_num_key_heads!),
    [at('ssm.time_step_rank')]: u32(heads!),
    [at('ssm.inner_size')]: u32(heads! * dim!),
    [at('rope.dimension_count')]: u32(0.25 * config.head_dim!),
  };
}

const mixture =
  (count: string, chosen: string, width: string) =>
  (config: Fields, at: At): Record<string, Value> => ({
    [at('expert_count')]: u32(config[count]!),
    [at('expert_used_count')]: u32(config[chosen]!),
    [at('expert_feed_forward_length')]: u32(config[width]!),
  });
const qwenMixture = mixture('num_experts', 'num_experts_per_tok', 'moe_intermediate_size');

/** Rows from by key head to tiled: `reshape(keyHeads, each, dim, …).swapaxes(0, 1)`. */
function tiled(values: Float32Array, keyHeads: number, heads: number): Float32Array {
  const unit = values.length / heads;
  const out = new Float32Array(values.length);
  const each = heads / keyHeads;
  for (let key = 0; key < keyHeads; key++)
    for (let own = 0; own < each; own++)
      out.set(
        values.subarray((key * each + own) * unit, (key * each + own + 1) * unit),
        (own * keyHeads + key) * unit,
      );
  return out;
}

/** As both have it: decays as they are used, 1 in norms; of Qwen3.5 value heads tiled, of Qwen3-Next matrices apart. */
function hybrid(tile: boolean): NonNullable<HybridConversion['change']> {
  return (tensor, config) => {
    const { name, shape } = tensor;
    const layer = /layers\.(\d+)\./.exec(name)?.[1];
    const { linear_num_key_heads: keyHeads, linear_num_value_heads: heads } = config as Record<
      string,
      number
    >;
    const { linear_key_head_dim: keyDim, linear_value_head_dim: valueDim } = config;
    const keys = 2 * keyHeads! * keyDim!;
    const tiles = (all: Float32Array): Float32Array => (tile ? tiled(all, keyHeads!, heads!) : all);
    const behind = (from: number): Float32Array => {
      const values = tensor.values.slice();
      values.set(tiles(values.slice(from)), from);
      return values;
    };
    const one = (to: string, values: Float32Array, sizes = shape): Named[] => [
      { name: `blk.${layer}.${to}`, shape: sizes, values },
    ];
    if (name.endsWith('.A_log')) return one('ssm_a', tiles(tensor.values.map((value) => -Math.exp(value))));
    if (name.endsWith('.dt_bias')) return one('ssm_dt.bias', tiles(tensor.values));
    if (name.endsWith('.conv1d.weight')) {
      const taps = shape.at(-1)!;
      return one('ssm_conv1d.weight', behind(keys * taps), [shape[0]!, taps]);
    }
    if (name.endsWith('in_proj_qkv.weight')) return one('attn_qkv.weight', behind(keys * shape[1]!));
    if (/in_proj_[zba]\.weight$/.test(name)) {
      const to = { z: 'attn_gate', b: 'ssm_beta', a: 'ssm_alpha' }[/_([zba])\./.exec(name)![1]!]!;
      return one(`${to}.weight`, tiles(tensor.values));
    }
    if (name.endsWith('linear_attn.out_proj.weight')) {
      const values = tensor.values.slice();
      const cols = shape[1]!;
      for (let row = 0; row < shape[0]!; row++)
        values.set(tiles(tensor.values.slice(row * cols, (row + 1) * cols)), row * cols);
      return one('ssm_out.weight', values);
    }
    if (name.endsWith('in_proj_qkvz.weight')) {
      const cols = shape[1]!;
      const each = heads! / keyHeads!;
      const widths = [keyDim!, keyDim!, each * valueDim!, each * valueDim!];
      const group = widths.reduce((sum, width) => sum + width, 0);
      const part = (index: number): number[] => {
        const from = widths.slice(0, index).reduce((sum, width) => sum + width, 0);
        return Array.from({ length: keyHeads! }, (_, head) => [
          ...tensor.values.subarray(
            (head * group + from) * cols,
            (head * group + from + widths[index]!) * cols,
          ),
        ]).flat();
      };
      const qkv = Float32Array.from([part(0), part(1), part(2)].flat());
      const z = Float32Array.from(part(3));
      return [
        ...one('attn_qkv.weight', qkv, [qkv.length / cols, cols]),
        ...one('attn_gate.weight', z, [z.length / cols, cols]),
      ];
    }
    if (name.endsWith('norm.weight') && !name.endsWith('linear_attn.norm.weight')) {
      const changed = { ...tensor, values: tensor.values.map((value) => value + 1) };
      return [{ ...changed, name: renamed(name, DELTA) }];
    }
    return null;
  };
}

const GEMMA4_NAMES: Record<string, string> = {
  post_attention_layernorm: 'post_attention_norm',
  pre_feedforward_layernorm: 'ffn_norm',
  post_feedforward_layernorm: 'post_ffw_norm',
  post_feedforward_layernorm_1: 'post_ffw_norm_1',
  post_feedforward_layernorm_2: 'post_ffw_norm_2',
  pre_feedforward_layernorm_2: 'pre_ffw_norm_2',
  per_layer_input_gate: 'inp_gate',
  per_layer_projection: 'proj',
  post_per_layer_input_norm: 'post_norm',
  'router.proj': 'ffn_gate_inp',
};

function gemma4(stated: Fields, at: At): Record<string, Value> {
  const config = stated as unknown as { readonly per_layer_config: Record<string, Fields> } & Record<
    string,
    unknown
  >;
  const layers = stated.num_hidden_layers!;
  const types = layerTypes(stated);
  const full = config.per_layer_config[types.indexOf('full_attention')]!;
  const ropes = rotation(stated) as unknown as Record<string, Record<string, number>>;
  const wide = (layer: number): number =>
    stated.intermediate_size! *
    (config.use_double_wide_mlp && layer >= layers - stated.num_kv_shared_layers! ? 2 : 1);
  return {
    [at('attention.key_length')]: u32(full.head_dim!),
    [at('attention.key_length_swa')]: u32(stated.head_dim!),
    [at('attention.head_count_kv')]: {
      type: 'i32s',
      value: types.map((type) =>
        type === 'full_attention'
          ? (full.num_key_value_heads ?? stated.num_key_value_heads!)
          : stated.num_key_value_heads!,
      ),
    },
    [at('feed_forward_length')]: {
      type: 'i32s',
      value: types.map((_, layer) => wide(layer)),
    },
    [at('attention.sliding_window')]: u32(stated.sliding_window!),
    [at('attention.sliding_window_pattern')]: {
      type: 'bools',
      value: types.map((type) => (type === 'sliding_attention' ? 1 : 0)),
    },
    [at('attention.shared_kv_layers')]: u32(stated.num_kv_shared_layers!),
    [at('embedding_length_per_layer_input')]: u32(stated.hidden_size_per_layer_input!),
    [at('rope.freq_base')]: f32(ropes.full_attention!.rope_theta!),
    [at('rope.freq_base_swa')]: f32(ropes.sliding_attention!.rope_theta!),
    [at('rope.dimension_count')]: u32(full.head_dim!),
    [at('rope.dimension_count_swa')]: u32(stated.head_dim!),
    ...(config.final_logit_softcapping === null
      ? {}
      : { [at('final_logit_softcapping')]: f32(stated.final_logit_softcapping!) }),
    ...(config.enable_moe_block
      ? mixture('num_experts', 'top_k_experts', 'moe_intermediate_size')(stated, at)
      : {}),
  };
}

/** Numbers of a layer get endings, gate and up of experts stay joined. */
const changedGemma4: NonNullable<HybridConversion['change']> = (tensor) => {
  const [, layer, path] = /^model\.layers\.(\d+)\.(.*)$/.exec(tensor.name) ?? [];
  const to = {
    layer_scalar: 'layer_output_scale.weight',
    'router.scale': 'ffn_gate_inp.scale',
    'router.per_expert_scale': 'ffn_down_exps.scale',
    'experts.gate_up_proj': 'ffn_gate_up_exps.weight',
    'experts.down_proj': 'ffn_down_exps.weight',
  }[path ?? ''];
  return to === undefined ? null : [{ ...tensor, name: `blk.${layer}.${to}` }];
};

/** Of a quarter of the pairs of 16 dims: two rotate. */
const GEMMA4_FREQUENCIES: Named = {
  name: 'rope_freqs.weight',
  shape: [8],
  values: Float32Array.of(1, 1, 1e30, 1e30, 1e30, 1e30, 1e30, 1e30),
};

const CASES: readonly HybridConversion[] = [
  ...['gemma4-moe', 'gemma4-shared'].map((fixture) => ({
    fixture,
    arch: 'gemma4',
    names: GEMMA4_NAMES,
    more: gemma4,
    change: changedGemma4,
    extra: GEMMA4_FREQUENCIES,
  })),
  {
    fixture: 'lfm2',
    arch: 'lfm2',
    names: LFM2,
    more: (config, at) => ({ ...lfm2(config, at), [at('feed_forward_length')]: u32(128) }),
  },
  {
    fixture: 'lfm2-moe',
    arch: 'lfm2moe',
    names: LFM2,
    more: (config, at) => ({
      ...lfm2(config, at),
      ...qwenMixture(config, at),
      [at('leading_dense_block_count')]: u32(config.num_dense_layers!),
      [at('expert_weights_scale')]: f32(config.routed_scaling_factor!),
      [at('expert_weights_norm')]: bool(true),
    }),
  },
  { fixture: 'qwen3.5', arch: 'qwen35', names: DELTA, more: delta, change: hybrid(true) },
  {
    fixture: 'qwen3.5-moe',
    arch: 'qwen35moe',
    names: DELTA,
    change: hybrid(true),
    more: (config, at) => ({
      ...delta(config, at),
      ...qwenMixture(config, at),
      [at('expert_shared_feed_forward_length')]: u32(config.shared_expert_intermediate_size!),
    }),
  },
  {
    fixture: 'qwen3-next',
    arch: 'qwen3next',
    names: DELTA,
    change: hybrid(false),
    more: (config, at) => ({
      ...delta(config, at),
      ...qwenMixture(config, at),
      [at('expert_shared_feed_forward_length')]: u32(config.shared_expert_intermediate_size!),
    }),
  },
  // As Ollama has it.
  {
    fixture: 'qwen3-next',
    arch: 'qwen3next',
    names: DELTA,
    change: hybrid(false),
    stored: (name) => name.replace('.ssm_dt.bias', '.ssm_dt'),
    more: (config, at) => ({
      ...delta(config, at),
      ...qwenMixture(config, at),
      [at('expert_shared_feed_forward_length')]: u32(config.shared_expert_intermediate_size!),
    }),
  },
  {
    fixture: 'ernie4_5-moe',
    arch: 'ernie4_5-moe',
    names: sharedNames('mlp.shared_experts'),
    more: (config, at) => ({
      ...mixture('moe_num_experts', 'moe_k', 'moe_intermediate_size')(config, at),
      [at('interleave_moe_layer_step')]: u32(config.moe_layer_interval!),
      [at('leading_dense_block_count')]: u32(config.moe_layer_start_index!),
      [at('expert_shared_count')]: u32(config.moe_num_shared_experts!),
    }),
  },
  {
    fixture: 'hunyuan-moe',
    arch: 'hunyuan-moe',
    names: {
      ...sharedNames('mlp.shared_mlp'),
      'mlp.gate.wg': 'ffn_gate_inp',
      'self_attn.query_layernorm': 'attn_q_norm',
      'self_attn.key_layernorm': 'attn_k_norm',
    },
    // The grown base is what is written.
    more: (config, at) => {
      const { rope_theta, alpha } = rotation(config);
      const wide = config.head_dim!;
      return {
        ...mixture('num_experts', 'moe_topk', 'intermediate_size')(config, at),
        [at('expert_shared_count')]: u32(1),
        [at('rope.freq_base')]: f32(rope_theta! * alpha! ** (wide / (wide - 2))),
      };
    },
  },
  {
    fixture: 'hy3',
    arch: 'hy_v3',
    names: { ...sharedNames('mlp.shared_mlp'), 'mlp.router.gate': 'ffn_gate_inp' },
    more: (config, at) => ({
      ...mixture('num_experts', 'num_experts_per_tok', 'moe_intermediate_size')(config, at),
      [at('expert_shared_count')]: u32(config.num_shared_experts!),
      [at('expert_shared_feed_forward_length')]: u32(
        config.num_shared_experts! * config.moe_intermediate_size!,
      ),
      [at('expert_weights_norm')]: bool(true),
      [at('expert_weights_scale')]: f32(config.router_scaling_factor!),
      [at('expert_gating_func')]: u32(2),
    }),
  },
];

let scratch: string;
beforeAll(async () => {
  scratch = await mkdtemp(join(tmpdir(), 'kvant-gguf-'));
});
afterAll(() => rm(scratch, { recursive: true }));

/** Matrices of Qwen3-Next as its first converter left them: grouped by key head. */
const GROUPED: HybridConversion = {
  ...CASES.find(({ arch }) => arch === 'qwen3next')!,
  change: (tensor, config) => {
    const [, layer] = /layers\.(\d+)\..*in_proj_qkvz\.weight$/.exec(tensor.name) ?? [];
    if (layer === undefined) return hybrid(false)(tensor, config);
    return [{ ...tensor, name: `blk.${layer}.ssm_in.weight` }];
  },
};

it.each([
  ...CASES,
  ...CASES.filter(({ arch }) => /gemma4|lfm2|qwen3|hy_v3/.test(arch)).map((one) => ({ ...one, fused: true })),
  GROUPED,
])('$fixture as $arch gives the logits of the published weights', async (conversion) => {
  const path = join(scratch, `${conversion.fixture}.gguf`);
  await convertHybrid(conversion, path);
  await using opened = await openModel(path);
  expect(opened.definition.facts.architecture).toMatch(/ForCausalLM$/);
  await using device = createReferenceDevice();
  const model = await loadFolder(path, device);
  await expectPublished(device, model, conversion.fixture);
});

it.each([
  ['hy3', 'expert_gating_func', u32(1), 'hy_v3.expert_gating_func'],
  ['hy3', 'expert_weights_norm', bool(false), 'route_norm'],
  ['lfm2-moe', 'expert_gating_func', u32(3), 'lfm2moe.expert_gating_func'],
] as const)('%s refuses another %s by name', async (fixture, key, value, where) => {
  const conversion = CASES.find((one) => one.fixture === fixture)!;
  const path = join(scratch, `${fixture}-${key}.gguf`);
  const more: HybridConversion['more'] = (config, at) => ({
    ...conversion.more(config, at),
    [at(key)]: value,
  });
  await convertHybrid({ ...conversion, more }, path);
  await expect(openModel(path)).rejects.toMatchObject({ code: 'model-config-unsupported', where });
});
