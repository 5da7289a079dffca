/** Puts a WeightLayout together: the embedding, each layer, the last norm and the head. */

import type { AttentionShape } from '../../device/graph.js';
import type { StateShape } from '../../device/state.js';
import type { CommonConfig } from '../config.js';
import type {
  CacheLayer,
  MatrixKind,
  MatrixPart,
  MatrixSpec,
  RopeSpec,
  RowPick,
  ShapeOf,
  StackedRows,
  VectorPart,
  VectorSpec,
  WeightLayout,
} from '../layout.js';
import { harmlessTensors } from '../tensor-names.js';
import { biasKey, LAST_NORM, layerKey } from './keys.js';

/** Where the decoder stands once a checkpoint's names are read (tensor-names.ts). */
const PREFIX = 'model.';

/** One tensor of a layer that becomes rows of a matrix. */
export interface LayerPart {
  /** Below `layers.N.`, without `.weight`: `self_attn.q_proj`. */
  readonly tensor: string;
  readonly rows: number;
  /** Default: none. */
  readonly bias?: boolean;
  /** See MatrixPart; `name` stands below `layers.N.`, in full. */
  readonly within?: readonly StackedRows[];
  /** The tensor has more rows: these are some of them. */
  readonly pick?: RowPick;
  /** See MatrixPart. */
  readonly transposed?: number;
  readonly again?: boolean;
}

/** A layer's list of weights. */
export interface LayerLayout {
  readonly index: number;
  /** `others`: the same rows as some converters name them. `experts`, `heads`, `float`: see MatrixSpec. */
  matrix(
    kind: MatrixKind,
    name: string,
    cols: number,
    parts: readonly LayerPart[],
    more?: Pick<MatrixSpec, 'experts' | 'heads' | 'float'> & { readonly others?: readonly LayerPart[] },
  ): void;
  /** `tensor` stands below `layers.N.`, without `.weight`. `shape`: its length, or the rows it is stored in. */
  norm(name: string, tensor: string, shape: number | readonly number[]): void;
  /** Single numbers, each a tensor below `layers.N.`, and what is made of them. */
  numbers(name: string, tensors: readonly string[], make: VectorSpec['make']): void;
  /** Numbers of tensors, their whole names below `layers.N.`, and what is made of them. */
  vector(name: string, parts: readonly VectorPart[], make?: VectorSpec['make']): void;
  /** One number, a tensor below `layers.N.`, that the graph is recorded with. */
  number(name: string, tensor: string): void;
  /** The layer keeps a recurrent state. */
  state(shape: StateShape): void;
  /** The layer keeps K and V. */
  cache(shape: AttentionShape, window: number | null): void;
}

export interface DecoderLayout {
  readonly ropes: readonly RopeSpec[];
  /** What the norm before the head is called; null: there is none. Default: `norm`. */
  readonly lastNorm?: string | null;
  /**
   * Added to every norm's weights when they are loaded: 1 where a norm multiplies by 1 + w; a function where files of others have it
   * added already, and shapes of tensors tell. Default 0.
   */
  readonly addToNorms?: number | ((shapeOf: ShapeOf) => number);
  /** Every norm has a bias, which the graph calls {@link biasKey}. Default: none has. */
  readonly normBias?: boolean;
  /** Weights beside those of layers, in the group of the embedding. Default: none. */
  readonly matrices?: readonly Omit<MatrixSpec, 'group'>[];
  readonly vectors?: readonly Omit<VectorSpec, 'group'>[];
  /** Tensors that the model does not read, beside those that none does. */
  readonly harmless?: readonly RegExp[];
  readonly layer: (at: LayerLayout) => void;
}

/** The layout of a stack of layers between an embedding and a head. */
export function decoderLayout(config: CommonConfig, decoder: DecoderLayout): WeightLayout {
  const { ropes, lastNorm = 'norm', addToNorms = 0, normBias = false, layer: describe } = decoder;
  const { hiddenSize, vocabSize, layers, tied } = config;
  const matrices: MatrixSpec[] = [];
  const vectors: VectorSpec[] = [];
  const cache: CacheLayer[] = [];
  const headGroup = layers + 1;
  const norm = (key: string, tensor: string, shape: readonly number[], group: number): void => {
    const make = {
      make: (values: Float32Array, shapeOf: ShapeOf = () => undefined) => {
        const more = typeof addToNorms === 'number' ? addToNorms : addToNorms(shapeOf);
        return values.map((value) => value + more);
      },
    };
    const parts = [{ name: `${tensor}.weight`, shape }];
    vectors.push({ key, parts, group, ...(addToNorms === 0 ? {} : make) });
    if (normBias) vectors.push({ key: biasKey(key), parts: [{ name: `${tensor}.bias`, shape }], group });
  };
  matrices.push({
    key: 'embedding',
    kind: 'embedding',
    parts: [part(`${PREFIX}embed_tokens`, vocabSize, false)],
    cols: hiddenSize,
    use: tied ? 'both' : 'embedding',
    group: 0,
  });
  matrices.push(...(decoder.matrices ?? []).map((spec) => ({ ...spec, group: 0 })));
  vectors.push(...(decoder.vectors ?? []).map((spec) => ({ ...spec, group: 0 })));
  for (let index = 0; index < layers; index++) {
    const group = index + 1;
    const at = `${PREFIX}layers.${index}.`;
    describe({
      index,
      matrix: (kind, name, cols, parts, { others, ...more } = {}) => {
        const stacked = (of: readonly LayerPart[]): MatrixPart[] =>
          of.map(({ tensor, rows, bias = false, within, pick, transposed, again }) => ({
            ...part(at + tensor, rows, bias),
            ...(within && { within: within.map((stack) => below(at, stack)) }),
            ...(pick && { pick }),
            ...(transposed && { transposed }),
            ...(again && { again }),
          }));
        const also = others === undefined ? {} : { otherParts: stacked(others) };
        const key = layerKey(index, name);
        matrices.push({ key, kind, parts: stacked(parts), ...also, cols, use: 'linear', group, ...more });
      },
      norm: (name, tensor, shape) => {
        norm(layerKey(index, name), at + tensor, typeof shape === 'number' ? [shape] : shape, group);
      },
      numbers: (name, tensors, make) => {
        const parts = tensors.map((tensor) => ({ name: at + tensor, shape: [1] }));
        vectors.push({ key: layerKey(index, name), parts, group, ...(make === undefined ? {} : { make }) });
      },
      vector: (name, tensors, make) => {
        const parts = tensors.map((tensor) => ({ ...tensor, name: at + tensor.name }));
        vectors.push({ key: layerKey(index, name), parts, group, ...(make === undefined ? {} : { make }) });
      },
      number: (name, tensor) => {
        const parts = [{ name: at + tensor, shape: [1] }];
        vectors.push({ key: layerKey(index, name), parts, group, host: true });
      },
      state: (shape) => {
        cache.push({ layer: index, state: shape, heads: 0, kvHeads: 0, headDim: 0, window: null, group });
      },
      cache: ({ heads, kvHeads, headDim, valueDim }, window) => {
        const latent = valueDim === undefined ? {} : { valueDim };
        cache.push({ layer: index, heads, kvHeads, headDim, ...latent, window, group });
      },
    });
  }
  if (lastNorm !== null) norm(LAST_NORM, PREFIX + lastNorm, [hiddenSize], headGroup);
  if (!tied)
    matrices.push({
      key: 'head',
      kind: 'head',
      parts: [part('lm_head', vocabSize, false)],
      cols: hiddenSize,
      use: 'linear',
      group: headGroup,
    });
  const harmless = [...harmlessTensors(tied), ...(decoder.harmless ?? [])];
  return { matrices, vectors, ropes, cache, groups: headGroup + 1, harmless };
}

/** A stack of a layer. */
function below(at: string, { name, bias, sign, ...stack }: StackedRows): StackedRows {
  return {
    ...stack,
    name: at + name,
    ...(bias !== undefined && { bias: at + bias }),
    ...(sign !== undefined && { sign: at + sign }),
  };
}

function part(path: string, rows: number, bias: boolean): MatrixPart {
  return { name: `${path}.weight`, rows, bias: bias ? `${path}.bias` : null };
}
