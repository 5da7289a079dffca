import {
  BLOCK, CHUNK, F_LOGPROBS, F_MIROSTAT, MOST_LOGPROBS, P_TOP_LOGPROBS, R_COUNT, R_IDS, R_LOGPROBS, R_MU, R_RANK,
  R_WORDS, S_MU, S_RAW,
} from '../sample-words';
import { exp1, exp4, maxLanes, sumLanes } from './math';
import {
  INVALID, PART_BEFORE, chunkEnd, chunks, featuresOf, four, parameter, partOf, result, rowLogits, rows, sourceOf,
  stateOf, topOf, vocab, word,
} from './sample-row';

/**
 * Log-probabilities: of every chunk its largest logit, Σ e^(logit - largest) and its first tokens in order; merged when
 * the row's token is known.
 */
const TOP_MAX: usize = 0;
const TOP_COUNT: usize = 4;
const TOP_SUM: usize = 8;
const TOP_VALUES: usize = 16;
const TOP_IDS: usize = 16 + 4 * MOST_LOGPROBS;

/** Before penalties change a chunk: it is kept beside them. */
export function gatherRaw(row: u32, chunk: u32): void {
  const state = stateOf(row);
  if (state == 0) return;
  const from = chunk * CHUNK;
  const raw: usize = word(state, S_RAW);
  memory.copy(raw + from * 4, rowLogits(row) + from * 4, (chunkEnd(chunk) - from) * 4);
  gatherTop(row, chunk, raw);
}

export function gatherTop(row: u32, chunk: u32, x: usize): void {
  const wanted = min<u32>(parameter(row, P_TOP_LOGPROBS), MOST_LOGPROBS);
  const from = chunk * CHUNK;
  const to = chunkEnd(chunk);
  let most4 = f32x4.splat(-Infinity);
  for (let c = from; c < to; c += 4) most4 = f32x4.pmax(most4, four(x, c));
  const most = maxLanes(most4);
  let sum: f64 = 0;
  if (most > -Infinity) {
    for (let start = from; start < to; start += BLOCK) {
      const end = min<u32>(start + BLOCK, to);
      let a = f32x4.splat(0);
      for (let c = start; c < end; c += 4) a = f32x4.add(a, exp4(f32x4.sub(four(x, c), f32x4.splat(most))));
      sum += sumLanes(a);
    }
  }
  const top = topOf(row, chunk);
  let count: u32 = 0;
  let last: f32 = -Infinity;
  for (let c = from; wanted > 0 && c < to; c += 4) {
    if (count == wanted && !v128.any_true(f32x4.gt(four(x, c), f32x4.splat(last)))) continue;
    const end = min<u32>(c + 4, to);
    for (let id = c; id < end; id++) {
      const value = load<f32>(x + <usize>id * 4);
      if (count == wanted && !(value > last)) continue;
      if (count < wanted) count++;
      insert(top, count, value, id);
      last = load<f32>(top + TOP_VALUES + (count - 1) * 4);
    }
  }
  store<f32>(top, most, TOP_MAX);
  store<u32>(top, count, TOP_COUNT);
  store<f64>(top, sum, TOP_SUM);
}

/** Puts a token behind those that are not smaller; the last of `count` places is free. */
function insert(top: usize, count: u32, value: f32, id: u32): void {
  let at = top + TOP_VALUES + (count - 1) * 4;
  const first = top + TOP_VALUES;
  const ids = TOP_IDS - TOP_VALUES;
  for (; at > first && load<f32>(at - 4) < value; at -= 4) {
    store<f32>(at, load<f32>(at - 4));
    store<u32>(at + ids, load<u32>(at - 4 + ids));
  }
  store<f32>(at, value);
  store<u32>(at + ids, id);
}

/** How many tokens of a chunk come before the row's. */
export function rankChunk(row: u32, chunk: u32): void {
  const id = word(result, row);
  const x = sourceOf(row);
  let before: u32 = 0;
  if (id < vocab && x != 0) {
    const value = load<f32>(x + <usize>id * 4);
    if (load<f32>(topOf(row, chunk), TOP_MAX) >= value) {
      const to = chunkEnd(chunk);
      const own = f32x4.splat(value);
      let hits = i32x4.splat(0);
      for (let c = chunk * CHUNK; c < to; c += 4) {
        const v = four(x, c);
        const lower = i32x4.lt_u(i32x4.add(i32x4.splat(c), i32x4(0, 1, 2, 3)), i32x4.splat(id));
        // A hit is -1.
        hits = i32x4.sub(hits, v128.or(f32x4.gt(v, own), v128.and(f32x4.eq(v, own), lower)));
      }
      before = i32x4.extract_lane(hits, 0) + i32x4.extract_lane(hits, 1)
        + i32x4.extract_lane(hits, 2) + i32x4.extract_lane(hits, 3);
    }
  }
  store<u32>(partOf(row, chunk), before, PART_BEFORE);
}

export function writeRecord(row: u32): void {
  const record = result + rows * 4 + row * R_WORDS * 4;
  memory.fill(record, 0, R_WORDS * 4);
  const id = word(result, row);
  if (id == INVALID) return;
  const features = featuresOf(row);
  const state = stateOf(row);
  if (features & F_MIROSTAT && state != 0) store<u32>(record + R_MU * 4, word(state, S_MU));
  const x = sourceOf(row);
  if ((features & F_LOGPROBS) == 0 || x == 0 || id >= vocab) return;
  let most: f32 = -Infinity;
  for (let c: u32 = 0; c < chunks; c++) most = max<f32>(most, load<f32>(topOf(row, c), TOP_MAX));
  let sum: f64 = 0;
  let before: u32 = 0;
  for (let c: u32 = 0; c < chunks; c++) {
    const top = topOf(row, c);
    const own = load<f32>(top, TOP_MAX);
    if (own > -Infinity) sum += load<f64>(top, TOP_SUM) * exp1(own - most);
    before += load<u32>(partOf(row, c), PART_BEFORE);
  }
  const total = Math.log(sum);
  const value = load<f32>(x + <usize>id * 4);
  store<f32>(record, <f32>(<f64>value - <f64>most - total));
  store<u32>(record + R_RANK * 4, before + 1);
  const wanted = min<u32>(min<u32>(parameter(row, P_TOP_LOGPROBS), MOST_LOGPROBS), vocab);
  store<u32>(record + R_COUNT * 4, wanted);
  for (let i: u32 = 0; i < wanted; i++) {
    const chunk = takeFirst(row);
    const top = topOf(row, chunk);
    // What is left of a chunk's tokens stands at the front.
    store<u32>(record + (R_IDS + i) * 4, load<u32>(top + TOP_IDS));
    store<f32>(record + (R_LOGPROBS + i) * 4, <f32>(<f64>load<f32>(top + TOP_VALUES) - <f64>most - total));
    const left = load<u32>(top, TOP_COUNT) - 1;
    store<u32>(top, left, TOP_COUNT);
    memory.copy(top + TOP_VALUES, top + TOP_VALUES + 4, left * 4);
    memory.copy(top + TOP_IDS, top + TOP_IDS + 4, left * 4);
  }
}

/** The chunk whose first token comes first. */
function takeFirst(row: u32): u32 {
  let found: u32 = 0;
  let best: f32 = -Infinity;
  let none = true;
  for (let c: u32 = 0; c < chunks; c++) {
    const top = topOf(row, c);
    if (load<u32>(top, TOP_COUNT) == 0) continue;
    const value = load<f32>(top + TOP_VALUES);
    if (none || value > best) {
      found = c;
      best = value;
      none = false;
    }
  }
  return found;
}
