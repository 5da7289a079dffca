/**
 * The metadata of a GGUF file as the config.json of the model that it was made from: families read one kind of config.
 *
 * Source: what llama.cpp's converters write for each architecture (conversion/*.py), and what its loader takes for granted.
 */

import { closestName } from '../../did-you-mean.js';
import { KvantError } from '../../errors.js';
import type { JsonObject } from '../../weights/folder-files.js';
import { GgufArray, type GgufMetadata } from '../../weights/gguf-metadata.js';
import type { GgufArchitecture, MetadataReader } from './architecture.js';
import { ARCHITECTURES } from './architectures.js';

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
 * @param storedBlocks layers that tensors speak of
 * @param factors what each frequency of the rotation is divided by, where the file holds such lists
 * @throws KvantError `model-architecture-unknown`, `model-config`, `model-config-unsupported`
 */
export function ggufConfig(
  metadata: GgufMetadata,
  shapeOf: ShapeOf,
  storedBlocks: number,
  factors: RotationFactors | null,
): { readonly architecture: GgufArchitecture; readonly config: JsonObject } {
  const architecture = findArchitecture(metadata);
  const at = (key: string): string => `${architecture.name}.${key}`;
  const required = (key: string): number => {
    const value = same(metadata, at(key));
    if (value === undefined) throw metadata.odd(at(key), 'a whole number of at least 1');
    return value;
  };
  refuseOthers(metadata, architecture);
  const hidden = required('embedding_length');
  const heads = required('attention.head_count');
  const rotated = metadata.count(at('rope.dimension_count'));
  const headDim =
    metadata.count(at('attention.key_length')) ??
    (hidden % heads === 0 ? hidden / heads : rotated) ??
    hidden / heads;
  const vocab = shapeOf('token_embd.weight')?.[0];
  if (vocab === undefined) throw missingEmbedding(metadata.path);
  const blocks = required('block_count');
  // Layers that draft stand behind the others, or were left out.
  const layers = blocks - (metadata.count(at('nextn_predict_layers'), 0) ?? 0);
  const hasFirst = ['attn_norm', 'attn_output'].some((part) => shapeOf(`blk.0.${part}.weight`) !== undefined);
  if (blocks > layers && !hasFirst) throw draft(metadata.path);
  // Lists are made as long: what is stated has to be there.
  if (layers > storedBlocks || layers < 1)
    throw metadata.odd(at('block_count'), `the ${storedBlocks} blocks that the file holds, or fewer,`);
  const asked = new Set<string>();
  const read: MetadataReader = {
    headDim,
    layers,
    hidden,
    heads,
    count: (key, min = 1) => same(metadata, at(key), { min }),
    list: (key) => (typeof metadata.value(at(key)) === 'number' ? undefined : metadata.numbers(at(key))),
    number: (key) => {
      asked.add(key);
      return metadata.number(at(key));
    },
    text: (key) => metadata.text(at(key)),
    pattern: (key) => pattern(metadata, at(key)),
    flag: (key) => metadata.flag(at(key)),
    // q, k and v may be one.
    hasTensor: (name) =>
      [name, name.replace(/\.attn_[qkv]\./, '.attn_qkv.')].some((one) => shapeOf(one) !== undefined),
    unsupported: (key, what) => unsupported(at(key), what),
    rows: (name) => shapeOf(name)?.[0],
  };
  const { layerNormEps } = architecture;
  const epsKeys = ['attention.layer_norm_rms_epsilon', 'attention.layer_norm_epsilon'].map(at);
  const [epsKey, otherKey] = (layerNormEps === undefined ? epsKeys : epsKeys.reverse()) as [string, string];
  // Converters go by the name that a config has: of both norms it may be the other one's, as of Nemotron-H.
  const eps = metadata.number(epsKey) ?? metadata.number(otherKey);
  if (eps === undefined) throw metadata.odd(epsKey, 'a number');
  const config: JsonObject = {
    ...(architecture.className === null ? {} : { architectures: [architecture.className] }),
    model_type: architecture.modelType,
    hidden_size: hidden,
    ...(architecture.lists?.includes('feed_forward_length')
      ? {}
      : { intermediate_size: required('feed_forward_length') }),
    num_hidden_layers: layers,
    num_attention_heads: heads,
    ...(architecture.lists?.includes('attention.head_count_kv')
      ? {}
      : {
          num_key_value_heads:
            same(metadata, at('attention.head_count_kv'), { orNone: architecture.someAttend }) ?? heads,
        }),
    head_dim: headDim,
    max_position_embeddings: required('context_length'),
    [layerNormEps ?? 'rms_norm_eps']: eps,
    vocab_size: vocab,
    tie_word_embeddings: shapeOf('output.weight') === undefined,
    rope_theta: metadata.number(at('rope.freq_base')) ?? PLAIN_THETA,
    ...(rotated === undefined ? {} : { partial_rotary_factor: rotated / headDim }),
    ...scaling(metadata, at, factors),
    ...endIds(metadata),
  };
  const own = architecture.fields?.(read, config);
  refuseUnread(metadata, architecture.name, asked, headDim);
  return { architecture, config: { ...config, ...own } };
}

/** Numbers that some architectures have, with what changes nothing: another one asks for what its family does not compute. */
const NEUTRAL: Readonly<Record<string, readonly number[]>> = {
  final_logit_softcapping: [0],
  attn_logit_softcapping: [0],
  router_logit_softcapping: [0],
  'attention.value_scale': [1],
  'rope.scaling.alpha': [0, 1],
  // Below 0 it is not set.
  'rope.scaling.yarn_ext_factor': [1, -1],
  'attention.output_scale': [0, 1],
  expert_weights_scale: [0, 1],
  expert_group_scale: [0, 1],
  num_loops: [1],
};

/** The same of numbers that stand in a list, one a layer. */
const NEUTRAL_LISTS = ['swiglu_clamp_exp', 'swiglu_clamp_shexp'];

/** @param asked what the architecture reads */
function refuseUnread(
  metadata: GgufMetadata,
  name: string,
  asked: ReadonlySet<string>,
  headDim: number,
): void {
  const usual = Math.fround(headDim ** -0.5);
  for (const [key, neutral] of Object.entries({ ...NEUTRAL, 'attention.scale': [0, usual] })) {
    const value = asked.has(key) ? undefined : metadata.number(`${name}.${key}`);
    if (value !== undefined && !neutral.includes(Math.fround(value)))
      throw unsupported(`${name}.${key}`, 'what this number says');
  }
  for (const key of NEUTRAL_LISTS.map((one) => `${name}.${one}`)) {
    const value = metadata.value(key);
    const numbers = value instanceof GgufArray ? (value.numbers() ?? []) : [metadata.number(key) ?? 0];
    if (numbers.some((number) => number !== 0)) throw unsupported(key, 'a bound inside of experts');
  }
}

/** @throws KvantError `model-architecture-unknown` for another architecture, and for a file that is no model: an adapter, what sees */
export function findArchitecture(metadata: GgufMetadata): GgufArchitecture {
  const name = metadata.text('general.architecture');
  if (name === undefined) throw metadata.odd('general.architecture', 'a name');
  const found = ARCHITECTURES.find((known) => known.name === name);
  const kind = metadata.text('general.type');
  if (found !== undefined && !NO_MODELS.includes(kind ?? '')) return found;
  const known = ARCHITECTURES.map((one) => one.name);
  const near = closestName(name, known);
  const shown = JSON.stringify(name.length > 200 ? `${name.slice(0, 200)}…` : name);
  const what =
    name === 'clip'
      ? 'is what sees for a model (mmproj), not a model'
      : kind !== undefined && kind !== 'model'
        ? `is a file of the kind ${JSON.stringify(kind)}, not a model`
        : `the architecture ${shown} is not known${near === undefined ? '' : `; the nearest known one is ${near}`}`;
  throw new KvantError('model-architecture-unknown', `${metadata.path}: ${what}`, {
    kind: 'unsupported',
    where: 'general.architecture',
    fix:
      NO_MODELS.includes(kind ?? '') || name === 'clip'
        ? 'Give the GGUF file of the model that it goes with.'
        : `Use a GGUF file of one of: ${known.join(', ')}; or the safetensors model.`,
  });
}

/** What `general.type` says of files that go with a model of the architecture. */
const NO_MODELS = ['adapter', 'mmproj', 'imatrix', 'vocab'];

/** A number, or a list of the same number for each layer; `orNone`: or of 0. */
function same(
  metadata: GgufMetadata,
  key: string,
  { min = 1, orNone = false }: { readonly min?: number; readonly orNone?: boolean | undefined } = {},
): number | undefined {
  if (!(metadata.value(key) instanceof GgufArray)) return metadata.count(key, min);
  const listed = new Set(metadata.numbers(key)?.filter((number) => !orNone || number !== 0));
  const [only] = listed;
  if (listed.size !== 1 || only === undefined) throw unsupported(key, 'a number that differs by layer');
  if (!Number.isSafeInteger(only) || only < min) throw metadata.odd(key, `whole numbers of at least ${min}`);
  return only;
}

/** Flags of the layers, or a period of them. */
function pattern(metadata: GgufMetadata, key: string): readonly boolean[] | number | undefined {
  const value = metadata.value(key);
  if (value === undefined || typeof value === 'number') return metadata.count(key);
  return metadata.numbers(key)?.map((flag) => flag !== 0);
}

/** Where a file has no base of the rotation. */
const PLAIN_THETA = 10_000;
/** As `expert_gating_func` numbers them; 0 leaves it to the architecture, and 3 is a softmax of those that are chosen. */
const GATING = { softmax: [0, 1, 3], sigmoid: [0, 2], 'softmax or sigmoid': [0, 1, 2] };

/** What changes the model, and is not computed. */
function refuseOthers(
  metadata: GgufMetadata,
  { name, reads = [], rotates, scores = 'softmax' }: GgufArchitecture,
): void {
  const off = (key: string, neutral: number, what: string): void => {
    const value = reads.includes(key) ? undefined : metadata.number(`${name}.${key}`);
    if (value !== undefined && value !== neutral) throw unsupported(`${name}.${key}`, what);
  };
  // One expert is an MLP: configs of HunYuan without experts say so.
  if (metadata.number(`${name}.expert_count`) !== 1) off('expert_count', 0, 'a mixture of experts');
  off('attention.max_alibi_bias', 0, 'positions by ALiBi');
  off('attention.clamp_kqv', 0, 'clamped queries, keys and values');
  off('rope.scaling.attn_factor', 1, 'a rotation with an attention factor of its own');
  off('attention.temperature_scale', 0, 'scores that are scaled by position');
  off('rope.scaling.yarn_log_multiplier', 0, 'a YaRN whose attention factor is another');
  // The same as of the other layers, or left out.
  const plain = (key: string): number =>
    metadata.number(`${name}.${key}`) ?? (key === 'rope.freq_base' ? PLAIN_THETA : Number.NaN);
  for (const key of ['rope.freq_base', 'attention.key_length', 'rope.dimension_count'])
    off(`${key}_swa`, plain(key), 'another number for layers that slide');
  if (rotates === true && metadata.flag(`${name}.rope.scaling.finetuned`) === false)
    throw unsupported(`${name}.rope.scaling.finetuned`, 'a model without rotation');
  for (const key of ['logit_scale', 'embedding_scale', 'residual_scale'])
    off(key, 1, 'a multiplier of embedding, branches or logits');
  const gating = metadata.count(`${name}.expert_gating_func`, 0) ?? 0;
  if (!GATING[scores].includes(gating))
    throw unsupported(`${name}.expert_gating_func`, `another score of experts than ${scores}`);
  if (!reads.includes('attention.causal') && metadata.flag(`${name}.attention.causal`) === false)
    throw unsupported(`${name}.attention.causal`, 'attention that looks ahead');
}

/** Types of a rotation that is not scaled, also as Ollama has named them. */
const UNSCALED = ['none', 'default', ''];

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
  // Files from before 2023-11 have the factor alone, of linear scaling, and say it upside down nowhere. 0 is none.
  const factor =
    (metadata.number(at('rope.scaling.factor')) ?? metadata.number(at('rope.scale_linear'))) || undefined;
  if (UNSCALED.includes(type ?? '') && (type || factor === undefined || factor === 1)) return {};
  const original = metadata.count(at('rope.scaling.original_context_length'));
  return {
    rope_scaling: {
      rope_type: type || 'linear',
      ...(factor === undefined ? {} : { factor }),
      ...(original === undefined ? {} : { original_max_position_embeddings: original }),
      ...optional('beta_fast', metadata.number(at('rope.scaling.yarn_beta_fast'))),
      ...optional('beta_slow', metadata.number(at('rope.scaling.yarn_beta_slow'))),
      // Below 0 it is not set.
      ...optional('attention_factor', positive(metadata.number(at('rope.scaling.yarn_attn_factor')))),
    },
  };
}

const positive = (value: number | undefined): number | undefined =>
  value !== undefined && value > 0 ? value : undefined;

const optional = (name: string, value: number | undefined): JsonObject =>
  value === undefined ? {} : { [name]: value };

function endIds(metadata: GgufMetadata): JsonObject {
  const ids = (keys: readonly string[]): number[] =>
    keys.flatMap((key) => {
      const at = `tokenizer.ggml.${key}_token_id`;
      const id = metadata.number(at);
      // Some converters wrote -1 for none, others 2^32 - 1.
      return id === undefined || id === -1 || id === 0xffff_ffff ? [] : metadata.count(at, 0)!;
    });
  return { bos_token_id: ids(['bos'])[0] ?? null, eos_token_id: [...new Set(ids(['eos', 'eot', 'eom']))] };
}

function draft(path: string): KvantError {
  return new KvantError(
    'model-architecture-unknown',
    `${path} holds layers that draft for a model (MTP), not a model`,
    {
      kind: 'unsupported',
      where: path,
      fix: 'Give the GGUF file of the model that it goes with.',
    },
  );
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
