/**
 * Families from GGUF files: the fixture checkpoints are written as GGUF, with what llama.cpp's converters change, and must give
 * the logits that were computed elsewhere. The rules of conversion are written here once more, from the converters' side.
 */

import { cp, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { ropeFrequencies } from '../../src/models/rope-frequencies.js';
import { Checkpoint } from '../../src/weights/checkpoint.js';
import { decodeFloats } from '../../src/weights/dtypes.js';
import { bool, f32, ggufBytes, string, u32, type Value, type WrittenTensor } from '../setup/gguf-writer.js';
import { createReferenceDevice } from './reference-device.js';
import {
  decidedTokens,
  expectedCases,
  largestDifference,
  loadFolder,
  MODEL_FIXTURES,
  Runner,
} from './runner.js';

type Fields = Record<string, unknown>;

interface Conversion {
  readonly fixture: string;
  readonly arch: string;
  readonly paired?: boolean;
  readonly plusOne?: boolean;
  /** Tensors of a layer that this architecture calls otherwise. */
  readonly names?: Readonly<Record<string, string>>;
  /** Of layer norms. */
  readonly layerNormEps?: string;
  /** What a GGUF file cannot say differently: the checkpoint is then compared with itself, read from its folder. */
  readonly override?: Fields;
  readonly more?: (config: Fields, at: (key: string) => string) => Record<string, Value>;
}

/** Norms behind attention and the MLP alone. */
const BEHIND = {
  post_attention_layernorm: 'post_attention_norm',
  post_feedforward_layernorm: 'post_ffw_norm',
};

const CASES: readonly Conversion[] = [
  { fixture: 'llama-untied', arch: 'llama', paired: true },
  { fixture: 'llama-tied-f16', arch: 'llama', paired: true },
  // InternLM 2, whose converter takes its one matrix of q, k and v apart.
  { fixture: 'llama-untied', arch: 'internlm2', paired: true },
  { fixture: 'llama-bias', arch: 'llama', paired: true },
  { fixture: 'llama-llama3', arch: 'llama', paired: true },
  {
    fixture: 'llama-linear',
    arch: 'llama',
    paired: true,
    more: (config, at) => ({
      [at('rope.scaling.type')]: string('linear'),
      [at('rope.scaling.factor')]: f32(rope(config).factor as number),
    }),
  },
  { fixture: 'mistral-head-dim', arch: 'llama', paired: true },
  { fixture: 'qwen2-bias', arch: 'qwen2' },
  { fixture: 'qwen3-tied', arch: 'qwen3' },
  {
    fixture: 'qwen3-untied-yarn',
    arch: 'qwen3',
    more: (config, at) => ({
      [at('rope.scaling.type')]: string('yarn'),
      [at('rope.scaling.factor')]: f32(rope(config).factor as number),
      [at('rope.scaling.original_context_length')]: u32(
        rope(config).original_max_position_embeddings as number,
      ),
    }),
  },
  {
    fixture: 'granite',
    arch: 'granite',
    paired: true,
    more: (config, at) => ({
      [at('embedding_scale')]: f32(config.embedding_multiplier as number),
      [at('residual_scale')]: f32(config.residual_multiplier as number),
      [at('logit_scale')]: f32(config.logits_scaling as number),
      [at('attention.scale')]: f32(config.attention_multiplier as number),
    }),
  },
  {
    fixture: 'smollm3',
    arch: 'smollm3',
    paired: true,
    override: { no_rope_layers: null, no_rope_layer_interval: 4 },
  },
  { fixture: 'phi3', arch: 'phi3', more: slides },
  {
    fixture: 'gemma2',
    arch: 'gemma2',
    plusOne: true,
    more: (config, at) => ({
      ...slides(config, at),
      ...scale(config, at),
      [at('attn_logit_softcapping')]: f32(config.attn_logit_softcapping as number),
      [at('final_logit_softcapping')]: f32(config.final_logit_softcapping as number),
    }),
  },
  {
    fixture: 'gemma3-pattern',
    arch: 'gemma3',
    plusOne: true,
    more: (config, at) => ({
      ...slides(config, at),
      ...scale(config, at),
      [at('attention.sliding_window_pattern')]: u32(config.sliding_window_pattern as number),
      [at('rope.scaling.type')]: string('linear'),
      [at('rope.scaling.factor')]: f32(rope(config).factor as number),
    }),
  },
  {
    fixture: 'arcee',
    arch: 'arcee',
    paired: true,
    more: yarn,
  },
  {
    fixture: 'apertus',
    arch: 'apertus',
    names: { attention_layernorm: 'attn_norm', feedforward_layernorm: 'ffn_norm' },
  },
  {
    fixture: 'seed-oss',
    arch: 'seed_oss',
    names: { post_attention_layernorm: 'post_attention_norm' },
  },
  { fixture: 'exaone4', arch: 'exaone4', names: BEHIND, more: pattern },
  { fixture: 'olmo2', arch: 'olmo2', names: BEHIND },
  {
    fixture: 'olmo3',
    arch: 'olmo2',
    names: BEHIND,
    more: (config, at) => {
      const { full_attention } = rope(config) as Record<string, Fields>;
      const theta = { [at('rope.freq_base')]: f32(full_attention!.rope_theta as number) };
      return { ...pattern(config, at), ...theta, ...yarn(config, at, full_attention) };
    },
  },
  {
    fixture: 'cohere',
    arch: 'command-r',
    layerNormEps: 'layer_norm_eps',
    more: (config, at) => ({ [at('logit_scale')]: f32(config.logit_scale as number) }),
  },
  {
    fixture: 'cohere2',
    arch: 'cohere2',
    layerNormEps: 'layer_norm_eps',
    more: (config, at) => ({
      ...pattern(config, at),
      [at('logit_scale')]: f32(config.logit_scale as number),
    }),
  },
  {
    fixture: 'glm4',
    arch: 'glm4',
    names: {
      post_self_attn_layernorm: 'post_attention_norm',
      post_mlp_layernorm: 'post_ffw_norm',
    },
    more: (config, at) => dims(rope(config).partial_rotary_factor as number)(config, at),
  },
  { fixture: 'ernie4_5', arch: 'ernie4_5' },
  {
    fixture: 'hunyuan',
    arch: 'hunyuan-dense',
    names: { 'self_attn.query_layernorm': 'attn_q_norm', 'self_attn.key_layernorm': 'attn_k_norm' },
    // The grown base is what is written.
    more: (config, at) => {
      const { rope_theta, alpha } = { ...config, ...rope(config) } as Record<string, number>;
      const wide = config.head_dim as number;
      return { [at('rope.freq_base')]: f32(rope_theta! * alpha! ** (wide / (wide - 2))) };
    },
  },
  {
    fixture: 'nemotron',
    arch: 'nemotron',
    plusOne: true,
    layerNormEps: 'norm_eps',
    more: (config, at) =>
      dims((rope(config).partial_rotary_factor ?? config.partial_rotary_factor) as number)(config, at),
  },
  {
    fixture: 'ministral3',
    arch: 'mistral3',
    paired: true,
    more: (config, at) => ({
      ...yarn(config, at),
      ...slides(config, at),
      [at('attention.temperature_scale')]: f32(rope(config).llama_4_scaling_beta as number),
      [at('rope.scaling.yarn_log_multiplier')]: f32(rope(config).mscale_all_dim as number),
    }),
  },
  {
    fixture: 'qwen2-moe',
    arch: 'qwen2moe',
    more: (config, at) => ({
      ...mixture('num_experts', 'moe_intermediate_size')(config, at),
      [at('expert_shared_feed_forward_length')]: u32(config.shared_expert_intermediate_size as number),
    }),
  },
  {
    fixture: 'qwen3-moe',
    arch: 'qwen3moe',
    more: mixture('num_local_experts', 'moe_intermediate_size'),
  },
  {
    fixture: 'mixtral',
    arch: 'llama',
    paired: true,
    more: (config, at) => ({
      ...mixture('num_local_experts', 'intermediate_size')(config, at),
      ...slides(config, at),
    }),
  },
  {
    fixture: 'glm4-moe',
    arch: 'glm4moe',
    names: { post_attention_layernorm: 'post_attention_norm' },
    more: (config, at) => ({
      ...mixture('n_routed_experts', 'moe_intermediate_size')(config, at),
      ...dims(rope(config).partial_rotary_factor as number)(config, at),
      [at('expert_shared_count')]: u32(config.n_shared_experts as number),
      [at('leading_dense_block_count')]: u32(config.first_k_dense_replace as number),
      [at('expert_group_count')]: u32(config.n_group as number),
      [at('expert_group_used_count')]: u32(config.topk_group as number),
      [at('expert_weights_scale')]: f32(config.routed_scaling_factor as number),
      [at('expert_weights_norm')]: bool(config.norm_topk_prob as boolean),
    }),
  },
  {
    fixture: 'minimax-m2',
    arch: 'minimax-m2',
    more: (config, at) => ({
      ...mixture('num_local_experts', 'intermediate_size')(config, at),
      ...dims(rope(config).partial_rotary_factor as number)(config, at),
    }),
  },
  {
    fixture: 'gpt-oss',
    arch: 'gpt-oss',
    names: { post_attention_layernorm: 'post_attention_norm' },
    // A file has no word for the limit of the activation.
    override: { swiglu_limit: 7 },
    more: (config, at) => ({
      ...mixture('num_local_experts', 'intermediate_size')(config, at),
      ...slides(config, at),
      ...yarn(config, at),
    }),
  },
];

/** How many experts there are and their width, by the names that a config has for them. */
function mixture(count: string, width: string): NonNullable<Conversion['more']> {
  return (config, at) => ({
    [at('expert_count')]: u32(config[count] as number),
    [at('expert_used_count')]: u32(config.num_experts_per_tok as number),
    [at('expert_feed_forward_length')]: u32(config[width] as number),
  });
}

const dims =
  (part: number) =>
  (config: Fields, at: (key: string) => string): Record<string, Value> => ({
    [at('rope.dimension_count')]: u32(part * (config.head_dim as number)),
  });

function yarn(
  config: Fields,
  at: (key: string) => string,
  section: Fields = rope(config),
): Record<string, Value> {
  return {
    [at('rope.scaling.type')]: string('yarn'),
    [at('rope.scaling.factor')]: f32(section.factor as number),
    [at('rope.scaling.original_context_length')]: u32(section.original_max_position_embeddings as number),
    [at('rope.scaling.yarn_beta_fast')]: f32((section.beta_fast as number | undefined) ?? 32),
    [at('rope.scaling.yarn_beta_slow')]: f32((section.beta_slow as number | undefined) ?? 1),
  };
}

function pattern(config: Fields, at: (key: string) => string): Record<string, Value> {
  const types = config.layer_types as readonly string[];
  return {
    ...slides(config, at),
    [at('attention.sliding_window_pattern')]: {
      type: 'bools',
      value: types.map((type) => (type === 'sliding_attention' ? 1 : 0)),
    },
  };
}

function scale(config: Fields, at: (key: string) => string): Record<string, Value> {
  return { [at('attention.scale')]: f32((config.query_pre_attn_scalar as number) ** -0.5) };
}

function slides(config: Fields, at: (key: string) => string): Record<string, Value> {
  return config.sliding_window == null
    ? {}
    : { [at('attention.sliding_window')]: u32(config.sliding_window as number) };
}

const rope = (config: Fields): Fields => (config.rope_scaling ?? config.rope_parameters ?? {}) as Fields;

const NAMES: Record<string, string> = {
  'model.embed_tokens': 'token_embd',
  'model.norm': 'output_norm',
  lm_head: 'output',
  input_layernorm: 'attn_norm',
  'self_attn.q_proj': 'attn_q',
  'self_attn.k_proj': 'attn_k',
  'self_attn.v_proj': 'attn_v',
  'self_attn.qkv_proj': 'attn_qkv',
  'self_attn.o_proj': 'attn_output',
  'self_attn.q_norm': 'attn_q_norm',
  'self_attn.k_norm': 'attn_k_norm',
  'mlp.gate_proj': 'ffn_gate',
  'mlp.up_proj': 'ffn_up',
  'mlp.gate_up_proj': 'ffn_up',
  'mlp.down_proj': 'ffn_down',
  'mlp.gate': 'ffn_gate_inp',
  'mlp.router': 'ffn_gate_inp',
  'block_sparse_moe.gate': 'ffn_gate_inp',
  'mlp.shared_expert_gate': 'ffn_gate_inp_shexp',
  ...Object.fromEntries(
    ['mlp.shared_expert', 'mlp.shared_experts'].flatMap((path) =>
      ['gate', 'up', 'down'].map((part) => [`${path}.${part}_proj`, `ffn_${part}_shexp`]),
    ),
  ),
  pre_feedforward_layernorm: 'ffn_norm',
  post_feedforward_layernorm: 'post_ffw_norm',
};

function converted(name: string, sandwich: boolean, names: Readonly<Record<string, string>> = {}): string {
  const [, layer, path, kind] = /^(?:model\.layers\.(\d+)\.)?(.*)\.(weight|bias)$/.exec(name)!;
  const post = sandwich ? 'post_attention_norm' : 'ffn_norm';
  const own = names[path!] ?? (path === 'post_attention_layernorm' ? post : NAMES[path!]);
  return layer === undefined ? `${own}.${kind}` : `blk.${layer}.${own}.${kind}`;
}

/** As `LlamaModel.permute`: `reshape(heads, 2, rows / heads / 2, …).swapaxes(1, 2)`. */
function permuted(values: Float32Array, rows: number, heads: number): Float32Array {
  const cols = values.length / rows;
  const half = rows / heads / 2;
  const out = new Float32Array(values.length);
  for (let h = 0; h < heads; h++)
    for (let side = 0; side < 2; side++)
      for (let k = 0; k < half; k++) {
        const from = ((h * 2 + side) * half + k) * cols;
        const to = ((h * half + k) * 2 + side) * cols;
        out.set(values.subarray(from, from + cols), to);
      }
  return out;
}

/** What is called neither weight nor bias. */
const WHOLE = [
  ['e_score_correction_bias', 'exp_probs_b.bias'],
  ['self_attn.sinks', 'attn_sinks.weight'],
] as const;
/** Gate, up and down of Mixtral. */
const LETTERS: Record<string, string> = { w1: 'gate', w3: 'up', w2: 'down' };

const widthOf = ({ moe_intermediate_size, intermediate_size }: Fields): number =>
  (moe_intermediate_size ?? intermediate_size) as number;
const bytesOf = (values: Float32Array): Uint8Array =>
  new Uint8Array(values.buffer, values.byteOffset, values.byteLength);

/** Matrices of experts, to one stack of each kind; true for such a one. */
function collect(
  stacks: Map<string, Float32Array[]>,
  name: string,
  values: Float32Array,
  shape: readonly number[],
): boolean {
  const layer = /layers\.(\d+)/.exec(name)?.[1];
  const add = (kind: string, ending: string, part: Float32Array): void => {
    const key = `blk.${layer}.ffn_${kind}_exps.${ending}`;
    stacks.set(key, [...(stacks.get(key) ?? []), part]);
  };
  const one = /experts\.\d+\.(?:(\w+)_proj|(w\d))\.weight$/.exec(name);
  if (one !== null) {
    add(one[1] ?? LETTERS[one[2]!]!, 'weight', values);
    return true;
  }
  const both = /experts\.(gate_up|down)_proj(_bias)?$/.exec(name);
  if (both === null) return false;
  const [count, ...rest] = shape as [number, ...number[]];
  // Matrices have their columns as rows here; gate and up alternate.
  const [cols, rows] = both[2] === undefined ? (rest as [number, number]) : [1, rest[0]!];
  const kinds = both[1] === 'down' ? ['down'] : ['gate', 'up'];
  for (let expert = 0; expert < count; expert++)
    for (const [k, kind] of kinds.entries()) {
      const own = Array.from({ length: rows / kinds.length }, (_, row) => row * kinds.length + k);
      const part = own.flatMap((row) =>
        Array.from({ length: cols }, (_, col) => values[(expert * cols + col) * rows + row]!),
      );
      add(kind, both[2] === undefined ? 'weight' : 'bias', Float32Array.from(part));
    }
  return true;
}

async function convert(
  { fixture, arch, paired, plusOne, names, layerNormEps, more }: Conversion,
  path: string,
): Promise<void> {
  const folder = join(MODEL_FIXTURES, fixture);
  const config = JSON.parse(await readFile(join(folder, 'config.json'), 'utf8')) as Fields;
  await using checkpoint = await Checkpoint.open(folder);
  const at = (key: string): string => `${arch}.${key}`;
  const heads = config.num_attention_heads as number;
  const kvHeads = (config.num_key_value_heads as number | undefined) ?? heads;
  const headDim = (config.head_dim as number | undefined) ?? (config.hidden_size as number) / heads;
  const theta = (config.rope_theta ?? rope(config).rope_theta) as number | undefined;
  const metadata: Record<string, Value> = {
    'general.architecture': string(arch),
    [at('block_count')]: u32(config.num_hidden_layers as number),
    [at('context_length')]: u32(config.max_position_embeddings as number),
    [at('embedding_length')]: u32(config.hidden_size as number),
    [at('feed_forward_length')]: u32(config.intermediate_size as number),
    [at('attention.head_count')]: u32(heads),
    [at('attention.head_count_kv')]: u32(kvHeads),
    [at('attention.key_length')]: u32(headDim),
    ...(layerNormEps === undefined
      ? { [at('attention.layer_norm_rms_epsilon')]: f32((config.rms_norm_eps as number | undefined) ?? 1e-6) }
      : { [at('attention.layer_norm_epsilon')]: f32(config[layerNormEps] as number) }),
    ...(theta === undefined ? {} : { [at('rope.freq_base')]: f32(theta) }),
    ...more?.(config, at),
  };
  const tensors: WrittenTensor[] = [];
  const stacks = new Map<string, Float32Array[]>();
  for (const name of checkpoint.names()) {
    const { dtype, ...info } = checkpoint.info(name)!;
    const shape = [...info.shape];
    // What is tied is left out.
    if (config.tie_word_embeddings === true && name.startsWith('lm_head')) continue;
    const bytes = new Uint8Array(checkpoint.info(name)!.byteLength);
    await checkpoint.readBytes(name, 0, bytes);
    let values: Float32Array = new Float32Array(shape.reduce((a, b) => a * b, 1));
    decodeFloats(bytes, dtype.toLowerCase() as 'f32', values);
    // A number of each layer: the file has a list of them.
    const list = /act_fn\.(\w+)$/.exec(name)?.[1];
    if (list !== undefined) {
      const key = `xielu.${list}`;
      const before = metadata[key]?.value as readonly number[] | undefined;
      metadata[key] = { type: 'f32s', value: [...(before ?? []), values[0]!] };
      continue;
    }
    if (collect(stacks, name, values, shape)) continue;
    const whole = WHOLE.find(([ending]) => name.endsWith(ending))?.[1];
    if (whole !== undefined) {
      const layer = /layers\.(\d+)/.exec(name)![1]!;
      tensors.push({ name: `blk.${layer}.${whole}`, shape, type: 0, data: bytesOf(values) });
      continue;
    }
    if (name.endsWith('shared_expert_gate.weight')) shape.shift();
    const of = /self_attn\.([qk])_proj/.exec(name)?.[1];
    if (paired && of !== undefined) values = permuted(values, shape[0]!, of === 'q' ? heads : kvHeads);
    if (plusOne && name.endsWith('norm.weight')) values = values.map((value) => value + 1);
    const shown = converted(name, arch.startsWith('gemma'), names);
    tensors.push({ name: shown, shape, type: 0, data: bytesOf(values) });
  }
  for (const [name, parts] of stacks) {
    const wide = name.includes('down') ? [config.hidden_size as number] : [];
    const cols = name.endsWith('.bias') ? [] : [parts[0]!.length / (wide[0] ?? widthOf(config))];
    const shape = [parts.length, wide[0] ?? widthOf(config), ...cols];
    const values = Float32Array.from(parts.flatMap((part) => [...part]));
    tensors.push({ name, shape, type: 0, data: bytesOf(values) });
  }
  if (rope(config).rope_type === 'llama3') {
    const { factor, low_freq_factor, high_freq_factor, original_max_position_embeddings } = rope(config);
    const plain = ropeFrequencies({ type: 'default', theta: theta! }, headDim, 1).frequencies;
    const scaled = ropeFrequencies(
      {
        type: 'llama3',
        theta: theta!,
        factor: factor as number,
        lowFreqFactor: low_freq_factor as number,
        highFreqFactor: high_freq_factor as number,
        originalMaxPositions: original_max_position_embeddings as number,
      },
      headDim,
      1,
    ).frequencies;
    const factors = Float32Array.from(plain, (frequency, i) => frequency / scaled[i]!);
    tensors.push({
      name: 'rope_freqs.weight',
      shape: [factors.length],
      type: 0,
      data: new Uint8Array(factors.buffer),
    });
  }
  await writeFile(path, ggufBytes({ metadata, tensors }));
}

/** The fixture with other words in its config. */
async function overridden({ fixture, override }: Conversion): Promise<string> {
  const folder = join(scratch, `${fixture}-other`);
  await cp(join(MODEL_FIXTURES, fixture), folder, { recursive: true });
  const path = join(folder, 'config.json');
  const config = JSON.parse(await readFile(path, 'utf8')) as Fields;
  await writeFile(path, JSON.stringify({ ...config, ...override }));
  return folder;
}

let scratch: string;
beforeAll(async () => {
  scratch = await mkdtemp(join(tmpdir(), 'kvant-gguf-'));
});
afterAll(() => rm(scratch, { recursive: true }));

describe('families from GGUF files, in float64', () => {
  it.each(CASES)('$fixture as $arch', async (conversion) => {
    const path = join(scratch, `${conversion.fixture}.gguf`);
    await convert(conversion, path);
    await using device = createReferenceDevice();
    const model = await loadFolder(path, device);
    if (conversion.override !== undefined) {
      const other = await loadFolder(await overridden(conversion), device);
      const prompt = Array.from({ length: 40 }, (_, i) => (i * 37) % 60);
      const [one, two] = [model, other].map((loaded) =>
        Runner.create(device, loaded, { context: 128, chunk: 48 }),
      );
      await using fromFile = await one!;
      await using fromFolder = await two!;
      const wanted = (await fromFolder.generate(prompt, 4)).logits;
      const got = (await fromFile.generate(prompt, 4)).logits;
      for (const [i, logits] of got.entries())
        expect(largestDifference(logits, [...wanted[i]!])).toBeLessThan(1e-6);
      return;
    }
    for (const { prompt, logits, greedy, margins } of expectedCases(conversion.fixture)) {
      await using runner = await Runner.create(device, model, { context: 128, chunk: 48 });
      const result = await runner.generate(prompt, greedy.length);
      expect(largestDifference(result.logits[0]!, logits)).toBeLessThan(2e-4);
      const decided = decidedTokens(greedy, margins, 2e-4);
      expect(result.tokens.slice(0, decided.length)).toEqual(decided);
    }
  });
});
