/**
 * Between which bins of its histogram a row's top-k, top-p or typical-p ends. What stands before these bins is kept, what
 * stands behind them is not, and the token that is drawn hardly ever stands in one of them: so it is drawn first as if all in them
 * were kept, and only if it does stand there is the edge looked for.
 */

import type { Capabilities } from '../kernel.js';
import { binsOf, histogramWords } from './sample-histogram.js';
import { rolledTurns, type SampleText } from './sample-wgsl.js';

/**
 * Needs the list of sample-list.ts with room for all bins, `part: array<f32, threads>`, `sum_before`, `bin_of`, `bin_top`,
 * `edge_logit`, `best`, `inverse_temperature`, `log_sum`, `entropy`; binds `scratchHistogram`.
 */
export function histogramRangeWgsl(text: SampleText, capabilities: Capabilities, threads: number): string {
  const bins = binsOf(capabilities);
  // Powers of two.
  const each = bins / threads;
  return `
// Bins that the edge may lie in, how many tokens and how much weight stand before them, and the weight of all (0: it
// depends on the edge).
struct Range { first: u32, last: u32, count: u32, weight: f32, whole: f32 }
var<private> range: Range;
var<private> bin_scale: f32;
// Tokens nearer to 'center' than 'near', or farther off than 'far', are in none of the range's bins; and none is whose
// key is less than 'least_in_range'.
var<private> center: f32;
var<private> near: f32;
var<private> far: f32;
var<private> least_in_range: u32;
// While tokens of the range's bins count as kept: the order of the bins; 2: they do not.
var<private> loose_order: u32;
var<workgroup> found: array<atomic<u32>, 3>;
var<workgroup> before_first: vec2<f32>;

// How many tokens a bin holds, and from the two sums of their weights, exact, what it weighs.
fn bin_read(row: u32, order: u32, bin: u32, scale: f32) -> vec2<f32> {
  let at = row * ${histogramWords(capabilities)}u + 4u + bin * 3u;
  let units = f32(scratchHistogram[at + 1u]) * 8192.0f + f32(scratchHistogram[at + 2u]);
  return vec2<f32>(f32(scratchHistogram[at]), units * ${2 ** -26} * exp(bin_top(order, bin, scale)));
}

// What a thread has read of its own bins, where the list will stand.
fn bin_entry(bin: u32) -> vec2<f32> {
  return vec2<f32>(bitcast<f32>(list_place[bin]), bitcast<f32>(list_id[bin]));
}

// Finds the range of an order.
fn find_range(row: u32, order: u32, by_count: bool, most: u32, by_mass: bool, share: f32, lid: u32) {
  let scale = bitcast<f32>(scratchHistogram[row * ${histogramWords(capabilities)}u]);
  bin_scale = scale;
  var own = vec2<f32>();
  let from_ = lid * ${each}u;
  // A few turns as a constant: their loads are on their way together.
  for (var k = 0u; k < ${each > 4 ? rolledTurns(text, each) : `${each}u`}; k++) {
    let i = from_ + k;
    let it = bin_read(row, order, i, scale);
    own += it;
    list_place[i] = bitcast<u32>(it.x);
    list_id[i] = bitcast<u32>(it.y);
  }
  // The counts, then the weights.
  var count_before = 0.0f;
  var weight_before = 0.0f;
  var all_weight = 0.0f;
  for (var turn = 0u; turn < ${rolledTurns(text, 2)}; turn++) {
    all_weight = sum_before(select(own.x, own.y, turn == 1u), lid);
    count_before = weight_before;
    weight_before = part[lid];
  }
  if (lid < 3u) { atomicStore(&found[lid], ${bins - 1}u); }
  if (lid == 0u) { before_first = vec2<f32>(); }
  workgroupBarrier();
  // found[0]: where the count is reached. The whole weighs between what stands before that bin and that with it.
  var whole = vec2<f32>(all_weight);
  if (by_count) {
    var reached = count_before;
    for (var i = from_; i < from_ + ${rolledTurns(text, each)}; i++) {
      reached += bin_entry(i).x;
      if (reached >= f32(most)) {
        atomicMin(&found[0], i);
        break;
      }
    }
    workgroupBarrier();
    let bin = atomicLoad(&found[0]);
    if (bin >= from_ && bin < from_ + ${each}u) {
      var weight_ = weight_before;
      for (var i = from_; i < bin; i++) { weight_ += bin_entry(i).y; }
      before_first = vec2<f32>(weight_, weight_ + bin_entry(bin).y);
    }
    workgroupBarrier();
    whole = before_first;
  }
  workgroupBarrier();
  // A little to either side: the list is added up in another order.
  if (by_mass) {
    var reached = weight_before;
    for (var i = from_; i < from_ + ${rolledTurns(text, each)}; i++) {
      reached += bin_entry(i).y;
      if (reached >= share * whole.x * 0.99999f) { atomicMin(&found[1], i); }
      if (reached >= share * whole.y * 1.00001f) { atomicMin(&found[2], i); }
    }
  }
  workgroupBarrier();
  range = Range(atomicLoad(&found[0]), atomicLoad(&found[0]), 0u, 0.0f, 0.0f);
  if (by_mass) {
    range.first = min(atomicLoad(&found[1]), range.last);
    if (!by_count) {
      range.last = atomicLoad(&found[2]);
      range.whole = all_weight;
    }
  }
  if (range.first >= from_ && range.first < from_ + ${each}u) {
    var it = vec2<f32>(count_before, weight_before);
    for (var i = from_; i < range.first; i++) { it += bin_entry(i); }
    before_first = it;
  }
  workgroupBarrier();
  range.count = u32(before_first.x);
  range.weight = before_first.y;
  center = best;
  near = 0.0f;
  far = 3.4e38f;
  least_in_range = 0u;
  var unit = 1.0f / scale;
  var slack = 4.0e-6f * abs(best);
  if (order == 1u) {
    let away = (log_sum - entropy) / inverse_temperature;
    center = best + away;
    unit /= inverse_temperature;
    slack += 4.0e-6f * (abs(away) + (abs(log_sum) + abs(entropy)) / inverse_temperature);
  }
  if (range.first > 0u) { near = f32(range.first) * unit * 0.99999f - slack; }
  if (range.last < ${bins - 1}u) {
    far = f32(range.last + 1u) * unit * 1.00001f + slack;
    least_in_range = key_of(bitcast<u32>(max(center - far - slack, -3.4e38f)));
  }
}
// Counts as kept what stands in the range's bins.
fn loosen(order: u32) {
  loose_order = order;
  edge_logit.x = max(edge_logit.x, least_in_range);
}
fn is_behind_range(x: f32) -> bool { return bin_of(loose_order, x, bin_scale) > range.last; }
// A deviation may be rounded otherwise where it was counted, so one bin more is left to doubt.
fn is_before_range(x: f32) -> bool { return bin_of(loose_order, x, bin_scale) + loose_order < range.first; }`;
}
