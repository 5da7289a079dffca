/**
 * The metadata of a GGUF file as the config.json of the model that it was made from: families read one kind of config.
 *
 * Source: what llama.cpp's converters write for each architecture (conversion/*.py), and what its loader takes for granted.
 */

import { closestName } from '../../did-you-mean.js';
import { KvantError } from '../../errors.js';
import type { JsonObject } from '../../weights/folder-files.js';
import type { GgufMetadata } from '../../weights/gguf-metadata.js';

/** What converters did to the weights of an architecture. */
export interface GgufArchitecture {
  /** `general.architecture`. */
  readonly name: string;
  /** q and k have the rows of a rotated pair beside one another. */
  readonly pairedRows: boolean;
  /** Norms that multiply by 1 + w are stored as 1 + w. */
  readonly bakedNorms: boolean;
  /** What stands after attention: the norm before the MLP, or one of attention's own. */
  readonly sandwich: boolean;
  /** `model_type` and `architectures` of the config. */
  readonly modelType: string;
  readonly className: string;
  /** Fields that are its alone. */
  readonly fields?: (read: MetadataReader) => JsonObject;
}

const ARCHITECTURES: readonly GgufArchitecture[] = [
  {
    name: 'llama',
    pairedRows: true,
    bakedNorms: false,
    sandwich: false,
    modelType: 'llama',
    className: 'LlamaForCausalLM',
    fields: biases,
  },
  {
    name: 'qwen2',
    pairedRows: false,
    bakedNorms: false,
    sandwich: false,
    modelType: 'qwen2',
    className: 'Qwen2ForCausalLM',
  },
  {
    name: 'qwen3',
    pairedRows: false,
    bakedNorms: false,
    sandwich: false,
    modelType: 'qwen3',
    className: 'Qwen3ForCausalLM',
  },
  {
    name: 'gemma2',
    pairedRows: false,
    bakedNorms: true,
    sandwich: true,
    modelType: 'gemma2',
    className: 'Gemma2ForCausalLM',
    fields: (read) => ({
      sliding_window: read.count('attention.sliding_window') ?? 4096,
      attn_logit_softcapping: read.number('attn_logit_softcapping') ?? 50,
      final_logit_softcapping: read.number('final_logit_softcapping') ?? 30,
      query_pre_attn_scalar: gemmaScalar(read, 46),
    }),
  },
  {
    name: 'gemma3',
    pairedRows: false,
    bakedNorms: true,
    sandwich: true,
    modelType: 'gemma3_text',
    className: 'Gemma3ForCausalLM',
    fields: (read) => ({
      sliding_window: read.count('attention.sliding_window') ?? 1024,
      sliding_window_pattern: read.count('attention.sliding_window_pattern') ?? 6,
      rope_local_base_freq: read.number('rope.freq_base_swa') ?? 10_000,
      final_logit_softcapping: read.number('final_logit_softcapping') ?? null,
      query_pre_attn_scalar: gemmaScalar(read, 62),
    }),
  },
  {
    name: 'granite',
    pairedRows: true,
    bakedNorms: false,
    sandwich: false,
    modelType: 'granite',
    className: 'GraniteForCausalLM',
    fields: (read) => ({
      ...biases(read),
      embedding_multiplier: read.number('embedding_scale') ?? 1,
      residual_multiplier: read.number('residual_scale') ?? 1,
      logits_scaling: read.number('logit_scale') ?? 1,
      attention_multiplier: read.number('attention.scale') ?? read.headDim ** -0.5,
    }),
  },
  {
    name: 'smollm3',
    pairedRows: true,
    bakedNorms: false,
    sandwich: false,
    modelType: 'smollm3',
    className: 'SmolLM3ForCausalLM',
    fields: (read) => ({ ...biases(read), no_rope_layer_interval: 4 }),
  },
  {
    name: 'phi3',
    pairedRows: false,
    bakedNorms: false,
    sandwich: false,
    modelType: 'phi3',
    className: 'Phi3ForCausalLM',
    fields: (read) => ({ sliding_window: read.count('attention.sliding_window', 0) || null }),
  },
];

/** Keys of the metadata below the architecture, checked; and which tensors there are. */
export interface MetadataReader {
  readonly headDim: number;
  readonly layers: number;
  readonly hidden: number;
  readonly heads: number;
  count(key: string, min?: number): number | undefined;
  number(key: string): number | undefined;
  hasTensor(name: string): boolean;
}

/** The scores of the largest Gemmas are scaled by the width of a head had the heads the hidden size between them. */
function gemmaScalar({ headDim, layers, hidden, heads, number }: MetadataReader, largest: number): number {
  const stated = number('attention.scale');
  if (stated !== undefined && stated > 0) return stated ** -2;
  return layers === largest ? hidden / heads : headDim;
}

function biases({ hasTensor }: MetadataReader): JsonObject {
  return {
    attention_bias: hasTensor('blk.0.attn_q.bias'),
    mlp_bias: hasTensor('blk.0.ffn_up.bias'),
  };
}

/** What each frequency is divided by, in contexts up to the original one and in longer ones. Llama 3 has one list for both. */
export interface RotationFactors {
  readonly short: readonly number[];
  readonly long: readonly number[];
}

/** A tensor's shape, undefined where there is none. */
export type ShapeOf = (name: string) => readonly number[] | undefined;

/**
 * The architecture of a file, and its config.
 *
 * @param factors what each frequency of the rotation is divided by, where the file holds such lists
 * @throws KvantError `model-architecture-unknown`, `model-config`, `model-config-unsupported`
 */
export function ggufConfig(
  metadata: GgufMetadata,
  shapeOf: ShapeOf,
  factors: RotationFactors | null,
): { readonly architecture: GgufArchitecture; readonly config: JsonObject } {
  const architecture = findArchitecture(metadata);
  const at = (key: string): string => `${architecture.name}.${key}`;
  const required = (key: string): number => {
    const value = same(metadata, at(key));
    if (value === undefined) throw metadata.odd(at(key), 'a whole number of at least 1');
    return value;
  };
  refuseOthers(metadata, architecture.name);
  const hidden = required('embedding_length');
  const heads = required('attention.head_count');
  const rotated = metadata.count(at('rope.dimension_count'));
  const headDim = metadata.count(at('attention.key_length')) ?? rotated ?? hidden / heads;
  const vocab = shapeOf('token_embd.weight')?.[0];
  if (vocab === undefined) throw missingEmbedding(metadata.path);
  const layers = required('block_count') - (metadata.count(at('nextn_predict_layers'), 0) ?? 0);
  const read: MetadataReader = {
    headDim,
    layers,
    hidden,
    heads,
    count: (key, min) => metadata.count(at(key), min),
    number: (key) => metadata.number(at(key)),
    hasTensor: (name) => shapeOf(name) !== undefined,
  };
  const eps = metadata.number(at('attention.layer_norm_rms_epsilon'));
  if (eps === undefined) throw metadata.odd(at('attention.layer_norm_rms_epsilon'), 'a number');
  const config = {
    architectures: [architecture.className],
    model_type: architecture.modelType,
    hidden_size: hidden,
    intermediate_size: required('feed_forward_length'),
    num_hidden_layers: layers,
    num_attention_heads: heads,
    num_key_value_heads: same(metadata, at('attention.head_count_kv')) ?? heads,
    head_dim: headDim,
    max_position_embeddings: required('context_length'),
    rms_norm_eps: eps,
    vocab_size: vocab,
    tie_word_embeddings: shapeOf('output.weight') === undefined,
    rope_theta: metadata.number(at('rope.freq_base')) ?? 10_000,
    ...(rotated !== undefined && rotated !== headDim ? { partial_rotary_factor: rotated / headDim } : {}),
    ...scaling(metadata, at, factors),
    ...endIds(metadata),
    ...architecture.fields?.(read),
  };
  return { architecture, config };
}

function findArchitecture(metadata: GgufMetadata): GgufArchitecture {
  const name = metadata.text('general.architecture');
  if (name === undefined) throw metadata.odd('general.architecture', 'a name');
  const found = ARCHITECTURES.find((known) => known.name === name);
  if (found !== undefined) return found;
  const known = ARCHITECTURES.map((one) => one.name);
  const near = closestName(name, known);
  const kind = metadata.text('general.type');
  const what =
    kind !== undefined && kind !== 'model'
      ? `is a file of the kind ${JSON.stringify(kind)}, not a model`
      : `the architecture ${JSON.stringify(name)} is not known${near === undefined ? '' : `; the nearest known one is ${near}`}`;
  throw new KvantError('model-architecture-unknown', `${metadata.path}: ${what}`, {
    kind: 'unsupported',
    where: 'general.architecture',
    fix: `Use a GGUF file of one of: ${known.join(', ')}; or the safetensors model.`,
  });
}

/** A number, or a list of the same number for each layer. */
function same(metadata: GgufMetadata, key: string): number | undefined {
  if (metadata.value(key) === undefined || typeof metadata.value(key) === 'number')
    return metadata.count(key);
  const listed = new Set(metadata.numbers(key));
  const [only] = listed;
  if (listed.size !== 1 || only === undefined) throw unsupported(key, 'a number that differs by layer');
  if (!Number.isSafeInteger(only) || only < 1) throw metadata.odd(key, 'whole numbers of at least 1');
  return only;
}

/** What changes the model, and is not computed. */
function refuseOthers(metadata: GgufMetadata, name: string): void {
  const off = (key: string, neutral: number, what: string): void => {
    const value = metadata.number(`${name}.${key}`);
    if (value !== undefined && value !== neutral) throw unsupported(`${name}.${key}`, what);
  };
  off('expert_count', 0, 'a mixture of experts');
  off('attention.max_alibi_bias', 0, 'positions by ALiBi');
  off('attention.clamp_kqv', 0, 'clamped queries, keys and values');
  // Phi-3 has it with its lists of factors.
  if (name !== 'phi3') off('rope.scaling.attn_factor', 1, 'a rotation with an attention factor of its own');
  off('attention.temperature_scale', 0, 'scores that are scaled by position');
  if (name !== 'granite') {
    for (const key of ['logit_scale', 'embedding_scale', 'residual_scale'])
      off(key, 1, 'a multiplier of embedding, branches or logits');
  }
  if (metadata.flag(`${name}.attention.causal`) === false)
    throw unsupported(`${name}.attention.causal`, 'attention that looks ahead');
}

function scaling(
  metadata: GgufMetadata,
  at: (key: string) => string,
  factors: RotationFactors | null,
): JsonObject {
  if (factors !== null) {
    const original = metadata.count(at('rope.scaling.original_context_length'));
    return {
      rope_scaling: {
        rope_type: 'longrope',
        short_factor: factors.short,
        long_factor: factors.long,
        original_max_position_embeddings: original ?? metadata.count(at('context_length')),
        attention_factor: metadata.number(at('rope.scaling.attn_factor')) ?? 1,
      },
    };
  }
  const type = metadata.text(at('rope.scaling.type'));
  // Files from before 2023-11 have the factor alone, of linear scaling, and say it upside down nowhere.
  const factor = metadata.number(at('rope.scaling.factor')) ?? metadata.number(at('rope.scale_linear'));
  if (type === 'none' || (type === undefined && (factor === undefined || factor === 1))) return {};
  const original = metadata.count(at('rope.scaling.original_context_length'));
  return {
    rope_scaling: {
      rope_type: type ?? 'linear',
      ...(factor === undefined ? {} : { factor }),
      ...(original === undefined ? {} : { original_max_position_embeddings: original }),
      ...optional('beta_fast', metadata.number(at('rope.scaling.yarn_beta_fast'))),
      ...optional('beta_slow', metadata.number(at('rope.scaling.yarn_beta_slow'))),
    },
  };
}

const optional = (name: string, value: number | undefined): JsonObject =>
  value === undefined ? {} : { [name]: value };

function endIds(metadata: GgufMetadata): JsonObject {
  const ids = (keys: readonly string[]): number[] =>
    keys.flatMap((key) => metadata.count(`tokenizer.ggml.${key}_token_id`, 0) ?? []);
  return { bos_token_id: ids(['bos']), eos_token_id: [...new Set(ids(['eos', 'eot', 'eom']))] };
}

function missingEmbedding(path: string): KvantError {
  return new KvantError('weights-tensor-missing', `${path} has no tensor "token_embd.weight"`, {
    kind: 'model',
    where: 'token_embd.weight',
    fix: 'Give the file of the model itself: this may be a projector (mmproj), an adapter, or one shard under another name.',
  });
}

function unsupported(key: string, what: string): KvantError {
  return new KvantError('model-config-unsupported', `${key}: ${what} is not supported`, {
    kind: 'unsupported',
    where: key,
    fix: 'Use a model without it.',
  });
}
