/**
 * Products whose inputs and outputs are bounded, as the towers of Gemma 4 E2B and E4B have them. A tensor `name.linear.weight` has four
 * numbers beside it, `name.input_min` to `name.output_max`.
 */

import type { Tensor } from '../../device/graph.js';
import type { TowerRecording } from './blocks.js';
import type { TowerWeights } from './tower-weights.js';

const SIDES = ['min', 'max'] as const;

/** The bounds of a matrix `key` that is made of tensors `names`, without `.linear.weight`. */
export function boundWeights(weights: TowerWeights, key: string, names: readonly string[]): void {
  const both = (side: string) => (name: string) => SIDES.map((end) => `${name}.${side}_${end}`);
  names.forEach((name, i) => {
    weights.scalars(`${key}.input.${i}`, both('input')(name));
  });
  weights.scalars(`${key}.inputs`, names.flatMap(both('input')), true);
  weights.scalars(`${key}.outputs`, names.flatMap(both('output')));
}

/** `clamp(W clamp(x))`, of each of the tensors that W is made of by its own bounds. They have as many rows. */
export function boundLinear({ ops, weights }: TowerRecording, key: string, x: Tensor): Tensor {
  const matrix = weights.matrix(key);
  const inputs = weights.numbers(`${key}.inputs`);
  const count = inputs.length / 2;
  const product = (i: number): Tensor =>
    ops.linear(ops.clamp(x, weights.vector(`${key}.input.${i}`)), matrix);
  // As a rule tensors of one input were given the same bounds of it.
  const same = inputs.every((bound, i) => bound === inputs[i % 2]);
  const cols = matrix.rows / count;
  const of = (i: number) => ({
    ...{ x: product(i), from: i * cols, to: i * cols, cols },
    ...{ count: 1, fromStep: cols, toStep: cols },
  });
  const made = same
    ? product(0)
    : ops.columns(
        matrix.rows,
        Array.from({ length: count }, (_, i) => of(i)),
      );
  return ops.clamp(made, weights.vector(`${key}.outputs`));
}
