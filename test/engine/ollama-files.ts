/**
 * Models that see as Ollama's converters write them: model and tower in one file. Its rules, written here once more from their side:
 * names by Go's `strings.NewReplacer` over the converters' own lists (ollama-names.ts), and what they do to tensors.
 */

import { writeFile } from 'node:fs/promises';
import { Q8_0, quantise } from '../setup/gguf-quantise.js';
import {
  bools,
  f32,
  f32s,
  ggufBytes,
  i32s,
  string,
  strings,
  u32,
  type Value,
  type WrittenTensor,
} from '../setup/gguf-writer.js';
import { halved, type Named, paired, published, rowsOf } from '../setup/published-tensors.js';
import { tokensOf } from './gguf-texts.js';
import { GEMMA3, GLM_OCR, MISTRAL3, QWEN } from './ollama-names.js';
import { readJson } from './vision-fixtures.js';

type Json = Record<string, unknown>;
type Sizes = Record<string, number>;

interface Family {
  readonly arch: string;
  /** Old, new, old, new. */
  readonly names: readonly string[];
  readonly keys: (config: Json, text: Sizes, section: Sizes, processor: Json) => Record<string, Value>;
  readonly change: (tensor: Named, text: Sizes) => readonly Named[];
  /** Names as checkpoints had them when the converter was written. */
  readonly before?: (name: string) => string;
}

/** At each place the first of the list that begins there is replaced, and nothing twice. */
function replaced(text: string, list: readonly string[]): string {
  let out = '';
  for (let at = 0; at < text.length; ) {
    let found = -1;
    for (let i = 0; i < list.length && found < 0; i += 2) if (text.startsWith(list[i]!, at)) found = i;
    if (found < 0) out += text[at++];
    else {
      out += list[found + 1];
      at += list[found]!.length;
    }
  }
  return out;
}

/** One tensor in as many, along its first side. */
function cut(tensor: Named, names: readonly string[]): Named[] {
  const rows = tensor.shape[0]! / names.length;
  return names.map((name, i) => {
    if (tensor.shape.length === 1)
      return { name, shape: [rows], values: tensor.values.slice(i * rows, (i + 1) * rows) };
    return { ...rowsOf(tensor, i * rows, (i + 1) * rows), name };
  });
}

const threeOf = (tensor: Named, joined: string): Named[] =>
  cut(
    tensor,
    ['attn_q', 'attn_k', 'attn_v'].map((one) => tensor.name.replace(joined, one)),
  );

function frames({ name, shape, values }: Named): Named[] {
  const [rows, channels, count, height, width] = shape as [number, number, number, number, number];
  const area = height * width;
  return Array.from({ length: count }, (_, frame) => {
    const out = new Float32Array(rows * channels * area);
    for (let run = 0; run < rows * channels; run++)
      out.set(values.subarray((run * count + frame) * area, (run * count + frame + 1) * area), run * area);
    return {
      name: name.replace(/patch_emb(ed\.proj|d)/, `patch_embd_${frame}`),
      shape: [rows, channels, height, width],
      values: out,
    };
  });
}

/** `[experts, inputs, outputs]` with inputs and outputs the other way round. */
function turned({ name, shape, values }: Named, from = 0, to = shape[2]!): Named {
  const [count, inputs, outputs] = shape as [number, number, number];
  const rows = to - from;
  const turn = Float32Array.from({ length: count * rows * inputs }, (_, i) => {
    const [expert, row, col] = [Math.floor(i / rows / inputs), Math.floor(i / inputs) % rows, i % inputs];
    return values[(expert * inputs + col) * outputs + from + row]!;
  });
  return { name, shape: [count, rows, inputs], values: turn };
}

function qwen3Change(tensor: Named): readonly Named[] {
  const { name, shape } = tensor;
  if (name.includes('attn_qkv')) return threeOf(tensor, 'attn_qkv');
  if (name.includes('patch_emb') && name.endsWith('weight'))
    return [{ ...tensor, shape: [shape[0]! * shape[1]!, ...shape.slice(2)] }];
  if (name.includes('ffn_gate_up_exps')) {
    const half = shape[2]! / 2;
    return ['gate', 'up'].map((one, i) => ({
      ...turned(tensor, i * half, (i + 1) * half),
      name: name.replace('gate_up', one),
    }));
  }
  return [name.includes('ffn_down_exps') ? turned(tensor) : tensor];
}

/** @param later by the names that came later */
function qwen3Vl(arch: string, later = false): Family {
  const names = later
    ? [
        ['patch_embed.proj', 'patch_embd'],
        ['pos_embed', 'position_embd'],
        ['blocks', 'blk'],
        ['attn.qkv', 'attn_qkv'],
        ['attn.proj', 'attn_out'],
        ['norm1', 'ln1'],
        ['norm2', 'ln2'],
        ['mlp.linear_fc1', 'ffn_up'],
        ['mlp.linear_fc2', 'ffn_down'],
        ['deepstack_merger_list', 'deepstack'],
      ]
    : [
        ['patch_embed.proj', 'patch_embed'],
        ['blocks', 'blk'],
        ['attn.qkv', 'attn_qkv'],
        ['attn.proj', 'attn_out'],
        ['deepstack_merger_list', 'deepstack_merger'],
      ];
  return {
    arch,
    names: [QWEN, ['model.language_', ''], ['model.visual', 'v'], ...names].flat(),
    keys: (_, text, section, processor) => ({
      // The published ones have the axes in no key.
      'rope.mrope_section': i32s(
        (text.rope_parameters as unknown as { mrope_section: number[] }).mrope_section,
      ),
      ...(text.num_local_experts === undefined
        ? {}
        : {
            expert_count: u32(text.num_local_experts),
            expert_used_count: u32(text.num_experts_per_tok!),
            norm_top_k_prob: { type: 'bool', value: 1 },
          }),
      'vision.block_count': u32(section.depth!),
      'vision.embedding_length': u32(section.hidden_size!),
      'vision.attention.head_count': u32(section.num_heads!),
      'vision.num_channels': u32(3),
      'vision.patch_size': u32(section.patch_size!),
      'vision.spatial_merge_size': u32(section.spatial_merge_size!),
      'vision.attention.layer_norm_epsilon': f32(1e-6),
      'vision.rope.freq_base': f32(1e4),
      'vision.temporal_patch_size': u32(2),
      'vision.deepstack_visual_indexes': i32s(section.deepstack_visual_indexes as unknown as number[]),
      ...edges(processor),
      'vision.image_mean': f32s(processor.image_mean as number[]),
      'vision.image_std': f32s(processor.image_std as number[]),
    }),
    change: qwen3Change,
  };
}

function edges(processor: Json): Record<string, Value> {
  return sizes(processor, 'shortest_edge', 'longest_edge');
}

function sizes(
  processor: Json,
  least = 'image_min_pixels',
  most = 'image_max_pixels',
): Record<string, Value> {
  const size = (processor.size ?? {}) as Sizes;
  return {
    [`vision.${least}`]: u32((processor.min_pixels as number) ?? size.shortest_edge!),
    [`vision.${most}`]: u32((processor.max_pixels as number) ?? size.longest_edge!),
  };
}

export const OLLAMA: Readonly<Record<string, Family>> = {
  gemma3: {
    arch: 'gemma3',
    names: GEMMA3,
    before: (name) => name.replace('vision_tower.', 'vision_tower.vision_model.'),
    // No ε, no bases and no pattern.
    keys: (config, text, section) => ({
      'attention.sliding_window': u32(text.sliding_window!),
      'vision.block_count': u32(section.num_hidden_layers!),
      'vision.embedding_length': u32(section.hidden_size!),
      'vision.feed_forward_length': u32(section.intermediate_size!),
      'vision.image_size': u32(section.image_size!),
      'vision.patch_size': u32(section.patch_size!),
      'vision.num_channels': u32(3),
      'vision.attention.head_count': u32(section.num_attention_heads!),
      'vision.attention.layer_norm_epsilon': f32(1e-6),
      'mm.tokens_per_image': u32(config.mm_tokens_per_image as number),
      // Of no published one: the tiny checkpoint rotates by other bases, and has two layers.
      'rope.global.freq_base': f32(baseOf(text, 'full_attention')),
      'rope.local.freq_base': f32(baseOf(text, 'sliding_attention')),
      'attention.sliding_window_pattern': bools([1, 0]),
    }),
    change: (tensor) => [
      !tensor.name.startsWith('v.') && tensor.name.endsWith('_norm.weight')
        ? { ...tensor, values: tensor.values.map((w) => w + 1) }
        : tensor,
    ],
  },
  mistral3: {
    arch: 'mistral3',
    names: MISTRAL3,
    keys: (config, text, section) => ({
      vocab_size: u32(text.vocab_size!),
      'attention.layer_norm_rms_epsilon': f32(text.rms_norm_eps!),
      'rope.dimension_count': u32(text.head_dim!),
      'rope.freq_base': f32((text.rope_parameters as unknown as Sizes).rope_theta!),
      'rope.scaling.factor': f32(0),
      'rope.scaling.type': string('default'),
      'rope.scaling.yarn_beta_fast': f32(0),
      'rope.scaling.yarn_beta_slow': f32(0),
      'vision.block_count': u32(section.num_hidden_layers!),
      'vision.embedding_length': u32(section.hidden_size!),
      'vision.feed_forward_length': u32(section.intermediate_size!),
      'vision.attention.head_count': u32(section.num_attention_heads!),
      'vision.attention.key_length': u32(section.head_dim!),
      'vision.image_size': u32(section.image_size!),
      'vision.patch_size': u32(section.patch_size!),
      'vision.num_channels': u32(3),
      'vision.rope.freq_base': f32((section.rope_parameters as unknown as Sizes).rope_theta!),
      image_token_index: u32(config.image_token_index as number),
      spatial_merge_size: u32(config.spatial_merge_size as number),
      'mm.projector_bias': { type: 'bool', value: 0 },
      'mm.projector_hidden_act': string('gelu'),
    }),
    change: (tensor, text) => {
      const [, part] = /^blk\.\d+\.attn_([qk])\.weight$/.exec(tensor.name) ?? [];
      if (part === undefined) return [tensor];
      const heads = part === 'q' ? text.num_attention_heads! : text.num_key_value_heads!;
      return [{ ...tensor, values: paired(tensor, heads) }];
    },
  },
  'qwen2.5-vl': {
    arch: 'qwen25vl',
    names: [
      QWEN,
      ['visual', 'v'],
      ['blocks', 'blk'],
      ['attn.proj', 'attn_out'],
      ['norm1', 'ln1'],
      ['norm2', 'ln2'],
    ].flat(),
    keys: (_, text, section, processor) => ({
      // Of no published one: pictures of the tiny checkpoint are smaller than others may be.
      ...sizes(processor),
      'rope.mrope_section': i32s(
        (text.rope_parameters as unknown as { mrope_section: number[] }).mrope_section,
      ),
      'vision.block_count': u32(section.depth!),
      'vision.embedding_length': u32(section.hidden_size!),
      'vision.attention.head_count': u32(section.num_heads!),
      'vision.num_channels': u32(3),
      'vision.patch_size': u32(section.patch_size!),
      'vision.spatial_merge_size': u32(section.spatial_merge_size!),
      'vision.window_size': u32(section.window_size!),
      'vision.attention.layer_norm_epsilon': f32(1e-6),
      'vision.rope.freq_base': f32(1e4),
      'vision.fullatt_block_indexes': i32s(section.fullatt_block_indexes as unknown as number[]),
      'vision.temporal_patch_size': u32(2),
    }),
    change: (tensor) => {
      if (tensor.name.includes('patch_embed.proj')) return frames(tensor);
      return tensor.name.includes('attn.qkv') ? threeOf(tensor, 'attn.qkv') : [tensor];
    },
  },
  'glm-ocr': {
    arch: 'glmocr',
    names: GLM_OCR,
    keys: (config, text, section, processor) => ({
      'rope.partial_rotary_factor': f32(1),
      'rope.mrope_section': i32s(
        (text.rope_parameters as unknown as { mrope_section: number[] }).mrope_section,
      ),
      'vision.block_count': u32(section.depth!),
      'vision.embedding_length': u32(section.hidden_size!),
      'vision.attention.head_count': u32(section.num_heads!),
      'vision.image_size': u32(section.image_size!),
      'vision.patch_size': u32(section.patch_size!),
      'vision.spatial_merge_size': u32(section.spatial_merge_size!),
      'vision.temporal_patch_size': u32(section.temporal_patch_size!),
      'vision.out_hidden_size': u32(section.out_hidden_size!),
      'vision.intermediate_size': u32(section.intermediate_size!),
      'vision.attention.layer_norm_rms_epsilon': f32(section.rms_norm_eps!),
      ...sizes(processor, 'min_pixels', 'max_pixels'),
      'vision.image_mean': f32s(processor.image_mean as number[]),
      'vision.image_std': f32s(processor.image_std as number[]),
      image_token_id: u32(config.image_token_id as number),
    }),
    change: (tensor, text) => {
      if (tensor.name === 'v.patch_embd.weight') return frames(tensor);
      return [
        /^blk\.\d+\.attn_[qk]\./.test(tensor.name) ? halved(tensor, text.head_dim!, text.head_dim!) : tensor,
      ];
    },
  },
  'qwen3-vl': qwen3Vl('qwen3vl'),
  'qwen3-vl, later': qwen3Vl('qwen3vl', true),
  'qwen3-vl-moe': qwen3Vl('qwen3vlmoe'),
};

function baseOf(text: Sizes, kind: string): number {
  return (text.rope_parameters as unknown as Record<string, Sizes>)[kind]!.rope_theta!;
}

/** @param kind of {@link OLLAMA} @param folder a fixture checkpoint */
export async function writeOllama(kind: string, folder: string, path: string, mixed = false): Promise<void> {
  const { arch, names, keys, change, before } = OLLAMA[kind]!;
  const { tensors } = await published(folder);
  const config = readJson(folder, 'config.json');
  const text = config.text_config as Sizes;
  const theta = (text.rope_parameters as unknown as Sizes).rope_theta;
  const headDim = text.head_dim ?? text.hidden_size! / text.num_attention_heads!;
  const own: Record<string, Value> = {
    block_count: u32(text.num_hidden_layers!),
    context_length: u32(text.max_position_embeddings!),
    embedding_length: u32(text.hidden_size!),
    feed_forward_length: u32(text.intermediate_size!),
    'attention.head_count': u32(text.num_attention_heads!),
    'attention.head_count_kv': u32(text.num_key_value_heads!),
    'attention.key_length': u32(headDim),
    'attention.value_length': u32(headDim),
    ...(theta === undefined || arch === 'gemma3'
      ? {}
      : { 'rope.freq_base': f32(theta), 'attention.layer_norm_rms_epsilon': f32(text.rms_norm_eps!) }),
    ...keys(config, text, config.vision_config as Sizes, readJson(folder, 'preprocessor_config.json')),
  };
  const metadata: Record<string, Value> = {
    'general.architecture': string(arch),
    ...Object.fromEntries(Object.entries(own).map(([key, value]) => [`${arch}.${key}`, value])),
    'tokenizer.ggml.model': string('gpt2'),
    'tokenizer.ggml.pre': string('default'),
    'tokenizer.ggml.tokens': strings(tokensOf(folder)),
    'tokenizer.ggml.eos_token_id': u32(text.eos_token_id!),
  };
  const written = tensors.flatMap((tensor) =>
    change({ ...tensor, name: replaced(before?.(tensor.name) ?? tensor.name, names) }, text),
  );
  // Some files have V of a tower in blocks, and Q and K not.
  const bytes = written.map(({ name, shape, values }): WrittenTensor => {
    const inBlocks = mixed && /^v\.blk\.\d+\.attn_v\.weight$/.test(name);
    const data = inBlocks ? quantise(values, Q8_0) : new Uint8Array(values.slice().buffer);
    return { name, shape, type: inBlocks ? Q8_0.type : 0, data };
  });
  await writeFile(path, ggufBytes({ metadata, tensors: bytes }));
}
