/** What stands between a tower and the decoder: rows of what the tower saw become rows of the decoder's width. */

import type { Tensor, UngatedActivation } from '../../device/graph.js';
import { normed, type TowerRecording } from './blocks.js';
import type { TowerWeights } from './tower-weights.js';

export interface Projector {
  /** @param mergeSize patches a side that stand side by side in a row */
  weights(weights: TowerWeights, hiddenSize: number, mergeSize: number, width: number): void;
  /** `[outputs, hidden · mergeSize²]` → `[outputs, width]`. */
  record(at: TowerRecording, seen: Tensor): Tensor;
}

/** `W x`, for SmolVLM and Idefics3. */
export const connector: Projector = {
  weights(weights, hiddenSize, mergeSize, width) {
    const cols = hiddenSize * mergeSize ** 2;
    weights.matrix('vision.out', cols, [weights.part('connector.modality_projection.proj', width, false)]);
  },
  record: ({ ops, weights }, seen) => ops.linear(seen, weights.matrix('vision.out')),
};

export interface TwoLayers {
  readonly activation: UngatedActivation;
  readonly bias: boolean;
  /** Epsilon of a layer norm before them; null for none. */
  readonly norm: number | null;
  /** Width between them. Default: the decoder's. */
  readonly inner?: number;
}

const AT = 'multi_modal_projector.';

/** Names of the layers of {@link twoLayers}, without `.weight`. */
export interface TwoLayerNames {
  readonly norm: string;
  readonly first: string;
  readonly second: string;
}

const NAMES: TwoLayerNames = {
  norm: `${AT}layer_norm`,
  first: `${AT}linear_1`,
  second: `${AT}linear_2`,
};

/** `W2 act(W1 norm(x))`, for LLaVA, InternVL and LFM2-VL. */
export function twoLayers(
  { activation, bias, norm, inner: stated }: TwoLayers,
  names: TwoLayerNames = NAMES,
): Projector {
  return {
    weights(weights, hiddenSize, mergeSize, width) {
      const cols = hiddenSize * mergeSize ** 2;
      if (norm !== null) weights.norm('vision.out.norm', names.norm, cols, true);
      const inner = stated ?? width;
      weights.matrix('vision.out.1', cols, [weights.part(names.first, inner, bias)]);
      weights.matrix('vision.out.2', inner, [weights.part(names.second, width, bias)]);
    },
    record(at, seen) {
      const { ops, weights } = at;
      const x = norm === null ? seen : normed(at, 'vision.out.norm', seen, { kind: 'layer', eps: norm });
      const inner = ops.act(ops.linear(x, weights.matrix('vision.out.1')), activation);
      return ops.linear(inner, weights.matrix('vision.out.2'));
    },
  };
}

/** `W norm(x)`, for Gemma 3. The norm multiplies by 1 + w, and the matrix is stored with its rows as columns. */
export function meansProjector(eps: number): Projector {
  const [norm, name] = ['mm_soft_emb_norm.weight', 'mm_input_projection_weight'];
  return {
    weights(weights, hiddenSize, _, width) {
      weights.vector('vision.out.norm', AT + norm, [hiddenSize], (values) => values.map((w) => 1 + w));
      const make = (values: Float32Array): Float32Array => transposed(values, hiddenSize, width);
      const stored = [{ shape: [hiddenSize, width], make }];
      weights.matrix('vision.out', hiddenSize, [{ name: AT + name, rows: width, bias: null, stored }]);
    },
    record(at, seen) {
      const x = normed(at, 'vision.out.norm', seen, { kind: 'rms', eps });
      return at.ops.linear(x, at.weights.matrix('vision.out'));
    },
  };
}

/** `[rows, cols]` as `[cols, rows]`. */
function transposed(values: Float32Array, rows: number, cols: number): Float32Array {
  const out = new Float32Array(values.length);
  for (let r = 0; r < rows; r++) for (let c = 0; c < cols; c++) out[c * rows + r] = values[r * cols + c]!;
  return out;
}
