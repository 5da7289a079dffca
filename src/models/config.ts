/**
 * What a model is, read from config.json into typed records. A family says which defaults its published configs leave
 * out and what its fields mean (family.ts); most read one {@link DecoderConfig} and add what they alone know.
 */

import type { Activation } from '../device/graph.js';
import type { RopeSections } from '../device/rope.js';
import { FLOAT_DTYPES, type FloatDtype } from '../device/weights.js';
import { KvantError } from '../errors.js';
import type { Notice } from '../notice.js';
import type { ConfigFields } from './config-fields.js';
import { parseRope, type RotationTraits, readRopeSections, readRotaryDims } from './rope-config.js';
import { type RopeParameters, ropeMaxPositions } from './rope-frequencies.js';

/** What the config of every family has. */
export interface CommonConfig {
  /** As the config names it: `Qwen3ForCausalLM`. */
  readonly architecture: string;
  readonly vocabSize: number;
  readonly hiddenSize: number;
  readonly intermediateSize: number;
  readonly layers: number;
  /** Longest context in tokens, the scaling of the rotation included. */
  readonly maxPositions: number;
  /** The head is the embedding. */
  readonly tied: boolean;
  /** What the weights were published in, where the config says so. */
  readonly dtype: FloatDtype | null;
  readonly bosTokenIds: readonly number[];
  readonly eosTokenIds: readonly number[];
  /** What is odd about the config, for the log. */
  readonly notices: readonly Notice[];
  /** It is an encoder: all tokens of a text see each other, so a text is computed whole. Default false. */
  readonly encoder?: boolean;
}

/** A decoder whose layers have one shape of attention and one MLP. */
export interface DecoderConfig extends CommonConfig {
  readonly heads: number;
  readonly kvHeads: number;
  readonly headDim: number;
  readonly activation: Activation;
  /** Of all norms. */
  readonly normEps: number;
  readonly rope: RopeParameters;
  /** Leading elements of a head that rotate. */
  readonly rotaryDims: number;
  /** How they turn by three positions; null where one position says all. */
  readonly ropeSections: RopeSections | null;
  /** Which linear layers carry a bias. */
  readonly bias: { readonly qkv: boolean; readonly output: boolean; readonly mlp: boolean };
  /** Per-head RMS norm of q and k. */
  readonly qkNorm: boolean;
  /** `[layers]` tokens a layer looks back, itself included; null for all. */
  readonly windows: readonly (number | null)[];
}

/** How a family reads the fields that families do not share. */
export interface DecoderTraits {
  readonly bias: (fields: ConfigFields) => DecoderConfig['bias'];
  readonly qkNorm: boolean;
  /** Default: whole heads rotate. */
  readonly rotation?: RotationTraits;
  /** Window of the layers that slide, null if the model has none. */
  readonly window: (fields: ConfigFields) => number | null;
  /** Which layers slide where config.json has no `layer_types`. */
  readonly slides: (fields: ConfigFields, layer: number) => boolean;
  /** What the ε of the norms is called, and its value where config.json leaves it out. Default: `rms_norm_eps`, 1e-6. */
  readonly normEps?: { readonly name: string; readonly fallback: number };
  /** Used where config.json leaves the field out. */
  readonly defaults: {
    readonly maxPositions: number;
    readonly ropeTheta: number;
    /** `hidden_size / num_attention_heads` if omitted. */
    readonly headDim?: number;
    /** Where config.json has no `num_key_value_heads`. As many as heads if omitted, and where it is `null`. */
    readonly kvHeads?: number;
  };
}

const ACTIVATION_NAMES: Readonly<Record<string, Activation>> = {
  silu: 'silu',
  swish: 'silu',
  gelu: 'gelu',
  gelu_new: 'gelu-tanh',
  gelu_fast: 'gelu-tanh',
  gelu_pytorch_tanh: 'gelu-tanh',
  gelu_python: 'gelu',
  gelu_python_tanh: 'gelu-tanh',
  gelu_accurate: 'gelu-tanh',
  relu: 'relu',
  relu2: 'relu2',
};

const DTYPE_NAMES: Readonly<Record<string, FloatDtype>> = {
  float32: 'f32',
  float: 'f32',
  float16: 'f16',
  half: 'f16',
  bfloat16: 'bf16',
};

/** A sanity limit, so that a broken config is refused before arrays are made from it. */
const MAX_LAYERS = 10_000;

/**
 * Reads the fields of a pre-norm decoder.
 *
 * @throws KvantError `model-config` for a field that is missing or makes no sense, `model-config-unsupported` for what
 * kvant cannot run
 */
export function readDecoderConfig(
  fields: ConfigFields,
  architecture: string,
  traits: DecoderTraits,
): DecoderConfig {
  const hiddenSize = fields.count('hidden_size');
  const layers = fields.count('num_hidden_layers');
  if (layers > MAX_LAYERS) throw fields.odd('num_hidden_layers', layers, `at most ${MAX_LAYERS}`);
  const heads = fields.count('num_attention_heads');
  const { kvHeads: stated = heads } = traits.defaults;
  const usual = heads % stated === 0 ? stated : heads;
  const kvHeads = fields.whereAbsent({ num_key_value_heads: usual }).count('num_key_value_heads', heads);
  if (heads % kvHeads !== 0)
    throw fields.odd('num_key_value_heads', kvHeads, `a divisor of num_attention_heads (${heads})`);
  const headDim = readHeadDim(fields, hiddenSize, heads, traits);
  const statedPositions = fields.count('max_position_embeddings', traits.defaults.maxPositions);
  const { rotation = {} } = traits;
  const rotaryDims = readRotaryDims(fields, headDim, rotation);
  const rope = parseRope(fields, statedPositions, traits.defaults.ropeTheta, rotaryDims, rotation);
  return {
    architecture,
    vocabSize: fields.count('vocab_size'),
    hiddenSize,
    intermediateSize: fields.count('intermediate_size'),
    layers,
    heads,
    kvHeads,
    headDim,
    activation: readActivation(fields),
    normEps: fields.atLeastZero(traits.normEps?.name ?? 'rms_norm_eps', traits.normEps?.fallback ?? 1e-6),
    maxPositions: ropeMaxPositions(rope, statedPositions),
    rope,
    rotaryDims,
    ropeSections: readRopeSections(fields, rotaryDims),
    bias: traits.bias(fields),
    qkNorm: traits.qkNorm,
    windows: readWindows(fields, layers, traits),
    tied: fields.flag('tie_word_embeddings', false),
    dtype: readDtype(fields),
    bosTokenIds: fields.ids('bos_token_id'),
    eosTokenIds: fields.ids('eos_token_id'),
    notices: fields.notices,
  };
}

function readHeadDim(fields: ConfigFields, hiddenSize: number, heads: number, traits: DecoderTraits): number {
  const stated = fields.has('head_dim') ? fields.count('head_dim') : traits.defaults.headDim;
  const headDim = stated ?? hiddenSize / heads;
  if (!Number.isInteger(headDim))
    throw fields.odd('num_attention_heads', heads, `a divisor of hidden_size (${hiddenSize}), or head_dim,`);
  if (headDim % 2 !== 0) throw fields.odd('head_dim', headDim, 'an even number');
  return headDim;
}

function readActivation(fields: ConfigFields): Activation {
  const field = fields.has('hidden_act') ? 'hidden_act' : 'hidden_activation';
  const name = fields.text(field) ?? 'silu';
  const activation = Object.hasOwn(ACTIVATION_NAMES, name) ? ACTIVATION_NAMES[name] : undefined;
  if (activation !== undefined) return activation;
  throw fields.unsupported(
    field,
    `the activation ${JSON.stringify(name)}`,
    `Use a model with one of: ${Object.keys(ACTIVATION_NAMES).join(', ')}.`,
  );
}

function readWindows(fields: ConfigFields, layers: number, traits: DecoderTraits): (number | null)[] {
  const window = traits.window(fields);
  const types = fields.texts('layer_types');
  if (types !== null && types.length !== layers)
    throw fields.odd('layer_types', types, `one entry for each of the ${layers} layers`);
  return Array.from({ length: layers }, (_, layer) => {
    const type = types?.[layer];
    if (type === 'full_attention' || type === 'attention') return null;
    if (type === undefined) return window !== null && traits.slides(fields, layer) ? window : null;
    if (type !== 'sliding_attention')
      throw fields.unsupported(
        'layer_types',
        `a layer of type ${JSON.stringify(type)}`,
        'Use a model whose layers are full_attention or sliding_attention.',
      );
    if (window === null)
      throw fields.odd('sliding_window', null, 'a number of tokens (layer_types has sliding layers)');
    return window;
  });
}

function readDtype(fields: ConfigFields): FloatDtype | null {
  const stated = fields.text(['dtype', 'torch_dtype']);
  if (stated === null) return null;
  const name = stated.replace(/^torch\./, '');
  return DTYPE_NAMES[name] ?? FLOAT_DTYPES.find((dtype) => dtype === name) ?? null;
}

/**
 * The names a config goes by: the first of its architectures, and its model type.
 *
 * @throws KvantError `model-config` if it names neither
 */
export function statedArchitecture(fields: ConfigFields): {
  architecture: string | null;
  modelType: string | null;
} {
  const architecture = fields.texts('architectures')?.[0] ?? null;
  const modelType = fields.text('model_type');
  if (architecture === null && modelType === null)
    throw new KvantError('model-config', `${fields.where} has neither "architectures" nor "model_type"`, {
      kind: 'model',
      where: 'architectures',
      fix: 'Give the folder of a causal language model with its published config.json.',
    });
  return { architecture, modelType };
}
