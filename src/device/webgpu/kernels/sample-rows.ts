/**
 * The end of a draw: one workgroup a row takes the best of the chunks, and is done unless the row has filters.
 *
 * Filters leave an *edge* in each of two orders, by logit (top-k, top-p) and by deviation (typical-p), and bounds on
 * z: a token is kept if it stands before all of them. An edge is found from a short sorted list of the tokens that
 * may stand near it (sample-list.ts), which the histogram of the row, or the best of the chunks, picks out; where
 * they are too many, by search (sample-search.ts).
 *
 * The draw takes each chunk's winner of the first pass if that is kept. Only a chunk whose winner is not, and would
 * have won, is looked at again.
 */

import { INVALID_TOKEN } from '../../device.js';
import { type Binding, type Capabilities, declareBindings, Params, type Stage } from '../kernel.js';
import { rowWord, STEP_BINDING, STEP_WGSL } from '../step-buffer.js';
import { advanceWgsl } from './sample-advance.js';
import { FILTERS_WGSL } from './sample-filters.js';
import { binsOf, HISTOGRAM_WGSL, histogramWords, searchKindWgsl } from './sample-histogram.js';
import { cutWgsl, listWgsl } from './sample-list.js';
import { PIVOTS, searchWgsl } from './sample-search.js';
import {
  CHUNK,
  chunksOf,
  FEATURES_WGSL,
  LOG_WGSL,
  ORDER_WGSL,
  powerOfTwo,
  RANDOM_WGSL,
  type SampleShape,
  STATE_WORD_WGSL,
  strongestWgsl,
} from './sample-wgsl.js';

/** Threads of the workgroup, and tokens of its list: what its memory holds. */
export function rowsSizes(capabilities: Capabilities, vocab: number): { threads: number; room: number } {
  const { workgroupBytes, workgroupThreads } = capabilities;
  const large = workgroupBytes >= 44 * 1024;
  const most = Math.min(workgroupThreads, large ? 1024 : workgroupBytes >= 30 * 1024 ? 512 : 256);
  return { threads: powerOfTwo(vocab / 16, 16, most), room: workgroupBytes >= 30 * 1024 ? 2048 : 1024 };
}

export function rowsStage(capabilities: Capabilities, shape: SampleShape, full: boolean): Stage {
  const { vocab, stride } = shape;
  const { threads, room } = rowsSizes(capabilities, vocab);
  const segments = Math.min(32, threads);
  const chunks = chunksOf(vocab);
  // In steps, so that vocabularies of like size share a pipeline.
  const flags = powerOfTwo(chunks / 32, 1, 1 << 20);
  const p = new Params();
  const text = { vocab: p.u32(vocab), vectors: p.u32(stride / 4), chunks: p.u32(chunks) };
  const bindings: Binding[] = [
    p.binding,
    STEP_BINDING,
    { name: 'logits', access: 'read', type: 'array<vec4<u32>>' },
    { name: 'scratchBest', access: 'read', type: 'array<vec4<u32>>' },
    { name: 'scratchHistogram', access: 'read', type: 'array<u32>' },
    { name: 'ids', access: 'read_write', type: 'array<u32>' },
    { name: 'lastToken', access: 'read_write', type: 'array<u32>' },
    ...(full
      ? ([
          { name: 'scratchSums', access: 'read', type: 'array<vec4<u32>>' },
          { name: 'sampler', access: 'read_write', type: 'array<vec4<u32>>' },
        ] as const)
      : []),
  ];
  const lanes = Math.min(32, threads);
  /**
   * Runs `body` for every token of the row whose key may reach `least`, its id in `i` and its bits in `bits`; a
   * thread's ids ascend. Chunks whose best does not reach it are passed over. Loads go out four at a time.
   */
  const everyToken = (least: string, body: string): string => {
    const four = (f: (q: number) => string): string => [0, 1, 2, 3].map(f).join('\n      ');
    return `for (var chunk = lid / ${lanes}u; chunk < ${text.chunks}; chunk += ${threads / lanes}u) {
    if (scratchBest[best_at + chunk].x < ${least}) { continue; }
    let end = min((chunk + 1u) * ${CHUNK / 4}u, ${text.vectors});
    for (var at = chunk * ${CHUNK / 4}u + lid % ${lanes}u; at < end; at += ${lanes * 4}u) {
      ${four((q) => `let four${q} = four_at(min(at + ${q * lanes}u, end - 1u));`)}
      ${four(
        (q) => `for (var e = 0u; e < 4u; e++) {
        let i = (at + ${q * lanes}u) * 4u + e;
        if (i >= ${text.vocab} || i >= end * 4u) { break; }
        let bits = four${q}[e];
        ${body}
      }`,
      )}
    }
  }`;
  };
  const wgsl = `${declareBindings(bindings)}
${STEP_WGSL}
${LOG_WGSL}
${RANDOM_WGSL}
${ORDER_WGSL}
${FEATURES_WGSL}
${strongestWgsl(threads)}
var<workgroup> part: array<f32, ${threads * Math.max(PIVOTS, 4)}>;
var<workgroup> answer: vec2<u32>;
var<workgroup> passed: array<atomic<u32>, ${flags}>;

var<private> row_at: u32;
var<private> best_at: u32;
var<private> best: f32;
var<private> inverse_temperature: f32;
// What is kept: before or at the edge of either order, (place, last id at that place); 'floor_z' or more; and not
// before 'gone', (key, id).
var<private> edge_logit: vec2<u32>;
var<private> edge_deviation: vec2<u32>;
var<private> floor_z: f32;
var<private> gone: vec2<u32>;
// ln Σ e^z and entropy of the tokens that typical-p chooses from.
var<private> log_sum: f32;
var<private> entropy: f32;
${full ? `var<private> processed_at: u32;\n${STATE_WORD_WGSL}` : ''}
fn four_at(i: u32) -> vec4<u32> {
  ${full ? 'if (processed_at != 0u) { return sampler[processed_at + i]; }' : ''}
  return logits[row_at + i];
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
fn kept(i: u32, bits: u32) -> bool {
  let key = key_of(bits);
  if (key < edge_logit.x || (key == edge_logit.x && i > edge_logit.y)) { return false; }
  let z = scaled(bitcast<f32>(bits));
  if (z < floor_z) { return false; }
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

// Of the kept tokens with z ≥ least: Σ e^z and Σ z e^z in part[0] and part[1]; and the first of the order (end 0) or
// the last (end 1) in part_key[0] and part_id[0], inverted for the last.
fn survey(least: f32, end_: u32, lid: u32) {
  var sum = 0.0f;
  var product = 0.0f;
  var key = 0u;
  var id = 0u;
  ${everyToken(
    'edge_logit.x',
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
  part[lid] = sum;
  part[${threads}u + lid] = product;
  workgroupBarrier();
  for (var half = ${threads / 2}u; half > 0u; half >>= 1u) {
    if (lid < half) {
      part[lid] += part[lid + half];
      part[${threads}u + lid] += part[${threads}u + lid + half];
    }
    workgroupBarrier();
  }
  let product_ = part[${threads}u];
  workgroupBarrier();
  if (lid == 0u) { part[1] = product_; }
  workgroupBarrier();
}
${searchKindWgsl(text, vocab <= room)}
${HISTOGRAM_WGSL(capabilities)}
${listWgsl(threads, room)}
${cutWgsl(threads)}
${searchWgsl(threads, segments, everyToken)}
${histogramReadWgsl(capabilities, threads)}

// Narrows the edge of an order to 'most' tokens, and of these to the shortest start that weighs 'share'.
fn narrow(row: u32, order: u32, kind: u32, by_count: bool, most: u32, by_mass: bool, share: f32, lid: u32) {
  let by_histogram = kind == order + 1u;
  // The best of so many chunks are so many tokens: none below the last of them is among the first.
  if (order == 0u && by_count && !by_histogram && most <= ${text.chunks} && ${text.chunks} <= ${room}u) {
    for (var i = lid; i < ${text.chunks}; i += ${threads}u) { list_place[i] = scratchBest[best_at + i].x; }
    workgroupBarrier();
    for (var i = lid; i < ${text.chunks}; i += ${threads}u) {
      let mine = list_place[i];
      var rank = 0u;
      for (var j = 0u; j < ${text.chunks}; j++) {
        let other = list_place[j];
        if (other > mine || (other == mine && j < i)) { rank++; }
      }
      if (rank == most - 1u) { answer = vec2<u32>(mine, 0u); }
    }
    edge_logit.x = max(edge_logit.x, workgroupUniformLoad(&answer).x);
  }
  var range = Range(0u, ${binsOf(capabilities)}u, 0u, 0.0f, 0.0f);
  var scale = 0.0f;
  if (by_histogram) {
    range = histogram_range(row, order, by_count, most, by_mass, share, lid);
    scale = bitcast<f32>(scratchHistogram[row * ${histogramWords(capabilities)}u]);
  }
  if (lid == 0u) { atomicStore(&list_count, 0u); }
  workgroupBarrier();
  ${everyToken(
    'edge_logit.x',
    `if (!kept(i, bits)) { continue; }
        if (by_histogram) {
          let bin = bin_of(order, bitcast<f32>(bits), scale);
          if (bin < range.first || bin > range.last) { continue; }
        }
        list_add(place_of(order, bits), i);`,
  )}
  workgroupBarrier();
  if (lid == 0u) { answer = vec2<u32>(atomicLoad(&list_count), 0u); }
  let count = workgroupUniformLoad(&answer).x;
  if (count == 0u || count > ${room}u) {
    search_edges(order, by_count, most, by_mass, share, lid);
    return;
  }
  list_sort(count, lid);
  let left = select(0xffffffffu, most - min(most, range.count), by_count);
  let cut = list_cut(order, count, max(left, 1u), select(1.0f, share, by_mass), range.weight, range.whole, lid);
  set_edge(order, vec2<u32>(list_place[cut], list_id[cut]));
}

// The kept token with the most noise.
fn draw(seed: vec4<u32>, lid: u32) -> u32 {
  for (var i = lid; i < ${flags}u; i += ${threads}u) { atomicStore(&passed[i], 0u); }
  workgroupBarrier();
  var key = 0u;
  var id = 0u;
  for (var i = lid; i < ${text.chunks}; i += ${threads}u) {
    let chunk = scratchBest[best_at + i];
    if (chunk.x < edge_logit.x || chunk.z == 0u) { continue; }
    if (!kept(chunk.w, four_at(chunk.w >> 2u)[chunk.w & 3u])) {
      atomicOr(&passed[i >> 5u], 1u << (i & 31u));
      continue;
    }
    let n = noisy_key(chunk);
    if (n > key) { key = n; id = chunk.w; }
  }
  strongest(key, id, lid);
  key = part_key[0];
  id = part_id[0];
  let bar = key;
  for (var i = lid / ${lanes}u; i < ${text.chunks}; i += ${threads / lanes}u) {
    if (((atomicLoad(&passed[i >> 5u]) >> (i & 31u)) & 1u) == 0u) { continue; }
    let chunk = scratchBest[best_at + i];
    // Its winner is not kept, and who is has less.
    if (noisy_key(chunk) < bar) { continue; }
    let anchor = number_of(chunk.x);
    let end = min((i + 1u) * ${CHUNK / 4}u, ${text.vectors});
    for (var at = i * ${CHUNK / 4}u + lid % ${lanes}u; at < end; at += ${lanes}u) {
      let four = four_at(at);
      for (var e = 0u; e < 4u; e++) {
        let token = at * 4u + e;
        if (token >= ${text.vocab}) { break; }
        if (!kept(token, four[e])) { continue; }
        let z = max((bitcast<f32>(four[e]) - anchor) * inverse_temperature, -1.0e30f);
        let noise = z + gumbel(random_word(seed.x, seed.y, seed.z, seed.w, token));
        let n = noisy_key(vec4<u32>(chunk.x, 0u, key_of(bitcast<u32>(noise)), 0u));
        if (n > key || (n == key && token < id)) { key = n; id = token; }
      }
    }
  }
  strongest(key, id, lid);
  return part_id[0];
}
// From noise over the chunk's best to noise over the row's.
fn noisy_key(chunk: vec4<u32>) -> u32 {
  if (chunk.z == 0u) { return 0u; }
  return key_of(bitcast<u32>(max(scaled(number_of(chunk.x)) + number_of(chunk.z), -3.0e38f)));
}
${full ? FILTERS_WGSL({ threads, chunks: text.chunks }) + advanceWgsl(threads, text.vocab) : ''}

@compute @workgroup_size(${threads})
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
  let row = wid.x;
  if (row >= step[0].y) { return; }
  let a = step_output(row, 0u);
  let b = step_output(row, 1u);
  let c = step_output(row, 2u);
  row_at = row * ${text.vectors};
  best_at = row * ${text.chunks};
  let temperature = bitcast<f32>(a.z);
  let top_k = a.w;
  let top_p = bitcast<f32>(b.x);
  let min_p = min(bitcast<f32>(b.y), 1.0f);
  ${
    full
      ? `let features = ${rowWord('features')};
  processed_at = select(0u, ${rowWord('processed')}, (features & F_PENALTY) != 0u);
  let chained = (features & F_MIROSTAT) == 0u;`
      : ''
  }
  let by_count = top_k > 0u && top_k < ${text.vocab}${full ? ' && chained' : ''};
  let by_mass = top_p < 1.0f${full ? ' && chained' : ''};
  let by_share = min_p > 0.0f${full ? ' && chained' : ''};
  ${full ? 'let typical = (features & F_TYPICAL) != 0u && chained;' : 'let typical = false;'}
  let filtered = by_count || by_mass || by_share${full ? ' || (features & (F_MIROSTAT | F_TYPICAL | F_SIGMA | F_XTC)) != 0u' : ''};

  var key = 0u;
  var id = 0u;
  for (var i = lid; i < ${text.chunks}; i += ${threads}u) {
    let chunk = scratchBest[best_at + i];
    if (chunk.x > key) { key = chunk.x; id = chunk.y; }
  }
  strongest(key, id, lid);
  if (lid == 0u) { answer = vec2<u32>(part_key[0], part_id[0]); }
  let top = workgroupUniformLoad(&answer);
  var token = top.y;
  let valid = is_finite_key(top.x);
  if (valid && temperature > 0.0f) {
    best = number_of(top.x);
    inverse_temperature = 1.0f / temperature;
    edge_logit = vec2<u32>(NEGATIVE_INFINITY_KEY + 1u, 0xffffffffu);
    edge_deviation = vec2<u32>();
    floor_z = -3.0e38f;
    gone = vec2<u32>(0xffffffffu, 0u);
    if (!filtered) {
      key = 0u;
      id = 0u;
      for (var i = lid; i < ${text.chunks}; i += ${threads}u) {
        let chunk = scratchBest[best_at + i];
        let n = noisy_key(chunk);
        if (n > key) { key = n; id = chunk.w; }
      }
      strongest(key, id, lid);
      token = part_id[0];
    } else {
      let kind = search_kind(row);
      let lowest = select(-3.0e38f, ln(max(min_p, 1.2e-38f)), by_share);
      let by_logit = by_count || by_mass;
      if (!by_logit) { floor_z = lowest; }
      // One loop for both orders, for the compiler's sake.
      for (var order = select(1u, 0u, by_logit); order < select(1u, 2u, typical); order++) {
        ${
          full
            ? `var share = top_p;
        if (order == 1u) {
          share = ${`bitcast<f32>(${rowWord('typicalP')})`};
          measure_entropy(row, kind, lid);
        }
        narrow(row, order, kind, by_count && order == 0u, top_k, by_mass || order == 1u, share, lid);`
            : 'narrow(row, order, kind, by_count, top_k, by_mass, top_p, lid);'
        }
        floor_z = lowest;
      }
      ${full ? 'filter_rest(row, features, top, temperature, c.y, lid);' : ''}
      token = draw(vec4<u32>(b.z, b.w, c.x, c.y), lid);
      ${full ? 'if ((features & (F_MIROSTAT | F_FORCED)) == F_MIROSTAT) { adapt(row, token, lid); }' : ''}
    }
  }
  ${full ? `if ((features & F_FORCED) != 0u) { token = ${rowWord('forced')}; }` : ''}
  if (lid == 0u) {
    token = select(${INVALID_TOKEN}u, token, valid);
    ids[row] = token;
    lastToken[a.y] = token;
  }
  ${full ? 'if (valid) { advance(row, token, c.y, lid); } else if (lid == 0u) { note_matches(row, c.y); }' : ''}
}`;
  return {
    label: `sample rows${full ? ' with features' : ''} [${vocab}]`,
    wgsl,
    bindings,
    params: p.words,
    ...(full ? { lazy: true } : {}),
    workgroups: (facts, out) => {
      out[0] = (facts.features !== 0) === full ? facts.outputs : 0;
      out[1] = 1;
      out[2] = 1;
    },
  };
}

/** Where a border stands among the bins. */
function histogramReadWgsl(capabilities: Capabilities, threads: number): string {
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
