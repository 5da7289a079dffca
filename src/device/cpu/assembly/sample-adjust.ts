import {
  CHUNK, E_GENERATED, E_ID, E_MATCH, E_SEEN, E_WORDS, F_BANNED, F_BIAS, F_COUNTS, F_DRY, F_LISTS, F_REPETITION,
  F_MIN_TOKENS, P_DRY_ALLOWED_LENGTH, P_DRY_LOG_BASE, P_DRY_MULTIPLIER, P_FREQUENCY_PENALTY, P_POSITION,
  P_PRESENCE_PENALTY, P_REPETITION_PENALTY, S_BANNED, S_BANNED_COUNT, S_BIAS, S_BIAS_COUNT, S_ENTRIES, S_ENTRY_COUNT,
  S_HISTORY, S_INDEX, S_MASK, S_WITHHELD, S_WITHHELD_COUNT,
} from '../sample-words';
import { exp1 } from './math';
import { findMatches } from './sample-dry';
import { chunkEnd, featuresOf, number, parameter, rowLogits, stateOf, vocab, word } from './sample-row';
import { endsWith, isBreaker } from './sample-state';

/**
 * Penalties, in place. What a row's lists and history touch is changed one id at a time: a row pays for the ids it has
 * seen, not for the vocabulary. An id is suppressed by adding -∞: what made the row invalid stays to be found.
 */
const LIMIT: f32 = 1e30;

/** Suppresses what a row's mask does not allow in a chunk. */
export function maskChunk(row: u32, chunk: u32): void {
  const state = stateOf(row);
  if (state == 0) return;
  const mask: usize = word(state, S_MASK);
  if (mask == 0) return;
  const x = rowLogits(row);
  const to = chunkEnd(chunk);
  for (let c = chunk * CHUNK; c < to; c += 32) {
    const bits = word(mask, c >> 5);
    if (bits == 0xffffffff) continue;
    const end = min<u32>(c + 32, to);
    let i = c;
    for (; i + 4 <= end; i += 4) {
      const at = x + <usize>i * 4;
      const v = v128.load(at);
      const own = v128.and(i32x4.splat(bits >> (i - c)), i32x4(1, 2, 4, 8));
      const gone = f32x4.add(v, f32x4.splat(-Infinity));
      v128.store(at, v128.bitselect(gone, v, i32x4.eq(own, i32x4.splat(0))));
    }
    for (; i < end; i++) if ((bits >> (i - c) & 1) == 0) suppress(x, i);
  }
}

/** All other penalties of a row. */
export function adjust(row: u32): void {
  const features = featuresOf(row);
  if ((features & F_LISTS) == 0) return;
  const state = stateOf(row);
  if (state == 0) return;
  const x = rowLogits(row);
  const n = parameter(row, P_POSITION);
  if (features & F_BIAS) addBias(x, state);
  if (features & F_BANNED) suppressBanned(x, state, n);
  if (features & F_MIN_TOKENS) suppressWithheld(x, state);
  if (features & (F_REPETITION | F_COUNTS | F_DRY) && word(state, S_INDEX) != 0) {
    if (features & F_DRY) findMatches(state, n, parameter(row, P_DRY_ALLOWED_LENGTH));
    penalise(row, features, x, state);
  }
}

// @ts-ignore: decorator
@inline function suppress(x: usize, id: u32): void {
  if (id >= vocab) return;
  const at = x + <usize>id * 4;
  store<f32>(at, load<f32>(at) - Infinity);
}

/** What was finite stays finite. */
// @ts-ignore: decorator
@inline function settle(before: f32, after: f32): f32 {
  return abs<f32>(before) < Infinity ? max<f32>(-LIMIT, min<f32>(LIMIT, after)) : after;
}

function addBias(x: usize, state: usize): void {
  const ids: usize = word(state, S_BIAS);
  const count = word(state, S_BIAS_COUNT);
  const values = ids + count * 4;
  for (let i: u32 = 0; i < count; i++) {
    const id = word(ids, i);
    if (id >= vocab) continue;
    const at = x + <usize>id * 4;
    const bias = load<f32>(values + i * 4);
    const before = load<f32>(at);
    store<f32>(at, bias == -Infinity ? before + bias : settle(before, before + bias));
  }
}

/** The last id of each sequence whose others have just come. */
function suppressBanned(x: usize, state: usize, n: u32): void {
  const history: usize = word(state, S_HISTORY);
  let sequence: usize = word(state, S_BANNED);
  for (let i = word(state, S_BANNED_COUNT); i > 0; i--) {
    const length = load<u32>(sequence);
    if (endsWith(history, n, sequence + 4, length - 1)) suppress(x, word(sequence, length));
    sequence += (length + 1) * 4;
  }
}

function suppressWithheld(x: usize, state: usize): void {
  const ids: usize = word(state, S_WITHHELD);
  const count = word(state, S_WITHHELD_COUNT);
  for (let i: u32 = 0; i < count; i++) suppress(x, word(ids, i));
}

function penalise(row: u32, features: u32, x: usize, state: usize): void {
  const repetition = number(row, P_REPETITION_PENALTY);
  const frequency = number(row, P_FREQUENCY_PENALTY);
  const presence = number(row, P_PRESENCE_PENALTY);
  const multiplier = number(row, P_DRY_MULTIPLIER);
  const logBase = number(row, P_DRY_LOG_BASE);
  const allowed = parameter(row, P_DRY_ALLOWED_LENGTH);
  let entry: usize = word(state, S_ENTRIES);
  for (let i = word(state, S_ENTRY_COUNT); i > 0; i--, entry += E_WORDS * 4) {
    const at = x + <usize>word(entry, E_ID) * 4;
    const before = load<f32>(at);
    let value = before;
    if (features & F_REPETITION && word(entry, E_SEEN) != 0) {
      value = value > 0 ? value / repetition : value * repetition;
    }
    if (features & F_COUNTS) {
      const generated = word(entry, E_GENERATED);
      if (generated != 0) value -= <f32>generated * frequency + presence;
    }
    if (features & F_DRY) {
      const match = word(entry, E_MATCH);
      if (match != 0) {
        if (!isBreaker(state, word(entry, E_ID))) {
          value -= min<f32>(LIMIT, multiplier * exp1(<f32>(match - allowed) * logBase));
        }
        store<u32>(entry + E_MATCH * 4, 0);
      }
    }
    store<f32>(at, settle(before, value));
  }
}

/** Brings what is finite within the limit: hardly ever anything is beyond it. */
export function clampChunk(x: usize, from: u32, to: u32): void {
  const limit = f32x4.splat(LIMIT);
  let beyond = i32x4.splat(0);
  let c = from;
  for (; c + 4 <= to; c += 4) beyond = v128.or(beyond, f32x4.gt(f32x4.abs(v128.load(x + <usize>c * 4)), limit));
  if (c == to && !v128.any_true(beyond)) return;
  for (let id = from; id < to; id++) {
    const at = x + <usize>id * 4;
    const value = load<f32>(at);
    store<f32>(at, settle(value, value));
  }
}
