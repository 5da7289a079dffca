/**
 * GGUF files of models with latent attention: the fixture checkpoints are written with the names and the changes of llama.cpp's converter
 * (conversion/deepseek.py), and must give the logits of the published weights.
 */

import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { loadModel } from '../../src/models/load.js';
import { openModel } from '../../src/models/open.js';
import { bool, f32, string, u32, type Value } from '../setup/gguf-writer.js';
import { type Fields, type Named, published, writeGguf } from '../setup/published-tensors.js';
import { createReferenceDevice } from './reference-device.js';
import { expectedCases, largestDifference, loadFolder, MODEL_FIXTURES, Runner } from './runner.js';

const NAMES: Record<string, string> = {
  input_layernorm: 'attn_norm',
  post_attention_layernorm: 'ffn_norm',
  'self_attn.q_proj': 'attn_q',
  'self_attn.q_a_proj': 'attn_q_a',
  'self_attn.q_a_layernorm': 'attn_q_a_norm',
  'self_attn.q_b_proj': 'attn_q_b',
  'self_attn.kv_a_proj_with_mqa': 'attn_kv_a_mqa',
  'self_attn.kv_a_layernorm': 'attn_kv_a_norm',
  'self_attn.kv_b_proj': 'attn_kv_b',
  'self_attn.o_proj': 'attn_output',
  'mlp.gate': 'ffn_gate_inp',
  'mlp.gate_proj': 'ffn_gate',
  'mlp.up_proj': 'ffn_up',
  'mlp.down_proj': 'ffn_down',
  'mlp.shared_experts.gate_proj': 'ffn_gate_shexp',
  'mlp.shared_experts.up_proj': 'ffn_up_shexp',
  'mlp.shared_experts.down_proj': 'ffn_down_shexp',
};
const TOP: Record<string, string> = {
  'model.embed_tokens.weight': 'token_embd.weight',
  'model.norm.weight': 'output_norm.weight',
  'lm_head.weight': 'output.weight',
};

function renamed(tensor: Named): Named {
  const { name } = tensor;
  if (TOP[name] !== undefined) return { ...tensor, name: TOP[name] };
  const [, layer, path] = /^model\.layers\.(\d+)\.(.*)$/.exec(name)!;
  const expert = /^mlp\.experts\.\d+\.(gate|up|down)_proj\.weight$/.exec(path!)?.[1];
  if (expert !== undefined) return { ...tensor, name: `blk.${layer}.ffn_${expert}_exps.weight` };
  if (path === 'mlp.gate.e_score_correction_bias')
    return { ...tensor, name: `blk.${layer}.exp_probs_b.bias` };
  return { ...tensor, name: `blk.${layer}.${NAMES[path!.replace(/\.weight$/, '')]}.weight` };
}

/** One tensor of several of a name. */
function stacked(tensors: readonly Named[]): Named[] {
  const byName = new Map<string, Named[]>();
  for (const one of tensors) byName.set(one.name, [...(byName.get(one.name) ?? []), one]);
  return [...byName.values()].map(([first, ...others]) => {
    if (others.length === 0) return first!;
    const values = Float32Array.from([first!, ...others].flatMap((part) => [...part.values]));
    return { name: first!.name, shape: [1 + others.length, ...first!.shape], values };
  });
}

const rotation = (config: Fields): Record<string, number> =>
  config.rope_parameters as unknown as Record<string, number>;

async function convert(fixture: string, path: string): Promise<void> {
  const { config, tensors } = await published(join(MODEL_FIXTURES, fixture));
  const rope = rotation(config);
  const own = tensors.filter(
    ({ name }) => Number(/layers\.(\d+)\./.exec(name)?.[1] ?? 0) < config.num_hidden_layers!,
  );
  const at = (key: string): string => `deepseek2.${key}`;
  const metadata: Record<string, Value> = {
    'general.architecture': string('deepseek2'),
    [at('block_count')]: u32(config.num_hidden_layers!),
    [at('context_length')]: u32(config.max_position_embeddings!),
    [at('embedding_length')]: u32(config.hidden_size!),
    [at('feed_forward_length')]: u32(config.intermediate_size!),
    [at('attention.head_count')]: u32(config.num_attention_heads!),
    [at('attention.head_count_kv')]: u32(config.num_key_value_heads!),
    [at('attention.layer_norm_rms_epsilon')]: f32(config.rms_norm_eps!),
    [at('attention.kv_lora_rank')]: u32(config.kv_lora_rank!),
    ...(config.q_lora_rank === null ? {} : { [at('attention.q_lora_rank')]: u32(config.q_lora_rank!) }),
    // As files have it whose matrix of K and V is whole.
    [at('attention.key_length')]: u32(config.qk_nope_head_dim! + config.qk_rope_head_dim!),
    [at('attention.value_length')]: u32(config.v_head_dim!),
    [at('rope.dimension_count')]: u32(config.qk_rope_head_dim!),
    [at('rope.freq_base')]: f32(rope.rope_theta!),
    [at('rope.scaling.type')]: string('yarn'),
    [at('rope.scaling.factor')]: f32(rope.factor!),
    [at('rope.scaling.original_context_length')]: u32(rope.original_max_position_embeddings!),
    [at('rope.scaling.yarn_log_multiplier')]: f32(0.1 * rope.mscale_all_dim!),
    [at('leading_dense_block_count')]: u32(config.first_k_dense_replace!),
    [at('expert_count')]: u32(config.n_routed_experts!),
    [at('expert_used_count')]: u32(config.num_experts_per_tok!),
    [at('expert_shared_count')]: u32(config.n_shared_experts!),
    [at('expert_feed_forward_length')]: u32(config.moe_intermediate_size!),
    [at('expert_weights_scale')]: f32(config.routed_scaling_factor!),
    ...(config.norm_topk_prob ? { [at('expert_weights_norm')]: bool(true) } : {}),
    [at('expert_group_count')]: u32(config.n_group!),
    [at('expert_group_used_count')]: u32(config.topk_group!),
    ...(fixture === 'deepseek-v3' ? { [at('expert_gating_func')]: u32(2) } : {}),
  };
  await writeGguf(path, metadata, stacked(own.map(renamed)));
}

let scratch: string;
beforeAll(async () => {
  scratch = await mkdtemp(join(tmpdir(), 'kvant-gguf-'));
});
afterAll(() => rm(scratch, { recursive: true }));

it.each(['deepseek-v2', 'deepseek-v3'])(
  '%s as deepseek2 gives the logits of the published weights',
  async (fixture) => {
    const path = join(scratch, `${fixture}.gguf`);
    await convert(fixture, path);
    await using device = createReferenceDevice();
    const model = await loadFolder(path, device);
    const { config } = await published(join(MODEL_FIXTURES, fixture));
    // Files have one number for what scores and what rotations are multiplied with.
    const rope = rotation(config);
    const overrides = { rope_parameters: { ...rope, mscale: rope.mscale_all_dim! } };
    await using opened = await openModel(join(MODEL_FIXTURES, fixture), overrides);
    const plain = await loadModel(opened.source, opened.definition, device);
    for (const { prompt, logits, greedy } of expectedCases(fixture)) {
      await using runner = await Runner.create(device, model, { context: 128, chunk: 48 });
      await using other = await Runner.create(device, plain, { context: 128, chunk: 48 });
      const result = await runner.generate(prompt, greedy.length);
      const wanted = await other.generate(prompt, greedy.length);
      expect(largestDifference(result.logits[0]!, [...wanted.logits[0]!])).toBeLessThan(2e-5);
      expect(result.tokens).toEqual(wanted.tokens);
      if (rope.mscale === rope.mscale_all_dim)
        expect(largestDifference(result.logits[0]!, logits)).toBeLessThan(2e-4);
    }
  },
);
