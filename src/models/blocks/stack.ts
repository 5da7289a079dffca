/** Records what all decoders have around their layers: the embedding, the last norm and the head. */

import type { Matrix, Vector } from '../../device/device.js';
import type { KeyCentre, NormKind, Tensor } from '../../device/graph.js';
import type { Ops } from '../../device/ops.js';
import type { RopeTable } from '../../device/rope.js';
import type { CommonConfig } from '../config.js';
import type { RecordOptions } from '../family.js';
import type { CacheKind, LookingAhead, Weights } from '../layout.js';
import { biasKey, LAST_NORM, layerKey } from './keys.js';

export interface StackConfig extends CommonConfig {
  /** Of all norms. */
  readonly normEps: number;
}

/** A layer at the time it is recorded: its weights by their names, and the few calls that all blocks use. */
export class Layer {
  readonly ops: Ops;
  readonly index: number;
  readonly #weights: Weights;
  readonly #norms: Norms;
  readonly #selects: boolean;
  readonly #ahead: LookingAhead | null;

  constructor(
    ops: Ops,
    index: number,
    weights: Weights,
    norms: Norms,
    { selects, ahead }: { readonly selects: boolean; readonly ahead: LookingAhead | null },
  ) {
    this.ops = ops;
    this.index = index;
    this.#weights = weights;
    this.#norms = norms;
    this.#selects = selects;
    this.#ahead = ahead;
  }

  matrix(name: string): Matrix {
    return this.#weights.matrix(layerKey(this.index, name));
  }

  vector(name: string): Vector {
    return this.#weights.vector(layerKey(this.index, name));
  }

  /** A rotation of the model. */
  rope(key: string): RopeTable {
    return this.#weights.rope(key);
  }

  /** A number of the layer that the graph is recorded with. */
  number(name: string): number {
    return this.#weights.number(layerKey(this.index, name));
  }

  /** What operations call its K and V, or its state. */
  cache(kind: CacheKind): number {
    return this.cacheOf(this.index, kind);
  }

  /** The same of another layer. */
  cacheOf(layer: number, kind: CacheKind): number {
    return this.#weights.cache?.(layer, kind) ?? layer;
  }

  /** What the keys of a cache are freed of. */
  centreOf(cache: number): KeyCentre | null {
    return this.#weights.centre?.(cache) ?? null;
  }

  /** How tokens see later ones in the layer, which has such a window. */
  looksAhead(window: number | null): boolean | 'window' {
    if (this.#ahead === 'both') return window === null || 'window';
    return this.#ahead === 'all' || (this.#ahead === 'sliding' && window !== null);
  }

  get eps(): number {
    return this.#norms.eps;
  }

  /** Norm by a weight of the layer, of the kind that all norms of the model have. */
  norm(x: Tensor, name: string): Tensor {
    return normed(this.ops, x, this.#weights, layerKey(this.index, name), this.#norms);
  }

  /** Product with a matrix of the layer, added to `residual`. */
  linear(x: Tensor, name: string, residual: Tensor | null = null): Tensor {
    return this.ops.linear(x, this.matrix(name), residual);
  }

  /** Behind the attention of the last layer only the rows with logits matter: the others may be left out. */
  wanted(x: Tensor): Tensor {
    return this.#selects ? this.ops.selectOutputs(x) : x;
  }
}

/** How all norms of a model are. */
interface Norms {
  readonly kind: NormKind;
  readonly bias: boolean;
  readonly eps: number;
}

function normed(ops: Ops, x: Tensor, weights: Weights, key: string, { kind, bias, eps }: Norms): Tensor {
  if (kind === 'rms') return ops.rmsNorm(x, weights.vector(key), eps);
  return ops.layerNorm(x, weights.vector(key), bias ? weights.vector(biasKey(key)) : null, eps);
}

export interface StackParts {
  /** Default: RMS norms. */
  readonly norms?: { readonly kind: 'rms' } | { readonly kind: 'layer'; readonly bias: boolean };
  /** Multiplies the embedding. Default 1. */
  readonly embeddingScale?: number;
  /** What becomes of the logits: they are multiplied, and bent below a cap. Default: nothing. */
  readonly logits?: { readonly factor: number; readonly softcap: number | null };
  /** What becomes of the embedding before the first layer. Default: nothing. */
  readonly embedded?: (x: Tensor) => Tensor;
  /** False: no norm stands behind the last layer. Default true. */
  readonly lastNorm?: boolean;
  /** Records one layer: hidden states in, hidden states out. */
  readonly layer: (x: Tensor, at: Layer) => Tensor;
}

/** Records the model around its layers. Returns logits `[outputs, vocab]`, or what the head would read. */
export function recordStack(
  ops: Ops,
  config: StackConfig,
  weights: Weights,
  { selectEarly, features = null, addedLevels = 0, ahead = null, hidden = null, head = true }: RecordOptions,
  {
    norms: stated = { kind: 'rms' },
    embeddingScale = 1,
    logits: after,
    embedded,
    lastNorm = true,
    layer,
  }: StackParts,
): Tensor {
  const norms: Norms = { bias: false, ...stated, eps: config.normEps };
  let x = ops.embed(weights.matrix('embedding'), embeddingScale, features);
  if (embedded !== undefined) x = embedded(x);
  for (let index = 0; index < config.layers; index++) {
    const added = features !== null && index < addedLevels;
    // What is added is known by tokens.
    const selects = selectEarly && index === config.layers - 1 && !added && hidden !== 'tokens';
    x = layer(x, new Layer(ops, index, weights, norms, { selects, ahead }));
    if (added) x = ops.addFeatures(x, features, (index + 1) * config.hiddenSize);
  }
  // Only the wanted rows are normed and projected: a prompt's other tokens need no logits.
  const wanted = x.rows === 'outputs' || hidden === 'tokens' ? x : ops.selectOutputs(x);
  const all = lastNorm ? normed(ops, wanted, weights, LAST_NORM, norms) : wanted;
  if (hidden !== null) ops.hidden(all);
  if (!head) return all;
  const last = all.rows === 'outputs' ? all : ops.selectOutputs(all);
  const logits = ops.linear(last, weights.matrix(config.tied ? 'embedding' : 'head'));
  if (after === undefined || (after.factor === 1 && after.softcap === null)) return logits;
  return ops.scale(logits, after.factor, after.softcap);
}
