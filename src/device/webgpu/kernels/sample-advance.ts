/** Stage 9 of sampling.ts: the token that was drawn enters the slot's history, counts and windows. */

import { rowWord } from '../step-buffer.js';
import { LISTS } from './sample-penalties.js';

/** All threads call `advance`. A part that the slot does not have stands at 0. */
export function advanceWgsl(threads: number, vocab: string): string {
  return `
var<workgroup> broke: atomic<u32>;

fn count_up(part_at: u32, id: u32, by: u32) {
  if (id >= ${vocab}) { return; }
  let at = part_at + (id >> 2u);
  sampler[at][id & 3u] += by;
}

fn advance(row: u32, own: u32, position: u32, lid: u32) {
  let head = ${rowWord('head')};
  if (head == 0u) { return; }
  if (lid == 0u) {
    answer = vec2<u32>(own, 0u);
    atomicStore(&broke, 0u);
  }
  let token = workgroupUniformLoad(&answer).x;
  let ring = ${rowWord('ring')};
  let history = ${rowWord('history')} * 4u;
  let place = history + position % max(ring, 1u);
  if (lid == 0u) {
    let window = ${rowWord('repetitionWindow')};
    let seen = ${rowWord('seen')};
    if (seen != 0u) {
      if (window > 0u && position >= window) {
        count_up(seen, word(history + (position - window) % ring), 0xffffffffu);
      }
      count_up(seen, token, 1u);
    }
    if (history != 0u) { sampler[place >> 2u][place & 3u] = token; }
  }
  if (lid == ${Math.min(1, threads - 1)}u && ${rowWord('generated')} != 0u) { count_up(${rowWord('generated')}, token, 1u); }
  if (${rowWord('lengths')} == 0u) { return; }
  // Whether a breaker has come to its end.
  let ids = ${rowWord('breakers')};
  if (lid == 0u && ids != 0u && token < ${vocab}) {
    if (((word(ids * 4u + (token >> 5u)) >> (token & 31u)) & 1u) != 0u) { atomicStore(&broke, 1u); }
  }
  let lists = ${rowWord('lists')} * 4u;
  if (lists != 0u) {
    let count = word(lists + ${LISTS.breakerCount}u);
    let table = lists + word(lists + ${LISTS.breakerAt}u);
    for (var i = lid; i < count; i += ${threads}u) {
      let from_ = lists + word(table + i * 2u);
      let before = word(table + i * 2u + 1u) - 1u;
      var comes = word(from_ + before) == token && before <= position;
      for (var j = before; comes && j > 0u; j--) {
        comes = word(from_ + j - 1u) == word(history + (position - 1u - (before - j)) % ring);
      }
      if (comes) { atomicStore(&broke, 1u); }
    }
  }
  workgroupBarrier();
  if (lid == 0u) {
    if (atomicLoad(&broke) != 0u) { sampler[head].y = position + 1u; }
    note_matches(row, position);
  }
}
// The matches have taken in the tokens before the one drawn: also where none could be drawn.
fn note_matches(row: u32, position: u32) {
  if (${rowWord('lengths')} != 0u) { sampler[${rowWord('head')}].z = position; }
}
`;
}
