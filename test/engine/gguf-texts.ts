/** Decoders of models that see as GGUF files, written with the names and the changes of llama.cpp's converters. */

import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { bools, f32, string, strings, u32, u32s, type Value } from '../setup/gguf-writer.js';
import { GGUF_LAYER_NAMES, type Named, paired, published, writeGguf } from '../setup/published-tensors.js';
import { readJson } from './vision-fixtures.js';

type Json = Record<string, unknown>;
type Sizes = Record<string, number>;

/** Of stacks `[experts, inputs, outputs]` those that files have: gate and up apart, and their sides the other way round. */
function experts({ shape, values }: Named, name: string): Named[] | undefined {
  const [, layer, part] = /^layers\.(\d+)\.mlp\.experts\.(gate_up|down)_proj$/.exec(name) ?? [];
  if (part === undefined) return undefined;
  const [count, inputs, outputs] = shape as [number, number, number];
  const names = part === 'down' ? ['down'] : ['gate', 'up'];
  const rows = outputs / names.length;
  return names.map((one, half) => ({
    name: `blk.${layer}.ffn_${one}_exps.weight`,
    shape: [count, rows, inputs],
    values: Float32Array.from({ length: count * rows * inputs }, (_, i) => {
      const [expert, row, col] = [Math.floor(i / rows / inputs), Math.floor(i / inputs) % rows, i % inputs];
      return values[(expert * inputs + col) * outputs + half * rows + row]!;
    }),
  }));
}

export function tokensOf(folder: string): string[] {
  if (!existsSync(join(folder, 'tokenizer.json'))) return [];
  const { model, added_tokens: added } = readJson(folder, 'tokenizer.json') as {
    model: { vocab: Record<string, number> };
    added_tokens: { id: number; content: string }[];
  };
  const tokens: string[] = [];
  for (const [token, id] of Object.entries(model.vocab)) tokens[id] = token;
  for (const { id, content } of added) tokens[id] = content;
  return Array.from(tokens, (token) => token ?? '');
}

/** What a converter writes of a Gemma 4 whose layers differ by kind. */
function gemma4Keys(text: Json, at: (key: string) => string): Record<string, Value> {
  const {
    layer_types: types,
    per_layer_config: layers,
    rope_parameters: ropes,
  } = text as {
    readonly layer_types: readonly string[];
    readonly per_layer_config: Record<string, Sizes>;
    readonly rope_parameters: Record<string, Sizes>;
  };
  const sizes = text as Sizes;
  const full = layers[types.indexOf('full_attention')]!;
  return {
    [at('attention.key_length')]: u32(full.head_dim!),
    [at('attention.key_length_swa')]: u32(sizes.head_dim!),
    [at('attention.sliding_window')]: u32(sizes.sliding_window!),
    [at('attention.sliding_window_pattern')]: bools(
      types.map((type) => (type === 'sliding_attention' ? 1 : 0)),
    ),
    [at('attention.shared_kv_layers')]: u32(sizes.num_kv_shared_layers!),
    [at('embedding_length_per_layer_input')]: u32(0),
    [at('rope.freq_base')]: f32(ropes.full_attention!.rope_theta!),
    [at('rope.freq_base_swa')]: f32(ropes.sliding_attention!.rope_theta!),
    [at('rope.dimension_count')]: u32(full.head_dim!),
    [at('rope.dimension_count_swa')]: u32(sizes.head_dim!),
    ...(sizes.final_logit_softcapping
      ? { [at('final_logit_softcapping')]: f32(sizes.final_logit_softcapping) }
      : {}),
  };
}

/** @param arch as the file calls it */
export async function writeText(folder: string, arch: string, path: string): Promise<void> {
  const { tensors } = await published(folder);
  const config = readJson(folder, 'config.json');
  const text = config.text_config as Sizes & Record<string, Json>;
  const heads = text.num_attention_heads!;
  const headDim = text.head_dim ?? text.hidden_size! / heads;
  const gemma = arch === 'gemma3';
  const rope = text.rope_parameters as unknown as Sizes & Record<string, Sizes>;
  const at = (key: string): string => `${arch}.${key}`;
  const axes = rope.mrope_section as unknown as number[] | undefined;
  const metadata: Record<string, Value> = {
    'general.architecture': string(arch),
    [at('block_count')]: u32(text.num_hidden_layers!),
    [at('context_length')]: u32(text.max_position_embeddings!),
    [at('embedding_length')]: u32(text.hidden_size!),
    [at('feed_forward_length')]: u32(text.intermediate_size!),
    [at('attention.head_count')]: u32(heads),
    [at('attention.head_count_kv')]: u32(text.num_key_value_heads!),
    [at('attention.key_length')]: u32(headDim),
    [at('attention.value_length')]: u32(headDim),
    [at('attention.layer_norm_rms_epsilon')]: f32(text.rms_norm_eps!),
    [at('rope.freq_base')]: f32(
      gemma || arch === 'gemma4' ? rope.full_attention!.rope_theta! : rope.rope_theta!,
    ),
    ...(axes === undefined ? {} : { [at('rope.dimension_sections')]: u32s([...axes, 0]) }),
    ...(gemma
      ? {
          [at('attention.sliding_window')]: u32(text.sliding_window!),
          [at('attention.sliding_window_pattern')]: u32(2),
          [at('attention.scale')]: f32(text.query_pre_attn_scalar! ** -0.5),
          [at('rope.freq_base_swa')]: f32(rope.sliding_attention!.rope_theta!),
        }
      : {}),
    ...(arch === 'gemma4' ? gemma4Keys(text, at) : {}),
    ...(text.num_local_experts === undefined
      ? {}
      : {
          [at('expert_count')]: u32(text.num_local_experts),
          [at('expert_used_count')]: u32(text.num_experts_per_tok!),
          [at('expert_feed_forward_length')]: u32(text.moe_intermediate_size!),
        }),
    'tokenizer.ggml.model': string('gpt2'),
    'tokenizer.ggml.tokens': strings(tokensOf(folder)),
    'tokenizer.ggml.eos_token_id': u32(text.eos_token_id!),
  };
  const own = tensors.flatMap((tensor): Named[] => {
    const name = tensor.name.replace(
      /^(model\.language_model\.|language_model\.model\.|model\.text_model\.|model\.)/,
      '',
    );
    if (name === 'embed_tokens.weight') return [{ ...tensor, name: 'token_embd.weight' }];
    if (/lm_head\.weight$/.test(name)) return [{ ...tensor, name: 'output.weight' }];
    const plus = (one: Named): Named =>
      gemma && /norm\.weight$/.test(tensor.name) ? { ...one, values: one.values.map((w) => w + 1) } : one;
    if (name === 'norm.weight') return [plus({ ...tensor, name: 'output_norm.weight' })];
    const scalar = /^layers\.(\d+)\.layer_scalar$/.exec(name);
    if (scalar !== null) return [{ ...tensor, name: `blk.${scalar[1]}.layer_output_scale.weight` }];
    const stacks = experts(tensor, name);
    if (stacks !== undefined) return stacks;
    const [, layer, inner, kind] = /^layers\.(\d+)\.(.*)\.(weight|bias)$/.exec(name) ?? [];
    if (layer === undefined || /vision|visual/.test(tensor.name)) return [];
    const gemmas: Record<string, string> = {
      post_attention_layernorm: 'post_attention_norm',
      pre_feedforward_layernorm: 'ffn_norm',
      post_feedforward_layernorm: 'post_ffw_norm',
    };
    const to = (gemma || arch === 'gemma4' ? gemmas[inner!] : undefined) ?? GGUF_LAYER_NAMES[inner!];
    if (to === undefined) throw new Error(`nothing is known of ${tensor.name}`);
    const stored = { ...tensor, name: `blk.${layer}.${to}.${kind}` };
    const count = { attn_q: heads, attn_k: text.num_key_value_heads! }[to];
    if (arch === 'llama' && count !== undefined) return [{ ...stored, values: paired(stored, count) }];
    return [plus(stored)];
  });
  await writeGguf(path, metadata, own);
}
