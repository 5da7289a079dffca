import { SPAN } from '../sample-words';
import { leastZ, loadBounds, setLeastZ, setPrefix, storeBounds } from './sample-bounds';
import { LEAST_Z, blocks, topK, topP, vocab } from './sample-row';
import {
  countBefore, crossing, cutList, endId, endScore, fillHistogram, findEnd, listBin, listBlocks, listFrom,
  mergeHistograms, startLists, totalWeight, weightBefore,
} from './sample-threshold';

/** The border of top-k and then top-p: a start of the row's order. */

// @ts-ignore: decorator
@inline export function wantsPrefix(): bool {
  return topK != 0 || topP < 1;
}

/** A small k is found by the best of each block, without a pass over the row. */
// @ts-ignore: decorator
@inline function isSmall(k: u32): bool {
  return k != 0 && k * 4 <= blocks;
}

// @ts-ignore: decorator
@inline export function wantsHistogram(): bool {
  return wantsPrefix() && !isSmall(topK);
}

export function histogram(row: u32, span: u32): void {
  loadBounds(row);
  setLeastZ(LEAST_Z);
  const from = span * SPAN;
  fillHistogram(row, span, from, min<u32>(from + SPAN, vocab), false);
}

export function findPrefix(row: u32): void {
  loadBounds(row);
  // Min-p comes after, and is in the bounds already.
  const after = leastZ;
  setLeastZ(LEAST_Z);
  startLists();
  if (isSmall(topK)) fromBlocks(row);
  else fromHistogram(row);
  setLeastZ(after);
  storeBounds(row);
}

function fromBlocks(row: u32): void {
  listBlocks(row);
  findEnd(topK, 0, false);
  listFrom(row, endScore);
  findEnd(topK, 0, false);
  const sum = cutList();
  if (topP < 1) findEnd(<f64>topP * sum, 0, true);
  setPrefix(endScore, endId);
}

function fromHistogram(row: u32): void {
  mergeHistograms(row);
  let sum: f64;
  if (topK != 0) {
    listBin(row, crossing(topK, false), false);
    findEnd(topK, countBefore, false);
    setPrefix(endScore, endId);
    sum = weightBefore + cutList();
  } else {
    sum = totalWeight();
  }
  if (topP < 1) {
    const goal = <f64>topP * sum;
    // Whatever top-k left out lies behind the goal, or in its bin and then out of bounds.
    listBin(row, crossing(goal, true), false);
    findEnd(goal, weightBefore, true);
    setPrefix(endScore, endId);
  }
}
