/** What the kernels of the sampler share: numbers, random words, the order of logits, reductions, how a stage is made. */

import { FEATURE, PENALTY_FEATURES } from '../../sampling.js';
import { type Binding, declareBindings, Params, type Stage } from '../kernel.js';
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
fn uniform_of(word: u32) -> f32 { return (f32(word >> 9u) + 0.5f) / 8388608.0f; }
fn gumbel(word: u32) -> f32 { return -ln(-ln(uniform_of(word))); }`;

/** How far `gumbel_near` may be off for uniforms that are so near to 1, with room to spare. */
export const GUMBEL_NEAR = 5e-4;
export const NEAR_ONE = 0.25;

/**
 * Noise of four tokens by one logarithm that GPUs have, a third of the work: for telling who cannot have the most. With
 * v = 1 − u, −ln u = v + v²/2 + v³/3 + …, cut off: too small, which makes the noise too large and never too small.
 */
export const GUMBEL_NEAR_WGSL = `
fn random_words(seed_low: u32, seed_high: u32, choice: u32, position: u32, tokens: vec4<u32>) -> vec4<u32> {
  let k = 1664525u;
  let a = 1013904223u;
  var x = vec4<u32>(seed_low * k + a);
  var y = vec4<u32>((seed_high ^ (choice * 0x9e3779b9u)) * k + a);
  var z = vec4<u32>(position * k + a);
  var w = tokens * k + a;
  x += y * w; y += z * x; z += x * y; w += y * z;
  let half_word = vec4<u32>(16u);
  x ^= x >> half_word; y ^= y >> half_word; z ^= z >> half_word; w ^= w >> half_word;
  x += y * w; y += z * x; z += x * y; w += y * z;
  return w;
}
// 1 − uniform_of, exact: the words' high bits, inverted, as a fraction of a number from 1 up.
fn from_one(words: vec4<u32>) -> vec4<f32> {
  return bitcast<vec4<f32>>((~words >> vec4<u32>(9u)) | vec4<u32>(0x3f800000u)) - ${1 - 2 ** -24}f;
}
fn gumbel_near(v: vec4<f32>) -> vec4<f32> {
  return -0.69314718f * log2(v * (1.0f + v * (0.5f + v * (0.33333333f + v * (0.25f + v * 0.2f)))));
}`;

/** Logits of one workgroup of the first pass. */
export const CHUNK = 1024;
/** What a chunk says of a row that has no answer: above every key. */
export const BAD = '0xffffffffu';

/** Keys stand for logits by their bits: nothing is computed on infinities or NaN, which WGSL may assume away. */
export const ORDER_WGSL = `
const NEGATIVE_INFINITY_KEY = 0x007fffffu;
const NEGATIVE_INFINITY_BITS = 0xff800000u;
// Orders as the number does; −0 is 0.
fn key_of(bits_: u32) -> u32 {
  let bits = select(bits_, 0u, bits_ == 0x80000000u);
  return select(bits | 0x80000000u, ~bits, bits >= 0x80000000u);
}
fn keys_of(bits_: vec4<u32>) -> vec4<u32> {
  let bits = select(bits_, vec4<u32>(), bits_ == vec4<u32>(0x80000000u));
  return select(bits | vec4<u32>(0x80000000u), ~bits, bits >= vec4<u32>(0x80000000u));
}
fn number_of(key: u32) -> f32 {
  return bitcast<f32>(select(~key, key & 0x7fffffffu, key >= 0x80000000u));
}
// By selection: indexed by what is not known, a vector may come to stand in memory.
fn of_four(v: vec4<u32>, e: u32) -> u32 {
  return select(select(v.x, v.y, (e & 1u) == 1u), select(v.z, v.w, (e & 1u) == 1u), (e & 2u) == 2u);
}
fn is_finite_key(key: u32) -> bool { return key > NEGATIVE_INFINITY_KEY && key != ${BAD}; }
`;

/** A bound on logits from a bound on z, for passing over what cannot reach it: see sample-rows.ts. */
export const KEY_BELOW_WGSL = `
// A key that no token reaches from below whose (x − best) · inverse, rounded, is z or more. 0: there is no bound.
fn key_below(z: f32, best: f32, inverse: f32) -> u32 {
  let away = z / inverse;
  // z itself is no less than −1e30.
  if (z <= -1.0e30f || away < -1.0e30f) { return 0u; }
  let slack = 1.0e-5f * (abs(best) + abs(away)) + 1.0e-30f;
  return key_of(bitcast<u32>(best + away - slack));
}
`;

/** The features' bits. */
const FEATURES_WGSL = `${Object.entries(FEATURE)
  .map(([name, bit]) => `const F_${name} = ${bit}u;`)
  .join('\n')}
const F_PENALTY = ${PENALTY_FEATURES}u;
`;

/** A word of the row state. */
const STATE_WORD_WGSL = `
fn word(i: u32) -> u32 { return sampler[i >> 2u][i & 3u]; }
`;

/**
 * A number of turns that no compiler knows, for loops that are to stay loops (rolled.ts): here functions need it too, and what
 * they read has to be uniform.
 */
export function rolledTurns({ vocab }: SampleText, count: number): string {
  return `(${count}u * min(${vocab}, 1u))`;
}

/**
 * The largest key of the first `threads` threads, a power of two, and the lowest id of a tie: in `part_key[0]` and
 * `part_id[0]`. A tree that puts eight together at a time: with two, barriers took most of the time.
 */
export function strongestWgsl(text: SampleText, threads: number): string {
  return `
var<workgroup> part_key: array<u32, ${threads}>;
var<workgroup> part_id: array<u32, ${threads}>;
fn strongest(key_: u32, id_: u32, lid: u32) {
  workgroupBarrier();
  if (lid < ${threads}u) {
    part_key[lid] = key_;
    part_id[lid] = id_;
  }
  workgroupBarrier();
  for (var n = ${rolledTurns(text, threads)}; n > 1u; n >>= 3u) {
    let count = max(n >> 3u, 1u);
    if (lid < count) {
      var key = part_key[lid];
      var id = part_id[lid];
      for (var j = 1u; j < 8u; j++) {
        // Where fewer than eight are left, the last of them again.
        let at = min(lid + j * count, n - 1u);
        let other = part_key[at];
        let other_id = part_id[at];
        if (other > key || (other == key && other_id < id)) { key = other; id = other_id; }
      }
      part_key[lid] = key;
      part_id[lid] = id;
    }
    workgroupBarrier();
  }
}`;
}

/**
 * Sums over the first `threads` threads, a power of two, in one order. `space`: workgroup memory to do it in, an array of
 * four u32 a thread that nothing else uses meanwhile.
 */
export function sumsWgsl(text: SampleText, threads: number, space?: string): string {
  const at = space ?? 'part_sum';
  return `
${space === undefined ? `var<workgroup> part_sum: array<u32, ${threads * 4}>;` : ''}
fn part_of(i: u32) -> vec4<f32> {
  return bitcast<vec4<f32>>(vec4<u32>(${at}[i], ${at}[${threads}u + i], ${at}[${2 * threads}u + i], ${at}[${3 * threads}u + i]));
}
fn set_part(i: u32, value_: vec4<f32>) {
  let value = bitcast<vec4<u32>>(value_);
  ${at}[i] = value.x;
  ${at}[${threads}u + i] = value.y;
  ${at}[${2 * threads}u + i] = value.z;
  ${at}[${3 * threads}u + i] = value.w;
}
fn add_all(value: vec4<f32>, lid: u32) -> vec4<f32> {
  workgroupBarrier();
  if (lid < ${threads}u) { set_part(lid, value); }
  workgroupBarrier();
  for (var n = ${rolledTurns(text, threads)}; n > 1u; n >>= 3u) {
    let count = max(n >> 3u, 1u);
    if (lid < count) {
      var sum = part_of(lid);
      for (var j = 1u; j < 8u; j++) {
        if (j * count < n) { sum += part_of(lid + j * count); }
      }
      set_part(lid, sum);
    }
    workgroupBarrier();
  }
  return part_of(0u);
}`;
}

export interface SampleShape {
  readonly vocab: number;
  /** Elements from a row of logits to the next; a multiple of 4. */
  readonly stride: number;
  /** Rows there may be. */
  readonly rows: number;
}

/** WGSL expressions of a shape. */
export interface SampleText {
  readonly vocab: string;
  /** Vectors of four logits from a row to the next. */
  readonly vectors: string;
  readonly chunks: string;
}

/** A binding of the sampler's: most are arrays of vectors. */
export const reads = (name: string, type = 'array<vec4<u32>>'): Binding => ({ name, access: 'read', type });
export const writes = (name: string, type = 'array<vec4<u32>>'): Binding => ({
  name,
  access: 'read_write',
  type,
});

/** What a stage of the sampler says of itself; `sampleStage` adds what all of them have. */
export interface SampleStage {
  readonly name: string;
  readonly shape: SampleShape;
  readonly threads: number;
  /** Beside params and step. */
  readonly bindings: readonly Binding[];
  readonly lazy: boolean;
  /** Declarations that `main` needs. */
  readonly before: (text: SampleText) => string;
  /** Dimension of the grid that counts rows; 'filteredRows': y, those that draw with a top-k, top-p or typical-p. */
  readonly rowAxis: 'x' | 'y' | 'filteredRows';
  /** For one row, of which `row`, the thread `lid` and the parameters that every row has (`a`, `b`, `c`) are known. */
  readonly main: (text: SampleText) => string;
  readonly workgroups: Stage['workgroups'];
}

/** Rows beyond the step's leave at once; vocabularies of like size share a pipeline. */
export function sampleStage(stage: SampleStage): Stage {
  const { name, shape, threads, lazy, rowAxis, workgroups } = stage;
  const p = new Params();
  const text: SampleText = {
    vocab: p.u32(shape.vocab),
    vectors: p.u32(shape.stride / 4),
    chunks: p.u32(chunksOf(shape.vocab)),
  };
  const bindings = [p.binding, STEP_BINDING, ...stage.bindings];
  const hasState = bindings.some((b) => b.name === 'sampler' && b.type === 'array<vec4<u32>>');
  const wgsl = `${declareBindings(bindings)}
${STEP_WGSL}
${LOG_WGSL}
${RANDOM_WGSL}
${ORDER_WGSL}
${FEATURES_WGSL}
${hasState ? STATE_WORD_WGSL : ''}
${stage.before(text)}
@compute @workgroup_size(${threads})
fn main(
  @builtin(workgroup_id) wid: vec3<u32>,
  @builtin(num_workgroups) nwg: vec3<u32>,
  @builtin(local_invocation_index) lid: u32,
) {
  ${
    rowAxis === 'filteredRows'
      ? 'if (wid.y >= step[0].y) { return; }\n  let row = step_output(wid.y, 2u).z;'
      : `let row = wid.${rowAxis};\n  if (row >= step[0].y) { return; }`
  }
  let a = step_output(row, 0u);
  let b = step_output(row, 1u);
  let c = step_output(row, 2u);
${stage.main(text)}
}`;
  return {
    label: `sample ${name} [${shape.vocab}]`,
    wgsl,
    bindings,
    params: p.words,
    ...(lazy ? { lazy } : {}),
    workgroups,
  };
}

export function powerOfTwo(wanted: number, least: number, most: number): number {
  let n = least;
  while (n < wanted && n < most) n *= 2;
  return n;
}

export const chunksOf = (vocab: number): number => Math.ceil(vocab / CHUNK);
