/** The MLP without a gate: `down(act(up(x)))`. */

import type { Tensor, UngatedActivation } from '../../device/graph.js';
import type { GatedMlpWeights } from './gated-mlp.js';
import type { LayerLayout } from './layout-builder.js';
import type { Layer } from './stack.js';

/** `mlp.{up,down}_proj`. */
export function plainMlpWeights(at: LayerLayout, parts: GatedMlpWeights): void {
  const { hiddenSize, intermediateSize, bias } = parts;
  at.matrix('mlp', 'up', hiddenSize, [{ tensor: 'mlp.up_proj', rows: intermediateSize, bias }]);
  at.matrix('mlp', 'down', intermediateSize, [{ tensor: 'mlp.down_proj', rows: hiddenSize, bias }]);
}

const XIELU = 'xielu';

/** `mlp.act_fn.…`: what is learnt of xIELU stands as what a softplus makes its numbers of. */
export function xieluWeights(at: LayerLayout): void {
  const tensors = ['alpha_p', 'alpha_n', 'beta', 'eps'].map((name) => `mlp.act_fn.${name}`);
  at.numbers(XIELU, tensors, ([alphaP, alphaN, beta, eps]) =>
    Float32Array.of(softplus(alphaP!), beta! + softplus(alphaN!), beta!, eps!),
  );
}

function softplus(x: number): number {
  return Math.max(x, 0) + Math.log1p(Math.exp(-Math.abs(x)));
}

/** `act(up(x))`, before `down`. */
export function activated(at: Layer, normed: Tensor, activation: UngatedActivation): Tensor {
  const parameters = activation === 'xielu' ? at.vector(XIELU) : null;
  return at.ops.act(at.linear(normed, 'up'), activation, parameters);
}
