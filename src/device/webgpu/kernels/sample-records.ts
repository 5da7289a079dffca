/**
 * Stage 8 of sampling.ts: the log-probability and rank of a row's token and its alternatives, after the draw, into
 * the records behind the ids. One workgroup a row; a row that asked for nothing gets zeros.
 *
 * The alternatives stand in as many chunks as there are alternatives: those with the best best.
 */

import { INVALID_TOKEN } from '../../device.js';
import { FEATURE, MAX_TOP_LOGPROBS, RECORD_IDS, RECORD_LOGPROBS, RECORD_WORDS } from '../../sampling.js';
import { type Binding, type Capabilities, declareBindings, Params, type Stage } from '../kernel.js';
import { rowWord, STEP_BINDING, STEP_WGSL } from '../step-buffer.js';
import { listWgsl } from './sample-list.js';
import {
  CHUNK,
  chunksOf,
  FEATURES_WGSL,
  LOG_WGSL,
  ORDER_WGSL,
  powerOfTwo,
  type SampleShape,
  STATE_WORD_WGSL,
  strongestWgsl,
  sumsWgsl,
} from './sample-wgsl.js';

const ASKED = FEATURE.LOGPROBS | FEATURE.MIROSTAT;

export function recordsStage(capabilities: Capabilities, { vocab, stride }: SampleShape): Stage {
  const chunks = chunksOf(vocab);
  const { workgroupBytes, workgroupThreads } = capabilities;
  const large = workgroupBytes >= 44 * 1024;
  const threads = powerOfTwo(vocab / 16, 64, Math.min(workgroupThreads, large ? 1024 : 256));
  const room = large ? 2048 : 1024;
  const p = new Params();
  const text = { vocab: p.u32(vocab), vectors: p.u32(stride / 4), chunks: p.u32(chunks) };
  const bindings: Binding[] = [
    p.binding,
    STEP_BINDING,
    { name: 'logits', access: 'read', type: 'array<vec4<u32>>' },
    { name: 'scratchSums', access: 'read', type: 'array<vec4<u32>>' },
    { name: 'sampler', access: 'read', type: 'array<vec4<u32>>' },
    { name: 'ids', access: 'read_write', type: 'array<u32>' },
  ];
  const lanes = 32;
  const everyToken = (least: string, body: string): string => `
  for (var chunk = lid / ${lanes}u; chunk < ${text.chunks}; chunk += ${threads / lanes}u) {
    if (scratchSums[(best_at + chunk) * 2u].x < ${least}) { continue; }
    let end = min((chunk + 1u) * ${CHUNK / 4}u, ${text.vectors});
    for (var at = chunk * ${CHUNK / 4}u + lid % ${lanes}u; at < end; at += ${lanes}u) {
      let four = four_at(at);
      for (var e = 0u; e < 4u; e++) {
        let i = at * 4u + e;
        if (i >= ${text.vocab}) { break; }
        let key = key_of(four[e]);
        ${body}
      }
    }
  }`;
  const wgsl = `${declareBindings(bindings)}
${STEP_WGSL}
${LOG_WGSL}
${ORDER_WGSL}
${FEATURES_WGSL}
${STATE_WORD_WGSL}
${strongestWgsl(threads)}
${sumsWgsl(threads)}
${listWgsl(threads, room)}
var<workgroup> answer: vec2<u32>;
var<workgroup> ahead: atomic<u32>;
var<private> row_at: u32;
var<private> best_at: u32;
var<private> processed_at: u32;
fn four_at(i: u32) -> vec4<u32> {
  if (processed_at != 0u) { return sampler[processed_at + i]; }
  return logits[row_at + i];
}
fn log_probability(key: u32, log_total: f32) -> u32 {
  if (key <= NEGATIVE_INFINITY_KEY) { return NEGATIVE_INFINITY_BITS; }
  return bitcast<u32>(number_of(key) - log_total);
}

@compute @workgroup_size(${threads})
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
  let row = wid.x;
  if (row >= step[0].y) { return; }
  let features = ${rowWord('features')};
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

  // ln Σ e^l of the row.
  var key = 0u;
  for (var i = lid; i < ${text.chunks}; i += ${threads}u) { key = max(key, scratchSums[(best_at + i) * 2u].x); }
  strongest(key, 0u, lid);
  let best = number_of(part_key[0]);
  var sum = 0.0f;
  for (var i = lid; i < ${text.chunks}; i += ${threads}u) {
    let chunk = scratchSums[(best_at + i) * 2u];
    if (chunk.x <= NEGATIVE_INFINITY_KEY) { continue; }
    sum += bitcast<f32>(chunk.z) * exp(max(number_of(chunk.x) - best, -87.0f));
  }
  add_all(vec4<f32>(sum, 0.0f, 0.0f, 0.0f), lid);
  let log_total = best + ln(part_sum[0].x);

  var own = 0u;
  if (token < ${text.vocab}) { own = key_of(four_at(token >> 2u)[token & 3u]); }
  var before = 0u;
  ${everyToken('own', 'if (key > own || (key == own && i < token)) { before++; }')}
  if (before > 0u) { atomicAdd(&ahead, before); }

  let wanted = min(min(${rowWord('topLogprobs')}, ${MAX_TOP_LOGPROBS}u), ${text.vocab});
  if (lid == 0u) { answer = vec2<u32>(); }
  workgroupBarrier();
  if (wanted > 0u && wanted <= ${text.chunks} && ${text.chunks} <= ${room}u) {
    for (var i = lid; i < ${text.chunks}; i += ${threads}u) { list_place[i] = scratchSums[(best_at + i) * 2u].x; }
    workgroupBarrier();
    for (var i = lid; i < ${text.chunks}; i += ${threads}u) {
      let mine = list_place[i];
      var rank = 0u;
      for (var j = 0u; j < ${text.chunks}; j++) {
        let other = list_place[j];
        if (other > mine || (other == mine && j < i)) { rank++; }
      }
      if (rank == wanted - 1u) { answer = vec2<u32>(mine, 0u); }
    }
  }
  let least = workgroupUniformLoad(&answer).x;
  if (lid == 0u) {
    ids[record] = log_probability(own, log_total);
    ids[record + 1u] = 1u + atomicLoad(&ahead);
    ids[record + 3u] = wanted;
  }
  if (wanted == 0u) { return; }
  ${everyToken('least', 'if (key >= least) { list_add(key, i); }')}
  workgroupBarrier();
  if (lid == 0u) { answer = vec2<u32>(atomicLoad(&list_count), 0u); }
  let count = workgroupUniformLoad(&answer).x;
  if (count <= ${room}u) {
    list_sort(count, lid);
    if (lid < wanted) {
      ids[record + ${RECORD_IDS}u + lid] = list_id[lid];
      ids[record + ${RECORD_LOGPROBS}u + lid] = log_probability(list_place[lid], log_total);
    }
    return;
  }
  // Too many equal ones: one after the other.
  var last = vec2<u32>(0xffffffffu, 0u);
  for (var n = 0u; n < wanted; n++) {
    var best_key = 0u;
    var best_id = 0u;
    ${everyToken(
      'max(least, best_key)',
      `let after = key < last.x || (key == last.x && i > last.y);
        if (after && (key > best_key || (key == best_key && i < best_id))) { best_key = key; best_id = i; }`,
    )}
    strongest(best_key, best_id, lid);
    last = vec2<u32>(part_key[0], part_id[0]);
    if (lid == 0u) {
      ids[record + ${RECORD_IDS}u + n] = last.y;
      ids[record + ${RECORD_LOGPROBS}u + n] = log_probability(last.x, log_total);
    }
  }
}`;
  return {
    label: `sample records [${vocab}]`,
    wgsl,
    bindings,
    params: p.words,
    lazy: true,
    workgroups: (facts, out) => {
      out[0] = (facts.features & ASKED) === 0 ? 0 : facts.outputs;
      out[1] = 1;
      out[2] = 1;
    },
  };
}
