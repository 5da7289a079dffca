/**
 * GGUF files of models with latent attention: the fixture checkpoints are written with the names and the changes of llama.cpp's converter
 * (conversion/deepseek.py, conversion/mistral3.py), and must give the logits of the published weights.
 */

import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
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
  'self_attn.k_b_proj': 'attn_k_b',
  'self_attn.v_b_proj': 'attn_v_b',
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
  // Mistral 4 is published with stacks.
  const stack = /^mlp\.experts\.(gate_up|down)_proj$/.exec(path!)?.[1];
  if (stack !== undefined) return { ...tensor, name: `blk.${layer}.ffn_${stack}_exps.weight` };
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

/** Of each head the rows of K transposed, and the rows of V: how files have had `kv_b_proj` since 2025. */
function split({ name, values }: Named, config: Fields): Named[] {
  const [heads, rank] = [config.num_attention_heads!, config.kv_lora_rank!];
  const [plain, value] = [config.qk_nope_head_dim!, config.v_head_dim!];
  const k = new Float32Array(heads * rank * plain);
  const v = new Float32Array(heads * value * rank);
  for (let head = 0; head < heads; head++) {
    const first = head * (plain + value) * rank;
    for (let row = 0; row < plain; row++)
      for (let col = 0; col < rank; col++)
        k[(head * rank + col) * plain + row] = values[first + row * rank + col]!;
    v.set(values.subarray(first + plain * rank, first + (plain + value) * rank), head * value * rank);
  }
  return [
    { name: name.replace('kv_b_proj', 'k_b_proj'), shape: [heads, rank, plain], values: k },
    { name: name.replace('kv_b_proj', 'v_b_proj'), shape: [heads, value, rank], values: v },
  ];
}

/** Rotated pairs beside one another, as all files have them: of each head of q, and of the key that all share. */
function interleaved(tensor: Named, config: Fields): Named {
  const rotary = config.qk_rope_head_dim!;
  const head = /q(_b)?_proj\.weight$/.test(tensor.name)
    ? rotary + config.qk_nope_head_dim!
    : /kv_a_proj_with_mqa\.weight$/.test(tensor.name)
      ? rotary + config.kv_lora_rank!
      : 0;
  if (head === 0) return tensor;
  const cols = tensor.shape[1]!;
  const values = tensor.values.slice();
  for (let last = head; last <= tensor.shape[0]!; last += head) {
    const from = last - rotary;
    for (let i = 0; i < rotary; i++) {
      const row = from + (i % 2) * (rotary / 2) + (i >> 1);
      values.set(tensor.values.subarray(row * cols, (row + 1) * cols), (from + i) * cols);
    }
  }
  return { ...tensor, values };
}

const rotation = (config: Fields): Record<string, number> =>
  config.rope_parameters as unknown as Record<string, number>;

async function convert(
  fixture: string,
  path: string,
  whole: boolean,
  arch = fixture === 'mistral4' ? 'mistral4' : 'deepseek2',
): Promise<void> {
  const { config, tensors } = await published(join(MODEL_FIXTURES, fixture));
  const rope = rotation(config);
  const own = tensors.filter(
    ({ name }) => Number(/layers\.(\d+)\./.exec(name)?.[1] ?? 0) < config.num_hidden_layers!,
  );
  const at = (key: string): string => `${arch}.${key}`;
  const ollamas = arch === 'glm4moelite';
  const metadata: Record<string, Value> = {
    'general.architecture': string(arch),
    [at('block_count')]: u32(config.num_hidden_layers!),
    [at('context_length')]: u32(config.max_position_embeddings!),
    [at('embedding_length')]: u32(config.hidden_size!),
    [at('feed_forward_length')]: u32(config.intermediate_size!),
    [at('attention.head_count')]: u32(config.num_attention_heads!),
    [at('attention.head_count_kv')]: u32(whole || ollamas ? config.num_key_value_heads! : 1),
    [at('attention.layer_norm_rms_epsilon')]: f32(config.rms_norm_eps!),
    [at('attention.kv_lora_rank')]: u32(config.kv_lora_rank!),
    ...(config.q_lora_rank === null ? {} : { [at('attention.q_lora_rank')]: u32(config.q_lora_rank!) }),
    ...(ollamas
      ? {
          // The lengths of heads and of latents change places.
          [at('attention.key_length_mla')]: u32(config.kv_lora_rank! + config.qk_rope_head_dim!),
          [at('attention.value_length_mla')]: u32(config.kv_lora_rank!),
        }
      : {}),
    ...(whole || ollamas
      ? {
          [at('attention.key_length')]: u32(config.qk_nope_head_dim! + config.qk_rope_head_dim!),
          [at('attention.value_length')]: u32(config.v_head_dim!),
        }
      : {
          [at('attention.key_length')]: u32(config.kv_lora_rank! + config.qk_rope_head_dim!),
          [at('attention.value_length')]: u32(config.kv_lora_rank!),
          [at('attention.key_length_mla')]: u32(config.qk_nope_head_dim! + config.qk_rope_head_dim!),
          [at('attention.value_length_mla')]: u32(config.v_head_dim!),
        }),
    [at('rope.dimension_count')]: u32(config.qk_rope_head_dim!),
    [at('rope.freq_base')]: f32(rope.rope_theta!),
    ...(rope.factor === undefined
      ? {}
      : {
          [at('rope.scaling.type')]: string('yarn'),
          [at('rope.scaling.factor')]: f32(rope.factor),
          [at('rope.scaling.original_context_length')]: u32(rope.original_max_position_embeddings!),
          [at('rope.scaling.yarn_log_multiplier')]: f32(0.1 * rope.mscale_all_dim!),
        }),
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
  const halves = (config as unknown as Record<string, unknown>).rope_interleave === false;
  const stored = own
    .map((tensor) => (halves ? interleaved(tensor, config) : tensor))
    .flatMap((tensor) => (!whole && tensor.name.includes('kv_b_proj') ? split(tensor, config) : [tensor]));
  await writeGguf(path, metadata, stacked(stored.map(renamed)));
}

let scratch: string;
beforeAll(async () => {
  scratch = await mkdtemp(join(tmpdir(), 'kvant-gguf-'));
});
afterAll(() => rm(scratch, { recursive: true }));

it('GLM-4.7-Flash as Ollama has it gives the logits of the published weights', async () => {
  const fixture = 'glm4-moe-lite';
  const path = join(scratch, 'ollama.gguf');
  await convert(fixture, path, false, 'glm4moelite');
  await using device = createReferenceDevice();
  const model = await loadFolder(path, device);
  for (const { prompt, logits, greedy } of expectedCases(fixture)) {
    await using runner = await Runner.create(device, model, { context: 128, chunk: 48 });
    const result = await runner.generate(prompt, greedy.length);
    expect(largestDifference(result.logits[0]!, logits)).toBeLessThan(2e-4);
    expect(result.tokens).toEqual(greedy);
  }
});

describe.each([true, false])('K and V made by one matrix: %s', (whole) => {
  it.each(['deepseek-v2', 'deepseek-v3', 'glm4-moe-lite', 'mistral4'])(
    '%s gives the logits of the published weights',
    async (fixture) => {
      const path = join(scratch, `${fixture}-${whole}.gguf`);
      await convert(fixture, path, whole);
      await using device = createReferenceDevice();
      const model = await loadFolder(path, device);
      const { config } = await published(join(MODEL_FIXTURES, fixture));
      // Files have one number for what scores and what rotations are multiplied with.
      const rope = rotation(config);
      const overrides =
        rope.factor === undefined ? {} : { rope_parameters: { ...rope, mscale: rope.mscale_all_dim! } };
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
});
