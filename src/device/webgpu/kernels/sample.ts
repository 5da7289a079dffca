/**
 * The sampler: what sampling.ts says, in a few dispatches, most of which a step does without.
 *
 * 1. `matches`, if some row has DRY (sample-match.ts);
 * 2. `chunks`: many workgroups a row check and penalise the logits and leave the best of each part (sample-chunks.ts);
 * 3. `histogram`, if some row has a top-p or a large top-k (sample-histogram.ts);
 * 4. `rows`: one workgroup a row filters, draws, and carries the row's state on (sample-rows.ts); if some row wants
 *    log-probabilities, another one beside it lists the alternatives (sample-records.ts).
 *
 * 2 to 4 are there twice, with and without features, so that a step in which no row has any pays for none.
 */

import type { Capabilities, Kernel } from '../kernel.js';
import { chunksStage } from './sample-chunks.js';
import { histogramStage, histogramWords } from './sample-histogram.js';
import { matchStage } from './sample-match.js';
import { rowsSizes, rowsStage } from './sample-rows.js';
import { chunksOf, type SampleShape } from './sample-wgsl.js';

/**
 * Roles: step, logits, ids u32 `[outputs]` with the records behind it, lastToken u32 `[slots + 1]`, sampler (the row
 * state); scratchBest, scratchSums, scratchHistogram.
 */
export function sampleKernel(capabilities: Capabilities, shape: SampleShape): Kernel {
  const { room } = rowsSizes(capabilities, shape.vocab);
  const chunks = chunksOf(shape.vocab);
  const stages = (full: boolean): Kernel['stages'] => [
    chunksStage(capabilities, shape, room, full),
    ...(shape.vocab > room ? [histogramStage(capabilities, shape, room, full)] : []),
    rowsStage(capabilities, shape, full),
  ];
  return {
    stages: [...stages(false), matchStage(shape), ...stages(true)],
    scratch: {
      scratchBest: shape.rows * chunks * 16,
      scratchSums: shape.rows * chunks * 32,
      scratchHistogram: shape.vocab > room ? shape.rows * histogramWords(capabilities) * 4 : 16,
    },
  };
}
