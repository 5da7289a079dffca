/**
 * The weights a model is made of, as plain data: derived from the config alone. Loading, checking, placing,
 * counting and random weights all read this one list, so that a family states its tensors once.
 */

import type { Matrix, Vector } from '../device/device.js';
import type { AttentionShape, KeyCentre } from '../device/graph.js';
import type { RopeSections, RopeStyle, RopeTable } from '../device/rope.js';
import type { StateShape } from '../device/state.js';
import type { RopeParameters } from './rope-frequencies.js';

/** One tensor of a checkpoint that becomes rows of a device matrix. */
export interface MatrixPart {
  /** Name in the checkpoint, `….weight`. */
  readonly name: string;
  readonly rows: number;
  /** Name of its bias `[rows]`, null if it has none. */
  readonly bias: string | null;
  /** Where the tensor is no matrix: the shapes that it may have, and what makes `[rows, cols]` of its numbers. */
  readonly stored?: readonly StoredShape[];
  /** Where its rows are if there is no such tensor: in the first of these that is there. */
  readonly within?: readonly StackedRows[];
  /** Name of numbers `[rows]` that multiply its rows, and its bias. Float tensors only. */
  readonly scaledBy?: string;
  /** The tensor has more rows: these are some of them. Default: all. */
  readonly pick?: RowPick;
  /** What the tensor has, where the matrix has more rows or columns: the others are zeros. */
  readonly own?: { readonly rows: number; readonly cols: number };
  /** So many runs of picked rows `[take, n]` are transposed, each by itself, to n rows of `take`. What is quantised becomes f16 first. */
  readonly transposed?: number;
  /** The rows stand in another part already: they are the same weights once more. */
  readonly again?: boolean;
}

/** A shape in which a tensor may be stored, and what makes the rows of a matrix of its numbers. */
export interface StoredShape {
  readonly shape: readonly number[];
  readonly make: (values: Float32Array) => Float32Array;
}

/** Rows of a tensor `[stack, n, cols]`, counted over the whole of it. */
export interface StackedRows {
  /** Name in the checkpoint. */
  readonly name: string;
  readonly stack: number;
  /** Of the tensor. */
  readonly rows: number;
  readonly first: number;
  /** From the first on they are every so many-th. Default 1: they are neighbours. */
  readonly every?: number;
  /** The tensor is `[stack, cols, n]`. */
  readonly transposed?: boolean;
  /** Name of a tensor by which a checkpoint that stores it so is known. Default: `name`. */
  readonly sign?: string;
  /** Name of a tensor `[stack, n]` with the biases of the rows. Default: they have none. */
  readonly bias?: string;
}

/** A matrix that holds the same rows of several experts, one expert after the other. */
export interface ExpertStack {
  readonly count: number;
  /** Experts that a token is given to. */
  readonly chosen: number;
}

/** A matrix that holds the matrices of a layer's heads, one after the other; each head is multiplied with its own (Ops.headLinear). */
export interface HeadStack {
  readonly count: number;
}

/** Of every `of` rows of a tensor `take`, from the `from`-th on. */
export interface RowPick {
  readonly take: number;
  readonly of: number;
  readonly from: number;
}

/** Shape of a tensor as the checkpoint has it; undefined where it is not known. */
export type ShapeOf = (name: string) => readonly number[] | undefined;

/** What a matrix is, for the tables of `kvant inspect`. */
export const MATRIX_KINDS = ['embedding', 'attention', 'mixer', 'mlp', 'experts', 'head', 'vision'] as const;
export type MatrixKind = (typeof MATRIX_KINDS)[number];

/** A device matrix `[Σ rows, cols]`: one tensor, or several stacked that read the same input. */
export interface MatrixSpec {
  /** What the family's graph calls it. */
  readonly key: string;
  readonly kind: MatrixKind;
  readonly parts: readonly MatrixPart[];
  /** The same rows as some converters name them, for checkpoints without the first of `parts`. */
  readonly otherParts?: readonly MatrixPart[];
  readonly cols: number;
  readonly use: 'linear' | 'embedding' | 'both';
  /** Placement group. */
  readonly group: number;
  /** It stays as it is where others are quantised on the way in. */
  readonly float?: boolean;
  readonly experts?: ExpertStack;
  readonly heads?: HeadStack;
}

/** One tensor of a checkpoint that becomes numbers of a device vector. */
export interface VectorPart {
  /** Name in the checkpoint. */
  readonly name: string;
  /** `[n]`; `[heads, n]` where a checkpoint has a row for each head. A number alone may be stored as `[]` or `[1]`. */
  readonly shape: readonly number[];
}

/** A device vector: one tensor, or several one behind the other. */
export interface VectorSpec {
  /** What the family's graph calls it. */
  readonly key: string;
  readonly parts: readonly VectorPart[];
  readonly group: number;
  /** What its numbers become when they are loaded, as many as there were. Default: they stay. */
  readonly make?: (values: Float32Array, shapeOf?: ShapeOf) => Float32Array;
  /** Numbers that no device has (Weights.numbers); one alone is what the graph is recorded with (Weights.number). */
  readonly host?: boolean;
}

/** A rotary embedding of the model. Layers name it by its key. */
export interface RopeSpec {
  readonly key: string;
  readonly parameters: RopeParameters;
  /** Leading elements of a head that rotate. */
  readonly dims: number;
  /**
   * Which elements rotate with each other. Default: the halves. Neighbours stay where they are and the kernels turn them as they
   * stand: rows moved at load would have to move in biases, scales and norms of every format as well, for nothing gained.
   */
  readonly style?: RopeStyle;
  /** How pairs turn by three positions, where the model also sees. Of text all three are equal. */
  readonly sections?: RopeSections;
}

/**
 * One part of the cache, its format left open: K and V of a layer, or its state. A layer may have both, or none. Operations name a part by its
 * place in the list.
 */
export interface CacheLayer extends AttentionShape {
  /** The layer of the model. */
  readonly layer: number;
  /** The layer is recurrent: it keeps a state of this shape, and heads and sizes of heads are 0. */
  readonly state?: StateShape;
  /** Tokens it looks back, itself included; null for all. */
  readonly window: number | null;
  readonly group: number;
}

export type CacheKind = 'kv' | 'state';

/**
 * Layers in which tokens see later ones, as far as the step says: all, or those with a window alone (pictures). `both`: all, and those with a
 * window see no farther ahead than back (encoders).
 */
export type LookingAhead = 'all' | 'sliding' | 'both';

export interface WeightLayout {
  readonly matrices: readonly MatrixSpec[];
  readonly vectors: readonly VectorSpec[];
  /** At least one where layers rotate. */
  readonly ropes: readonly RopeSpec[];
  /** Parts of the cache, in the order of their layers. */
  readonly cache: readonly CacheLayer[];
  /** Placement groups: embedding, each layer with its KV, head. */
  readonly groups: number;
  /** Tensors a checkpoint may hold that the model does not read. */
  readonly harmless: readonly RegExp[];
}

/** The place of a layer's K and V, or of its state, in the list. */
export function cachePlace(
  cache: readonly Pick<CacheLayer, 'layer' | 'state'>[],
  layer: number,
  kind: CacheKind,
): number {
  return cache.findIndex((one) => one.layer === layer && (one.state !== undefined) === (kind === 'state'));
}

export function matrixRows(spec: MatrixSpec): number {
  return spec.parts.reduce((sum, part) => sum + part.rows, 0);
}

export function vectorLength(spec: VectorSpec): number {
  return spec.parts.reduce((sum, { shape }) => sum + shape.reduce((product, n) => product * n, 1), 0);
}

/** Parameters, each counted once: weights, biases and norms. `active`: of experts only those that one token is given to. */
export function parameterCount(layout: WeightLayout, active = false): number {
  let count = 0;
  for (const { parts, cols, experts } of layout.matrices) {
    const share = active && experts !== undefined ? experts.chosen / experts.count : 1;
    for (const part of parts) {
      const biased = part.bias !== null || part.within?.some(({ bias }) => bias !== undefined) === true;
      const own = part.own ?? { rows: part.rows, cols };
      if (part.again !== true) count += share * own.rows * (own.cols + (biased ? 1 : 0));
    }
  }
  for (const spec of layout.vectors) count += vectorLength(spec);
  return count;
}

/** The loaded weights, by the keys of the layout. */
export interface Weights {
  matrix(key: string): Matrix;
  vector(key: string): Vector;
  /** One of the numbers that the layout keeps on the host. */
  number(key: string): number;
  /** A vector that the layout keeps on the host. */
  numbers(key: string): Float32Array;
  rope(key: string): RopeTable;
  /** What operations call a layer's K and V, or its state. No such function: as the layer is called. */
  cache?(layer: number, kind: CacheKind): number;
  /** The mean and scale that keys are stored without, by what operations call their cache; null, or no such function: keys are stored as they are. */
  centre?(cache: number): KeyCentre | null;
}
