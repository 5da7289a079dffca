/** What devices do with the tokens of a step that are rows of the feature slab: check them. */

import { KvantError } from '../errors.js';
import { FEATURE_TOKEN } from './feature-slab.js';
import type { Graph } from './graph.js';
import type { StepInputs } from './step.js';

/** Rows of the slab that tokens of a graph's steps may name. */
export function featureRowsOf({ nodes }: Graph): number {
  const rows = nodes.flatMap((node) =>
    (node.op === 'embed' || node.op === 'add-features') && node.features ? [node.features.rows] : [],
  );
  return rows.length === 0 ? 0 : Math.min(...rows);
}

/** Errors: `invalid-step`, for a token that names a row that the program's slab, of so many rows, has not. */
export function checkFeatureTokens({ tokens, tokenCount }: StepInputs, rows: number): void {
  const end = FEATURE_TOKEN + rows;
  for (let i = 0; i < tokenCount; i++)
    if (tokens[i]! >= end)
      throw new KvantError(
        'invalid-step',
        `Token ${i} is row ${tokens[i]! - FEATURE_TOKEN} of the feature slab, which has ${rows}.`,
        {
          where: 'submit',
          fix: 'This is a fault of the caller: it names rows of the slab the graph was recorded with.',
        },
      );
}
