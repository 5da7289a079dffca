/**
 * The draw among the tokens that filters left. The first pass drew from each chunk without them: such a winner is
 * taken if it is kept, and only a chunk whose winner is not, and would have won, is looked at again. Where a short
 * list holds all that is left, that is all that is looked at.
 */

import { visit } from './sample-visit.js';
import { CHUNK, rolledTurns, type SampleText } from './sample-wgsl.js';

/** Needs what sample-rows.ts declares, and the list of sample-list.ts. */
export function drawWgsl(text: SampleText, threads: number): string {
  return `
// From noise over the chunk's best to noise over the row's.
fn noisy_key(chunk: vec4<u32>) -> u32 {
  if (chunk.z == 0u) { return 0u; }
  return key_of(bitcast<u32>(max(scaled(number_of(chunk.x)) + number_of(chunk.z), -3.0e38f)));
}
// The same for one token, by the steps of the first pass.
fn token_noise(seed: vec4<u32>, token: u32, bits: u32) -> u32 {
  let top = chunk_key(token / ${CHUNK}u);
  let z = max((bitcast<f32>(bits) - number_of(top)) * inverse_temperature, -1.0e30f);
  let noise = z + gumbel(random_word(seed.x, seed.y, seed.z, seed.w, token));
  return noisy_key(vec4<u32>(top, 0u, key_of(bitcast<u32>(noise)), 0u));
}

// The kept token with the most noise. The first 'listed' tokens of the list are all that may be kept; 0: there is none.
fn draw(seed: vec4<u32>, listed: u32, lid: u32) -> u32 {
  pick_none(lid);
  var key = 0u;
  var id = 0u;
  // The reduction and what comes to it stand here once: first the list or the chunks' winners, then those who may still have more.
  for (var turn = 0u; turn < ${rolledTurns(text, 2)}; turn++) {
    if (turn == 1u) {
      // A chunk's winner that is not kept has more than who is.
      for (var i = lid; i < ${text.chunks}; i += ${threads}u) {
        if (is_picked(i) && noisy_key(scratchBest[best_at + i]) < key) { drop(i); }
      }
      let count = picked(lid);
      let low = number_of(max(edge_logit.x, floor_key));
      ${visit(
        text,
        threads,
        'count',
        (x) => `${x} >= vec4<f32>(low)`,
        `if (!kept(i, bits)) { continue; }
          let n = token_noise(seed, i, bits);
          if (n > key || (n == key && i < id)) { key = n; id = i; }`,
      )}
    } else if (listed > 0u) {
      for (var i = lid; i < listed; i += ${threads}u) {
        let token = list_id[i];
        let bits = four_at(token >> 2u)[token & 3u];
        if (!kept(token, bits)) { continue; }
        let n = token_noise(seed, token, bits);
        if (n > key || (n == key && token < id)) { key = n; id = token; }
      }
    } else {
      for (var i = lid; i < ${text.chunks}; i += ${threads}u) {
        let chunk = scratchBest[best_at + i];
        if (chunk.x < max(edge_logit.x, floor_key)) { continue; }
        // The first pass has not drawn for this row: its chunks are all looked at.
        if (chunk.z == 0u || !kept(chunk.w, four_at(chunk.w >> 2u)[chunk.w & 3u])) {
          pick(i);
          continue;
        }
        let n = noisy_key(chunk);
        if (n > key) { key = n; id = chunk.w; }
      }
    }
    strongest(key, id, lid);
    key = part_key[0];
    id = part_id[0];
    if (listed > 0u) { break; }
  }
  return id;
}`;
}
