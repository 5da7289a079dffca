/** What config.json says of a Gemma 4. Nothing is taken for granted that published ones differ in. */

import type { PerLayerSizes } from '../blocks/per-layer-inputs.js';
import { type DecoderConfig, type DecoderTraits, readDecoderConfig } from '../config.js';
import type { ConfigFields } from '../config-fields.js';
import { parseRope, readRotaryDims } from '../rope-config.js';
import type { RopeParameters } from '../rope-frequencies.js';
import { attentionBias } from '../stated-biases.js';
import { type Mixture, readExperts } from './mixture.js';

/** `kvHeads`, `headDim` and `rope` are those of layers that slide. */
export interface Gemma4Config extends DecoderConfig {
  /** Of layers that see all. */
  readonly full: { readonly kvHeads: number; readonly headDim: number };
  readonly fullRope: RopeParameters;
  /** Layers that see all have values that are their keys, before norm and rotation. */
  readonly sameKv: boolean;
  /** So many layers, the last ones, look at others' keys and values. */
  readonly shared: number;
  /** Their MLPs are twice as wide. */
  readonly doubleWide: boolean;
  readonly perLayer: PerLayerSizes | null;
  /** Logits become `cap · tanh(logit / cap)`; null: they stay. */
  readonly logitCap: number | null;
  readonly mixture: Mixture | null;
}

/** What a layer is. */
export interface Gemma4Layer {
  readonly kvHeads: number;
  readonly headDim: number;
  readonly window: number | null;
  readonly sameKv: boolean;
  readonly intermediateSize: number;
  /** The layer whose keys and values it looks at: itself, or one before it. */
  readonly cacheOf: number;
}

const DEFAULTS = {
  vocab_size: 262_144,
  hidden_size: 2304,
  intermediate_size: 9216,
  num_hidden_layers: 30,
  num_attention_heads: 8,
  num_key_value_heads: 4,
  hidden_activation: 'gelu_pytorch_tanh',
  tie_word_embeddings: true,
};
/** Layers from one that sees all to the next, where a config does not list them. */
const PATTERN = 6;
const WIDTH_OF_HEADS = { sliding: 256, full: 512 };
const ROPES = {
  sliding_attention: { rope_type: 'default', rope_theta: 10_000 },
  full_attention: { rope_type: 'proportional', partial_rotary_factor: 0.25, rope_theta: 1_000_000 },
};

const TRAITS: DecoderTraits = {
  bias: attentionBias,
  qkNorm: true,
  window: (fields) => fields.count('sliding_window', 512),
  slides: (_, layer) => (layer + 1) % PATTERN !== 0,
  defaults: { maxPositions: 131_072, ropeTheta: ROPES.sliding_attention.rope_theta, headDim: 256 },
};

export function readGemma4(stated: ConfigFields, architecture: string): Gemma4Config {
  // `hidden_act` may be there too, and does not count.
  const fields = stated.withDefaults(DEFAULTS).replacing('hidden_act', null);
  refuseLookingAhead(fields);
  const ropes = readRopes(fields);
  const config = readDecoderConfig(ropes.sliding, architecture, TRAITS);
  const { layers } = config;
  const sameKv = fields.flag('attention_k_eq_v', false);
  // The last one sees all, whatever the list says.
  const windows = config.windows.with(-1, null);
  const full = readFull(fields, config, sameKv, windows);
  const shared = fields.count('num_kv_shared_layers', 0, 0);
  const size = fields.count('hidden_size_per_layer_input', 256, 0);
  if (size > 0 && config.activation !== 'gelu-tanh')
    throw fields.unsupported(
      'hidden_activation',
      `${JSON.stringify(config.activation)} beside embeddings of each layer`,
      'Use a Gemma 4 as published: its activation is gelu_pytorch_tanh.',
    );
  const gemma: Gemma4Config = {
    ...config,
    windows,
    full,
    fullRope: parseRope(
      ropes.full,
      config.maxPositions,
      ROPES.full_attention.rope_theta,
      readRotaryDims(ropes.full, full.headDim, {}),
    ),
    sameKv,
    shared,
    doubleWide: fields.flag('use_double_wide_mlp', false),
    perLayer: size === 0 ? null : readPerLayer(fields, size),
    logitCap: fields.positiveOrNull('final_logit_softcapping'),
    mixture: readMixture(fields),
  };
  if (shared > layers || gemma.windows.some((_, layer) => producerOf(gemma, layer) < 0))
    throw fields.odd(
      'num_kv_shared_layers',
      shared,
      'a number of layers that leaves one of each kind before them',
    );
  return gemma;
}

function readPerLayer(fields: ConfigFields, size: number): PerLayerSizes {
  const vocabSize = fields.count('vocab_size_per_layer_input', 262_144);
  const pictureRow = fields.count('pad_token_id', 0, 0);
  if (pictureRow >= vocabSize)
    throw fields.odd('pad_token_id', pictureRow, `below vocab_size_per_layer_input (${vocabSize})`);
  return { size, vocabSize, pictureRow };
}

/** What a layer is. */
export function shapeOf(config: Gemma4Config, layer: number): Gemma4Layer {
  const { layers, shared, intermediateSize } = config;
  const window = config.windows[layer] ?? null;
  const { kvHeads, headDim } = window === null ? config.full : config;
  return {
    kvHeads,
    headDim,
    window,
    sameKv: config.sameKv && window === null,
    intermediateSize: intermediateSize * (config.doubleWide && layer >= layers - shared ? 2 : 1),
    cacheOf: producerOf(config, layer),
  };
}

/** The last layer with keys of its own that sees as this one does; −1 if there is none. */
function producerOf({ layers, shared, windows }: Gemma4Config, layer: number): number {
  const own = layers - shared;
  return layer < own ? layer : windows.slice(0, own).lastIndexOf(windows[layer] ?? null);
}

/** Heads of layers that see all. transformers from 5.2x on writes by layer what differs from the others, and then that alone counts. */
function readFull(
  fields: ConfigFields,
  config: DecoderConfig,
  sameKv: boolean,
  windows: readonly (number | null)[],
): Gemma4Config['full'] {
  const { heads, kvHeads } = config;
  const byLayer = fields.object('per_layer_config');
  const full =
    byLayer === null
      ? {
          kvHeads: sameKv ? fields.count('num_global_key_value_heads', kvHeads) : kvHeads,
          headDim: fields.count('global_head_dim', WIDTH_OF_HEADS.full),
        }
      : readByLayer(byLayer, config, windows);
  if (heads % full.kvHeads !== 0)
    throw fields.odd(
      'num_global_key_value_heads',
      full.kvHeads,
      `a divisor of num_attention_heads (${heads})`,
    );
  return full;
}

/** What layers that see all have in common, of what differs from the others by layer. */
function readByLayer(
  byLayer: ConfigFields,
  { kvHeads, headDim }: DecoderConfig,
  windows: readonly (number | null)[],
): Gemma4Config['full'] {
  // `05` where there are ten layers or more.
  const names = new Map(Object.keys(byLayer.json).map((name) => [Number(name), name]));
  const of = (layer: number): ConfigFields | null => {
    const name = names.get(layer);
    return name === undefined ? null : byLayer.object(name);
  };
  const shape = (own: ConfigFields | null): Gemma4Config['full'] => ({
    kvHeads: own?.count('num_key_value_heads', kvHeads) ?? kvHeads,
    headDim: own?.count('head_dim', headDim) ?? headDim,
  });
  const full = shape(of(windows.indexOf(null)));
  for (const layer of new Set([...names.keys(), ...windows.keys()])) {
    const own = of(layer);
    const expected = windows[layer] === null ? full : { kvHeads, headDim };
    const found = shape(own);
    const others = Object.keys(own?.json ?? {}).filter(
      (name) => name !== 'head_dim' && name !== 'num_key_value_heads',
    );
    if (found.kvHeads !== expected.kvHeads || found.headDim !== expected.headDim || others.length > 0)
      throw byLayer.unsupported(
        names.get(layer) ?? String(layer),
        `a layer with ${others[0] ?? 'heads'} of its own ("${names.get(layer) ?? layer}")`,
        'Use a Gemma 4 as published: its layers that see all are alike, and so are the others.',
      );
  }
  return full;
}

function readMixture(fields: ConfigFields): Mixture | null {
  if (!fields.flag('enable_moe_block', false)) return null;
  const names = { count: 'num_experts', chosen: 'top_k_experts', size: 'moe_intermediate_size' };
  return {
    experts: readExperts(fields, names),
    route: { score: 'softmax', bias: false, groups: null, normalise: { least: 0, add: 0 }, scale: 1 },
    sharedSize: null,
  };
}

/** The fields with the rotation of layers of a kind as that of all. */
function readRopes(fields: ConfigFields): Readonly<Record<'full' | 'sliding', ConfigFields>> {
  const parameters = fields.object('rope_parameters');
  const scaling = fields.object('rope_scaling');
  for (const [name, stated] of [
    ['rope_parameters', parameters],
    ['rope_scaling', scaling],
  ] as const)
    if (stated !== null && !stated.empty && !stated.has(...Object.keys(ROPES)))
      throw fields.odd(name, stated.json, 'a rotation for each kind of layer, in "rope_parameters",');
  const of = (name: keyof typeof ROPES): ConfigFields =>
    fields
      .replacing('rope_parameters', parameters?.object(name)?.json ?? ROPES[name])
      .replacing('rope_scaling', null);
  return { full: of('full_attention'), sliding: of('sliding_attention') };
}

function refuseLookingAhead(fields: ConfigFields): void {
  const ahead = fields.value('use_bidirectional_attention');
  // Tokens of pictures alone look ahead where it says "vision".
  if (ahead === null || ahead === false || ahead === 'vision') return;
  throw fields.unsupported(
    'use_bidirectional_attention',
    'attention that looks ahead',
    'Use a Gemma 4 that writes text.',
  );
}
