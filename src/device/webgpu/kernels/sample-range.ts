/** Between which bins of its histogram a row's top-k, top-p or typical-p ends. */

import type { Capabilities } from '../kernel.js';
import { binsOf, histogramWords } from './sample-histogram.js';

/** Needs `part: array<f32, threads>`, `sum_before`, `bin_top`; binds `scratchHistogram`. */
export function histogramRangeWgsl(capabilities: Capabilities, threads: number): string {
  const bins = binsOf(capabilities);
  const each = Math.ceil(bins / threads);
  return `
// Bins that the edge may lie in, how many tokens and how much weight stand before them, and the weight of all (0: it
// depends on the edge).
struct Range { first: u32, last: u32, count: u32, weight: f32, whole: f32 }
var<workgroup> found: array<atomic<u32>, 3>;
var<workgroup> before_first: vec2<f32>;

// The two sums of a bin's weights, exact; what it weighs.
fn bin_entry(row: u32, order: u32, bin: u32, scale: f32) -> vec2<f32> {
  let at = row * ${histogramWords(capabilities)}u + 4u + bin * 3u;
  let counted = scratchHistogram[at];
  if (counted == 0u) { return vec2<f32>(); }
  let units = f32(scratchHistogram[at + 1u]) * 8192.0f + f32(scratchHistogram[at + 2u]);
  return vec2<f32>(f32(counted), units * ${2 ** -26} * exp(bin_top(order, bin, scale)));
}

fn histogram_range(row: u32, order: u32, by_count: bool, most: u32, by_mass: bool, share: f32, lid: u32) -> Range {
  let scale = bitcast<f32>(scratchHistogram[row * ${histogramWords(capabilities)}u]);
  var counted = 0.0f;
  var weighs = 0.0f;
  let from_ = lid * ${each}u;
  for (var i = from_; i < min(from_ + ${each}u, ${bins}u); i++) {
    let it = bin_entry(row, order, i, scale);
    counted += it.x;
    weighs += it.y;
  }
  let all_count = sum_before(counted, lid);
  let count_before = part[lid];
  let all_weight = sum_before(weighs, lid);
  let weight_before = part[lid];
  if (lid < 3u) { atomicStore(&found[lid], ${bins - 1}u); }
  if (lid == 0u) { before_first = vec2<f32>(); }
  workgroupBarrier();
  // found[0]: where the count is reached. The whole weighs between what stands before that bin and that with it.
  var whole = vec2<f32>(all_weight);
  if (by_count) {
    var reached = count_before;
    for (var i = from_; i < min(from_ + ${each}u, ${bins}u); i++) {
      reached += bin_entry(row, order, i, scale).x;
      if (reached >= f32(most)) {
        atomicMin(&found[0], i);
        break;
      }
    }
    workgroupBarrier();
    let bin = atomicLoad(&found[0]);
    if (bin >= from_ && bin < from_ + ${each}u) {
      var weight_ = weight_before;
      for (var i = from_; i < bin; i++) { weight_ += bin_entry(row, order, i, scale).y; }
      before_first = vec2<f32>(weight_, weight_ + bin_entry(row, order, bin, scale).y);
    }
    workgroupBarrier();
    whole = before_first;
  }
  workgroupBarrier();
  // A little to either side: the list is added up in another order.
  if (by_mass) {
    var reached = weight_before;
    for (var i = from_; i < min(from_ + ${each}u, ${bins}u); i++) {
      reached += bin_entry(row, order, i, scale).y;
      if (reached >= share * whole.x * 0.99999f) { atomicMin(&found[1], i); }
      if (reached >= share * whole.y * 1.00001f) { atomicMin(&found[2], i); }
    }
  }
  workgroupBarrier();
  var range = Range(atomicLoad(&found[0]), atomicLoad(&found[0]), 0u, 0.0f, 0.0f);
  if (by_mass) {
    range.first = min(atomicLoad(&found[1]), range.last);
    if (!by_count) {
      range.last = atomicLoad(&found[2]);
      range.whole = all_weight;
    }
  }
  if (range.first >= from_ && range.first < from_ + ${each}u) {
    var it = vec2<f32>(count_before, weight_before);
    for (var i = from_; i < range.first; i++) { it += bin_entry(row, order, i, scale); }
    before_first = it;
  }
  workgroupBarrier();
  range.count = u32(before_first.x);
  range.weight = before_first.y;
  return range;
}`;
}
