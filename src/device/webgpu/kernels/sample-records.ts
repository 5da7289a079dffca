/**
 * Stage 8 of sampling.ts: the log-probability and rank of a row's token and its alternatives, after the draw, into
 * the records behind the ids. One workgroup a row; a row that asked for nothing gets zeros.
 *
 * The alternatives stand in as many chunks as there are alternatives: those with the best best. One pass over these,
 * and over those that hold tokens before the row's own, is enough.
 */

import { INVALID_TOKEN } from '../../device.js';
import { FEATURE, MAX_TOP_LOGPROBS, RECORD_IDS, RECORD_LOGPROBS, RECORD_WORDS } from '../../sampling.js';
import type { Capabilities, Stage } from '../kernel.js';
import { rowWord } from '../step-buffer.js';
import { listWgsl } from './sample-list.js';
import { bestWgsl, picksWgsl, pickWords, visit } from './sample-visit.js';
import {
  chunksOf,
  powerOfTwo,
  reads,
  type SampleShape,
  type SampleText,
  sampleStage,
  strongestWgsl,
  writes,
} from './sample-wgsl.js';

const ASKED = FEATURE.LOGPROBS | FEATURE.MIROSTAT;

export function recordsStage(capabilities: Capabilities, shape: SampleShape): Stage {
  const { workgroupBytes, workgroupThreads } = capabilities;
  const large = workgroupBytes >= 44 * 1024;
  const threads = powerOfTwo(shape.vocab / 16, 64, Math.min(workgroupThreads, large ? 1024 : 256));
  const room = large ? 2048 : 1024;
  return sampleStage({
    name: 'records',
    shape,
    threads,
    lazy: true,
    rowAxis: 'x',
    bindings: [reads('logits'), reads('scratchSums'), reads('sampler'), writes('ids', 'array<u32>')],
    before: (text) => declarations(text, threads, pickWords(chunksOf(shape.vocab)), room),
    main: (text) => main(text, threads, room),
    workgroups: (facts, out) => {
      out[0] = (facts.features & ASKED) === 0 ? 0 : facts.outputs;
      out[1] = 1;
      out[2] = 1;
    },
  });
}

const declarations = (text: SampleText, threads: number, words: number, room: number): string => `
${strongestWgsl(threads)}
${listWgsl(threads, room)}
var<workgroup> part: array<f32, ${Math.max(threads, words * 32)}>;
var<workgroup> parts: array<f32, 32>;
var<workgroup> answer: vec2<u32>;
var<workgroup> ahead: atomic<u32>;
var<private> row_at: u32;
var<private> best_at: u32;
var<private> processed_at: u32;
fn four_at(i: u32) -> vec4<u32> {
  if (processed_at != 0u) { return sampler[processed_at + i]; }
  return logits[row_at + i];
}
fn chunk_key(chunk: u32) -> u32 { return scratchSums[(best_at + chunk) * 2u].x; }
${picksWgsl(text, threads, words)}
${bestWgsl(text, threads)}
// By differences: of large logits their sum with ln Σ would keep nothing.
fn log_probability(key: u32, best: f32, log_sum: f32) -> u32 {
  if (key <= NEGATIVE_INFINITY_KEY) { return NEGATIVE_INFINITY_BITS; }
  return bitcast<u32>((number_of(key) - best) - log_sum);
}
// Σ over all threads, in one order.
fn sum_all(value: f32, lid: u32) -> f32 {
  workgroupBarrier();
  part[lid] = value;
  workgroupBarrier();
  if (lid < 32u) {
    var sum = 0.0f;
    for (var i = lid; i < ${threads}u; i += 32u) { sum += part[i]; }
    parts[lid] = sum;
  }
  workgroupBarrier();
  var all = 0.0f;
  for (var i = 0u; i < 32u; i++) { all += parts[i]; }
  return all;
}`;

const main = (
  text: SampleText,
  threads: number,
  room: number,
): string => `  let features = ${rowWord('features')};
  let record = step[0].y + row * ${RECORD_WORDS}u;
  if (lid < ${RECORD_WORDS}u) { ids[record + lid] = 0u; }
  if ((features & ${ASKED}u) == 0u) { return; }
  if (lid == 0u) {
    answer = vec2<u32>(ids[row], 0u);
    atomicStore(&ahead, 0u);
    atomicStore(&list_count, 0u);
  }
  let token = workgroupUniformLoad(&answer).x;
  storageBarrier();
  if (token == ${INVALID_TOKEN}u) { return; }
  if (lid == 0u && (features & F_MIROSTAT) != 0u) { ids[record + 2u] = word(${rowWord('head')} * 4u); }
  if ((features & F_LOGPROBS) == 0u) { return; }
  row_at = row * ${text.vectors};
  best_at = row * ${text.chunks};
  processed_at = select(0u, ${rowWord('processed')}, (features & F_PROCESSED) != 0u && (features & F_PENALTY) != 0u);
  var own = 0u;
  if (token < ${text.vocab}) { own = key_of(four_at(token >> 2u)[token & 3u]); }

  // ln Σ e^(l − best) of the row.
  var key = 0u;
  for (var i = lid; i < ${text.chunks}; i += ${threads}u) { key = max(key, chunk_key(i)); }
  strongest(key, 0u, lid);
  let best = number_of(part_key[0]);
  var sum = 0.0f;
  for (var i = lid; i < ${text.chunks}; i += ${threads}u) {
    let chunk = scratchSums[(best_at + i) * 2u];
    if (chunk.x <= NEGATIVE_INFINITY_KEY) { continue; }
    sum += bitcast<f32>(chunk.z) * exp(max(number_of(chunk.x) - best, -87.0f));
  }
  let log_sum = ln(sum_all(sum, lid));

  let wanted = min(min(${rowWord('topLogprobs')}, ${MAX_TOP_LOGPROBS}u), ${text.vocab});
  var least = select(0u, 0xffffffffu, wanted == 0u);
  if (wanted > 0u && wanted <= ${text.chunks} && ${text.chunks} <= ${room}u) { least = least_of_best(wanted, lid); }
  let lowest = min(least, own);
  let low = number_of(lowest);
  let count = pick_from(lowest, lid);
  var before = 0u;
  ${visit(
    text,
    threads,
    'count',
    (x) => `(${x} >= vec4<f32>(low)) | vec4<bool>(lowest <= NEGATIVE_INFINITY_KEY)`,
    `let key = key_of(bits);
        if (key > own || (key == own && i < token)) { before++; }
        if (key >= least) { list_add(key, i); }`,
  )}
  if (before > 0u) { atomicAdd(&ahead, before); }
  workgroupBarrier();
  if (lid == 0u) {
    ids[record] = log_probability(own, best, log_sum);
    ids[record + 1u] = 1u + atomicLoad(&ahead);
    ids[record + 3u] = wanted;
    answer = vec2<u32>(atomicLoad(&list_count), 0u);
  }
  let found = workgroupUniformLoad(&answer).x;
  if (found <= ${room}u) {
    list_sort(found, lid);
    if (lid < wanted) {
      ids[record + ${RECORD_IDS}u + lid] = list_id[lid];
      ids[record + ${RECORD_LOGPROBS}u + lid] = log_probability(list_place[lid], best, log_sum);
    }
    return;
  }
  // Too many equal ones: one after the other, from the same chunks and others.
  var last = vec2<u32>(0xffffffffu, 0u);
  for (var n = 0u; n < wanted; n++) {
    var best_key = 0u;
    var best_id = 0u;
    ${visit(
      text,
      threads,
      'count',
      (x) => `(${x} >= vec4<f32>(low)) | vec4<bool>(lowest <= NEGATIVE_INFINITY_KEY)`,
      `let key = key_of(bits);
        let after = key >= least && (key < last.x || (key == last.x && i > last.y));
        if (after && (key > best_key || (key == best_key && i < best_id))) { best_key = key; best_id = i; }`,
    )}
    strongest(best_key, best_id, lid);
    last = vec2<u32>(part_key[0], part_id[0]);
    if (lid == 0u) {
      ids[record + ${RECORD_IDS}u + n] = last.y;
      ids[record + ${RECORD_LOGPROBS}u + n] = log_probability(last.x, best, log_sum);
    }
  }
`;
