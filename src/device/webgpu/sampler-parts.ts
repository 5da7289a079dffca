/** What the sampler keeps of a slot: which parts, how large, and what stands in them after a history. */

import { FEATURE, PENALTY_FEATURES, type RowSpec, STATE_FEATURES } from '../sampling.js';
import { countTokens, matchLengths, tokensSinceBreaker } from '../sampling-state.js';
import { LISTS, LISTS_HEAD } from './kernels/sample-penalties.js';
import { STATE_PARTS, type StatePart } from './step-buffer.js';

/** What all slots of a program have in common. */
export interface SamplerShape {
  readonly vocab: number;
  /** Elements from a row of logits to the next. */
  readonly stride: number;
  readonly maxContext: number;
}

/** Where each part of a slot stands, in the order of STATE_PARTS, and how many vectors they take together. */
export interface PartsLayout {
  /** Relative to the slot's stretch, which begins with the head; 0 for other parts: not there. */
  readonly at: Uint32Array;
  readonly vectors: number;
}

const HEAD_VECTORS = 1;

/** Null if the spec needs nothing kept. */
export function layoutParts(spec: RowSpec, shape: SamplerShape): PartsLayout | null {
  const has = (bits: number): boolean => (spec.features & bits) !== 0;
  if (!has(STATE_FEATURES)) return null;
  const { vocab, stride, maxContext } = shape;
  const reach = (window: number): number => (window === 0 ? maxContext : Math.min(window, maxContext));
  const dry = has(FEATURE.DRY);
  const repetitionRing =
    has(FEATURE.REPETITION) && spec.repetitionWindow > 0 ? reach(spec.repetitionWindow) : 0;
  const breaking = dry && spec.breakers.sequences.length > 0;
  const longest = breaking || has(FEATURE.BANNED) ? 32 : 0;
  const ring = Math.max(dry ? reach(spec.dryWindow) : 0, repetitionRing, longest);
  const words: Partial<Record<StatePart, number>> = {
    processed: has(PENALTY_FEATURES) ? stride : 0,
    seen: has(FEATURE.REPETITION) ? vocab : 0,
    generated: has(FEATURE.COUNTS) ? vocab : 0,
    matched: dry ? vocab : 0,
    history: ring === 0 ? 0 : ring + 1,
    lengths: dry ? reach(spec.dryWindow) : 0,
    mask: has(FEATURE.MASK) ? Math.ceil(vocab / 32) : 0,
    lists: has(FEATURE.BIAS | FEATURE.MIN_TOKENS | FEATURE.BANNED) || breaking ? packLists(spec).length : 0,
    breakers: dry && spec.breakers.ids.length > 0 ? Math.ceil(vocab / 32) : 0,
  };
  const at = new Uint32Array(STATE_PARTS.length);
  let vectors = HEAD_VECTORS;
  STATE_PARTS.forEach((part, i) => {
    const count = words[part] ?? 0;
    if (count === 0) return;
    at[i] = vectors;
    vectors += Math.ceil(count / 4);
  });
  at[STATE_PARTS.indexOf('ring')] = ring === 0 ? 0 : ring + 1;
  return { at, vectors };
}

/** The lists of a slot as kernels read them: see LISTS. */
export function packLists(spec: RowSpec): Uint32Array {
  const { biasIds, biasValues, withheld, banned, breakers } = spec;
  const head = new Uint32Array(LISTS_HEAD);
  const parts: Uint32Array[] = [head];
  let at = LISTS_HEAD;
  const add = (words: Uint32Array): number => {
    parts.push(words);
    at += words.length;
    return at - words.length;
  };
  head[LISTS.biasCount] = biasIds.length;
  head[LISTS.biasAt] = add(biasIds);
  add(new Uint32Array(biasValues.slice().buffer));
  head[LISTS.withheldCount] = withheld.length;
  head[LISTS.withheldAt] = add(withheld);
  head[LISTS.bannedCount] = banned.length;
  head[LISTS.bannedAt] = add(packSequences(banned, at));
  head[LISTS.breakerCount] = breakers.sequences.length;
  head[LISTS.breakerAt] = add(packSequences(breakers.sequences, at));
  const out = new Uint32Array(at);
  let offset = 0;
  for (const part of parts) {
    out.set(part, offset);
    offset += part.length;
  }
  return out;
}

/** (where it stands, its length) for each sequence, then their tokens. `base`: where the table will stand. */
function packSequences(sequences: readonly Uint32Array[], base: number): Uint32Array {
  const total = sequences.reduce((sum, s) => sum + s.length, 0);
  const out = new Uint32Array(sequences.length * 2 + total);
  let at = sequences.length * 2;
  sequences.forEach((sequence, i) => {
    out[i * 2] = base + at;
    out[i * 2 + 1] = sequence.length;
    out.set(sequence, at);
    at += sequence.length;
  });
  return out;
}

/**
 * What stands in each part after a history. Parts that follow from the spec alone are there only with `all`: lists,
 * breakers, and a mask that allows everything. `matched` is left out: it holds zeros.
 */
export function fillParts(
  spec: RowSpec,
  layout: PartsLayout,
  shape: SamplerShape,
  history: Int32Array,
  promptLength: number,
  all: boolean,
): Map<StatePart, Uint32Array> {
  const out = new Map<StatePart, Uint32Array>();
  const has = (part: StatePart): boolean => layout.at[STATE_PARTS.indexOf(part)] !== 0;
  const make = (part: StatePart, words: number): Uint32Array | null => {
    if (!has(part)) return null;
    const array = new Uint32Array(words);
    out.set(part, array);
    return array;
  };
  const n = history.length;
  const dry = has('lengths');
  out.set('head', headOf(spec, history, dry));
  const seen = make('seen', shape.vocab);
  const generated = make('generated', shape.vocab);
  if (seen !== null || generated !== null)
    countTokens(history, promptLength, spec.repetitionWindow, seen, generated);
  const ring = layout.at[STATE_PARTS.indexOf('ring')]!;
  const tokens = make('history', ring);
  if (tokens !== null) for (let i = Math.max(0, n - ring); i < n; i++) tokens[i % ring] = history[i]!;
  if (dry) out.set('lengths', lengthsOf(spec, shape, history));
  if (!all) return out;
  make('mask', Math.ceil(shape.vocab / 32))?.fill(0xffff_ffff);
  if (has('lists')) out.set('lists', packLists(spec));
  const breakers = make('breakers', Math.ceil(shape.vocab / 32));
  if (breakers !== null) {
    for (const id of spec.breakers.ids) {
      if (id < shape.vocab) breakers[id >> 5] = breakers[id >> 5]! | (1 << (id & 31));
    }
  }
  return out;
}

/** (μ, where the last breaker ended, tokens that the lengths have taken in, 0). */
function headOf(spec: RowSpec, history: Int32Array, dry: boolean): Uint32Array {
  const n = history.length;
  const breakerEnd = dry ? n - tokensSinceBreaker(history, spec.breakers) : 0;
  return Uint32Array.of(new Uint32Array(Float32Array.of(spec.mu).buffer)[0]!, breakerEnd, n, 0);
}

function lengthsOf(spec: RowSpec, shape: SamplerShape, history: Int32Array): Uint32Array {
  const window = spec.dryWindow === 0 ? shape.maxContext : Math.min(spec.dryWindow, shape.maxContext);
  const lengths = new Uint32Array(Math.max(window, history.length));
  matchLengths(history, spec.dryWindow, lengths);
  return lengths.subarray(0, window);
}

/** Words of a part, from its word `at` on. */
export interface PartWrite {
  readonly part: StatePart;
  readonly at: number;
  readonly words: Uint32Array;
}

/** With more ids than this counts are written whole. */
const MOST_IDS = 64;

/**
 * What has to be written when a state that holds the first `from` tokens of a history goes on to all of it: the new
 * tokens, the counts of ids that came or left a window, and match lengths, of which a new token leaves none as it was.
 */
export function tailWrites(
  spec: RowSpec,
  layout: PartsLayout,
  shape: SamplerShape,
  history: Int32Array,
  from: number,
  promptLength: number,
): readonly PartWrite[] {
  const n = history.length;
  const has = (part: StatePart): boolean => layout.at[STATE_PARTS.indexOf(part)] !== 0;
  const dry = has('lengths');
  const out: PartWrite[] = [{ part: 'head', at: 0, words: headOf(spec, history, dry) }];
  // Those of distances that the history does not reach are zero, before and after.
  if (dry) out.push({ part: 'lengths', at: 0, words: lengthsOf(spec, shape, history).subarray(0, n) });
  const ring = layout.at[STATE_PARTS.indexOf('ring')]!;
  for (let i = Math.max(from, n - ring); has('history') && i < n; ) {
    const length = Math.min(n - i, ring - (i % ring));
    out.push({ part: 'history', at: i % ring, words: Uint32Array.from(history.subarray(i, i + length)) });
    i += length;
  }
  const { repetitionWindow: window } = spec;
  if (has('seen')) {
    const ids = history.slice(from);
    const left = window === 0 ? [] : history.slice(Math.max(0, from - window), Math.max(0, n - window));
    out.push(...countWrites('seen', [...ids, ...left], history, window === 0 ? 0 : n - window, shape));
  }
  if (has('generated')) {
    const first = Math.max(from, promptLength);
    out.push(...countWrites('generated', history.slice(first), history, promptLength, shape));
  }
  return out;
}

/** The counts of some ids among the tokens of a history from `first` on. */
function countWrites(
  part: StatePart,
  ids: Iterable<number>,
  history: Int32Array,
  first: number,
  { vocab }: SamplerShape,
): PartWrite[] {
  const counts = new Map<number, number>();
  for (const id of ids) if (id < vocab) counts.set(id, 0);
  const counted = history.subarray(Math.max(0, first));
  if (counts.size > MOST_IDS) {
    const words = new Uint32Array(vocab);
    countTokens(counted, 0, 0, words, null);
    return [{ part, at: 0, words }];
  }
  for (const id of counted) {
    const count = counts.get(id);
    if (count !== undefined) counts.set(id, count + 1);
  }
  return [...counts].map(([id, count]) => ({ part, at: id, words: Uint32Array.of(count) }));
}
