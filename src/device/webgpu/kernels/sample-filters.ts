/**
 * The filters that few rows have: what typical-p measures, top-n-sigma, XTC, and mirostat with its adaptation. Each
 * leaves a bound in the row's private variables (sample-rows.ts).
 */

import { XTC_TOKEN } from '../../sampling.js';
import { rowWord } from '../step-buffer.js';

const f32 = (word: string): string => `bitcast<f32>(${word})`;

export const FILTERS_WGSL = ({ threads, chunks }: { threads: number; chunks: string }): string => `
// Of the tokens that typical-p chooses from. The histogram has it where those are all tokens.
fn set_entropy(row: u32) {
  let header = histogram_header(row);
  log_sum = header.y;
  entropy = header.z;
}
fn measure_entropy(lid: u32) {
  let of_all = survey(-3.0e38f, 0u, lid);
  log_sum = ln(of_all.x);
  entropy = log_sum - of_all.y / of_all.x;
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

// Σ e^z of all tokens, from the chunks.
fn weight_of_all(lid: u32) -> f32 {
  var sum = 0.0f;
  for (var i = lid; i < ${chunks}; i += ${threads}u) {
    let top = scratchBest[best_at + i].x;
    if (!is_finite_key(top)) { continue; }
    sum += ${f32('scratchSums[(best_at + i) * 2u + 1u].z')} * exp(max(scaled(number_of(top)), -87.0f));
  }
  return sum_two(sum, 0.0f, lid).x;
}

// 'filteredRows': others than all tokens are left.
fn filter_rest(row: u32, features: u32, top: vec2<u32>, narrowed: bool, lid: u32) {
  if ((features & F_MIROSTAT) != 0u) {
    let border = ln(weight_of_all(lid)) - ${f32(`word(${rowWord('head')} * 4u)`)} * 0.69314718f;
    // Else the first alone, whatever equals it.
    if (border <= 0.0f) { set_floor(border); } else { edge_logit = top; }
    return;
  }
  let by_sigma = (features & F_SIGMA) != 0u;
  if (by_sigma) {
    var highest = 0.0f;
    if ((features & F_TYPICAL) != 0u) {
      survey(-3.0e38f, 0u, lid);
      highest = number_of(part_key[0]) - best;
    }
    let sigma = standard_deviation(lid);
    let lowest = highest - ${f32(rowWord('topNSigma'))} * sigma;
    set_floor(max(floor_z, max(lowest * inverse_temperature, -3.0e38f)));
  }
  if ((features & F_XTC) != 0u) {
    let a = step_output(row, 0u);
    let b = step_output(row, 1u);
    let c = step_output(row, 2u);
    let chance = uniform_of(random_word(b.z, b.w, c.x, c.y, ${XTC_TOKEN}u));
    if (chance < ${f32(rowWord('xtcProbability'))}) {
      // The weight of what is left, then the last of those that XTC strikes.
      var of_kept = vec2<f32>();
      if (narrowed || by_sigma) { of_kept = survey(-3.0e38f, 1u, lid); } else { of_kept.x = weight_of_all(lid); }
      survey(ln(max(${f32(rowWord('xtcThreshold'))} * of_kept.x, 1.2e-38f)), 1u, lid);
      // Of those that weigh as much all go but the last.
      if (part_key[0] != 0u) { gone = vec2<u32>(~part_key[0], ~part_id[0]); }
    }
  }
}

// Mirostat's next μ.
fn adapt(row: u32, token: u32, lid: u32) {
  let of_kept = survey(-3.0e38f, 0u, lid);
  let z = scaled(bitcast<f32>(four_at(token >> 2u)[token & 3u]));
  if (lid == 0u) {
    let observed = (ln(of_kept.x) - z) / 0.69314718f;
    let head = ${rowWord('head')};
    let mu = bitcast<f32>(sampler[head].x);
    sampler[head].x = bitcast<u32>(mu - ${f32(rowWord('mirostatEta'))} * (observed - ${f32(rowWord('mirostatTau'))}));
  }
}
`;
