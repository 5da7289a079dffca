/**
 * GGUF files as Ollama's own converters have written them, read as those of llama.cpp: other names of architectures, keys and tensors,
 * and keys that are missing. What sees lies in the same file there, and is hidden from the decoder.
 *
 * Source: Ollama (convert/, llama/compat), and what its models were published with.
 */

import type { GgufTensor } from './gguf-header.js';
import { GgufArray, type GgufMetadata, type GgufValue } from './gguf-metadata.js';

/** Of a tensor, undefined where there is none. */
export type ShapeOf = (name: string) => GgufTensor['shape'] | undefined;

/** A file seen otherwise. */
export interface GgufView {
  /** Keys that it has in place of, or beside, its own. */
  readonly keys: ReadonlyMap<string, GgufValue>;
  /** What a tensor is called; null: it is not shown. */
  nameOf(name: string): string | null;
}

interface Rule {
  /** What llama.cpp calls the architecture. Default: the same. */
  readonly as?: string;
  /** Keys below the architecture that are called otherwise. */
  readonly keys?: Readonly<Record<string, string>>;
  /** Keys below the architecture where a file has none. */
  readonly defaults?: (read: Reader) => Readonly<Record<string, GgufValue>>;
  readonly names?: readonly (readonly [RegExp, string])[];
}

interface Reader {
  readonly number: (key: string) => number | undefined;
  readonly has: (key: string) => boolean;
  readonly shape: ShapeOf;
}

/** Ahead of what a decoder has not. */
const NOT_TEXT = /^(v|mm|a|s|mtp|model\.vision_tower)\./;
const BIAS_OF_DT = [[/\.ssm_dt$/, '.ssm_dt.bias']] as const;
const MROPE = { 'rope.mrope_section': 'rope.dimension_sections' };
const GEMMA3_LONG = 131_072;

/** Files of mixtures that do not say how wide an expert is. */
const expertWidth = ({ shape }: Reader): Readonly<Record<string, GgufValue>> => {
  const wide = shape('blk.0.ffn_up_exps.weight')?.[1];
  return wide === undefined ? {} : { expert_feed_forward_length: wide };
};

/** Qwen3-VL, whose older files do not say which axes its dims turn by. */
const QWEN3_VL: Rule = {
  keys: MROPE,
  defaults: (read) => ({ 'rope.dimension_sections': integers([24, 20, 20, 0]), ...expertWidth(read) }),
};
const QWEN35: Rule = { keys: MROPE, names: BIAS_OF_DT };
const OF_MISTRAL3 = {
  'rope.scaling.beta_fast': 'rope.scaling.yarn_beta_fast',
  'rope.scaling.beta_slow': 'rope.scaling.yarn_beta_slow',
  'rope.scaling.mscale_all_dim': 'rope.scaling.yarn_log_multiplier',
  'rope.scaling_beta': 'attention.temperature_scale',
};
const LATENTS = [
  [/\.ffn_latent_in\./, '.ffn_latent_down.'],
  [/\.ffn_latent_out\./, '.ffn_latent_up.'],
] as const;

const RULES: Readonly<Record<string, Rule>> = {
  gptoss: {
    as: 'gpt-oss',
    defaults: (read) => ({ 'rope.scaling.type': 'yarn', ...expertWidth(read) }),
    names: [[/\.attn_sinks$/, '.attn_sinks.weight']],
  },
  gemma3: {
    keys: { 'rope.global.freq_base': 'rope.freq_base', 'rope.local.freq_base': 'rope.freq_base_swa' },
    defaults: gemma3,
  },
  embeddinggemma: {
    as: 'gemma-embedding',
    keys: { 'rope.global.freq_base': 'rope.freq_base', 'rope.local.freq_base': 'rope.freq_base_swa' },
    defaults: gemma3,
    names: [
      [/^dense\.0\./, 'dense_2.'],
      [/^dense\.1\./, 'dense_3.'],
      [/^norm\.weight$/, 'output_norm.weight'],
    ],
  },
  mistral3: { keys: OF_MISTRAL3 },
  qwen25vl: { as: 'qwen2vl', keys: MROPE },
  qwen3vl: QWEN3_VL,
  qwen3vlmoe: QWEN3_VL,
  qwen35: QWEN35,
  qwen35moe: QWEN35,
  qwen3next: QWEN35,
  gemma4: { names: [[/\.ffn_gate_inp\.per_expert_scale$/, '.ffn_down_exps.scale']] },
  olmo3: { as: 'olmo2' },
  glm4moelite: { as: 'deepseek2', defaults: latents },
  glmocr: { as: 'glm4', keys: MROPE, defaults: rotated },
  nemotron_h_moe: { names: LATENTS },
};

/** @returns undefined where a file is as llama.cpp has it */
export function ollamaText(metadata: GgufMetadata, shape: ShapeOf): GgufView | undefined {
  const architecture = metadata.value('general.architecture');
  if (typeof architecture !== 'string' || architecture === 'clip') return undefined;
  const embeds = architecture === 'gemma3' && shape('dense.0.weight') !== undefined;
  const name = embeds ? 'embeddinggemma' : architecture;
  const rule = Object.hasOwn(RULES, name) ? RULES[name]! : {};
  const as = rule.as ?? architecture;
  const keys = new Map<string, GgufValue>();
  const put = (key: string, value: GgufValue): void => {
    if (!keys.has(key) && (as !== architecture || !metadata.has(key))) keys.set(key, value);
  };
  if (as !== architecture) {
    keys.set('general.architecture', as);
    for (const key of metadata.keys())
      if (key.startsWith(`${architecture}.`) && !hidden(name, key.slice(architecture.length + 1)))
        put(as + key.slice(architecture.length), metadata.value(key)!);
  }
  for (const [from, to] of Object.entries(rule.keys ?? {})) {
    const value = metadata.value(`${architecture}.${from}`);
    if (value !== undefined) put(`${as}.${to}`, value);
  }
  const own = (key: string): GgufValue | undefined => metadata.value(`${architecture}.${key}`);
  const defaults = rule.defaults?.({
    number: (key) => (typeof own(key) === 'number' ? (own(key) as number) : undefined),
    has: (key) => metadata.has(key) || own(key) !== undefined,
    shape,
  });
  for (const [key, value] of Object.entries(defaults ?? {})) put(`${as}.${key}`, value);
  return {
    keys,
    nameOf: (tensor) => {
      if (NOT_TEXT.test(tensor)) return null;
      const found = rule.names?.find(([pattern]) => pattern.test(tensor));
      return found === undefined ? tensor : tensor.replace(found[0], found[1]);
    },
  };
}

/** Keys that mean something else by the other name. */
function hidden(rule: string, key: string): boolean {
  if (rule === 'embeddinggemma')
    return key === 'attention.causal' || key === 'attention.sliding_window_pattern';
  return rule === 'glm4moelite' && /^attention\.(head_count_kv|(key|value)_length(_mla)?)$/.test(key);
}

/** Where a file says what part of a head is rotated, not how many dims. */
function rotated({ number }: Reader): Record<string, GgufValue> {
  const [dims, part] = [number('attention.key_length'), number('rope.partial_rotary_factor')];
  return dims === undefined || part === undefined ? {} : { 'rope.dimension_count': Math.floor(dims * part) };
}

/** Those with a tower have no more than what differs between sizes. */
function gemma3({ number, has, shape }: Reader): Record<string, GgufValue> {
  const ollamas =
    has('mm.tokens_per_image') ||
    has('vision.block_count') ||
    has('rope.global.freq_base') ||
    has('rope.local.freq_base') ||
    has('tokenizer.ggml.add_padding_token') ||
    has('tokenizer.ggml.add_unknown_token') ||
    shape('v.patch_embedding.weight') !== undefined ||
    !has('attention.layer_norm_rms_epsilon');
  if (!ollamas) return {};
  const long = (number('context_length') ?? 0) >= GEMMA3_LONG && !has('rope.scaling.type');
  return {
    'attention.layer_norm_rms_epsilon': 1e-6,
    'rope.freq_base': 1_000_000,
    'rope.freq_base_swa': 10_000,
    ...(long ? { 'rope.scaling.type': 'linear', 'rope.scaling.factor': 8 } : {}),
  };
}

/** Lengths of heads stand where llama.cpp has those of latents. */
function latents({ number }: Reader): Record<string, GgufValue> {
  const head = number('attention.key_length') ?? 0;
  const kept = number('attention.kv_lora_rank') ?? 0;
  return {
    'attention.head_count_kv': 1,
    'attention.key_length': kept + (number('rope.dimension_count') ?? 0),
    'attention.value_length': kept,
    'attention.key_length_mla': head,
    'attention.value_length_mla': number('attention.value_length') ?? head,
  };
}

export function integers(values: readonly number[]): GgufArray {
  const bytes = Buffer.alloc(values.length * 4);
  values.forEach((value, i) => {
    bytes.writeInt32LE(value, 4 * i);
  });
  return new GgufArray(5, values.length, bytes);
}

export function floats(values: readonly number[]): GgufArray {
  const bytes = Buffer.alloc(values.length * 4);
  values.forEach((value, i) => {
    bytes.writeFloatLE(value, 4 * i);
  });
  return new GgufArray(6, values.length, bytes);
}
