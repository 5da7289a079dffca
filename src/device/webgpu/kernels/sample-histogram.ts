/**
 * How a row's tokens spread: for each of a row of bins how many tokens fall into it and what they weigh, so that the
 * end of the draw need look only at the bins where a top-k, top-p or typical-p may end. Many workgroups a row.
 *
 * Bins are even steps of the logit down from the row's best, or of the deviation up from 0; their width follows from
 * how far the best of the chunks stand apart. Weights are added up as integers, in units of 2⁻²⁶ of the largest
 * that the bin can hold: sums that do not depend on the order, and precise in every bin.
 */

import { FEATURE } from '../../sampling.js';
import type { Capabilities, Stage } from '../kernel.js';
import { rowWord } from '../step-buffer.js';
import {
  CHUNK,
  chunksOf,
  reads,
  rolledTurns,
  type SampleShape,
  type SampleText,
  sampleStage,
  strongestWgsl,
  sumsWgsl,
  writes,
} from './sample-wgsl.js';

/** Threads that look at the best of the chunks. */
const LOOKING = 256;
/** Logits of a workgroup; where rows are few, half as many. What it counted costs it an atomic for each bin. */
const PORTION = 8 * CHUNK;
const FEW_ROWS = 3;
const HEADER = 4;

/** Bins of a row. Three words each in workgroup memory. */
export function binsOf(capabilities: Capabilities): number {
  return capabilities.workgroupBytes >= 36 * 1024 ? 2048 : 512;
}

/** Threads of a workgroup: of one whose bins fill a multiprocessor's memory, as many as there may be. */
function threadsOf(capabilities: Capabilities): number {
  return binsOf(capabilities) === 2048 && capabilities.workgroupThreads >= 1024 ? 1024 : LOOKING;
}

/** Words of a row: (scale, ln Σ e^z, entropy, 0), then for each bin tokens, and the high and low part of their weight. */
export function histogramWords(capabilities: Capabilities): number {
  return HEADER + binsOf(capabilities) * 3;
}

/**
 * `search_kind(row)`: 0 where the row needs no histogram, 1 by logit, 2 by deviation. What it says is uniform.
 * `small`: the whole vocabulary fits into the list.
 */
export function searchKindWgsl(text: SampleText, small: boolean): string {
  return `
fn search_kind(row: u32) -> u32 {
  ${
    small
      ? 'return 0u;'
      : `let a = step_output(row, 0u);
  let b = step_output(row, 1u);
  if (bitcast<f32>(a.z) <= 0.0f) { return 0u; }
  var typical = false;
  if (step[2].w != 0u) {
    let features = ${rowWord('features')};
    if ((features & F_MIROSTAT) != 0u) { return 0u; }
    typical = (features & F_TYPICAL) != 0u;
  }
  let by_count = a.w > 0u && a.w < ${text.vocab};
  let by_mass = bitcast<f32>(b.x) < 1.0f;
  // The best of the chunks narrow a small top-k down.
  if (by_count && a.w <= ${text.chunks}) { return 0u; }
  if (by_count || by_mass) { return 1u; }
  return select(0u, 2u, typical && bitcast<f32>(b.y) <= 0.0f);`
  }
}`;
}

/** Needs `best`, `inverse_temperature`, `scaled`, `deviation_of`, `log_sum`, `entropy`. */
function binsWgsl(capabilities: Capabilities): string {
  const bins = binsOf(capabilities);
  return `
// Larger x are in no later bin.
fn bin_of(order: u32, x: f32, scale: f32) -> u32 {
  var away = best * 0.25f - x * 0.25f;
  if (order == 1u) { away = deviation_of(scaled(x)) * 0.25f; }
  return u32(min(min(away, ${bins}.0f / (4.0f * scale)) * (4.0f * scale), ${bins - 1}.0f));
}
// The largest z that a bin can hold.
fn bin_top(order: u32, bin: u32, scale: f32) -> f32 {
  if (order == 0u) { return max(-(f32(bin) / scale) * inverse_temperature, -80.0f); }
  return clamp(log_sum - entropy + f32(bin + 1u) / scale, -80.0f, 0.0f);
}`;
}

/** The same, for who reads a histogram. */
export function histogramWgsl(capabilities: Capabilities): string {
  return `${binsWgsl(capabilities)}
fn histogram_header(row: u32) -> vec4<f32> {
  let at = row * ${histogramWords(capabilities)}u;
  return bitcast<vec4<f32>>(vec4<u32>(scratchHistogram[at], scratchHistogram[at + 1u], scratchHistogram[at + 2u], 0u));
}`;
}

/** `full`: for steps in which some row has features. Runs if some row asks for more than the best of the chunks tell. */
export function histogramStage(
  capabilities: Capabilities,
  shape: SampleShape,
  room: number,
  full: boolean,
): Stage {
  const { vocab } = shape;
  const chunks = chunksOf(vocab);
  const bins = binsOf(capabilities);
  const threads = threadsOf(capabilities);
  return sampleStage({
    name: `histogram${full ? ' with features' : ''}`,
    shape,
    threads,
    lazy: full,
    rowAxis: 'filteredRows',
    bindings: [
      reads('logits'),
      reads('scratchBest'),
      writes('scratchHistogram', 'array<atomic<u32>>'),
      ...(full ? [reads('scratchSums'), reads('sampler')] : []),
    ],
    before: (text) => `${strongestWgsl(text, LOOKING)}
${sumsWgsl(text, LOOKING)}
var<workgroup> tally: array<atomic<u32>, ${bins * 3}>;
var<private> best: f32;
var<private> inverse_temperature: f32;
var<private> log_sum: f32;
var<private> entropy: f32;
fn scaled(v: f32) -> f32 { return max((v - best) * inverse_temperature, -1.0e30f); }
fn deviation_of(z: f32) -> f32 { return abs(log_sum - z - entropy); }
${searchKindWgsl(text, vocab <= room)}
${binsWgsl(capabilities)}`,
    main: (text) => `  let kind = search_kind(row);
  if (kind == 0u) { return; }
  inverse_temperature = 1.0f / bitcast<f32>(a.z);
  let best_at = row * ${text.chunks};
  var key = 0u;
  for (var i = lid; lid < ${LOOKING}u && i < ${text.chunks}; i += ${LOOKING}u) { key = max(key, scratchBest[best_at + i].x); }
  strongest(key, 0u, lid);
  let top = part_key[0];
  if (!is_finite_key(top)) { best = 0.0f; } else { best = number_of(top); }
  // How far apart the best of the chunks stand on average; sums of e^z and z e^z.
  var one = vec4<f32>();
  for (var i = lid; lid < ${LOOKING}u && i < ${text.chunks}; i += ${LOOKING}u) {
    let chunk = scratchBest[best_at + i];
    if (!is_finite_key(chunk.x)) { continue; }
    let away = number_of(chunk.x) - best;
    one += vec4<f32>(1.0f, min(-away, 1.0e4f), 0.0f, 0.0f);
    ${
      full
        ? `if (kind == 2u) {
      let two = bitcast<vec4<f32>>(scratchSums[(best_at + i) * 2u + 1u]);
      let z = scaled(number_of(chunk.x));
      let e = exp(max(z, -87.0f));
      one += vec4<f32>(0.0f, 0.0f, two.z * e, (two.w + two.z * max(z, -87.0f)) * e);
    }`
        : ''
    }
  }
  one = add_all(one, lid);
  var apart = max(one.y / max(one.x, 1.0f), 1.0e-6f);
  ${
    full
      ? `if (kind == 2u) {
    log_sum = ln(max(one.z, 1.2e-38f));
    entropy = log_sum - one.w / max(one.z, 1.2e-38f);
    apart *= inverse_temperature;
  }`
      : ''
  }
  let scale = ${bins / 8}.0f / apart;
  for (var i = lid; i < ${bins * 3}u; i += ${threads}u) { atomicStore(&tally[i], 0u); }
  workgroupBarrier();
  let at_row = row * ${histogramWords(capabilities)}u;
  if (wid.x == 0u && lid == 0u) {
    atomicStore(&scratchHistogram[at_row], bitcast<u32>(scale));
    atomicStore(&scratchHistogram[at_row + 1u], bitcast<u32>(log_sum));
    atomicStore(&scratchHistogram[at_row + 2u], bitcast<u32>(entropy));
  }
  ${full ? `let processed_at = select(0u, ${rowWord('processed')}, (${rowWord('features')} & F_PENALTY) != 0u);` : ''}
  if (is_finite_key(top)) {
    // Two loads under way.
    let apart_ = nwg.x * ${threads}u;
    for (var at = wid.x * ${threads}u + lid; at < ${text.vectors}; at += 2u * apart_) {
      let at_ = min(at + apart_, ${text.vectors} - 1u);
      var four: vec4<u32>;
      var four_: vec4<u32>;
      ${
        full
          ? `if (processed_at != 0u) {
        four = sampler[processed_at + at];
        four_ = sampler[processed_at + at_];
      } else {
        four = logits[row * ${text.vectors} + at];
        four_ = logits[row * ${text.vectors} + at_];
      }`
          : `four = logits[row * ${text.vectors} + at];
      four_ = logits[row * ${text.vectors} + at_];`
      }
      for (var e = 0u; e < ${rolledTurns(text, 8)}; e++) {
        let place = at + select(0u, apart_, e >= 4u);
        let bits = of_four(select(four, four_, e >= 4u), e);
        if (place >= ${text.vectors} || place * 4u + (e & 3u) >= ${text.vocab}) { break; }
        if (key_of(bits) <= NEGATIVE_INFINITY_KEY) { continue; }
        let x = bitcast<f32>(bits);
        let bin = bin_of(kind - 1u, x, scale);
        let units = u32(min(exp(max(scaled(x) - bin_top(kind - 1u, bin, scale), -87.0f)), 1.9f) * ${2 ** 26}.0f);
        atomicAdd(&tally[bin * 3u], 1u);
        atomicAdd(&tally[bin * 3u + 1u], units >> 13u);
        atomicAdd(&tally[bin * 3u + 2u], units & 8191u);
      }
    }
  }
  workgroupBarrier();
  for (var i = lid; i < ${bins * 3}u; i += ${threads}u) {
    let it = atomicLoad(&tally[i]);
    if (it != 0u) { atomicAdd(&scratchHistogram[at_row + ${HEADER}u + i], it); }
  }`,
    workgroups: (facts, out) => {
      const wanted = facts.maxTopK > chunks || (facts.features & FEATURE.TYPICAL) !== 0;
      const portion = facts.filteredRows <= FEW_ROWS ? PORTION / 2 : PORTION;
      out[0] = wanted && vocab > room && (facts.features !== 0) === full ? Math.ceil(vocab / portion) : 0;
      out[1] = facts.filteredRows;
      out[2] = 1;
    },
  });
}
