/**
 * The first pass over the logits: many workgroups a row, each takes CHUNK ids. It checks them, applies the row's
 * penalties, and leaves the best of the chunk, without and with noise; for rows that ask, sums over the chunk too.
 *
 * Noise and sums are relative to the chunk's best, `z = (x − best of the chunk) / temperature`: precise where it
 * matters, and put together by adding `(best of the chunk − best of the row) / temperature`.
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
  powerOfTwo,
  reads,
  type SampleShape,
  type SampleText,
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
  /** Runs `body` for every id `i` of the thread, its raw and processed bits in `raw` and `bits`. */
  const everyIdOf =
    (text: SampleText): EveryId =>
    (body, when) =>
      four(
        (q) => `if (at${q} < end) {
    for (var e = 0u; e < 4u; e++) {
      let i = at${q} * 4u + e;
      if (i >= ${text.vocab}) { break; }
      let raw = raw${q}[e];
      let bits = x${q}[e];
      ${when === undefined ? '' : `if (!(${when(q)})) { continue; }`}
      ${body}
    }
  }`,
      );
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
${strongestWgsl(threads)}
${searchKindWgsl(text, vocab <= room)}
${full ? `${sumsWgsl(threads)}${penaltiesWgsl(threads)}` : ''}`,
    main: (text) => {
      const everyId = everyIdOf(text);
      return `  let temperature = bitcast<f32>(a.z);
  let inverse = 1.0f / max(temperature, 1.0e-30f);
  let first = wid.x * ${CHUNK / 4}u;
  let end = min(first + ${CHUNK / 4}u, ${text.vectors});
  let entry = row * ${text.chunks} + wid.x;
  ${four(
    (q) => `let at${q} = first + lid + ${q * threads}u;
  let raw${q} = logits[row * ${text.vectors} + min(at${q}, end - 1u)];
  var x${q} = raw${q};`,
  )}
  ${full ? PENALISE(four) : ''}
  var key = 0u;
  var id = 0u;
  ${everyId(`// NaN of either sign, or +infinity: no token of this row can be drawn.
      let bad = (raw & 0x7fffffffu) > 0x7f800000u || raw == 0x7f800000u;
      let k = select(key_of(bits), ${BAD}, bad);
      if (k > key) { key = k; id = i; }`)}
  strongest(key, id, lid);
  let top = part_key[0];
  let top_id = part_id[0];
  let best = number_of(top);
  var noisy = vec2<u32>();
  if (temperature > 0.0f) {
    // The most noise as near as it can be told cheaply; then exactly, among those that come up to it.
    var most = -3.0e38f;
    ${four(
      (q) => `let k${q} = vec4<u32>(key_of(x${q}.x), key_of(x${q}.y), key_of(x${q}.z), key_of(x${q}.w));
    let ids${q} = vec4<u32>(at${q} * 4u) + vec4<u32>(0u, 1u, 2u, 3u);
    let there${q} = (k${q} > vec4<u32>(NEGATIVE_INFINITY_KEY)) & (ids${q} < vec4<u32>(${text.vocab}));
    let z${q} = max((bitcast<vec4<f32>>(x${q}) - best) * inverse, vec4<f32>(-1.0e30f));
    let near${q} = select(vec4<f32>(-3.0e38f), z${q} + gumbel_near(random_words(b.z, b.w, c.x, c.y, ids${q})), there${q});
    if (at${q} < end) { most = max(most, max(max(near${q}.x, near${q}.y), max(near${q}.z, near${q}.w))); }`,
    )}
    strongest(key_of(bitcast<u32>(most)), 0u, lid);
    let bar = number_of(part_key[0]) - ${2 * GUMBEL_NEAR}f;
    key = 0u;
    id = 0u;
    if (is_finite_key(top)) {
      ${everyId(
        `let z = max((bitcast<f32>(bits) - best) * inverse, -1.0e30f);
      let n = key_of(bitcast<u32>(z + gumbel(random_word(b.z, b.w, c.x, c.y, i))));
      if (n > key) { key = n; id = i; }`,
        (q) => `near${q}[e] >= bar`,
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
  ${full ? SUMS(everyId) : ''}`;
    },
    workgroups: (facts, out) => {
      out[0] = (facts.features !== 0) === full ? chunks : 0;
      out[1] = facts.outputs;
      out[2] = 1;
    },
  });
}

/** Text that runs `body` for every id of a thread, or for those for which `when` of its vector holds. */
type EveryId = (body: string, when?: (q: number) => string) => string;

const PENALISE = (four: (f: (q: number) => string) => string): string => `
  let features = ${rowWord('features')};
  if ((features & F_PENALTY) != 0u) {
    if ((features & (F_BIAS | F_WITHHOLD | F_BANNED)) != 0u) { spread_lists(row, first * 4u, c.y, features, lid); }
    // Who draws from what the chunks leave never reads them again.
    let again = (features & (F_LOGPROBS | F_SIGMA | F_MIROSTAT | F_TYPICAL | F_XTC)) != 0u || a.w > 0u ||
      bitcast<f32>(b.x) < 1.0f || bitcast<f32>(b.y) > 0.0f;
    ${four((q) => `if (at${q} < end) { x${q} = penalise_four(row, at${q}, (at${q} - first) * 4u, features, raw${q}, again); }`)}
  }`;

/**
 * (best of the record's distribution, its id, Σ e^(l − best), finite ids); (Σ d, Σ (d − mean)², Σ e^z, Σ z e^z) with
 * d = x − best.
 */
const SUMS = (everyId: EveryId): string => `
  if ((features & (F_LOGPROBS | F_SIGMA | F_MIROSTAT | F_TYPICAL | F_XTC)) == 0u) { return; }
  var l_top = top;
  var l_id = top_id;
  let raw_wanted = (features & F_LOGPROBS) != 0u && (features & F_PROCESSED) == 0u && (features & F_PENALTY) != 0u;
  if (raw_wanted) {
    key = 0u;
    id = 0u;
    ${everyId('let k = key_of(raw); if (k > key) { key = k; id = i; }')}
    strongest(key, id, lid);
    l_top = part_key[0];
    l_id = part_id[0];
  }
  let l_best = number_of(l_top);
  let weighed = (features & (F_MIROSTAT | F_TYPICAL | F_XTC)) != 0u;
  var one = vec4<f32>();
  var two = vec4<f32>();
  if (is_finite_key(l_top) && top != ${BAD}) {
    ${everyId(`let l = select(bits, raw, raw_wanted);
      if (key_of(l) > NEGATIVE_INFINITY_KEY) { one.x += exp(max(bitcast<f32>(l) - l_best, -87.0f)); }
      if (key_of(bits) > NEGATIVE_INFINITY_KEY) {
        // Farther away than this the squares would overflow.
        one += vec4<f32>(0.0f, 1.0f, max(bitcast<f32>(bits) - best, -1.0e15f), 0.0f);
        if (weighed) {
          let z = max((bitcast<f32>(bits) - best) * inverse, -87.0f);
          two += vec4<f32>(exp(z), z * exp(z), 0.0f, 0.0f);
        }
      }`)}
  }
  add_all(one, lid);
  one = part_sum[0];
  if ((features & F_SIGMA) != 0u) {
    let mean = one.z / max(one.y, 1.0f);
    var squares = 0.0f;
    if (is_finite_key(top)) {
      ${everyId(`if (key_of(bits) > NEGATIVE_INFINITY_KEY) {
        let d = max(bitcast<f32>(bits) - best, -1.0e15f) - mean;
        squares += d * d;
      }`)}
    }
    add_all(vec4<f32>(squares, 0.0f, 0.0f, 0.0f), lid);
    one.w = part_sum[0].x;
  }
  if (weighed) {
    add_all(two, lid);
    two = part_sum[0];
  }
  if (lid == 0u) {
    scratchSums[entry * 2u] = vec4<u32>(l_top, l_id, bitcast<u32>(one.x), u32(one.y));
    scratchSums[entry * 2u + 1u] = bitcast<vec4<u32>>(vec4<f32>(one.z, one.w, two.x, two.y));
  }`;
