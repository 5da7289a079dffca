import {
  E_GENERATED, E_SEEN, E_WORDS, S_BREAKERS, S_BREAKER_COUNT, S_BREAKING, S_BREAKING_COUNT, S_CAPACITY, S_ENTRIES,
  S_ENTRY_COUNT, S_HISTORY, S_INDEX, S_MATCHES, S_SINCE, S_WINDOW,
} from '../sample-words';
import { vocab, word } from './sample-row';

/** What a slot knows of its tokens. The host rebuilds it the same way (../sampler-state.ts). */

/** Takes in the token at position n. */
export function absorb(state: usize, n: u32, id: u32): void {
  if (n >= word(state, S_CAPACITY)) return;
  const history: usize = word(state, S_HISTORY);
  if (history != 0) store<u32>(history + n * 4, id);
  if (word(state, S_INDEX) != 0) {
    if (id < vocab) {
      const entry = makeEntry(state, id);
      addTo(entry + E_SEEN * 4, 1);
      addTo(entry + E_GENERATED * 4, 1);
    }
    const window = word(state, S_WINDOW);
    if (window != 0 && n >= window) {
      const entry = findEntry(state, word(history, n - window));
      if (entry != 0) addTo(entry + E_SEEN * 4, -1);
    }
  }
  if (word(state, S_MATCHES) != 0) {
    store<u32>(state + S_SINCE * 4, breaks(state, history, n, id) ? 0 : word(state, S_SINCE) + 1);
  }
}

// @ts-ignore: decorator
@inline function addTo(at: usize, change: i32): void {
  store<i32>(at, load<i32>(at) + change);
}

/** The entry of an id, 0 if it never came. */
export function findEntry(state: usize, id: u32): usize {
  if (id >= vocab) return 0;
  const place = word(word(state, S_INDEX), id);
  return place == 0 ? 0 : word(state, S_ENTRIES) + (place - 1) * E_WORDS * 4;
}

function makeEntry(state: usize, id: u32): usize {
  const found = findEntry(state, id);
  if (found != 0) return found;
  const count = word(state, S_ENTRY_COUNT);
  store<u32>(state + S_ENTRY_COUNT * 4, count + 1);
  store<u32>(word(state, S_INDEX) + id * 4, count + 1);
  const entry: usize = word(state, S_ENTRIES) + count * E_WORDS * 4;
  v128.store(entry, i32x4(id, 0, 0, 0));
  return entry;
}

/** Whether an id is a breaker by itself. */
export function isBreaker(state: usize, id: u32): bool {
  const ids: usize = word(state, S_BREAKERS);
  let low: u32 = 0;
  let high = word(state, S_BREAKER_COUNT);
  while (low < high) {
    const middle = (low + high) >>> 1;
    const other = word(ids, middle);
    if (other == id) return true;
    if (other < id) low = middle + 1;
    else high = middle;
  }
  return false;
}

/** Whether a breaker comes to its end with the token at position n. */
function breaks(state: usize, history: usize, n: u32, id: u32): bool {
  if (isBreaker(state, id)) return true;
  let sequence: usize = word(state, S_BREAKING);
  for (let i = word(state, S_BREAKING_COUNT); i > 0; i--) {
    const length = load<u32>(sequence);
    if (endsWith(history, n + 1, sequence + 4, length)) return true;
    sequence += (length + 1) * 4;
  }
  return false;
}

/** Whether the first `end` tokens end with so many ids. */
export function endsWith(history: usize, end: u32, ids: usize, length: u32): bool {
  if (length > end) return false;
  const tail = history + (end - length) * 4;
  for (let i: u32 = 0; i < length; i++) if (word(tail, i) != word(ids, i)) return false;
  return true;
}
