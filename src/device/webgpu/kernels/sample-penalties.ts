/**
 * Stage 1 of sampling.ts for the logits of one chunk, four at a time, on their way from memory to the first
 * comparison: dense arrays of the slot (mask, counts, matches) are read beside them, the short lists (bias, banned
 * and withheld ids) are spread over the chunk in workgroup memory first.
 */

import { rowWord } from '../step-buffer.js';
import { CHUNK, rolledTurns, type SampleText } from './sample-wgsl.js';

/** Words of the head of a slot's lists: counts, and where each begins, from the head, in words. */
export const LISTS = {
  biasCount: 0,
  biasAt: 1,
  withheldCount: 2,
  withheldAt: 3,
  bannedCount: 4,
  bannedAt: 5,
  breakerCount: 6,
  breakerAt: 7,
} as const;
export const LISTS_HEAD = 8;

const f32 = (word: string): string => `bitcast<f32>(${word})`;

/**
 * Needs `row`-free helpers: `word`, `step`, features' bits and keys. Binds `sampler` as read_write vec4<u32>. `space`:
 * workgroup memory for the biases of a chunk, CHUNK words of u32.
 */
export function penaltiesWgsl(text: SampleText, threads: number, space: string): string {
  return `
var<workgroup> refused: array<atomic<u32>, ${CHUNK / 32}>;
var<workgroup> hit: atomic<u32>;
var<workgroup> any_hit: u32;

fn history_at(row: u32, i: u32) -> u32 {
  return word(${rowWord('history')} * 4u + i % ${rowWord('ring')});
}

// The lists' part of the chunk of ids from 'start' on; false, of most chunks: they have none.
fn spread_lists(row: u32, start: u32, position: u32, features: u32, lid: u32) -> bool {
  let head = ${rowWord('lists')} * 4u;
  if (lid == 0u) { atomicStore(&hit, 0u); }
  workgroupBarrier();
  // First whether any id of a list is of this chunk.
  for (var spreads = 0u; spreads < 2u; spreads++) {
    if ((features & F_BIAS) != 0u) {
      let count = word(head + ${LISTS.biasCount}u);
      let ids = head + word(head + ${LISTS.biasAt}u);
      for (var i = lid; i < count; i += ${threads}u) {
        let at = word(ids + i) - start;
        if (at >= ${CHUNK}u) { continue; }
        if (spreads == 0u) { atomicStore(&hit, 1u); } else { ${space}[at] = word(ids + count + i); }
      }
    }
    if ((features & F_MIN_TOKENS) != 0u) {
      let count = word(head + ${LISTS.withheldCount}u);
      let ids = head + word(head + ${LISTS.withheldAt}u);
      for (var i = lid; i < count; i += ${threads}u) {
        let at = word(ids + i) - start;
        if (at >= ${CHUNK}u) { continue; }
        if (spreads == 0u) { atomicStore(&hit, 1u); } else { atomicOr(&refused[at >> 5u], 1u << (at & 31u)); }
      }
    }
    if ((features & F_BANNED) != 0u) {
      let count = word(head + ${LISTS.bannedCount}u);
      let table = head + word(head + ${LISTS.bannedAt}u);
      for (var i = lid; i < count; i += ${threads}u) {
        let from_ = head + word(table + i * 2u);
        let before = word(table + i * 2u + 1u) - 1u;
        let at = word(from_ + before) - start;
        if (at >= ${CHUNK}u) { continue; }
        if (spreads == 0u) {
          atomicStore(&hit, 1u);
          continue;
        }
        var comes = before <= position;
        for (var j = before; comes && j > 0u; j--) {
          comes = word(from_ + j - 1u) == history_at(row, position - 1u - (before - j));
        }
        if (comes) { atomicOr(&refused[at >> 5u], 1u << (at & 31u)); }
      }
    }
    workgroupBarrier();
    if (spreads == 0u) {
      if (lid == 0u) { any_hit = atomicLoad(&hit); }
      if (workgroupUniformLoad(&any_hit) == 0u) { return false; }
      for (var i = lid; i < ${CHUNK}u; i += ${threads}u) { ${space}[i] = 0u; }
      for (var i = lid; i < ${CHUNK / 32}u; i += ${threads}u) { atomicStore(&refused[i], 0u); }
      workgroupBarrier();
    }
  }
  return true;
}

fn penalise(row: u32, bits: u32, local: u32, listed: bool, allowed: bool, seen: u32, made: u32, long: u32) -> u32 {
  if (bits == NEGATIVE_INFINITY_BITS || !allowed) { return NEGATIVE_INFINITY_BITS; }
  var x = bitcast<f32>(bits);
  if (listed) {
    let added = ${space}[local];
    if (added == NEGATIVE_INFINITY_BITS) { return NEGATIVE_INFINITY_BITS; }
    if (((atomicLoad(&refused[local >> 5u]) >> (local & 31u)) & 1u) != 0u) { return NEGATIVE_INFINITY_BITS; }
    x += bitcast<f32>(added);
  }
  if (seen > 0u) {
    let penalty = ${f32(rowWord('repetitionPenalty'))};
    x = select(x * penalty, x / penalty, x > 0.0f);
  }
  if (made > 0u) {
    x -= f32(made) * ${f32(rowWord('frequencyPenalty'))} + ${f32(rowWord('presencePenalty'))};
  }
  if (long > 0u) {
    let multiplier = ${f32(rowWord('dryMultiplier'))};
    let power = f32(long - ${rowWord('dryAllowedLength')}) * ${f32(rowWord('dryLogBase'))};
    // Told by logarithms, before it overflows.
    if (multiplier > 0.0f && power + ln(max(multiplier, 1.2e-38f)) >= 69.07755f) { x -= 1.0e30f; }
    else { x -= multiplier * exp(min(power, 88.0f)); }
  }
  return bitcast<u32>(clamp(x, -1.0e30f, 1.0e30f));
}

// Four logits of the row, from id 4 · at; leaves them in the slot too, if they are read 'again'.
fn penalise_four(row: u32, at: u32, local: u32, features: u32, listed: bool, raw: vec4<u32>, again: bool) -> vec4<u32> {
  var allowed = 15u;
  if ((features & F_MASK) != 0u) { allowed = (word(${rowWord('mask')} * 4u + (at >> 3u)) >> ((at & 7u) * 4u)) & 15u; }
  var seen = vec4<u32>();
  if ((features & F_REPETITION) != 0u) { seen = sampler[${rowWord('seen')} + at]; }
  var made = vec4<u32>();
  if ((features & F_COUNTS) != 0u) { made = sampler[${rowWord('generated')} + at]; }
  var long = vec4<u32>();
  if ((features & F_DRY) != 0u) {
    long = sampler[${rowWord('matched')} + at];
    // For the next step: the matches are found anew.
    if (any(long != vec4<u32>())) { sampler[${rowWord('matched')} + at] = vec4<u32>(); }
  }
  var out: vec4<u32>;
  if (allowed == 15u && !listed && all((seen | made | long) == vec4<u32>())) {
    // Most ids: nothing is known of them.
    let x = bitcast<vec4<u32>>(clamp(bitcast<vec4<f32>>(raw), vec4<f32>(-1.0e30f), vec4<f32>(1.0e30f)));
    out = select(x, raw, raw == vec4<u32>(NEGATIVE_INFINITY_BITS));
  } else {
    for (var e = 0u; e < ${rolledTurns(text, 4)}; e++) {
      let x = penalise(row, of_four(raw, e), local + e, listed, ((allowed >> e) & 1u) != 0u, of_four(seen, e), of_four(made, e), of_four(long, e));
      out = select(out, vec4<u32>(x), vec4<u32>(e) == vec4<u32>(0u, 1u, 2u, 3u));
    }
  }
  if (again) { sampler[${rowWord('processed')} + at] = out; }
  return out;
}`;
}
