/**
 * The sampler, in two dispatches. `chunks`: many workgroups a row, each finds the best of its part of the vocabulary,
 * for the row's temperature and noise too. `rows`: one workgroup a row takes the best of those, and is done unless
 * the row has filters, for which it reads the logits again.
 *
 * Order: temperature, top-k, top-p, min-p, draw. Filters keep a prefix of the tokens sorted by (logit descending, id
 * ascending), found without sorting: a search, three bits a pass, for the largest threshold above which enough
 * tokens (top-k) or enough probability (top-p) stands, and a second one among the ids of those that tie with it.
 * The draw is the largest `logit / temperature + Gumbel noise` of what is kept (random.ts).
 *
 * Nothing here does arithmetic on infinities or NaN, which WGSL may assume away: they are told by their bits.
 */

import { INVALID_TOKEN } from '../../device.js';
import {
  type Binding,
  type Capabilities,
  declareBindings,
  type Kernel,
  Params,
  type Stage,
} from '../kernel.js';
import { STEP_BINDING, STEP_WGSL } from '../step-buffer.js';

export const LOG_WGSL = `
// ln v for normal v > 0, to a few units in the last place also near 1, where WGSL's log promises no relative
// accuracy: 2 artanh((m - 1) / (m + 1)) by its series.
fn ln(v: f32) -> f32 {
  let bits = bitcast<u32>(v);
  var e = i32(bits >> 23u) - 127;
  var m = bitcast<f32>((bits & 0x7fffffu) | 0x3f800000u);
  if (m > 1.41421356f) { m *= 0.5f; e += 1; }
  let f = m - 1.0f;
  let s = f / (2.0f + f);
  let z = s * s;
  let tail = z * (0.66666667f + z * (0.4f + z * (0.28571429f + z * (0.22222222f + z * 0.18181818f))));
  return fma(f32(e), 0.69314718f, fma(s, tail, 2.0f * s));
}`;

export const RANDOM_WGSL = `
fn random_word(seed_low: u32, seed_high: u32, choice: u32, position: u32, token: u32) -> u32 {
  let k = 1664525u;
  let a = 1013904223u;
  var x = seed_low * k + a;
  var y = (seed_high ^ (choice * 0x9e3779b9u)) * k + a;
  var z = position * k + a;
  var w = token * k + a;
  x += y * w; y += z * x; z += x * y; w += y * z;
  x ^= x >> 16u; y ^= y >> 16u; z ^= z >> 16u; w ^= w >> 16u;
  x += y * w; y += z * x; z += x * y; w += y * z;
  return w;
}
fn gumbel(word: u32) -> f32 {
  return -ln(-ln((f32(word >> 9u) + 0.5f) / 8388608.0f));
}`;

const COMMON_WGSL = `
const NEGATIVE_INFINITY_KEY = 0x007fffffu;
// Orders as the number does; −0 is 0.
fn key_of(bits_: u32) -> u32 {
  let bits = select(bits_, 0u, bits_ == 0x80000000u);
  return select(bits | 0x80000000u, ~bits, bits >= 0x80000000u);
}
fn number_of(key: u32) -> f32 {
  return bitcast<f32>(select(~key, key & 0x7fffffffu, key >= 0x80000000u));
}
`;

/** The largest key of all threads, the lowest id of a tie: in `part_key[0]` and `part_id[0]`. */
function strongestWgsl(threads: number): string {
  return `
var<workgroup> part_key: array<u32, ${threads}>;
var<workgroup> part_id: array<u32, ${threads}>;
fn strongest(key: u32, id: u32, lid: u32) {
  workgroupBarrier();
  part_key[lid] = key;
  part_id[lid] = id;
  workgroupBarrier();
  for (var half = ${threads / 2}u; half > 0u; half >>= 1u) {
    if (lid < half) {
      let other = part_key[lid + half];
      let other_id = part_id[lid + half];
      if (other > part_key[lid] || (other == part_key[lid] && other_id < part_id[lid])) {
        part_key[lid] = other;
        part_id[lid] = other_id;
      }
    }
    workgroupBarrier();
  }
}`;
}

/** Logits of one workgroup of `chunks`. */
const CHUNK = 1024;
const PIVOTS = 7;
/** What a chunk says of a row that has no answer: above every key. */
const BAD = '0xffffffffu';

export interface SampleShape {
  readonly vocab: number;
  /** Elements from a row of logits to the next; a multiple of 4. */
  readonly stride: number;
  /** Rows there may be. */
  readonly rows: number;
}

/** Roles: step, logits, ids u32 `[outputs]`, lastToken u32 `[slots]`; scratchBest. */
export function sampleKernel(capabilities: Capabilities, shape: SampleShape): Kernel {
  return {
    stages: [chunksStage(shape), rowsStage(capabilities, shape)],
    scratch: { scratchBest: shape.rows * Math.ceil(shape.vocab / CHUNK) * 16 },
  };
}

function powerOfTwo(wanted: number, least: number, most: number): number {
  let n = least;
  while (n < wanted && n < most) n *= 2;
  return n;
}

/** Leaves (best key, its id, best key with noise, its id) of each chunk. */
function chunksStage({ vocab, stride }: SampleShape): Stage {
  const chunks = Math.ceil(vocab / CHUNK);
  const threads = powerOfTwo(Math.min(vocab, CHUNK) / 8, 16, 256);
  const p = new Params();
  const text = { vocab: p.u32(vocab), vectors: p.u32(stride / 4), chunks: p.u32(chunks) };
  const bindings: Binding[] = [
    p.binding,
    STEP_BINDING,
    { name: 'logits', access: 'read', type: 'array<vec4<f32>>' },
    { name: 'scratchBest', access: 'read_write', type: 'array<vec4<u32>>' },
  ];
  const wgsl = `${declareBindings(bindings)}
${STEP_WGSL}
${LOG_WGSL}
${RANDOM_WGSL}
${COMMON_WGSL}
${strongestWgsl(threads)}
@compute @workgroup_size(${threads})
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
  let row = wid.y;
  if (row >= step[0].y) { return; }
  let a = step_output(row, 0u);
  let b = step_output(row, 1u);
  let c = step_output(row, 2u);
  let temperature = bitcast<f32>(a.z);
  let inverse = 1.0f / max(temperature, 1.0e-30f);
  let vocab = ${text.vocab};
  var key = 0u;
  var id = 0u;
  var noisy_key = 0u;
  var noisy_id = 0u;
  let end = min((wid.x + 1u) * ${CHUNK / 4}u, ${text.vectors});
  for (var at = wid.x * ${CHUNK / 4}u + lid; at < end; at += ${threads}u) {
    let four = logits[row * ${text.vectors} + at];
    for (var e = 0u; e < 4u; e++) {
      let i = at * 4u + e;
      if (i >= vocab) { break; }
      let bits = bitcast<u32>(four[e]);
      var k = key_of(bits);
      // NaN of either sign, or +infinity: no token of this row can be drawn.
      if ((bits & 0x7fffffffu) > 0x7f800000u || bits == 0x7f800000u) { k = ${BAD}; }
      if (k > key) { key = k; id = i; }
      if (temperature > 0.0f && k > NEGATIVE_INFINITY_KEY && k != ${BAD}) {
        let z = clamp(four[e] * inverse, -1.0e30f, 1.0e30f);
        let n = key_of(bitcast<u32>(z + gumbel(random_word(b.z, b.w, c.x, c.y, i))));
        if (n > noisy_key) { noisy_key = n; noisy_id = i; }
      }
    }
  }
  strongest(key, id, lid);
  key = part_key[0];
  id = part_id[0];
  strongest(noisy_key, noisy_id, lid);
  if (lid == 0u) {
    scratchBest[row * ${text.chunks} + wid.x] = vec4<u32>(key, id, part_key[0], part_id[0]);
  }
}`;
  return {
    label: `sample chunks [${vocab}]`,
    wgsl,
    bindings,
    params: p.words,
    workgroups: (facts, out) => {
      out[0] = chunks;
      out[1] = facts.outputs;
      out[2] = 1;
    },
  };
}

function rowsStage(capabilities: Capabilities, { vocab, stride }: SampleShape): Stage {
  // Threads hold PIVOTS sums each, and a key and an id.
  const most = (capabilities.workgroupBytes - 1024) / ((PIVOTS + 2) * 4);
  let threads = powerOfTwo(vocab / 16, 16, Math.min(1024, capabilities.workgroupThreads));
  while (threads > most) threads /= 2;
  const segments = Math.min(32, threads);
  const p = new Params();
  const text = {
    vocab: p.u32(vocab),
    vectors: p.u32(stride / 4),
    chunks: p.u32(Math.ceil(vocab / CHUNK)),
  };
  const bindings: Binding[] = [
    p.binding,
    STEP_BINDING,
    { name: 'logits', access: 'read', type: 'array<vec4<f32>>' },
    { name: 'scratchBest', access: 'read', type: 'array<vec4<u32>>' },
    { name: 'ids', access: 'read_write', type: 'array<u32>' },
    { name: 'lastToken', access: 'read_write', type: 'array<u32>' },
  ];
  const pivots = (f: (j: number) => string): string =>
    Array.from({ length: PIVOTS }, (_, j) => f(j)).join(' ');
  const lanes = Math.min(32, threads);
  /**
   * Runs `body` for every token of the row whose key may reach `least`, its id in `i` and its logit in `v`; a
   * thread's ids ascend. Chunks whose best does not reach it are passed over: after the first passes of a search that
   * is most of them. Loads go out four at a time.
   */
  const everyToken = (least: string, body: string): string => {
    const four = (f: (q: number) => string): string => [0, 1, 2, 3].map(f).join('\n      ');
    return `for (var chunk = lid / ${lanes}u; chunk < ${text.chunks}; chunk += ${threads / lanes}u) {
    if (scratchBest[best_at + chunk].x < ${least}) { continue; }
    let end = min((chunk + 1u) * ${CHUNK / 4}u, ${text.vectors});
    for (var at = chunk * ${CHUNK / 4}u + lid % ${lanes}u; at < end; at += ${lanes * 4}u) {
      ${four((q) => `let four${q} = logits[row_at + min(at + ${q * lanes}u, end - 1u)];`)}
      ${four(
        (q) => `for (var e = 0u; e < 4u; e++) {
        let i = (at + ${q * lanes}u) * 4u + e;
        if (i >= ${text.vocab} || i >= end * 4u) { break; }
        let v = four${q}[e];
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
${COMMON_WGSL}
${strongestWgsl(threads)}
var<workgroup> part: array<f32, ${threads * PIVOTS}>;
var<workgroup> segment_sums: array<f32, ${segments * PIVOTS}>;
var<workgroup> sums: array<f32, ${PIVOTS}>;
var<workgroup> answer: vec2<u32>;

// What is kept: keys above the threshold, and those at it with an id up to the bound.
var<private> kept_key: u32;
var<private> kept_id: u32;
var<private> best: f32;
var<private> inverse_temperature: f32;
var<private> tie_key: u32;
var<private> row_at: u32;
var<private> best_at: u32;

fn scaled(v: f32) -> f32 { return max((v - best) * inverse_temperature, -1.0e30f); }
fn kept(key: u32, id: u32) -> bool { return key > kept_key || (key == kept_key && id <= kept_id); }

// What token i brings to a search: where it stands, and its weight.
// Mode 0: keys, counted. 1: keys, by probability. 2: ids of the ties, lowest first, counted.
struct Entry { place: u32, weight: f32 }
// Keys below 'least' bring nothing: most of a vocabulary is out after the first passes, before it costs an exp.
fn entry(mode: u32, i: u32, v: f32, least: u32) -> Entry {
  let key = key_of(bitcast<u32>(v));
  if (key < least || !kept(key, i)) { return Entry(0u, 0.0f); }
  if (mode == 0u) { return Entry(key, 1.0f); }
  if (mode == 1u) { return Entry(key, exp(max(scaled(v), -87.0f))); }
  return Entry(~i, select(0.0f, 1.0f, key == tie_key));
}

// sums[j] = Σ over threads of part[j · threads + …], in two strides: with a tree, the barriers took most of the time.
fn add_up(values: u32, lid: u32) {
  workgroupBarrier();
  for (var t = lid; t < values * ${segments}u; t += ${threads}u) {
    let from_ = t / ${segments}u * ${threads}u + t % ${segments}u;
    var s = 0.0f;
    for (var k = 0u; k < ${threads / segments}u; k++) { s += part[from_ + k * ${segments}u]; }
    segment_sums[t] = s;
  }
  workgroupBarrier();
  if (lid < values) {
    var s = 0.0f;
    for (var k = 0u; k < ${segments}u; k++) { s += segment_sums[lid * ${segments}u + k]; }
    sums[lid] = s;
  }
  workgroupBarrier();
}

// Σ weight of the tokens at 'place' or above, and of those above.
fn total(mode: u32, place: u32, lid: u32) -> vec2<f32> {
  var reached = 0.0f;
  var above = 0.0f;
  let least = select(place, tie_key, mode == 2u);
  ${everyToken(
    'least',
    `let it = entry(mode, i, v, least);
      if (it.place >= place) { reached += it.weight; }
      if (it.place > place) { above += it.weight; }`,
  )}
  part[lid] = reached;
  part[${threads}u + lid] = above;
  add_up(2u, lid);
  return vec2<f32>(sums[0], sums[1]);
}

// The largest place at or above which stands at least 'wanted'; 0 if there is none.
fn search(mode: u32, wanted: f32, lid: u32) -> u32 {
  var prefix = 0u;
  for (var shift = 33u; shift > 0u; ) {
    shift -= 3u;
    // The topmost digit has two bits only: pivots beyond it wrap to 0 and are left out.
    ${pivots((j) => `let t${j} = prefix | (${j + 1}u << shift); var s${j} = 0.0f;`)}
    let least = select(t0, tie_key, mode == 2u);
    ${everyToken(
      'least',
      `let it = entry(mode, i, v, least);
      if (it.weight == 0.0f) { continue; }
      ${pivots((j) => `if (it.place >= t${j}) { s${j} += it.weight; }`)}`,
    )}
    ${pivots((j) => `part[${j * threads}u + lid] = s${j};`)}
    add_up(${PIVOTS}u, lid);
    var digit = 0u;
    ${pivots((j) => `if (sums[${j}] >= wanted && (shift < 30u || ${j + 1}u < 4u)) { digit = ${j + 1}u; }`)}
    prefix |= digit << shift;
  }
  return prefix;
}

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
  let by_count = top_k > 0u && top_k < ${text.vocab};
  let by_mass = top_p < 1.0f;
  let filtered = temperature > 0.0f && (by_count || by_mass || min_p > 0.0f);

  var key = 0u;
  var id = 0u;
  var noisy_key = 0u;
  var noisy_id = 0u;
  for (var i = lid; i < ${text.chunks}; i += ${threads}u) {
    let chunk = scratchBest[row * ${text.chunks} + i];
    if (chunk.x > key) { key = chunk.x; id = chunk.y; }
    if (chunk.z > noisy_key) { noisy_key = chunk.z; noisy_id = chunk.w; }
  }
  strongest(key, id, lid);
  if (lid == 0u) { answer = vec2<u32>(part_key[0], part_id[0]); }
  let top = workgroupUniformLoad(&answer);
  let invalid = top.x <= NEGATIVE_INFINITY_KEY || top.x == ${BAD};
  if (invalid || !filtered) {
    strongest(noisy_key, noisy_id, lid);
    if (lid == 0u) {
      let drawn = select(select(top.y, part_id[0], temperature > 0.0f), ${INVALID_TOKEN}u, invalid);
      ids[row] = drawn;
      lastToken[a.y] = drawn;
    }
    return;
  }
  best = number_of(top.x);
  inverse_temperature = 1.0f / temperature;
  kept_key = NEGATIVE_INFINITY_KEY + 1u;
  kept_id = 0xffffffffu;

  // The best of so many chunks are so many tokens: none below the last of them is among the top k.
  if (by_count && top_k <= ${text.chunks}) {
    for (var i = lid; i < ${text.chunks}; i += ${threads}u) {
      let mine = scratchBest[row * ${text.chunks} + i].x;
      var rank = 0u;
      for (var j = 0u; j < ${text.chunks}; j++) {
        let other = scratchBest[row * ${text.chunks} + j].x;
        if (other > mine || (other == mine && j < i)) { rank++; }
      }
      if (rank == top_k - 1u) { answer = vec2<u32>(mine, 0u); }
    }
    kept_key = max(kept_key, workgroupUniformLoad(&answer).x);
  }

  // Four searches in one loop, for the compiler's sake: top-k, its ties, top-p, its ties.
  var wanted = f32(top_k);
  for (var phase = select(2u, 0u, by_count); phase < select(2u, 4u, by_mass); phase++) {
    let ties = (phase & 1u) == 1u;
    let mode = select(phase >> 1u, 2u, ties);
    if (phase == 2u) { wanted = top_p * total(1u, 0u, lid).x; }
    let place = search(mode, wanted, lid);
    if (ties) {
      kept_id = min(select(0xffffffffu, kept_id, tie_key == kept_key), ~place);
      kept_key = tie_key;
      continue;
    }
    tie_key = min(place, top.x);
    let sums = total(mode, tie_key, lid);
    // Those that tie weigh the same, so that it follows how many of them there are, and how many are wanted.
    var each = 1.0f;
    if (mode == 1u) { each = exp(max(scaled(number_of(tie_key)), -87.0f)); }
    wanted = max(ceil((wanted - sums.y) / each), 1.0f);
    let there = round((sums.x - sums.y) / each);
    // Fewer than wanted: all stay. All of a tie: no search among them.
    let few = tie_key <= NEGATIVE_INFINITY_KEY;
    if (lid == 0u) { answer = vec2<u32>(select(0u, 1u, few || wanted >= there), 0u); }
    if (workgroupUniformLoad(&answer).x == 1u) {
      if (!few) {
        kept_id = select(0xffffffffu, kept_id, tie_key == kept_key);
        kept_key = tie_key;
      }
      phase++;
    }
  }

  noisy_key = 0u;
  noisy_id = 0u;
  ${everyToken(
    'kept_key',
    `if (!kept(key_of(bitcast<u32>(v)), i)) { continue; }
      let z = scaled(v);
      if (min_p > 0.0f && exp(max(z, -87.0f)) < min_p) { continue; }
      let n = key_of(bitcast<u32>(z + gumbel(random_word(b.z, b.w, c.x, c.y, i))));
      if (n > noisy_key) { noisy_key = n; noisy_id = i; }`,
  )}
  strongest(noisy_key, noisy_id, lid);
  if (lid == 0u) {
    ids[row] = part_id[0];
    lastToken[a.y] = part_id[0];
  }
}`;
  return {
    label: `sample rows [${vocab}]`,
    wgsl,
    bindings,
    params: p.words,
    workgroups: (facts, out) => {
      out[0] = facts.outputs;
      out[1] = 1;
      out[2] = 1;
    },
  };
}
