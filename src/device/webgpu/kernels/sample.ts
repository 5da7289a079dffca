/**
 * The sampler: one workgroup a row of logits.
 *
 * Order: temperature, top-k, top-p, min-p, draw. Filters keep a prefix of the tokens sorted by (logit descending, id
 * ascending), found without sorting: a search, three bits a pass, for the largest threshold above which enough
 * tokens (top-k) or enough probability (top-p) stands, and a second one among the ids of those that tie with it.
 * The draw is the largest `logit / temperature + Gumbel noise` of what is kept (random.ts).
 *
 * Nothing here does arithmetic on infinities or NaN, which WGSL may assume away: they are told by their bits.
 */

import { INVALID_TOKEN } from '../../device.js';
import { type Binding, declareBindings, type Kernel, Params } from '../kernel.js';
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

/** Roles: step, logits, ids u32 `[outputs]`, lastToken u32 `[slots]`. */
export function sampleKernel(shape: { readonly vocab: number; readonly stride: number }): Kernel {
  const PIVOTS = 7;
  const { vocab, stride } = shape;
  let threads = 16;
  while (threads < 256 && threads * 16 < vocab) threads *= 2;
  const p = new Params();
  const vocabText = p.u32(vocab);
  const strideText = p.u32(stride);
  const bindings: Binding[] = [
    p.binding,
    STEP_BINDING,
    { name: 'logits', access: 'read', type: 'array<f32>' },
    { name: 'ids', access: 'read_write', type: 'array<u32>' },
    { name: 'lastToken', access: 'read_write', type: 'array<u32>' },
  ];
  const pivots = (f: (j: number) => string): string =>
    Array.from({ length: PIVOTS }, (_, j) => f(j)).join(' ');
  const wgsl = `${declareBindings(bindings)}
${STEP_WGSL}
${LOG_WGSL}
${RANDOM_WGSL}
const NEGATIVE_INFINITY_KEY = 0x007fffffu;
var<workgroup> part: array<f32, ${threads * PIVOTS}>;
var<workgroup> part_key: array<u32, ${threads}>;
var<workgroup> part_id: array<u32, ${threads}>;
var<workgroup> answer: f32;
var<workgroup> answer_key: u32;
var<workgroup> bad: atomic<u32>;

// What is kept: keys above the threshold, and those at it with an id up to the bound.
var<private> kept_key: u32;
var<private> kept_id: u32;
var<private> best: f32;
var<private> inverse_temperature: f32;
var<private> tie_key: u32;
var<private> row_at: u32;

// Orders as the number does; −0 is 0.
fn key_of(bits_: u32) -> u32 {
  let bits = select(bits_, 0u, bits_ == 0x80000000u);
  return select(bits | 0x80000000u, ~bits, bits >= 0x80000000u);
}
fn number_of(key: u32) -> f32 {
  return bitcast<f32>(select(~key, key & 0x7fffffffu, key >= 0x80000000u));
}
fn scaled(v: f32) -> f32 { return max((v - best) * inverse_temperature, -1.0e30f); }
fn kept(key: u32, id: u32) -> bool { return key > kept_key || (key == kept_key && id <= kept_id); }

// What token i brings to a search: where it stands, and its weight.
// Mode 0: keys, counted. 1: keys, by probability. 2: ids of the ties, lowest first, counted.
struct Entry { place: u32, weight: f32 }
fn entry(mode: u32, i: u32) -> Entry {
  let v = logits[row_at + i];
  let key = key_of(bitcast<u32>(v));
  if (!kept(key, i)) { return Entry(0u, 0.0f); }
  if (mode == 0u) { return Entry(key, 1.0f); }
  if (mode == 1u) { return Entry(key, exp(max(scaled(v), -87.0f))); }
  return Entry(~i, select(0.0f, 1.0f, key == tie_key));
}

// Σ weight of the tokens at 'place' or above.
fn total(mode: u32, place: u32, lid: u32) -> f32 {
  var mine = 0.0f;
  for (var i = lid; i < ${vocabText}; i += ${threads}u) {
    let e = entry(mode, i);
    if (e.place >= place) { mine += e.weight; }
  }
  workgroupBarrier();
  part[lid] = mine;
  workgroupBarrier();
  for (var half = ${threads / 2}u; half > 0u; half >>= 1u) {
    if (lid < half) { part[lid] += part[lid + half]; }
    workgroupBarrier();
  }
  return part[0];
}

// The largest place at or above which stands at least 'wanted'; 0 if there is none.
fn search(mode: u32, wanted: f32, lid: u32) -> u32 {
  var prefix = 0u;
  for (var shift = 33u; shift > 0u; ) {
    shift -= 3u;
    // The topmost digit has two bits only: pivots beyond it wrap to 0 and are left out.
    ${pivots((j) => `let t${j} = prefix | (${j + 1}u << shift); var s${j} = 0.0f;`)}
    for (var i = lid; i < ${vocabText}; i += ${threads}u) {
      let e = entry(mode, i);
      ${pivots((j) => `if (e.place >= t${j}) { s${j} += e.weight; }`)}
    }
    workgroupBarrier();
    ${pivots((j) => `part[${j * threads}u + lid] = s${j};`)}
    workgroupBarrier();
    for (var half = ${threads / 2}u; half > 0u; half >>= 1u) {
      if (lid < half) { ${pivots((j) => `part[${j * threads}u + lid] += part[${j * threads}u + lid + half];`)} }
      workgroupBarrier();
    }
    var digit = 0u;
    ${pivots((j) => `if (part[${j * threads}u] >= wanted && (shift < 30u || ${j + 1}u < 4u)) { digit = ${j + 1}u; }`)}
    prefix |= digit << shift;
  }
  return prefix;
}

// The largest key of all threads, the lowest id of a tie.
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
}

@compute @workgroup_size(${threads})
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
  let row = wid.x;
  if (row >= step[0].y) { return; }
  let a = step_output(row, 0u);
  let b = step_output(row, 1u);
  let c = step_output(row, 2u);
  row_at = row * ${strideText};

  if (lid == 0u) { atomicStore(&bad, 0u); }
  workgroupBarrier();
  var key = 0u;
  var id = 0u;
  for (var i = lid; i < ${vocabText}; i += ${threads}u) {
    let bits = bitcast<u32>(logits[row_at + i]);
    // NaN of either sign, or +infinity.
    if ((bits & 0x7fffffffu) > 0x7f800000u || bits == 0x7f800000u) { atomicStore(&bad, 1u); }
    let k = key_of(bits);
    if (k > key) { key = k; id = i; }
  }
  strongest(key, id, lid);
  if (lid == 0u) {
    answer_key = part_key[0];
    if (atomicLoad(&bad) != 0u) { answer_key = 0u; }
  }
  let top_key = workgroupUniformLoad(&answer_key);
  let temperature = bitcast<f32>(a.z);
  if (top_key <= NEGATIVE_INFINITY_KEY || temperature <= 0.0f) {
    if (lid == 0u) {
      let drawn = select(part_id[0], ${INVALID_TOKEN}u, top_key <= NEGATIVE_INFINITY_KEY);
      ids[row] = drawn;
      lastToken[a.y] = drawn;
    }
    return;
  }
  best = number_of(top_key);
  inverse_temperature = 1.0f / temperature;
  kept_key = NEGATIVE_INFINITY_KEY + 1u;
  kept_id = 0xffffffffu;

  let top_k = a.w;
  let top_p = bitcast<f32>(b.x);
  let min_p = min(bitcast<f32>(b.y), 1.0f);
  let by_count = top_k > 0u && top_k < ${vocabText};
  let by_mass = top_p < 1.0f;
  // Four searches in one loop, for the compiler's sake: top-k, its ties, top-p, its ties.
  var wanted = f32(top_k);
  for (var phase = select(2u, 0u, by_count); phase < select(2u, 4u, by_mass); phase++) {
    let ties = (phase & 1u) == 1u;
    let mode = select(phase >> 1u, 2u, ties);
    if (phase == 2u) { wanted = top_p * total(1u, 0u, lid); }
    let place = search(mode, wanted, lid);
    if (!ties) {
      tie_key = min(place, top_key);
      // Those that tie weigh the same, so that it follows how many of them are wanted.
      let above = total(mode, tie_key + 1u, lid);
      var each = 1.0f;
      if (mode == 1u) { each = exp(max(scaled(number_of(tie_key)), -87.0f)); }
      wanted = max(ceil((wanted - above) / each), 1.0f);
    } else if (tie_key > NEGATIVE_INFINITY_KEY) {
      // Otherwise there are fewer than wanted, and all stay.
      kept_id = min(select(0xffffffffu, kept_id, tie_key == kept_key), ~place);
      kept_key = tie_key;
    }
  }

  key = 0u;
  id = 0u;
  for (var i = lid; i < ${vocabText}; i += ${threads}u) {
    let v = logits[row_at + i];
    if (!kept(key_of(bitcast<u32>(v)), i)) { continue; }
    let z = scaled(v);
    if (min_p > 0.0f && exp(max(z, -87.0f)) < min_p) { continue; }
    let noisy = z + gumbel(random_word(b.z, b.w, c.x, c.y, i));
    let k = key_of(bitcast<u32>(noisy));
    if (k > key) { key = k; id = i; }
  }
  strongest(key, id, lid);
  if (lid == 0u) {
    ids[row] = part_id[0];
    lastToken[a.y] = part_id[0];
  }
}`;
  return {
    stages: [
      {
        label: `sample [${vocab}]`,
        wgsl,
        bindings,
        params: p.words,
        workgroups: (facts, out) => {
          out[0] = facts.outputs;
          out[1] = 1;
          out[2] = 1;
        },
      },
    ],
  };
}
