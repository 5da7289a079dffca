/**
 * The end of a draw: one workgroup a row takes the best of the chunks, and is done unless the row has filters.
 *
 * Filters leave an *edge* in each of two orders, by logit (top-k, top-p) and by deviation (typical-p), and bounds on
 * z: a token is kept if it stands before all of them. An edge is found from a short sorted list of the tokens that
 * may stand near it (sample-list.ts), which the histogram of the row, or the best of the chunks, picks out; where
 * they are too many, by search (sample-search.ts). Then comes the draw (sample-draw.ts). Where there is a histogram the
 * draw comes first, and the edge only if the drawn token stands near it (sample-range.ts): except with XTC, and with
 * typical-p beside another filter or top-n-sigma, which depend on the edge itself.
 */

import { INVALID_TOKEN } from '../../device.js';
import type { Capabilities, Stage } from '../kernel.js';
import { rowWord } from '../step-buffer.js';
import { advanceWgsl } from './sample-advance.js';
import { drawWgsl } from './sample-draw.js';
import { FILTERS_WGSL } from './sample-filters.js';
import { binsOf, histogramWgsl, searchKindWgsl } from './sample-histogram.js';
import { cutWgsl, listWgsl } from './sample-list.js';
import { histogramRangeWgsl } from './sample-range.js';
import { RECORDED, recordsWgsl } from './sample-records.js';
import { PIVOTS, searchWgsl } from './sample-search.js';
import { bestWgsl, picksWgsl, pickWords, visit } from './sample-visit.js';
import {
  chunksOf,
  KEY_BELOW_WGSL,
  powerOfTwo,
  reads,
  rolledTurns,
  type SampleShape,
  type SampleText,
  sampleStage,
  strongestWgsl,
  writes,
} from './sample-wgsl.js';

/** Threads of the workgroup, and tokens of its list: what its memory holds. */
export function rowsSizes(capabilities: Capabilities, vocab: number): { threads: number; room: number } {
  const { workgroupBytes, workgroupThreads } = capabilities;
  const large = workgroupBytes >= 44 * 1024;
  const most = Math.min(workgroupThreads, large ? 1024 : workgroupBytes >= 30 * 1024 ? 512 : 256);
  return { threads: powerOfTwo(vocab / 16, 16, most), room: workgroupBytes >= 30 * 1024 ? 2048 : 1024 };
}

export function rowsStage(capabilities: Capabilities, shape: SampleShape, full: boolean): Stage {
  const { vocab } = shape;
  const { threads, room } = rowsSizes(capabilities, vocab);
  return sampleStage({
    name: `rows${full ? ' with features' : ''}`,
    shape,
    threads,
    lazy: full,
    rowAxis: 'x',
    bindings: [
      reads('logits'),
      reads('scratchBest'),
      reads('scratchHistogram', 'array<u32>'),
      writes('ids', 'array<u32>'),
      writes('lastToken', 'array<u32>'),
      ...(full ? [reads('scratchSums'), writes('sampler')] : []),
    ],
    before: (text) => rowsWgsl(capabilities, text, vocab, threads, room, full),
    main: (text) => mainWgsl(text, threads, full),
    workgroups: (facts, out) => {
      out[0] = (facts.features !== 0) === full ? facts.outputs : 0;
      // The second ones tell of alternatives: see sample-records.ts.
      out[1] = (facts.features & RECORDED) !== 0 ? 2 : 1;
      out[2] = 1;
    },
  });
}

function rowsWgsl(
  capabilities: Capabilities,
  text: SampleText,
  vocab: number,
  threads: number,
  room: number,
  full: boolean,
): string {
  const segments = Math.min(32, threads);
  const words = pickWords(chunksOf(vocab));
  /** Runs `body` for every token whose key reaches `least`, a finite one, and some others. */
  const everyToken = (least: string, body: string): string => `let picks_ = pick_from(${least}, lid);
  let low_ = number_of(${least});
  ${visit(text, threads, 'picks_', (x) => `${x} >= vec4<f32>(low_)`, body)}`;
  return `${strongestWgsl(text, threads)}
var<workgroup> part: array<f32, ${Math.max(threads * PIVOTS, words * 32)}>;
var<workgroup> answer: vec2<u32>;
var<private> row_at: u32;
var<private> best_at: u32;
var<private> best: f32;
var<private> inverse_temperature: f32;
// What is kept: before or at the edge of either order, (place, last id at that place); 'floor_z' or more; and not
// before 'gone', (key, id).
var<private> edge_logit: vec2<u32>;
var<private> edge_deviation: vec2<u32>;
var<private> floor_z: f32;
// No token whose key is less has a z of floor_z or more.
var<private> floor_key: u32;
var<private> gone: vec2<u32>;
// ln Σ e^z and entropy of the tokens that typical-p chooses from.
var<private> log_sum: f32;
var<private> entropy: f32;
${
  full
    ? `var<private> processed_at: u32;
// Logits and the best of chunks are those of the record, not those that are drawn from.
var<private> by_record: bool;`
    : ''
}
fn four_at(i: u32) -> vec4<u32> {
  ${full ? 'if (processed_at != 0u) { return sampler[processed_at + i]; }' : ''}
  return logits[row_at + i];
}
fn chunk_key(chunk: u32) -> u32 {
  ${full ? 'if (by_record) { return scratchSums[(best_at + chunk) * 2u].x; }' : ''}
  return scratchBest[best_at + chunk].x;
}
fn scaled(v: f32) -> f32 { return max((v - best) * inverse_temperature, -1.0e30f); }
fn weight(bits: u32) -> f32 { return exp(max(scaled(bitcast<f32>(bits)), -87.0f)); }
// Smaller deviations are larger places.
fn deviation_of(z: f32) -> f32 { return abs(log_sum - z - entropy); }
fn place_of(order: u32, bits: u32) -> u32 {
  if (order == 0u) { return key_of(bits); }
  return ~bitcast<u32>(deviation_of(scaled(bitcast<f32>(bits))));
}
fn edge_of(order: u32) -> vec2<u32> { return select(edge_deviation, edge_logit, order == 0u); }
fn set_edge(order: u32, edge: vec2<u32>) {
  if (order == 0u) { edge_logit = edge; } else { edge_deviation = edge; }
}
${KEY_BELOW_WGSL}
fn set_floor(z: f32) {
  floor_z = z;
  floor_key = key_below(z, best, inverse_temperature);
}
fn kept(i: u32, bits: u32) -> bool {
  let key = key_of(bits);
  if (key < edge_logit.x || (key == edge_logit.x && i > edge_logit.y)) { return false; }
  let z = scaled(bitcast<f32>(bits));
  if (z < floor_z) { return false; }
  if (loose_order < 2u && is_behind_range(bitcast<f32>(bits))) { return false; }
  ${
    full
      ? `if (key > gone.x || (key == gone.x && i < gone.y)) { return false; }
  if (edge_deviation.x == 0u) { return true; }
  let place = ~bitcast<u32>(deviation_of(z));
  return place > edge_deviation.x || (place == edge_deviation.x && i <= edge_deviation.y);`
      : 'return true;'
  }
}
fn weight_of(order: u32, place: u32, id: u32) -> f32 {
  if (order == 0u) { return exp(max(scaled(number_of(place)), -87.0f)); }
  return weight(four_at(id >> 2u)[id & 3u]);
}

// Of the kept tokens with z ≥ least: Σ e^z and Σ z e^z; and the first of the order (end 0) or the last (end 1) in
// part_key[0] and part_id[0], inverted for the last.
fn survey(least: f32, end_: u32, lid: u32) -> vec2<f32> {
  var sum = 0.0f;
  var product = 0.0f;
  var key = 0u;
  var id = 0u;
  let least_key = max(max(edge_logit.x, floor_key), key_below(least, best, inverse_temperature));
  ${everyToken(
    'least_key',
    `let z = scaled(bitcast<f32>(bits));
        if (z < least || !kept(i, bits)) { continue; }
        let w = exp(max(z, -87.0f));
        sum += w;
        product += w * z;
        let k = select(key_of(bits), ~key_of(bits), end_ == 1u);
        let j = select(i, ~i, end_ == 1u);
        if (k > key || (k == key && j < id)) { key = k; id = j; }`,
  )}
  strongest(key, id, lid);
  return sum_two(sum, product, lid);
}
// Σ over all threads of two values, in one order.
fn sum_two(first: f32, second: f32, lid: u32) -> vec2<f32> {
  workgroupBarrier();
  part[lid] = first;
  part[${threads}u + lid] = second;
  part[${2 * threads}u + lid] = 0.0f;
  add_up(lid);
  return vec2<f32>(sums[0], sums[1]);
}
${picksWgsl(text, threads, words)}
${bestWgsl(text, threads, room)}
${searchKindWgsl(text, vocab <= room)}
${histogramWgsl(capabilities)}
${listWgsl(threads, room)}
${cutWgsl(text, threads)}
${searchWgsl(text, threads, segments, everyToken)}
${histogramRangeWgsl(text, capabilities, threads)}
${drawWgsl(text, threads)}

// Narrows the edge of an order to 'most' tokens, and of these to the shortest start that weighs 'share'. If all that are
// kept then stand in the list: how many of it, else 0.
fn narrow(order: u32, kind: u32, by_count: bool, most: u32, by_mass: bool, share: f32, lid: u32) -> u32 {
  // Then the range of its bins has been found.
  let by_histogram = kind == order + 1u;
  if (order == 0u && by_count && !by_histogram && most <= ${text.chunks} && ${text.chunks} <= ${room}u) {
    edge_logit.x = max(edge_logit.x, least_of_best(most, lid));
  }
  if (!by_histogram) {
    range = Range(0u, ${binsOf(capabilities)}u, 0u, 0.0f, 0.0f);
    center = best;
    near = 0.0f;
    far = 3.4e38f;
    least_in_range = 0u;
  }
  let least_key = max(max(edge_logit.x, floor_key), least_in_range);
  if (lid == 0u) { atomicStore(&list_count, 0u); }
  let picks_ = pick_from(least_key, lid);
  let low_ = number_of(least_key);
  ${visit(
    text,
    threads,
    'picks_',
    (x) =>
      `(${x} >= vec4<f32>(low_)) & (abs(${x} - center) >= vec4<f32>(near)) & (abs(${x} - center) <= vec4<f32>(far))`,
    `if (!kept(i, bits)) { continue; }
        if (by_histogram) {
          let bin = bin_of(order, bitcast<f32>(bits), bin_scale);
          if (bin < range.first || bin > range.last) { continue; }
        }
        list_add(place_of(order, bits), i);`,
  )}
  workgroupBarrier();
  if (lid == 0u) { answer = vec2<u32>(atomicLoad(&list_count), 0u); }
  let count = workgroupUniformLoad(&answer).x;
  if (count == 0u || count > ${room}u) {
    search_edges(order, by_count, most, by_mass, share, lid);
    return 0u;
  }
  list_sort(count, lid);
  let left = select(0xffffffffu, most - min(most, range.count), by_count);
  let cut = list_cut(order, count, max(left, 1u), select(1.0f, share, by_mass), range.weight, range.whole, lid);
  set_edge(order, vec2<u32>(list_place[cut], list_id[cut]));
  if (lid == 0u) { answer = vec2<u32>(select(cut + 1u, 0u, range.first > 0u), 0u); }
  return workgroupUniformLoad(&answer).x;
}
${full ? FILTERS_WGSL({ threads, chunks: text.chunks }) + advanceWgsl(threads, text.vocab) + recordsWgsl(text, threads, room) : ''}`;
}

function mainWgsl(text: SampleText, threads: number, full: boolean): string {
  return `row_at = row * ${text.vectors};
  best_at = row * ${text.chunks};
  let temperature = bitcast<f32>(a.z);
  let top_k = a.w;
  let top_p = bitcast<f32>(b.x);
  let min_p = min(bitcast<f32>(b.y), 1.0f);
  ${
    full
      ? `let features = ${rowWord('features')};
  processed_at = select(0u, ${rowWord('processed')}, (features & F_PENALTY) != 0u);
  let chained = (features & F_MIROSTAT) == 0u;
  if (wid.y == 1u) {
    record_others(row, features, lid);
    return;
  }`
      : ''
  }
  let by_count = top_k > 0u && top_k < ${text.vocab}${full ? ' && chained' : ''};
  let by_mass = top_p < 1.0f${full ? ' && chained' : ''};
  let by_share = min_p > 0.0f${full ? ' && chained' : ''};
  ${full ? 'let typical = (features & F_TYPICAL) != 0u && chained;' : 'let typical = false;'}
  let filtered = by_count || by_mass || by_share${full ? ' || (features & (F_MIROSTAT | F_TYPICAL | F_SIGMA | F_XTC)) != 0u' : ''};

  // The best of the row; then, where nothing is filtered, who has the most noise.
  var top = vec2<u32>();
  var token = 0u;
  var valid = false;
  for (var noisy = 0u; noisy < ${rolledTurns(text, 2)}; noisy++) {
    var key = 0u;
    var id = 0u;
    for (var i = lid; i < ${text.chunks}; i += ${threads}u) {
      let chunk = scratchBest[best_at + i];
      let n = select(chunk.x, noisy_key(chunk), noisy == 1u);
      if (n > key) { key = n; id = select(chunk.y, chunk.w, noisy == 1u); }
    }
    strongest(key, id, lid);
    if (lid == 0u) { answer = vec2<u32>(part_key[0], part_id[0]); }
    let most = workgroupUniformLoad(&answer);
    token = most.y;
    if (noisy == 1u) { break; }
    top = most;
    valid = is_finite_key(top.x);
    if (!valid || temperature <= 0.0f || filtered) { break; }
    best = number_of(top.x);
    inverse_temperature = 1.0f / temperature;
  }
  if (valid && temperature > 0.0f) {
    best = number_of(top.x);
    inverse_temperature = 1.0f / temperature;
    edge_logit = vec2<u32>(NEGATIVE_INFINITY_KEY + 1u, 0xffffffffu);
    edge_deviation = vec2<u32>();
    set_floor(-3.0e38f);
    gone = vec2<u32>(0xffffffffu, 0u);
    if (filtered) {
      let kind = search_kind(row);
      let lowest = select(-3.0e38f, ln(max(min_p, 1.2e-38f)), by_share);
      let by_logit = by_count || by_mass;
      ${full ? `let typical_p = bitcast<f32>(${rowWord('typicalP')});` : ''}
      if (kind != 0u) {
        ${
          full
            ? `if (kind == 2u) { set_entropy(row); }
        find_range(row, kind - 1u, by_count, top_k, by_mass || kind == 2u, select(top_p, typical_p, kind == 2u), lid);`
            : 'find_range(row, 0u, by_count, top_k, by_mass, top_p, lid);'
        }
      }
      // First with the range alone, where it is all that the token depends on.
      let loosely = kind != 0u${full ? ' && !(typical && (by_logit || (features & F_SIGMA) != 0u)) && (features & F_XTC) == 0u' : ''};
      for (var turn = select(1u, 0u, loosely); turn < 2u; turn++) {
        loose_order = 2u;
        edge_logit = vec2<u32>(NEGATIVE_INFINITY_KEY + 1u, 0xffffffffu);
        var listed = 0u;
        if (turn == 0u) {
          loosen(kind - 1u);
          set_floor(lowest);
        } else {
          set_floor(select(lowest, -3.0e38f, by_logit));
          // One loop for both orders, for the compiler's sake.
          for (var order = select(1u, 0u, by_logit); order < select(1u, 2u, typical); order++) {
            ${
              full
                ? `if (order == 1u && kind != 2u) { measure_entropy(lid); }
            listed = narrow(order, kind, by_count && order == 0u, top_k, by_mass || order == 1u, select(top_p, typical_p, order == 1u), lid);`
                : 'listed = narrow(order, kind, by_count, top_k, by_mass, top_p, lid);'
            }
            set_floor(lowest);
          }
        }
        ${full ? 'filter_rest(row, features, top, by_logit || by_share || typical, lid);' : ''}
        token = draw(vec4<u32>(b.z, b.w, c.x, c.y), listed, lid);
        if (turn == 0u) {
          if (lid == 0u) {
            // By logit the first of all is always kept.
            let bits = four_at(token >> 2u)[token & 3u];
            let sure = is_before_range(bitcast<f32>(bits)) || (loose_order == 0u && token == top.y);
            answer = vec2<u32>(select(0u, 1u, sure && kept(token, bits)), 0u);
          }
          if (workgroupUniformLoad(&answer).x == 1u) { break; }
        }
      }
      ${full ? 'if ((features & (F_MIROSTAT | F_FORCED)) == F_MIROSTAT) { adapt(row, token, lid); }' : ''}
    }
  }
  ${full ? `if ((features & F_FORCED) != 0u) { token = ${rowWord('forced')}; }` : ''}
  if (lid == 0u) {
    token = select(${INVALID_TOKEN}u, token, valid);
    ids[row] = token;
    lastToken[a.y] = token;
  }
  ${full ? 'if (nwg.y == 2u) { record_own(row, features, top.x, token, valid, lid); }' : ''}
  ${full ? 'if (valid) { advance(row, token, c.y, lid); } else if (lid == 0u) { note_matches(row, c.y); }' : ''}`;
}
