/**
 * GGUF files of models with Mamba 2: the fixture checkpoints are written with the names and the changes of llama.cpp's converters
 * (conversion/{granite,nemotron,falcon_h1,mamba}.py), and must give the logits that were computed elsewhere.
 */

import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { ggufInput } from '../../src/models/gguf/quantize-input.js';
import { GgufSource } from '../../src/models/gguf/source.js';
import { openModel } from '../../src/models/open.js';
import { writeQuantized } from '../../src/weights/write-quantized.js';
import { bool, f32, i32s, string, u32, type Value } from '../setup/gguf-writer.js';
import { type Fields, type Named, paired, published, rowsOf, writeGguf } from '../setup/published-tensors.js';
import { createReferenceDevice } from './reference-device.js';
import {
  expectedCases,
  expectPublished,
  largestDifference,
  loadFolder,
  MODEL_FIXTURES,
  Runner,
} from './runner.js';

interface Conversion {
  readonly fixture: string;
  readonly arch: string;
  readonly metadata: (config: Fields, at: (key: string) => string) => Record<string, Value>;
  readonly change: (tensor: Named, config: Fields) => readonly Named[];
}

const layerTypes = (config: Fields, field: string): readonly string[] => config[field] as unknown as string[];
const attendsOnly = (config: Fields, types: readonly string[]): Value =>
  i32s(types.map((type) => (type === 'full_attention' ? config.num_key_value_heads! : 0)));

/** Of a recurrent layer: decays as they are used, in rows, and the norm with a row for each group. */
function mamba(tensor: Named, prefix: string, path: string, groups: number): Named[] | null {
  const { shape, values } = tensor;
  const one = (name: string, own: readonly number[] = shape, all = values): Named[] => [
    { name: prefix + name, shape: own, values: all },
  ];
  switch (path) {
    case 'A_log':
      return one(
        'ssm_a',
        [values.length, 1],
        values.map((value) => -Math.exp(value)),
      );
    case 'D':
      return one('ssm_d', [values.length, 1]);
    case 'dt_bias':
      return one('ssm_dt.bias');
    case 'conv1d.weight':
      return one('ssm_conv1d.weight', [shape[0]!, shape[2]!]);
    case 'conv1d.bias':
      return one('ssm_conv1d.bias');
    case 'norm.weight':
      return one('ssm_norm.weight', [groups, values.length / groups]);
    case 'in_proj.weight':
      return one('ssm_in.weight');
    case 'out_proj.weight':
      return one('ssm_out.weight');
    default:
      return null;
  }
}

const TOP: Record<string, string> = {
  'model.embed_tokens.weight': 'token_embd.weight',
  'model.norm.weight': 'output_norm.weight',
  'model.final_layernorm.weight': 'output_norm.weight',
  'backbone.embeddings.weight': 'token_embd.weight',
  'backbone.norm_f.weight': 'output_norm.weight',
  'lm_head.weight': 'output.weight',
};

function granite(tensor: Named, config: Fields): Named[] {
  const top = TOP[tensor.name];
  if (top !== undefined) return [{ ...tensor, name: top }];
  const [, layer, path] = /layers\.(\d+)\.(.*)$/.exec(tensor.name)!;
  const at = `blk.${layer}.`;
  const of = /^mamba\.(.*)$/.exec(path!)?.[1];
  if (of !== undefined) return mamba(tensor, at, of, config.mamba_n_groups!)!;
  const half = tensor.shape.at(-2)! / 2;
  const halves = (gate: string, up: string): Named[] => [
    { name: at + gate, ...rowsOf(tensor, 0, half) },
    { name: at + up, ...rowsOf(tensor, half, 2 * half) },
  ];
  switch (path) {
    case 'block_sparse_moe.input_linear.weight':
      return halves('ffn_gate_exps.weight', 'ffn_up_exps.weight');
    case 'shared_mlp.input_linear.weight':
      return halves('ffn_gate_shexp.weight', 'ffn_up_shexp.weight');
    case 'self_attn.q_proj.weight':
      return [{ ...tensor, name: `${at}attn_q.weight`, values: paired(tensor, config.num_attention_heads!) }];
    case 'self_attn.k_proj.weight':
      return [{ ...tensor, name: `${at}attn_k.weight`, values: paired(tensor, config.num_key_value_heads!) }];
    default: {
      const name = {
        'block_sparse_moe.output_linear.weight': 'ffn_down_exps.weight',
        'block_sparse_moe.router.layer.weight': 'ffn_gate_inp.weight',
        'shared_mlp.output_linear.weight': 'ffn_down_shexp.weight',
        'input_layernorm.weight': 'attn_norm.weight',
        'post_attention_layernorm.weight': 'ffn_norm.weight',
        'self_attn.v_proj.weight': 'attn_v.weight',
        'self_attn.o_proj.weight': 'attn_output.weight',
      }[path!];
      return [{ ...tensor, name: at + name }];
    }
  }
}

/** Its multipliers go into the weights. */
function falcon(tensor: Named, stated: Fields): Named[] {
  const config = stated as Fields & {
    readonly mlp_multipliers: number[];
    readonly ssm_multipliers: number[];
  };
  const scaled = (name: string, by: number): Named[] => [
    { ...tensor, name, values: tensor.values.map((value) => value * by) },
  ];
  if (tensor.name === 'lm_head.weight') return scaled('output.weight', config.lm_head_multiplier!);
  if (tensor.name === 'model.embed_tokens.weight') {
    const rows = scaled('token_embd.weight', config.embedding_multiplier!);
    // A head that is the embedding stands once more, for it has another multiplier.
    return config.tie_word_embeddings
      ? [...rows, ...scaled('output.weight', config.lm_head_multiplier!)]
      : rows;
  }
  const top = TOP[tensor.name];
  if (top !== undefined) return [{ ...tensor, name: top }];
  const [, layer, path] = /layers\.(\d+)\.(.*)$/.exec(tensor.name)!;
  const at = `blk.${layer}.`;
  const { attention_in_multiplier: seen } = config;
  const inner = config.mamba_d_ssm!;
  const states = config.mamba_n_groups! * config.mamba_d_state!;
  const cols = tensor.shape.at(-1)!;
  switch (path) {
    case 'mamba.in_proj.weight': {
      const ends = [inner, 2 * inner, 2 * inner + states, 2 * inner + 2 * states, tensor.shape[0]!];
      const by = (row: number): number => config.ssm_multipliers[ends.findIndex((end) => row < end)]!;
      const values = tensor.values.map(
        (value, i) => value * config.ssm_in_multiplier! * by(Math.floor(i / cols)),
      );
      return [{ ...tensor, name: `${at}ssm_in.weight`, values }];
    }
    case 'mamba.out_proj.weight':
      return scaled(`${at}ssm_out.weight`, config.ssm_out_multiplier!);
    case 'self_attn.q_proj.weight':
      return scaled(`${at}attn_q.weight`, seen!);
    case 'self_attn.k_proj.weight':
      return scaled(`${at}attn_k.weight`, seen! * config.key_multiplier!);
    case 'self_attn.v_proj.weight':
      return scaled(`${at}attn_v.weight`, seen!);
    case 'self_attn.o_proj.weight':
      return scaled(`${at}attn_output.weight`, config.attention_out_multiplier!);
    case 'feed_forward.gate_proj.weight':
      return scaled(`${at}ffn_gate.weight`, config.mlp_multipliers[0]!);
    case 'feed_forward.down_proj.weight':
      return scaled(`${at}ffn_down.weight`, config.mlp_multipliers[1]!);
    case 'feed_forward.up_proj.weight':
      return scaled(`${at}ffn_up.weight`, 1);
    case 'input_layernorm.weight':
      return scaled(`${at}attn_norm.weight`, 1);
    case 'pre_ff_layernorm.weight':
      return scaled(`${at}ffn_norm.weight`, 1);
    default:
      return mamba(tensor, at, path!.replace(/^mamba\./, ''), config.mamba_n_groups!)!;
  }
}

const NEMOTRON: Record<string, string> = {
  'mixer.q_proj': 'attn_q',
  'mixer.k_proj': 'attn_k',
  'mixer.v_proj': 'attn_v',
  'mixer.o_proj': 'attn_output',
  'mixer.up_proj': 'ffn_up',
  'mixer.down_proj': 'ffn_down',
  'mixer.gate': 'ffn_gate_inp',
  'mixer.shared_experts.up_proj': 'ffn_up_shexp',
  'mixer.shared_experts.down_proj': 'ffn_down_shexp',
  'mixer.fc1_latent_proj': 'ffn_latent_down',
  'mixer.fc2_latent_proj': 'ffn_latent_up',
  norm: 'attn_norm',
};

function nemotron(tensor: Named, config: Fields): Named[] {
  const top = TOP[tensor.name];
  if (top !== undefined) return [{ ...tensor, name: top }];
  const [, layer, path] = /layers\.(\d+)\.(.*)$/.exec(tensor.name)!;
  const at = `blk.${layer}.`;
  if (path === 'mixer.gate.e_score_correction_bias') return [{ ...tensor, name: `${at}exp_probs_b.bias` }];
  // Stacked by the caller.
  const expert = /^mixer\.experts\.\d+\.(up|down)_proj\.weight$/.exec(path!)?.[1];
  if (expert !== undefined) return [{ ...tensor, name: `${at}ffn_${expert}_exps.weight` }];
  const own = mamba(tensor, at, path!.replace(/^mixer\./, ''), config.n_groups!);
  if (own !== null && path !== 'norm.weight') return own;
  const [, part, kind] = /^(.*)\.(weight|bias)$/.exec(path!)!;
  const name = `${at}${NEMOTRON[part!]}.${kind}`;
  // Pairs of a rotation that there is none of.
  const heads = { 'mixer.q_proj': config.num_attention_heads!, 'mixer.k_proj': config.num_key_value_heads! }[
    part!
  ];
  return [{ ...tensor, name, ...(heads === undefined ? {} : { values: paired(tensor, heads) }) }];
}

const ssm = (
  at: (key: string) => string,
  sizes: { taps: number; state: number; groups: number; heads: number; inner: number },
): Record<string, Value> => ({
  [at('ssm.conv_kernel')]: u32(sizes.taps),
  [at('ssm.state_size')]: u32(sizes.state),
  [at('ssm.group_count')]: u32(sizes.groups),
  [at('ssm.time_step_rank')]: u32(sizes.heads),
  [at('ssm.inner_size')]: u32(sizes.inner),
});

const NEMOTRON_METADATA: Conversion['metadata'] = (config, at) => {
  const types = layerTypes(config, 'layers_block_type');
  return {
    ...ssm(at, {
      taps: config.conv_kernel!,
      state: config.ssm_state_size!,
      groups: config.n_groups!,
      heads: config.mamba_num_heads!,
      inner: config.mamba_num_heads! * config.mamba_head_dim!,
    }),
    [at('block_count')]: u32(types.length),
    [at('attention.head_count_kv')]: attendsOnly(config, types),
    [at('feed_forward_length')]: i32s(
      types.map((type) => (type === 'moe' ? config.moe_intermediate_size! : 0)),
    ),
    [at('attention.key_length')]: u32(config.head_dim!),
    [at('rope.scaling.finetuned')]: bool(false),
    [at('expert_count')]: u32(config.n_routed_experts!),
    [at('expert_used_count')]: u32(config.num_experts_per_tok!),
    [at('expert_feed_forward_length')]: u32(config.moe_intermediate_size!),
    [at('expert_shared_feed_forward_length')]: u32(config.moe_shared_expert_intermediate_size!),
    [at('expert_weights_norm')]: bool(true),
    [at('expert_weights_scale')]: f32(config.routed_scaling_factor!),
    [at('expert_group_count')]: u32(config.n_group!),
    [at('expert_group_used_count')]: u32(config.topk_group!),
    ...(config.moe_latent_size === null ? {} : { [at('moe_latent_size')]: u32(config.moe_latent_size!) }),
  };
};

const FALCON_METADATA: Conversion['metadata'] = (config, at) => ({
  ...ssm(at, {
    taps: config.mamba_d_conv!,
    state: config.mamba_d_state!,
    groups: config.mamba_n_groups!,
    heads: config.mamba_n_heads!,
    inner: config.mamba_d_ssm!,
  }),
  [at('attention.head_count_kv')]: u32(config.num_key_value_heads!),
  [at('attention.key_length')]: u32(config.head_dim!),
  [at('rope.freq_base')]: f32((config.rope_parameters as unknown as Fields).rope_theta!),
});

const GRANITE_MOE_METADATA: Conversion['metadata'] = (config, at) => ({
  [at('attention.head_count_kv')]: u32(config.num_key_value_heads!),
  [at('attention.key_length')]: u32(config.head_dim ?? config.hidden_size! / config.num_attention_heads!),
  [at('attention.scale')]: f32(config.attention_multiplier!),
  [at('embedding_scale')]: f32(config.embedding_multiplier!),
  [at('residual_scale')]: f32(config.residual_multiplier!),
  [at('logit_scale')]: f32(config.logits_scaling!),
  [at('rope.freq_base')]: f32((config.rope_parameters as unknown as Fields).rope_theta!),
  [at('expert_count')]: u32(config.num_local_experts!),
  [at('expert_used_count')]: u32(config.num_experts_per_tok!),
});

const CASES: readonly Conversion[] = [
  // Of Granite 3, whose layers all attend: the same names.
  {
    fixture: 'granite-moe',
    arch: 'granitemoe',
    change: granite,
    metadata: GRANITE_MOE_METADATA,
  },
  // With an MLP beside the experts, as of a Granite 4 whose layers all attend.
  {
    fixture: 'granite4-attends',
    arch: 'granitemoe',
    change: granite,
    metadata: (config, at) => ({
      ...GRANITE_MOE_METADATA(config, at),
      [at('expert_shared_feed_forward_length')]: u32(config.shared_intermediate_size!),
    }),
  },
  {
    fixture: 'granite4-h',
    arch: 'granitehybrid',
    change: granite,
    metadata: (config, at) => ({
      ...ssm(at, {
        taps: config.mamba_d_conv!,
        state: config.mamba_d_state!,
        groups: config.mamba_n_groups!,
        heads: config.mamba_n_heads!,
        inner: config.mamba_expand! * config.hidden_size!,
      }),
      [at('attention.head_count_kv')]: attendsOnly(config, layerTypes(config, 'layer_types')),
      [at('attention.scale')]: f32(config.attention_multiplier!),
      [at('embedding_scale')]: f32(config.embedding_multiplier!),
      [at('residual_scale')]: f32(config.residual_multiplier!),
      [at('logit_scale')]: f32(config.logits_scaling!),
      [at('rope.scaling.finetuned')]: bool(false),
      [at('rope.dimension_count')]: u32(config.hidden_size! / config.num_attention_heads!),
      [at('expert_count')]: u32(config.num_local_experts!),
      [at('expert_used_count')]: u32(config.num_experts_per_tok!),
      [at('expert_shared_feed_forward_length')]: u32(config.shared_intermediate_size!),
    }),
  },
  { fixture: 'falcon-h1', arch: 'falcon-h1', change: falcon, metadata: FALCON_METADATA },
  { fixture: 'falcon-h1-norm', arch: 'falcon-h1', change: falcon, metadata: FALCON_METADATA },
  ...['nemotron-h', 'nemotron-h-moe'].map((fixture) => ({
    fixture,
    arch: 'nemotron_h_moe',
    change: nemotron,
    metadata: NEMOTRON_METADATA,
  })),
];

async function convert({ fixture, arch, metadata, change }: Conversion, path: string): Promise<void> {
  const { config, tensors } = await published(join(MODEL_FIXTURES, fixture));
  const at = (key: string): string => `${arch}.${key}`;
  const written = new Map<string, Named[]>();
  for (const tensor of tensors.flatMap((one) => change(one, config)))
    written.set(tensor.name, [...(written.get(tensor.name) ?? []), tensor]);
  const keys = {
    'general.architecture': string(arch),
    [at('block_count')]: u32(config.num_hidden_layers ?? 0),
    [at('context_length')]: u32(config.max_position_embeddings!),
    [at('embedding_length')]: u32(config.hidden_size!),
    [at('feed_forward_length')]: u32(config.intermediate_size!),
    [at('attention.head_count')]: u32(config.num_attention_heads!),
    [at('attention.layer_norm_rms_epsilon')]: f32(config.rms_norm_eps!),
    ...metadata(config, at),
  };
  const all = [...written.values()].map(([first, ...others]): Named => {
    if (others.length === 0) return first!;
    const values = Float32Array.from([first!, ...others].flatMap((part) => [...part.values]));
    return { name: first!.name, shape: [1 + others.length, ...first!.shape], values };
  });
  await writeGguf(path, keys, all);
}

let scratch: string;
beforeAll(async () => {
  scratch = await mkdtemp(join(tmpdir(), 'kvant-gguf-'));
});
afterAll(() => rm(scratch, { recursive: true }));

it.each(CASES)('$fixture as $arch gives the logits of the published weights', async (conversion) => {
  const path = join(scratch, `${conversion.fixture}.gguf`);
  await convert(conversion, path);
  await using opened = await openModel(path);
  expect(opened.definition.facts.architecture).toMatch(/ForCausalLM$/);
  await using device = createReferenceDevice();
  const model = await loadFolder(path, device);
  await expectPublished(device, model, conversion.fixture);
});

it.each(['granite4-h', 'falcon-h1', 'nemotron-h'])(
  '%s is quantised to a folder that loads',
  async (fixture) => {
    const path = join(scratch, `${fixture}-again.gguf`);
    await convert(CASES.find((one) => one.fixture === fixture)!, path);
    const folder = join(scratch, `${fixture}-8bit`);
    const source = await GgufSource.open(path);
    try {
      await writeQuantized(ggufInput(source, {}), folder, { bits: 8, groupSize: 32 });
    } finally {
      await source.close();
    }
    await using device = createReferenceDevice();
    const model = await loadFolder(folder, device);
    const [{ prompt, logits }] = expectedCases(fixture) as [ReturnType<typeof expectedCases>[number]];
    await using runner = await Runner.create(device, model, { context: 128, chunk: 48 });
    const result = await runner.generate(prompt, 1);
    const largest = Math.max(...logits.map(Math.abs));
    expect(largestDifference(result.logits[0]!, logits)).toBeLessThan(0.02 * largest);
  },
);
