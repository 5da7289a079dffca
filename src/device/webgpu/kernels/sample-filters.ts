/**
 * The filters that few rows have: what typical-p measures, top-n-sigma, XTC, and mirostat with its adaptation. Each
 * leaves a bound in the row's private variables (sample-rows.ts).
 */

import { XTC_TOKEN } from '../../sampling.js';
import { rowWord } from '../step-buffer.js';

const f32 = (word: string): string => `bitcast<f32>(${word})`;

export const FILTERS_WGSL = ({ threads, chunks }: { threads: number; chunks: string }): string => `
// Σ over all threads of two values, in one order: in part[0] and part[1], to be read before the next barrier.
fn sum_two(first: f32, second: f32, lid: u32) -> vec2<f32> {
  workgroupBarrier();
  part[lid] = first;
  part[${threads}u + lid] = second;
  workgroupBarrier();
  for (var half = ${threads / 2}u; half > 0u; half >>= 1u) {
    if (lid < half) {
      part[lid] += part[lid + half];
      part[${threads}u + lid] += part[${threads}u + lid + half];
    }
    workgroupBarrier();
  }
  let both = vec2<f32>(part[0], part[${threads}u]);
  workgroupBarrier();
  return both;
}

// Of the tokens typical-p chooses from. The histogram has it where those are all tokens.
fn measure_entropy(row: u32, kind: u32, lid: u32) {
  if (kind == 2u) {
    let header = histogram_header(row);
    log_sum = header.y;
    entropy = header.z;
    return;
  }
  survey(-3.0e38f, 0u, lid);
  log_sum = ln(part[0]);
  entropy = log_sum - part[1] / part[0];
  workgroupBarrier();
}

// Population standard deviation of the row's finite logits.
fn standard_deviation(lid: u32) -> f32 {
  var counted = 0.0f;
  var away = 0.0f;
  for (var i = lid; i < ${chunks}; i += ${threads}u) {
    let one = scratchSums[(best_at + i) * 2u];
    if (one.w == 0u) { continue; }
    let n = f32(one.w);
    counted += n;
    away += n * max(number_of(scratchBest[best_at + i].x) - best, -1.0e15f)
      + ${f32('scratchSums[(best_at + i) * 2u + 1u].x')};
  }
  let all = sum_two(counted, away, lid);
  let mean = all.y / all.x;
  var squares = 0.0f;
  for (var i = lid; i < ${chunks}; i += ${threads}u) {
    let one = scratchSums[(best_at + i) * 2u];
    if (one.w == 0u) { continue; }
    let two = bitcast<vec4<f32>>(scratchSums[(best_at + i) * 2u + 1u]);
    let n = f32(one.w);
    let apart = max(number_of(scratchBest[best_at + i].x) - best, -1.0e15f) + two.x / n - mean;
    squares += two.y + n * apart * apart;
  }
  return sqrt(sum_two(squares, 0.0f, lid).x / all.x);
}

fn filter_rest(row: u32, features: u32, top: vec2<u32>, temperature: f32, position: u32, lid: u32) {
  if ((features & F_MIROSTAT) != 0u) {
    var sum = 0.0f;
    for (var i = lid; i < ${chunks}; i += ${threads}u) {
      let top_ = scratchBest[best_at + i].x;
      if (!is_finite_key(top_)) { continue; }
      sum += ${f32('scratchSums[(best_at + i) * 2u + 1u].z')} * exp(max(scaled(number_of(top_)), -87.0f));
    }
    let border = ln(sum_two(sum, 0.0f, lid).x) - ${f32(`word(${rowWord('head')} * 4u)`)} * 0.69314718f;
    floor_z = border;
    // The first alone, whatever equals it.
    if (border > 0.0f) {
      floor_z = -3.0e38f;
      edge_logit = top;
    }
    return;
  }
  if ((features & F_SIGMA) != 0u) {
    var highest = 0.0f;
    if ((features & F_TYPICAL) != 0u) {
      survey(-3.0e38f, 0u, lid);
      highest = number_of(part_key[0]) - best;
    }
    let sigma = standard_deviation(lid);
    let lowest = highest - ${f32(rowWord('topNSigma'))} * sigma;
    floor_z = max(floor_z, max(lowest * inverse_temperature, -3.0e38f));
  }
  if ((features & F_XTC) != 0u) {
    let a = step_output(row, 0u);
    let b = step_output(row, 1u);
    let c = step_output(row, 2u);
    let chance = uniform_of(random_word(b.z, b.w, c.x, c.y, ${XTC_TOKEN}u));
    if (chance < ${f32(rowWord('xtcProbability'))}) {
      survey(-3.0e38f, 1u, lid);
      let least = ln(max(${f32(rowWord('xtcThreshold'))} * part[0], 1.2e-38f));
      survey(least, 1u, lid);
      // Of those that weigh as much all go but the last.
      if (part_key[0] != 0u) { gone = vec2<u32>(~part_key[0], ~part_id[0]); }
    }
  }
}

// Mirostat's next μ.
fn adapt(row: u32, token: u32, lid: u32) {
  survey(-3.0e38f, 0u, lid);
  let z = scaled(bitcast<f32>(four_at(token >> 2u)[token & 3u]));
  if (lid == 0u) {
    let observed = (ln(part[0]) - z) / 0.69314718f;
    let head = ${rowWord('head')};
    let mu = bitcast<f32>(sampler[head].x);
    sampler[head].x = bitcast<u32>(mu - ${f32(rowWord('mirostatEta'))} * (observed - ${f32(rowWord('mirostatTau'))}));
  }
}
`;
