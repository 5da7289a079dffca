import { E_MATCH, S_DRY_WINDOW, S_HISTORY, S_MATCHED, S_MATCHES, S_SINCE } from '../sample-words';
import { word } from './sample-row';
import { findEntry } from './sample-state';

/**
 * The repetitions that a next token would prolong. For every distance d the state holds how long the tokens and the
 * tokens without the last d end alike; a new token makes that one longer or 0, in place, so one pass over the window
 * brings it up to date and finds the matches.
 */

// The tokens at hand and the last match that was noted: in a run of one token most say the same.
let history: usize = 0;
let count: u32 = 0;
let within: u32 = 0;
let since: u32 = 0;
let notedId: u32 = 0;
let noted: u32 = 0;

/** Notes the longest match, of at least `least` tokens, in the entry of each id that would prolong one of n tokens. */
export function findMatches(state: usize, n: u32, least: u32): void {
  history = word(state, S_HISTORY);
  since = word(state, S_SINCE);
  let known = word(state, S_MATCHED);
  for (; known + 1 < n; known++) pass(state, known + 1, true, 0xffffffff);
  pass(state, n, known < n, max<u32>(least, 1));
  store<u32>(state + S_MATCHED * 4, n);
}

function pass(state: usize, n: u32, isNew: bool, least: u32): void {
  const window = word(state, S_DRY_WINDOW);
  const end = window == 0 ? n : min<u32>(n, window);
  if (end < 2) return;
  count = n;
  within = end;
  noted = 0;
  const matches: usize = word(state, S_MATCHES);
  const last = word(history, n - 1);
  const last4 = i32x4.splat(last);
  const least4 = i32x4.splat(least);
  let d: u32 = 1;
  for (; d + 4 <= end; d += 4) {
    const at = matches + d * 4;
    let own = v128.load(at);
    if (isNew) {
      const back = v128.load(history + (n - 4 - d) * 4);
      const same = i32x4.eq(v128.shuffle<i32>(back, back, 3, 2, 1, 0), last4);
      own = v128.and(i32x4.add(own, i32x4.splat(1)), same);
      v128.store(at, own);
    }
    const mask = i32x4.bitmask(i32x4.ge_u(own, least4));
    if (mask == 0) continue;
    if (mask & 1) note(state, d, i32x4.extract_lane(own, 0), least);
    if (mask & 2) note(state, d + 1, i32x4.extract_lane(own, 1), least);
    if (mask & 4) note(state, d + 2, i32x4.extract_lane(own, 2), least);
    if (mask & 8) note(state, d + 3, i32x4.extract_lane(own, 3), least);
  }
  for (; d < end; d++) {
    let own = word(matches, d);
    if (isNew) {
      own = word(history, n - 1 - d) == last ? own + 1 : 0;
      store<u32>(matches + d * 4, own);
    }
    if (own >= least) note(state, d, own, least);
  }
}

// @ts-ignore: decorator
@inline function note(state: usize, d: u32, own: u32, least: u32): void {
  const match = min<u32>(min<u32>(own, within - d), since);
  const id = word(history, count - d);
  if (match < least || (id == notedId && match <= noted)) return;
  noted = match;
  notedId = id;
  const entry = findEntry(state, id);
  if (entry == 0) return;
  const at = entry + E_MATCH * 4;
  if (match > load<u32>(at)) store<u32>(at, match);
}
