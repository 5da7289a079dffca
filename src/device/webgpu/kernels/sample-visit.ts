/**
 * A pass of one workgroup over those logits of a row that may matter. Reading a whole row of 152k takes one workgroup
 * several microseconds, and looking at each logit many more; so chunks whose best cannot matter are left out, those
 * left are dealt to the threads evenly, and of four logits together it is asked first whether any of them counts.
 */

import { powerOfTwo, type SampleText } from './sample-wgsl.js';

/** Vectors of a chunk. */
const EACH = 256;
/** Loads of a thread under way. */
const AHEAD = 4;

/** Words of the flags of the chunks; in steps, so that vocabularies of like size share a pipeline. */
export function pickWords(chunks: number): number {
  return powerOfTwo(chunks / 32, 1, 1 << 20);
}

/**
 * Needs `part: array<f32>`, in which the picked chunks stand during a pass, ascending, and so room for all of them;
 * `chunk_key(i)`, the best of chunk i; `four_at(i)`, a vector of the row.
 */
export function picksWgsl(text: SampleText, threads: number, words: number): string {
  return `
var<workgroup> picks: array<atomic<u32>, ${words}>;
fn pick_none(lid: u32) {
  workgroupBarrier();
  for (var i = lid; i < ${words}u; i += ${threads}u) { atomicStore(&picks[i], 0u); }
  workgroupBarrier();
}
fn pick(chunk: u32) { atomicOr(&picks[chunk >> 5u], 1u << (chunk & 31u)); }
fn drop(chunk: u32) { atomicAnd(&picks[chunk >> 5u], ~(1u << (chunk & 31u))); }
fn is_picked(chunk: u32) -> bool { return ((atomicLoad(&picks[chunk >> 5u]) >> (chunk & 31u)) & 1u) != 0u; }
// Lists the picked chunks; how many they are.
fn picked(lid: u32) -> u32 {
  workgroupBarrier();
  for (var i = lid; i < ${text.chunks}; i += ${threads}u) {
    if (!is_picked(i)) { continue; }
    var at = countOneBits(atomicLoad(&picks[i >> 5u]) & ((1u << (i & 31u)) - 1u));
    for (var w = 0u; w < (i >> 5u); w++) { at += countOneBits(atomicLoad(&picks[w])); }
    part[at] = f32(i);
  }
  var count = 0u;
  for (var w = 0u; w < ${words}u; w++) { count += countOneBits(atomicLoad(&picks[w])); }
  workgroupBarrier();
  return count;
}
// The chunks whose best reaches 'least'.
fn pick_from(least: u32, lid: u32) -> u32 {
  pick_none(lid);
  for (var i = lid; i < ${text.chunks}; i += ${threads}u) { if (chunk_key(i) >= least) { pick(i); } }
  return picked(lid);
}
fn picked_vector(v: u32, count: u32) -> u32 {
  if (v >= count * ${EACH}u) { return 0xffffffffu; }
  return u32(part[v / ${EACH}u]) * ${EACH}u + v % ${EACH}u;
}`;
}

/** Needs `chunk_key(i)`, `answer`, and the list of sample-list.ts with `room` for all chunks. */
export function bestWgsl(text: SampleText, threads: number, room: number): string {
  return `
// The best of so many chunks are so many tokens, so that none below the last of them is among as many first: the last of
// them. There are as many chunks.
fn least_of_best(most: u32, lid: u32) -> u32 {
  workgroupBarrier();
  for (var i = lid; i < ${text.chunks}; i += ${threads}u) { list_place[i] = chunk_key(i); }
  workgroupBarrier();
  // Four threads a chunk compare it with a quarter of the others each.
  let ways = select(1u, 4u, ${text.chunks} * 4u <= ${room}u);
  for (var t = lid; t < ${text.chunks} * ways; t += ${threads}u) {
    let i = t / ways;
    let mine = list_place[i];
    var rank = 0u;
    for (var j = t % ways; j < ${text.chunks}; j += ways) {
      let other = list_place[j];
      if (other > mine || (other == mine && j < i)) { rank++; }
    }
    list_id[t] = rank;
  }
  workgroupBarrier();
  for (var i = lid; i < ${text.chunks}; i += ${threads}u) {
    var rank = 0u;
    for (var way = 0u; way < ways; way++) { rank += list_id[i * ways + way]; }
    if (rank == most - 1u) { answer = vec2<u32>(list_place[i], 0u); }
  }
  return workgroupUniformLoad(&answer).x;
}`;
}

/**
 * Runs `body` for tokens of the first `count` picked chunks, id in `i` and bits in `bits`: for every one for which
 * `some` holds, a vector of conditions on a vector of logits, as numbers. A thread's ids ascend. Afterwards a
 * barrier, before `part` is written.
 */
export function visit(
  text: SampleText,
  threads: number,
  count: string,
  some: (numbers: string) => string,
  body: string,
): string {
  const ahead = (f: (q: number) => string): string =>
    Array.from({ length: AHEAD }, (_, q) => f(q)).join('\n    ');
  const chosen = (f: (q: number) => string): string =>
    Array.from({ length: AHEAD - 1 }, (_, q) => q + 1).reduce(
      (text, q) => `select(${text}, ${f(q)}, q == ${q}u)`,
      f(0),
    );
  // The text of the body stands here once: compilers make less of it.
  return `for (var v = lid; v < ${count} * ${EACH}u; v += ${threads * AHEAD}u) {
    ${ahead((q) => `let at${q} = picked_vector(v + ${q * threads}u, ${count});`)}
    ${ahead((q) => `let four${q} = bitcast<vec4<f32>>(four_at(min(at${q}, ${text.vectors} - 1u)));`)}
    var left = 0u;
    ${ahead(
      (q) => `if (at${q} < ${text.vectors}) {
      let some${q} = select(vec4<u32>(), vec4<u32>(1u, 2u, 4u, 8u), ${some(`four${q}`)});
      left |= (some${q}.x | some${q}.y | some${q}.z | some${q}.w) << ${4 * q}u;
    }`,
    )}
    // One logit a turn: a subgroup takes as many turns as the thread that has most.
    while (left != 0u) {
      let b = firstTrailingBit(left);
      left &= left - 1u;
      let q = b >> 2u;
      let i = ${chosen((j) => `at${j}`)} * 4u + (b & 3u);
      if (i >= ${text.vocab}) { continue; }
      let bits = of_four(bitcast<vec4<u32>>(${chosen((j) => `four${j}`)}), b);
      ${body}
    }
  }`;
}
