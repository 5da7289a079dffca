/** What is told of a model outside `src/models`: engine, sizing, server and tools see this and no config. */

import type { FloatDtype } from '../device/weights.js';
import type { Notice } from '../notice.js';
import type { CommonConfig } from './config.js';
import type { CacheLayer, RopeSpec, WeightLayout } from './layout.js';
import type { RopeParameters } from './rope-frequencies.js';

/** What a model takes in. */
export type Modality = 'text' | 'image';

export interface ModelFacts {
  /** As the config names it: `Qwen3ForCausalLM`. */
  readonly architecture: string;
  /** The family that reads it: `qwen3`. */
  readonly family: string;
  readonly modalities: readonly Modality[];
  readonly vocabSize: number;
  readonly hiddenSize: number;
  /** Width of the widest MLP. */
  readonly intermediateSize: number;
  readonly layers: number;
  /** Of the layer that has most. */
  readonly heads: number;
  readonly kvHeads: number;
  readonly headDim: number;
  /** Longest context in tokens, the scaling of the rotation included. */
  readonly maxPositions: number;
  /** The rotations in words: `llama3 × 8, theta 500000`. */
  readonly rope: string;
  /** The head is the embedding. */
  readonly tied: boolean;
  /** What the weights were published in, where the config says so. */
  readonly dtype: FloatDtype | null;
  readonly bosTokenIds: readonly number[];
  readonly eosTokenIds: readonly number[];
  /** One entry a layer that keeps KV; layers with equal windows form a cache group. */
  readonly cache: readonly CacheLayer[];
  /** All that the family read, as text: the same weights under another identity compute something else. */
  readonly identity: string;
  /** What is odd about the config, for the log. */
  readonly notices: readonly Notice[];
  /** All tokens of a text see each other; it writes none. */
  readonly encoder: boolean;
}

export function factsOf(family: string, config: CommonConfig, layout: WeightLayout): ModelFacts {
  const { notices, architecture, vocabSize, hiddenSize, intermediateSize, layers } = config;
  const { maxPositions, tied, dtype, bosTokenIds, eosTokenIds } = config;
  const { cache } = layout;
  const widest = (of: (layer: CacheLayer) => number): number => Math.max(...cache.map(of));
  return {
    architecture,
    family,
    encoder: config.encoder === true,
    modalities: ['text'],
    vocabSize,
    hiddenSize,
    intermediateSize,
    layers,
    heads: widest(({ heads }) => heads),
    kvHeads: widest(({ kvHeads }) => kvHeads),
    headDim: widest(({ headDim }) => headDim),
    maxPositions,
    rope: layout.ropes.length === 0 ? 'none' : layout.ropes.map(ropeName).join('; '),
    tied,
    dtype,
    bosTokenIds,
    eosTokenIds,
    cache,
    identity: JSON.stringify({ family, ...config, notices: undefined }),
    notices,
  };
}

/** `linear × 8, theta 1000000`, with its key where there are several. */
function ropeName({ key, parameters }: RopeSpec, _: number, all: readonly RopeSpec[]): string {
  const theta = `theta ${parameters.theta}`;
  return `${all.length > 1 ? `${key}: ` : ''}${scalingName(parameters)}, ${theta}`;
}

function scalingName(parameters: RopeParameters): string {
  const { type } = parameters;
  if (type === 'longrope') return `${type} beyond ${parameters.originalMaxPositions}`;
  if (type === 'ntk-alpha') return `${type} ${parameters.alpha}`;
  return 'factor' in parameters ? `${type} × ${parameters.factor}` : type;
}
