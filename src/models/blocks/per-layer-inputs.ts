/**
 * Embeddings of each layer's own (Gemma 3n and 4): a token's row of a second table, and a product of its embedding, of which every
 * layer takes its columns (tokens of pictures have the row of padding):
 *
 *     inputs = (norm(project(x) / √hidden) + table[token] · √size) / √2
 *     each layer:  x += norm(out(gelu(gate(x)) · inputs[layer]))
 */

import type { Tensor } from '../../device/graph.js';
import type { Ops } from '../../device/ops.js';
import type { CommonConfig } from '../config.js';
import type { Weights } from '../layout.js';
import type { DecoderLayout, LayerLayout } from './layout-builder.js';

export interface PerLayerSizes {
  /** Columns of a layer. */
  readonly size: number;
  /** Rows of the table. A token behind them has zeros. */
  readonly vocabSize: number;
  /** The row that tokens of pictures have. */
  readonly pictureRow: number;
}

const TABLE = 'per-layer-embedding';
const PROJECTION = 'per-layer-projection';
const NORM = 'per-layer-input-norm';

/** What all layers share: `embed_tokens_per_layer`, `per_layer_model_projection`, `per_layer_projection_norm`. */
export function perLayerParts(
  { layers, hiddenSize }: Pick<CommonConfig, 'layers' | 'hiddenSize'>,
  { size, vocabSize }: PerLayerSizes,
): Required<Pick<DecoderLayout, 'matrices' | 'vectors'>> {
  const part = (tensor: string, rows: number) => ({ name: `model.${tensor}.weight`, rows, bias: null });
  const norm = { name: 'model.per_layer_projection_norm.weight', shape: [size] };
  return {
    matrices: [
      {
        key: TABLE,
        kind: 'embedding',
        parts: [part('embed_tokens_per_layer', vocabSize)],
        cols: layers * size,
        use: 'embedding',
      },
      {
        key: PROJECTION,
        kind: 'mlp',
        parts: [part('per_layer_model_projection', layers * size)],
        cols: hiddenSize,
        use: 'linear',
      },
    ],
    // The same for every layer's columns, and what they are divided by.
    vectors: [
      {
        key: NORM,
        parts: Array.from({ length: layers }, () => norm),
        make: (values) => values.map((value) => value * Math.SQRT1_2),
      },
    ],
  };
}

/** `per_layer_input_gate`, `per_layer_projection`, `post_per_layer_input_norm`. */
export function perLayerWeights(at: LayerLayout, hiddenSize: number, { size }: PerLayerSizes): void {
  at.matrix('mlp', 'per-layer-gate', hiddenSize, [{ tensor: 'per_layer_input_gate', rows: size }]);
  at.matrix('mlp', 'per-layer-out', size, [{ tensor: 'per_layer_projection', rows: hiddenSize }]);
  at.norm('per-layer-norm', 'post_per_layer_input_norm', hiddenSize);
}

/** `[tokens, layers · size]` of the embedding as the first layer has it. */
export function perLayerInputs(
  ops: Ops,
  x: Tensor,
  weights: Weights,
  { layers, normEps }: { readonly layers: number; readonly normEps: number },
  { size, pictureRow }: PerLayerSizes,
): Tensor {
  const projected = ops.linear(x, weights.matrix(PROJECTION));
  const all = { from: 0, cols: size, groups: layers, weight: weights.vector(NORM), bias: null };
  // The norm of y / √n is that of y with n times the ε.
  const normed = ops.norm(projected, 'rms', [all], normEps * x.cols);
  return ops.add(normed, ops.embedBeside(weights.matrix(TABLE), Math.sqrt(size / 2), pictureRow));
}
