import {
  centreDims, centres, centreStyle, coarse, dim, fine, group, heads, keyMean, q, scale, softcap, SPLIT_BYTES, scores,
  splitStats,
} from './attend-job';
import { madd, sumLanes } from './math';
import { makeAngles, rotate } from './rope-append';

/**
 * What was taken off the keys of a split (KeyCentre of ../../graph.ts) is one vector a KV head, so it adds one number to all
 * scores that a query has in the split: to their maximum, once they are weights, or to each where a soft cap bends them.
 */

/** The centres of `span` KV heads in the split at `base`. */
export function turnCentres(h: u32, span: u32, base: u32): void {
  const angles: usize = centres + span * dim * 4;
  makeAngles(angles, centreDims >> 1, base, fine, coarse);
  memory.copy(centres, keyMean + h * dim * 4, span * dim * 4);
  for (let s: u32 = 0; s < span; s++) rotate(centres + s * dim * 4, angles, centreDims >> 1, centreStyle);
}

/** What row `r`, query head `g` of its group of `token`, adds to its scores. */
export function centreScore(h: u32, s: u32, token: u32, g: u32): f32 {
  const query = q + (token * heads + (h + s) * group + g) * dim * 4;
  const centre = centres + s * dim * 4;
  let sum = f32x4.splat(0);
  for (let d: u32 = 0; d < dim; d += 4) sum = madd(v128.load(query + d * 4), v128.load(centre + d * 4), sum);
  return sumLanes(sum) * scale;
}

/** Before row `r` is weighed: scores `[a, b)` of it, `unit` times too small. */
export function addToScores(r: u32, a: u32, b: u32, more: f32, unit: f32): void {
  if (softcap == 0) return;
  const row = scores + r * SPLIT_BYTES;
  for (let t = a; t < b; t++) store<f32>(row + t * 4, load<f32>(row + t * 4) + more / unit);
}

/** Behind it. */
export function addToMaximum(r: u32, more: f32): void {
  if (softcap == 0) store<f32>(splitStats + r * 8, load<f32>(splitStats + r * 8) + more);
}
