/**
 * The merge of a row's partials in the product behind attention, in place of a launch of its own (attend-reduce.ts): for one row
 * and few splits, where every workgroup of the product can as well merge what it stages. The bits are those of the launch.
 */

import type { StepFacts } from '../kernel.js';
import { mergeAllText } from './attend-reduce.js';
import { dividedText } from './attend-words.js';
import type { MergedAttention } from './linear-spec.js';

/** Splits up to which the launch merges them all at once, as slices of one: so many slices has it (registry.ts). */
export const MERGED_SPLITS = 4;

/** Whether the product of a step merges. */
export function mergesPartials({ tokens, itemRows, items, itemSplits }: StepFacts): boolean {
  return tokens === 1 && itemRows === 1 && items <= MERGED_SPLITS && itemSplits === 1;
}

/** WGSL: `merged_(quad)`, four numbers of the row. Reads step, scratchSums and scratchTops. */
export function mergedText({ heads, headDim, splits }: MergedAttention): string {
  const vectors = headDim / 4;
  const others = Array.from({ length: splits - 1 }, (_, i) => i + 1);
  const place = (split: string): string => `(row.y + ${split}) * ${heads}u + head`;
  return `fn merged_(quad: u32) -> vec4<f32> {
  let row = step[step[2].y];
  let head = quad / ${vectors}u;
  let dim = quad % ${vectors}u;
  let first = ${place('0u')};
  var total = scratchSums[first * ${vectors}u + dim];
  var total_top = scratchTops[first].x;
  var total_sum = scratchTops[first].y;
  ${others
    .map(
      (i) =>
        `let at${i} = ${place(`min(${i}u, row.z - 1u)`)}; let tops${i} = scratchTops[at${i}]; let value${i} = scratchSums[at${i} * ${vectors}u + dim];`,
    )
    .join('\n  ')}
  ${mergeAllText(
    'total',
    'total_top',
    'total_sum',
    others.map((i) => ({
      vector: `value${i}`,
      top: `tops${i}.x`,
      sum: `tops${i}.y`,
      counts: `${i}u < row.z`,
    })),
  )}
  return ${dividedText('total', 'total_sum', 'vec4<f32>(0.0)')};
}`;
}
