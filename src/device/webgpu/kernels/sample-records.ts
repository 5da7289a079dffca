/**
 * Stage 8 of sampling.ts: the log-probability and rank of a row's token and its alternatives, into the records behind
 * the ids. In a step in which some row asks, the end of the draw (sample-rows.ts) has two workgroups a row: one draws
 * and then tells of its token, the other tells of the alternatives, which do not depend on it, at the same time.
 * Together they write every word of the record; of a row that asked for nothing, zeros.
 *
 * The alternatives stand in as many chunks as there are alternatives: those with the best best. One pass over these,
 * and one over those that hold tokens before the row's own, is enough.
 */

import { FEATURE, MAX_TOP_LOGPROBS, RECORD_IDS, RECORD_LOGPROBS, RECORD_WORDS } from '../../sampling.js';
import { rowWord } from '../step-buffer.js';
import { visit } from './sample-visit.js';
import type { SampleText } from './sample-wgsl.js';

/** Features with a record. */
export const RECORDED = FEATURE.LOGPROBS | FEATURE.MIROSTAT;

/** Loads of a thread under way. */
const AHEAD = 4;

/** Needs what sample-rows.ts declares; the list has `room`. */
export function recordsWgsl(text: SampleText, threads: number, room: number): string {
  const ahead = (f: (q: number) => string): string =>
    Array.from({ length: AHEAD }, (_, q) => f(q)).join('\n    ');
  return `
// By differences: of large logits their sum with ln Σ would keep nothing.
fn log_probability(key: u32, most: f32, log_sum_: f32) -> u32 {
  if (key <= NEGATIVE_INFINITY_KEY) { return NEGATIVE_INFINITY_BITS; }
  return bitcast<u32>((number_of(key) - most) - log_sum_);
}
fn record_at(row: u32) -> u32 { return step[0].y + row * ${RECORD_WORDS}u; }
fn alternatives_wanted(row: u32) -> u32 {
  return min(min(${rowWord('topLogprobs')}, ${MAX_TOP_LOGPROBS}u), ${text.vocab});
}

// From here on logits are those of the record. Its best ('top' is that of what is drawn from, most often the same), and
// ln Σ e^(l − best) of the row.
fn record_distribution(row: u32, features: u32, top: u32, lid: u32) -> vec2<f32> {
  processed_at = select(0u, ${rowWord('processed')}, (features & F_PROCESSED) != 0u && (features & F_PENALTY) != 0u);
  by_record = true;
  var most_key = top;
  if ((features & F_PROCESSED) == 0u && (features & F_PENALTY) != 0u) {
    var key = 0u;
    for (var i = lid; i < ${text.chunks}; i += ${threads}u) { key = max(key, chunk_key(i)); }
    strongest(key, 0u, lid);
    most_key = part_key[0];
  }
  let most = number_of(most_key);
  var sum = 0.0f;
  for (var i = lid; i < ${text.chunks}; i += ${threads}u) {
    let chunk = scratchSums[(best_at + i) * 2u];
    if (chunk.x <= NEGATIVE_INFINITY_KEY) { continue; }
    sum += bitcast<f32>(chunk.z) * exp(max(number_of(chunk.x) - most, -87.0f));
  }
  return vec2<f32>(most, ln(sum_two(sum, 0.0f, lid).x));
}

// Words 0 to 3: of the token that was drawn.
fn record_own(row: u32, features: u32, top: u32, token: u32, valid: bool, lid: u32) {
  var words = vec4<u32>();
  if (valid && (features & F_LOGPROBS) != 0u) {
    let whole = record_distribution(row, features, top, lid);
    var own = 0u;
    if (token < ${text.vocab}) { own = key_of(four_at(token >> 2u)[token & 3u]); }
    let count = pick_from(own, lid);
    var before = vec4<u32>();
    for (var v = lid; v < count * 256u; v += ${threads * AHEAD}u) {
      ${ahead((q) => `let at${q} = picked_vector(v + ${q * threads}u, count);`)}
      ${ahead((q) => `let keys${q} = keys_of(four_at(min(at${q}, ${text.vectors} - 1u)));`)}
      ${ahead(
        (q) => `let ids${q} = vec4<u32>(at${q} * 4u) + vec4<u32>(0u, 1u, 2u, 3u);
    let ahead${q} = (keys${q} > vec4<u32>(own)) | ((keys${q} == vec4<u32>(own)) & (ids${q} < vec4<u32>(token)));
    let there${q} = (ids${q} < vec4<u32>(${text.vocab})) & vec4<bool>(at${q} < ${text.vectors});
    before += select(vec4<u32>(), vec4<u32>(1u), ahead${q} & there${q});`,
      )}
    }
    // Whole numbers: their sums are exact.
    let ranked = sum_two(f32(before.x + before.y + before.z + before.w), 0.0f, lid).x;
    words = vec4<u32>(log_probability(own, whole.x, whole.y), 1u + u32(ranked), 0u, alternatives_wanted(row));
  }
  if (lid == 0u) {
    if (valid && (features & F_MIROSTAT) != 0u) { words.z = word(${rowWord('head')} * 4u); }
    let record = record_at(row);
    ids[record] = words.x;
    ids[record + 1u] = words.y;
    ids[record + 2u] = words.z;
    ids[record + 3u] = words.w;
  }
}

fn set_alternative(record: u32, n: u32, id: u32, log_probability_: u32) {
  ids[record + ${RECORD_IDS}u + n] = id;
  ids[record + ${RECORD_LOGPROBS}u + n] = log_probability_;
}

// The other words: the alternatives.
fn record_others(row: u32, features: u32, lid: u32) {
  let record = record_at(row);
  var wanted = 0u;
  var top = 0u;
  if ((features & F_LOGPROBS) != 0u) {
    var key = 0u;
    for (var i = lid; i < ${text.chunks}; i += ${threads}u) { key = max(key, scratchBest[best_at + i].x); }
    strongest(key, 0u, lid);
    if (lid == 0u) {
      answer = vec2<u32>(part_key[0], 0u);
      atomicStore(&list_count, 0u);
    }
    top = workgroupUniformLoad(&answer).x;
    if (is_finite_key(top)) { wanted = alternatives_wanted(row); }
  }
  for (var n = wanted + lid; n < ${MAX_TOP_LOGPROBS}u; n += ${threads}u) { set_alternative(record, n, 0u, 0u); }
  if (wanted == 0u) { return; }
  let whole = record_distribution(row, features, top, lid);
  var least = 0u;
  if (wanted <= ${text.chunks} && ${text.chunks} <= ${room}u) { least = least_of_best(wanted, lid); }
  let low = number_of(max(least, 1u));
  let count = pick_from(least, lid);
  ${visit(
    text,
    threads,
    'count',
    (x) => `(${x} >= vec4<f32>(low)) | vec4<bool>(least <= NEGATIVE_INFINITY_KEY)`,
    `let key = key_of(bits);
      if (key >= least) { list_add(key, i); }`,
  )}
  workgroupBarrier();
  if (lid == 0u) { answer = vec2<u32>(atomicLoad(&list_count), 0u); }
  let found_ = workgroupUniformLoad(&answer).x;
  if (found_ <= ${room}u) {
    list_sort(found_, lid);
    for (var n = lid; n < wanted; n += ${threads}u) {
      set_alternative(record, n, list_id[n], log_probability(list_place[n], whole.x, whole.y));
    }
    return;
  }
  // Too many equal ones: one after the other, from the same chunks.
  var last = vec2<u32>(0xffffffffu, 0u);
  for (var n = 0u; n < wanted; n++) {
    var best_key = 0u;
    var best_id = 0u;
    for (var v = lid; v < count * 256u; v += ${threads}u) {
      let at = picked_vector(v, count);
      if (at >= ${text.vectors}) { continue; }
      let keys = keys_of(four_at(at));
      for (var e = 0u; e < 4u; e++) {
        let i = at * 4u + e;
        let after = keys[e] < last.x || (keys[e] == last.x && i > last.y);
        if (i < ${text.vocab} && keys[e] >= least && after && keys[e] > best_key) {
          best_key = keys[e];
          best_id = i;
        }
      }
    }
    strongest(best_key, best_id, lid);
    last = vec2<u32>(part_key[0], part_id[0]);
    if (lid == 0u) { set_alternative(record, n, last.y, log_probability(last.x, whole.x, whole.y)); }
  }
}
`;
}
