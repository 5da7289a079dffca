/**
 * The exact search for where a top-k or a top-p ends, for when too many tokens stand near the border to be listed:
 * all logits equal, say. Two bits a pass it finds the largest place at or above which enough tokens (or enough
 * weight) stand, then among the tokens at that very place the id.
 */

import { rolledTurns, type SampleText } from './sample-wgsl.js';

export const PIVOTS = 3;

/** Needs `part: array<f32, PIVOTS · threads>` and the edges; `everyToken(least, body)` visits tokens. */
export function searchWgsl(
  text: SampleText,
  threads: number,
  segments: number,
  everyToken: (least: string, body: string) => string,
): string {
  const pivots = (f: (j: number) => string): string =>
    Array.from({ length: PIVOTS }, (_, j) => f(j)).join(' ');
  // So many numbers are on their way at once.
  const together = Math.min(8, threads / segments);
  return `
var<workgroup> segment_sums: array<f32, ${segments * PIVOTS}>;
var<workgroup> sums: array<f32, ${PIVOTS}>;
var<private> tie_place: u32;

// sums[j] = Σ over threads of part[j · threads + …], in two strides: with a tree, the barriers took most of the time.
fn add_up(lid: u32) {
  workgroupBarrier();
  for (var t = lid; t < ${PIVOTS * segments}u; t += ${threads}u) {
    let from_ = t / ${segments}u * ${threads}u + t % ${segments}u;
    var s = 0.0f;
    for (var k = 0u; k < ${rolledTurns(text, threads / segments)}; k += ${together}u) {
      for (var j = k; j < k + ${together}u; j++) { s += part[from_ + j * ${segments}u]; }
    }
    segment_sums[t] = s;
  }
  workgroupBarrier();
  if (lid < ${PIVOTS}u) {
    var s = 0.0f;
    for (var k = 0u; k < ${rolledTurns(text, segments)}; k += 8u) {
      for (var j = k; j < k + 8u; j++) { s += segment_sums[lid * ${segments}u + j]; }
    }
    sums[lid] = s;
  }
  workgroupBarrier();
}

// What a token brings: where it stands, and its weight.
// Mode 0: places, counted. 1: places, by weight. 2: ids of those at tie_place, lowest first: counted by logit, where
// all weigh the same, by weight in order of deviation, where a token stands on either side.
struct Entry { place: u32, weight: f32 }
fn entry_of(mode: u32, order: u32, i: u32, bits: u32) -> Entry {
  if (!kept(i, bits)) { return Entry(0u, 0.0f); }
  let place = place_of(order, bits);
  if (mode == 0u) { return Entry(place, 1.0f); }
  if (mode == 1u) { return Entry(place, weight(bits)); }
  return Entry(~i, select(0.0f, select(1.0f, weight(bits), order == 1u), place == tie_place));
}

// (the largest place at or above which stands at least 'wanted', bits of what stands there, of what stands above).
// Place 0: there is not as much.
fn search(mode: u32, order: u32, wanted: f32, lid: u32) -> vec3<u32> {
  var prefix = 0u;
  var reached = 0.0f;
  var above = 0.0f;
  for (var shift = 32u; shift > 0u; ) {
    shift -= 2u;
    ${pivots((j) => `let t${j} = prefix | (${j + 1}u << shift); var s${j} = 0.0f;`)}
    // By logit, tokens that no pivot counts are passed over before they cost an exp.
    let reach = select(t0, tie_place, mode == 2u);
    let least = max(edge_logit.x, select(floor_key, max(floor_key, reach), order == 0u));
    ${everyToken(
      'least',
      `let it = entry_of(mode, order, i, bits);
      if (it.weight == 0.0f) { continue; }
      ${pivots((j) => `if (it.place >= t${j}) { s${j} += it.weight; }`)}`,
    )}
    workgroupBarrier();
    ${pivots((j) => `part[${j * threads}u + lid] = s${j};`)}
    add_up(lid);
    var digit = 0u;
    ${pivots((j) => `if (sums[${j}] >= wanted) { digit = ${j + 1}u; reached = sums[${j}]; }`)}
    if (digit < ${PIVOTS}u) { above = sums[digit]; }
    prefix |= digit << shift;
  }
  return vec3<u32>(prefix, bitcast<u32>(reached), bitcast<u32>(above));
}

// Narrows the edge of an order: to 'most' tokens, then to the shortest start that weighs 'share' of what is left.
fn search_edges(order: u32, by_count: bool, most: u32, by_mass: bool, share: f32, lid: u32) {
  var wanted = f32(most);
  for (var phase = select(2u, 0u, by_count); phase < select(2u, 4u, by_mass); phase++) {
    let ties = (phase & 1u) == 1u;
    let mode = select(phase >> 1u, 2u, ties);
    if (phase == 2u) {
      wanted = share * survey(-3.0e38f, 0u, lid).x;
    }
    let found = search(mode, order, wanted, lid);
    if (ties) {
      let edge = edge_of(order);
      set_edge(order, vec2<u32>(tie_place, min(select(0xffffffffu, edge.y, tie_place == edge.x), ~found.x)));
      continue;
    }
    tie_place = found.x;
    wanted -= bitcast<f32>(found.z);
    var there = bitcast<f32>(found.y) - bitcast<f32>(found.z);
    if (order == 0u) {
      // From weights to counts.
      let each = select(1.0f, exp(max(scaled(number_of(tie_place)), -87.0f)), mode == 1u);
      wanted = max(ceil(wanted / each), 1.0f);
      there = round(there / each);
    }
    // Fewer than wanted: all stay. All of a tie: no search among them.
    let few = tie_place == 0u;
    if (lid == 0u) { answer = vec2<u32>(select(0u, 1u, few || wanted >= there), 0u); }
    if (workgroupUniformLoad(&answer).x == 1u) {
      if (!few) {
        let edge = edge_of(order);
        set_edge(order, vec2<u32>(tie_place, select(0xffffffffu, edge.y, tie_place == edge.x)));
      }
      phase++;
    }
  }
}`;
}
