/**
 * From a checkpoint to a model on a device.
 *
 * Everything that headers can tell is checked before a byte of weights is read: missing, misshapen and extra
 * tensors are refused at no cost. Then the device is told what will come (placement groups: the embedding, each layer
 * with its KV, the head), and the matrices are loaded in order, a few at once, so that no more than a piece of each of
 * them is on the heap.
 */

import type { Device, PlacementGroup, Vector } from '../device/device.js';
import type { FeatureSlab } from '../device/feature-slab.js';
import type { Graph, KeyCentre, NodeOf, RowKind, Tensor } from '../device/graph.js';
import { type KvFormat, type KvLayerSpec, kvVectorBytes } from '../device/kv.js';
import { Ops } from '../device/ops.js';
import { makeRopeTable, type RopeTable, ropeAxes } from '../device/rope.js';
import { stateBytes } from '../device/state.js';
import { KvantError } from '../errors.js';
import type { KeyCentreValues } from '../kv/key-centres.js';
import type { ModelFacts } from './facts.js';
import type { ModelDefinition } from './family.js';
import { checkHostExperts, hostMatrices } from './host-experts.js';
import {
  type CacheLayer,
  cachePlace,
  parameterCount,
  type RopeSpec,
  type WeightLayout,
  type Weights,
} from './layout.js';
import { get, type LoadProgress, loadWeights } from './load-weights.js';
import {
  type Quantization,
  type ResolvedMatrix,
  resolveWeights,
  type WeightSource,
} from './resolve-weights.js';
import { ropeFrequencies, ropeVariant } from './rope-frequencies.js';
import type { TowerTensors, VisionDefinition } from './vision/tower.js';

export interface LayerKvFormat {
  readonly key: KvFormat;
  readonly value: KvFormat;
}

export interface KvFloats {
  readonly dtype: 'f32' | 'f16';
  readonly tokens: number;
  /** By their places among the layers that have a cache. */
  readonly layers: readonly number[];
}

export interface LoadModelOptions extends LoadProgress {
  /** Quantise float matrices on the way in. Refused where any is quantised already, or none can be. */
  readonly quantize?: Quantization;
  /** How each layer's K and V are stored: one format, or a choice by layer. f32 if omitted. */
  readonly kvFormat?: KvFormat | ((layer: CacheLayer, index: number) => LayerKvFormat);
  /** Positions that a layer's cache will hold over all sequences, or slots of its state, so that layers are placed with room for them. */
  readonly kvTokens?: number | ((layer: number) => number);
  /** What layers keep as floats besides: `tokens` tokens of each. For placing. */
  readonly kvFloats?: readonly KvFloats[];
  /** Longest context in tokens; the model's own if omitted. */
  readonly maxContext?: number;
  /**
   * Rotations take positions of their own (RotaryInputs) where their layout has sections: for steps with pictures. Default false:
   * of text all positions are cache indexes.
   */
  readonly rotary?: boolean;
  /** The experts of so many layers, the first ones, stay in host memory and are computed there. Default 0. */
  readonly cpuExperts?: number;
}

export interface BuildGraphOptions {
  /** Keep what every `rope-append` reads, so that Program.read can have it. Default false. */
  readonly keepQkv?: boolean;
  /** Keep the logits, so that Program.read can have them. Default false. */
  readonly keepLogits?: boolean;
  /** Draw a token from each row of logits. Default true. */
  readonly sample?: boolean;
  /** What keys are freed of, by layer (key-centres.ts). Default: nothing. */
  readonly centres?: readonly (KeyCentre | null)[];
  /** Whose rows tokens of pictures name. Default: none. */
  readonly features?: FeatureSlab | null;
  /** Steps may ask for last hidden states, behind the last norm, of outputs or of all tokens. A launch more. Default: they may not. */
  readonly hidden?: RowKind | null;
  /** False: there is neither head nor draw. For a definition `withoutHead`. Default true. */
  readonly head?: boolean;
}

export interface ModelGraph {
  readonly graph: Graph;
  /** `[outputs, vocab]`; readable if `keepLogits`. */
  readonly logits: Tensor;
  /** The `rope-append` of each layer that fills a cache, in order. */
  readonly appends: readonly NodeOf<'rope-append'>[];
}

/** What sees in a model, recorded. */
export interface TowerGraph {
  readonly graph: Graph;
  readonly tensors: TowerTensors;
}

export interface Model {
  readonly facts: ModelFacts;
  /** How it sees; null if it does not. */
  readonly vision: VisionDefinition | null;
  readonly layout: WeightLayout;
  /** One entry a layer, for Device.createKvPool. */
  readonly kvLayers: readonly KvLayerSpec[];
  /** Longest context in tokens that the rotation covers here. */
  readonly maxContext: number;
  readonly parameters: number;
  /** Bytes the weights take on the device. */
  readonly parameterBytes: number;
  /** Bytes of those that stay in host memory beside it. */
  readonly hostBytes: number;
  buildGraph(options?: BuildGraphOptions): ModelGraph;
  /** The graph of its tower. Only of a model that sees. */
  buildTower(): TowerGraph;
  /** Puts what keys are to be freed of on the device, by layer, for `buildGraph`. `vectors`: null for a layer without. */
  loadCentres(vectors: readonly (KeyCentreValues | null)[]): Promise<readonly (KeyCentre | null)[]>;
  /** The weight of a norm of heads, on the host. */
  headNorm(vector: Vector): Float32Array;
}

/**
 * Loads a model. The source may be closed afterwards.
 *
 * @throws KvantError `context-too-long`; `invalid-option` for `cpuExperts`; `weights-tensor-missing`, `weights-tensor-shape`, `weights-tensor-dtype`,
 * `weights-tensor-extra` and, once it is read, `weights-not-finite`, each naming the tensor; `device-out-of-memory`
 * @example
 * await using checkpoint = await Checkpoint.open(folder);
 * const model = await loadModel(checkpoint, parseModelConfig(checkpoint.config), device);
 */
export async function loadModel(
  source: WeightSource,
  definition: ModelDefinition,
  device: Device,
  options: LoadModelOptions = {},
): Promise<Model> {
  const { facts, layout, vision } = definition;
  const maxContext = resolveContext(facts, options.maxContext);
  const { cpuExperts = 0 } = options;
  checkHostExperts(device.info, cpuExperts);
  const hosted = hostMatrices(layout, facts, cpuExperts);
  const resolved = resolveWeights(source, layout, options.quantize);
  const kvLayers = layout.cache.map((layer, index) => kvLayerSpec(layer, index, options.kvFormat));

  device.place(placementGroups(layout, resolved.matrices, kvLayers, hosted, options));
  const { weights, headNorms, bytes, hostBytes } = await loadWeights(device, resolved, hosted, options);
  const ropes = new Map(layout.ropes.map((spec) => [spec.key, ropeTable(spec, maxContext, options.rotary)]));
  return {
    facts: servedFacts(facts, layout, maxContext),
    vision,
    layout,
    kvLayers,
    maxContext,
    parameters: parameterCount(layout),
    parameterBytes: bytes,
    hostBytes,
    buildGraph({
      keepLogits = false,
      keepQkv = false,
      sample = true,
      centres = [],
      features = null,
      hidden = null,
      head = true,
    } = {}) {
      const ops = new Ops();
      const all: Weights = {
        ...weights,
        rope: (key) => get(ropes, key),
        cache: (layer, kind) => cachePlace(layout.cache, layer, kind),
        centre: (cache) => centres[cache] ?? null,
      };
      // A GPU feels an operation more, and its prompts little.
      const selectEarly = device.info.kind === 'cpu';
      const logits = definition.record(ops, all, { selectEarly, features, hidden, head });
      if (keepLogits) ops.keep(logits);
      if (sample && head) ops.sample(logits);
      const appends = ops.nodes
        .filter((node) => node.op === 'rope-append')
        .filter(({ queriesOnly }) => queriesOnly !== true);
      if (keepQkv) for (const { qkv } of appends) ops.keep(qkv);
      return { graph: ops.finish(), logits, appends };
    },
    buildTower() {
      if (vision === null) throw new KvantError('internal', 'the model has nothing that sees');
      const ops = new Ops();
      const tensors = vision.tower.record(ops, { ...weights, rope: (key) => get(ropes, key) });
      return { graph: ops.finish(), tensors };
    },
    async loadCentres(all) {
      const load = async (centre: KeyCentreValues | null, layer: number): Promise<KeyCentre | null> => {
        if (centre === null) return null;
        const { values, turns } = centre;
        const name = `centre of the keys of layer ${layer}`;
        const source = { name, length: values.length, read: async () => values };
        return { vector: await device.loadVector(source, layout.cache[layer]!.group), turns };
      };
      return Promise.all(all.map(load));
    },
    headNorm: (vector) => {
      const values = headNorms.get(vector);
      if (values === undefined) throw new KvantError('internal', 'no norm of heads has this vector');
      return values;
    },
  };
}

/**
 * The context a model is run with.
 * @throws KvantError `context-too-long` if more is asked for than the model has positions
 */
function resolveContext(facts: ModelFacts, asked: number | undefined): number {
  if (asked === undefined) return facts.maxPositions;
  if (!Number.isSafeInteger(asked) || asked < 1)
    throw new KvantError('invalid-option', `maxContext is ${asked}; a whole number above 0 is needed`, {
      kind: 'invalid-request',
      where: 'maxContext',
      fix: `Give a number of tokens up to ${facts.maxPositions}.`,
    });
  if (asked > facts.maxPositions)
    throw new KvantError(
      'context-too-long',
      `a context of ${asked} tokens was asked for; the model has ${facts.maxPositions} positions`,
      {
        kind: 'invalid-request',
        where: 'maxContext',
        fix: `Ask for at most ${facts.maxPositions}, or use a model made for longer contexts.`,
      },
    );
  return asked;
}

/** The facts at a served context: where a rotation depends on it, keys of another one are another model's. */
function servedFacts(facts: ModelFacts, { ropes }: WeightLayout, maxContext: number): ModelFacts {
  const variants = ropes.map(({ parameters }) => ropeVariant(parameters, maxContext)).join();
  return /\w/.test(variants) ? { ...facts, identity: `${facts.identity} ${variants}` } : facts;
}

/** The table of a rotation up to a context. `rotary`: pairs turn by the positions of their sections, where it has such. */
export function ropeTable(
  { parameters, dims, style = 'half', sections }: Omit<RopeSpec, 'key'>,
  maxContext: number,
  rotary = false,
): RopeTable {
  const { frequencies, attentionFactor } = ropeFrequencies(parameters, dims, maxContext);
  const axes = rotary && sections !== undefined ? ropeAxes(sections) : null;
  return makeRopeTable({
    dims: 2 * frequencies.length,
    style,
    frequencies,
    attentionFactor,
    maxContext,
    axes,
  });
}

const F32: KvFormat = { kind: 'float', dtype: 'f32' };

function kvLayerSpec(layer: CacheLayer, index: number, format: LoadModelOptions['kvFormat']): KvLayerSpec {
  const chosen = typeof format === 'function' ? format(layer, index) : undefined;
  const one: KvFormat = typeof format === 'object' ? format : F32;
  const { kvHeads, headDim, valueDim, group, state } = layer;
  if (state !== undefined) return { state, kvHeads, headDim, key: F32, value: F32, group };
  const key = chosen?.key ?? one;
  if (valueDim !== undefined) return { kvHeads, headDim, valueDim, key, value: key, group };
  return { kvHeads, headDim, key, value: chosen?.value ?? one, group };
}

function placementGroups(
  layout: WeightLayout,
  matrices: readonly ResolvedMatrix[],
  kvLayers: readonly KvLayerSpec[],
  hosted: ReadonlySet<string>,
  { kvTokens = 0, kvFloats = [] }: Pick<LoadModelOptions, 'kvTokens' | 'kvFloats'>,
): PlacementGroup[] {
  const floatBytes = (layer: KvLayerSpec, index: number): number => {
    let bytes = 0;
    for (const { dtype, tokens, layers } of kvFloats) {
      if (!layers.includes(index)) continue;
      const float = { kind: 'float', dtype } as const;
      bytes += tokens * kvLayerTokenBytes({ ...layer, key: float, value: float });
    }
    return bytes;
  };
  const tokens = (layer: number): number => (typeof kvTokens === 'number' ? kvTokens : kvTokens(layer));
  const layerBytes = new Map(
    kvLayers.map((layer, index) => [
      layer,
      tokens(index) * kvLayerTokenBytes(layer) + floatBytes(layer, index),
    ]),
  );
  return Array.from({ length: layout.groups }, (_, group) => ({
    matrices: matrices
      .filter(({ spec }) => spec.group === group)
      .flatMap(({ spec, parts }) => {
        const host = hosted.has(spec.key) ? { host: true } : {};
        return parts.map(({ rows, cols, format }) => ({ rows, cols, format, ...host }));
      }),
    kvBytes: kvLayers
      .filter((layer) => layer.group === group)
      .reduce((sum, layer) => sum + layerBytes.get(layer)!, 0),
  }));
}

/** Bytes that one token takes in one layer's cache, or a slot of its state. */
function kvLayerTokenBytes(layer: Omit<KvLayerSpec, 'group'>): number {
  return layer.state === undefined ? kvVectorBytes(layer) : stateBytes(layer.state);
}
