/**
 * The first pass over the logits: many workgroups a row, each takes CHUNK ids. It checks them, applies the row's
 * penalties, and leaves the best of the chunk, without noise and, unless a small top-k is drawn from, with it; for rows
 * that ask, sums over the chunk too.
 *
 * Noise and sums are relative to the chunk's best, `z = (x − best of the chunk) / temperature`: precise where it
 * matters, and put together by adding `(best of the chunk − best of the row) / temperature`.
 *
 * Measured: docs/lab/2026-11-22-sampler.md.
 */

import type { Capabilities, Stage } from '../kernel.js';
import { rowWord } from '../step-buffer.js';
import { histogramWords, searchKindWgsl } from './sample-histogram.js';
import { penaltiesWgsl } from './sample-penalties.js';
import {
  BAD,
  CHUNK,
  chunksOf,
  GUMBEL_NEAR,
  GUMBEL_NEAR_WGSL,
  NEAR_ONE,
  powerOfTwo,
  reads,
  rolledTurns,
  type SampleShape,
  sampleStage,
  strongestWgsl,
  sumsWgsl,
  writes,
} from './sample-wgsl.js';

/** `full`: for steps in which some row has features; else nothing of them is looked at. */
export function chunksStage(
  capabilities: Capabilities,
  shape: SampleShape,
  room: number,
  full: boolean,
): Stage {
  const { vocab } = shape;
  const chunks = chunksOf(vocab);
  const threads = powerOfTwo(Math.min(vocab, CHUNK) / 8, 16, 256);
  const each = Array.from({ length: Math.ceil(CHUNK / 4 / threads) }, (_, q) => q);
  const four = (f: (q: number) => string): string => each.map(f).join('\n  ');
  return sampleStage({
    name: `chunks${full ? ' with features' : ''}`,
    shape,
    threads,
    lazy: full,
    rowAxis: 'y',
    bindings: [
      reads('logits'),
      writes('scratchBest'),
      writes('scratchHistogram', 'array<u32>'),
      ...(full ? [writes('scratchSums'), writes('sampler')] : []),
    ],
    before: (text) => `${GUMBEL_NEAR_WGSL}
${strongestWgsl(text, threads)}
${searchKindWgsl(text, vocab <= room)}
// The best of a thread, the first of equal ones: ids come in order.
var<private> key: u32;
var<private> id: u32;
fn better(keys: vec4<u32>, first: u32) {
  if (keys.x > key) { key = keys.x; id = first; }
  if (keys.y > key) { key = keys.y; id = first + 1u; }
  if (keys.z > key) { key = keys.z; id = first + 2u; }
  if (keys.w > key) { key = keys.w; id = first + 3u; }
}
// NaN of either sign, or +infinity: no token of the row can be drawn.
fn checked(keys: vec4<u32>, raw: vec4<u32>) -> vec4<u32> {
  let bad = ((raw & vec4<u32>(0x7fffffffu)) > vec4<u32>(0x7f800000u)) | (raw == vec4<u32>(0x7f800000u));
  return select(keys, vec4<u32>(${BAD}), bad);
}
${full ? `var<workgroup> space: array<u32, ${CHUNK}>;${sumsWgsl(text, threads, 'space')}${penaltiesWgsl(text, threads, 'space')}` : ''}`,
    main: (text) => `  let temperature = bitcast<f32>(a.z);
  let inverse = 1.0f / max(temperature, 1.0e-30f);
  let first = wid.x * ${CHUNK / 4}u;
  let end = min(first + ${CHUNK / 4}u, ${text.vectors});
  let entry = row * ${text.chunks} + wid.x;
  ${four(
    (q) => `let at${q} = first + lid + ${q * threads}u;
  let ids${q} = vec4<u32>(at${q} * 4u) + vec4<u32>(0u, 1u, 2u, 3u);
  let there${q} = (ids${q} < vec4<u32>(${text.vocab})) & vec4<bool>(at${q} < end);
  let raw${q} = logits[row * ${text.vectors} + min(at${q}, end - 1u)];
  var x${q} = raw${q};`,
  )}
  ${full ? PENALISE(four) : ''}
  ${four((q) => `let k${q} = select(vec4<u32>(), checked(keys_of(x${q}), raw${q}), there${q});\n  better(k${q}, at${q} * 4u);`)}
  strongest(key, id, lid);
  let top = part_key[0];
  let top_id = part_id[0];
  let best = number_of(top);
  var noisy = vec2<u32>();
  // A small top-k draws from a short list of its own.
  let few = a.w > 0u && a.w < ${text.vocab} && a.w <= ${text.chunks}${full ? ' && (features & F_MIROSTAT) == 0u' : ''};
  if (temperature > 0.0f && !few) {
    // The most noise as near as it can be told cheaply; then exactly, among those that may come up to it.
    var most = -3.0e38f;
    ${four(
      (q) => `let v${q} = from_one(random_words(b.z, b.w, c.x, c.y, ids${q}));
    let z${q} = max((bitcast<vec4<f32>>(x${q}) - best) * inverse, vec4<f32>(-1.0e30f));
    let near${q} = select(vec4<f32>(-3.4e38f), z${q} + gumbel_near(v${q}), k${q} > vec4<u32>(NEGATIVE_INFINITY_KEY));
    let told${q} = select(vec4<f32>(-3.0e38f), near${q}, v${q} <= vec4<f32>(${NEAR_ONE}f));
    most = max(most, max(max(told${q}.x, told${q}.y), max(told${q}.z, told${q}.w)));`,
    )}
    strongest(key_of(bitcast<u32>(most)), 0u, lid);
    let bar = number_of(part_key[0]) - ${2 * GUMBEL_NEAR}f;
    key = 0u;
    id = 0u;
    if (is_finite_key(top)) {
      ${four(
        (q) => `if (any(near${q} >= vec4<f32>(bar))) {
        for (var e = 0u; e < ${rolledTurns(text, 4)}; e++) {
          if (bitcast<f32>(of_four(bitcast<vec4<u32>>(near${q}), e)) < bar) { continue; }
          let z = max((bitcast<f32>(of_four(x${q}, e)) - best) * inverse, -1.0e30f);
          let i = at${q} * 4u + e;
          let n = key_of(bitcast<u32>(z + gumbel(random_word(b.z, b.w, c.x, c.y, i))));
          if (n > key) { key = n; id = i; }
        }
      }`,
      )}
    }
    strongest(key, id, lid);
    noisy = vec2<u32>(part_key[0], part_id[0]);
  }
  if (lid == 0u) { scratchBest[entry] = vec4<u32>(top, top_id, noisy); }
  if (search_kind(row) != 0u) {
    for (var i = wid.x * ${threads}u + lid; i < ${histogramWords(capabilities)}u; i += ${text.chunks} * ${threads}u) {
      scratchHistogram[row * ${histogramWords(capabilities)}u + i] = 0u;
    }
  }
  ${full ? SUMS(four) : ''}`,
    workgroups: (facts, out) => {
      out[0] = (facts.features !== 0) === full ? chunks : 0;
      out[1] = facts.outputs;
      out[2] = 1;
    },
  });
}

/** A text for each vector of a thread. */
type Four = (f: (q: number) => string) => string;

const PENALISE = (four: Four): string => `
  let features = ${rowWord('features')};
  if ((features & F_PENALTY) != 0u) {
    var listed = false;
    if ((features & (F_BIAS | F_MIN_TOKENS | F_BANNED)) != 0u) { listed = spread_lists(row, first * 4u, c.y, features, lid); }
    // Who draws from what the chunks leave never reads them again.
    let again = (features & (F_LOGPROBS | F_SIGMA | F_MIROSTAT | F_TYPICAL | F_XTC)) != 0u || a.w > 0u ||
      bitcast<f32>(b.x) < 1.0f || bitcast<f32>(b.y) > 0.0f;
    ${four((q) => `if (at${q} < end) { x${q} = penalise_four(row, at${q}, (at${q} - first) * 4u, features, listed, raw${q}, again); }`)}
  }`;

/**
 * (best of the record's distribution, its id, Σ e^(l − best), finite ids); (Σ d, Σ (d − mean)², Σ e^z, Σ z e^z) with
 * d = x − best: of these what the row's features need, else 0.
 */
const SUMS = (four: Four): string => `
  if ((features & (F_LOGPROBS | F_SIGMA | F_MIROSTAT | F_TYPICAL | F_XTC)) == 0u) { return; }
  var l_top = top;
  var l_id = top_id;
  let wanted = (features & F_LOGPROBS) != 0u;
  let raw_wanted = wanted && (features & F_PROCESSED) == 0u && (features & F_PENALTY) != 0u;
  if (raw_wanted) {
    key = 0u;
    id = 0u;
    ${four((q) => `better(select(vec4<u32>(), keys_of(raw${q}), there${q}), at${q} * 4u);`)}
    strongest(key, id, lid);
    l_top = part_key[0];
    l_id = part_id[0];
  }
  let weighed = (features & (F_MIROSTAT | F_TYPICAL | F_XTC)) != 0u;
  let measured = (features & F_SIGMA) != 0u;
  let all_in_bounds = top != ${BAD};
  var one = vec4<f32>();
  if (wanted && all_in_bounds && is_finite_key(l_top)) {
    let l_best = number_of(l_top);
    ${four(
      (q) => `let l${q} = select(x${q}, raw${q}, raw_wanted);
    let e${q} = exp(max(bitcast<vec4<f32>>(l${q}) - l_best, vec4<f32>(-87.0f)));
    let lk${q} = select(vec4<u32>(), keys_of(l${q}), there${q});
    one.x += dot(select(vec4<f32>(), e${q}, lk${q} > vec4<u32>(NEGATIVE_INFINITY_KEY)), vec4<f32>(1.0f));`,
    )}
  }
  // Farther away than 1e15 squares would overflow.
  ${four((q) => `let finite${q} = (k${q} > vec4<u32>(NEGATIVE_INFINITY_KEY)) & vec4<bool>(all_in_bounds);`)}
  if (measured) {
    ${four(
      (q) => `let d${q} = max(bitcast<vec4<f32>>(x${q}) - best, vec4<f32>(-1.0e15f));
    one.y += dot(select(vec4<f32>(), vec4<f32>(1.0f), finite${q}), vec4<f32>(1.0f));
    one.z += dot(select(vec4<f32>(), d${q}, finite${q}), vec4<f32>(1.0f));`,
    )}
  }
  if (wanted || measured) { one = add_all(one, lid); }
  if (measured) {
    let mean = one.z / max(one.y, 1.0f);
    var squares = 0.0f;
    ${four(
      (
        q,
      ) => `let s${q} = select(vec4<f32>(), max(bitcast<vec4<f32>>(x${q}) - best, vec4<f32>(-1.0e15f)) - mean, finite${q});
    squares += dot(s${q}, s${q});`,
    )}
    one.w = add_all(vec4<f32>(squares, 0.0f, 0.0f, 0.0f), lid).x;
  }
  var two = vec4<f32>();
  if (weighed) {
    ${four(
      (q) => `let w${q} = max((bitcast<vec4<f32>>(x${q}) - best) * inverse, vec4<f32>(-87.0f));
    let p${q} = select(vec4<f32>(), exp(w${q}), finite${q});
    two.x += dot(p${q}, vec4<f32>(1.0f));
    two.y += dot(select(vec4<f32>(), p${q} * w${q}, finite${q}), vec4<f32>(1.0f));`,
    )}
    two = add_all(two, lid);
  }
  if (lid == 0u) {
    scratchSums[entry * 2u] = vec4<u32>(l_top, l_id, bitcast<u32>(one.x), u32(one.y));
    scratchSums[entry * 2u + 1u] = bitcast<vec4<u32>>(vec4<f32>(one.z, one.w, two.x, two.y));
  }`;
