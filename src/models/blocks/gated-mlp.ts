/** The gated MLP: `down(act(gate(x)) · up(x))`. Gate and up are one matrix, for they read the same input. */

import type { Activation, Tensor } from '../../device/graph.js';
import type { LayerLayout } from './layout-builder.js';
import type { Layer } from './stack.js';

export interface GatedMlpWeights {
  readonly hiddenSize: number;
  readonly intermediateSize: number;
  readonly bias: boolean;
}

/** `mlp.{gate,up,down}_proj`. */
export function gatedMlpWeights(at: LayerLayout, parts: GatedMlpWeights): void {
  const { hiddenSize, intermediateSize, bias } = parts;
  at.matrix('mlp', 'gate-up', hiddenSize, [
    { tensor: 'mlp.gate_proj', rows: intermediateSize, bias },
    { tensor: 'mlp.up_proj', rows: intermediateSize, bias },
  ]);
  at.matrix('mlp', 'down', intermediateSize, [{ tensor: 'mlp.down_proj', rows: hiddenSize, bias }]);
}

/** `act(gate(x)) · up(x)`, before `down`. */
export function gated(at: Layer, normed: Tensor, activation: Activation): Tensor {
  return at.ops.glu(at.linear(normed, 'gate-up'), activation);
}
