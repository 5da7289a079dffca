/**
 * The state of one slot: a range of memory that the kernels read and carry on (assembly/sample-state.ts), made and
 * rebuilt here. Nothing is in it that the row's features do not ask for.
 */
import { FEATURE, HISTORY_FEATURES, type RowSpec } from '../sampling.js';
import { equalSpecs, matchLengths, SyncedTokens, tokensSinceBreaker } from '../sampling-state.js';
import type { Allocation, DeviceMemory, MemorySet } from './memory.js';
import { keepsRaw } from './sample-wants.js';
import * as w from './sample-words.js';

/** Where the arrays of a state lie, in words from its start; 0 for one that it has not. */
interface StateLayout {
  readonly history: number;
  readonly mask: number;
  readonly bias: number;
  readonly withheld: number;
  readonly banned: number;
  readonly index: number;
  readonly entries: number;
  readonly matches: number;
  readonly breakers: number;
  readonly breaking: number;
  readonly raw: number;
  readonly words: number;
}

function layoutOf(spec: RowSpec, vocab: number, capacity: number): StateLayout {
  const { features } = spec;
  const has = (bits: number): boolean => (features & bits) !== 0;
  let at = w.S_WORDS;
  const take = (wanted: boolean, words: number): number => {
    if (!wanted) return 0;
    const own = at;
    // Vectors of four begin on their size.
    at += Math.ceil(words / 4) * 4;
    return own;
  };
  const dry = has(FEATURE.DRY);
  const entries = has(FEATURE.REPETITION | FEATURE.COUNTS | FEATURE.DRY);
  const windowed = has(FEATURE.REPETITION) && spec.repetitionWindow > 0;
  const reach = spec.dryWindow > 0 ? Math.min(spec.dryWindow, capacity) : capacity;
  return {
    history: take(dry || has(FEATURE.BANNED) || windowed, capacity),
    mask: take(has(FEATURE.MASK), Math.ceil(vocab / 32)),
    bias: take(has(FEATURE.BIAS), 2 * spec.biasIds.length),
    withheld: take(has(FEATURE.MIN_TOKENS), spec.withheld.length),
    banned: take(has(FEATURE.BANNED), sequenceWords(spec.banned)),
    index: take(entries, vocab),
    entries: take(entries, Math.min(vocab, capacity) * w.E_WORDS),
    matches: take(dry, reach + 3),
    breakers: take(dry, spec.breakers.ids.length),
    breaking: take(dry, sequenceWords(spec.breakers.sequences)),
    raw: take(keepsRaw(features), vocab),
    words: at,
  };
}

function sequenceWords(sequences: readonly Uint32Array[]): number {
  return sequences.reduce((sum, ids) => sum + ids.length + 1, 0);
}

export class CpuSlotState {
  readonly spec: RowSpec;
  readonly promptLength: number;
  readonly allocation: Allocation;
  readonly #vocab: number;
  readonly #capacity: number;
  readonly #layout: StateLayout;
  readonly #u32: Uint32Array<ArrayBufferLike>;
  readonly #f32: Float32Array<ArrayBufferLike>;
  /** Null where tokens are of no account. */
  readonly #synced: SyncedTokens | null;

  /** Errors: `device-out-of-memory`. */
  constructor(
    set: MemorySet,
    memory: DeviceMemory,
    spec: RowSpec,
    promptLength: number,
    size: { readonly vocab: number; readonly maxContext: number },
  ) {
    this.spec = spec;
    this.promptLength = promptLength;
    this.#vocab = size.vocab;
    this.#capacity = size.maxContext + 1;
    this.#layout = layoutOf(spec, size.vocab, this.#capacity);
    const { words } = this.#layout;
    this.allocation = set.allocateIn(memory, words * 4);
    const { at } = this.allocation;
    this.#u32 = memory.u32(at, words);
    this.#f32 = memory.f32(at, words);
    this.#synced = (spec.features & HISTORY_FEATURES) === 0 ? null : new SyncedTokens(size.maxContext);
    this.#writeHead();
  }

  /** Whether this state can go on under a spec and a prompt length. */
  suits(spec: RowSpec, promptLength: number): boolean {
    return promptLength === this.promptLength && equalSpecs(spec, this.spec);
  }

  /** Makes it hold a history, and μ. */
  sync(history: Int32Array, mu: number): void {
    this.#f32[w.S_MU] = mu;
    const synced = this.#synced;
    if (synced === null) return;
    const change = synced.compare(history);
    if (change === 'equal') return;
    const from = change === 'continued' ? synced.length : 0;
    if (from === 0) this.#clear();
    for (let n = from; n < history.length; n++) this.#absorb(history, n);
    const { matches } = this.#layout;
    if (matches > 0) {
      const { dryWindow, breakers } = this.spec;
      const reach = dryWindow > 0 ? Math.min(dryWindow, this.#capacity) : this.#capacity;
      const lengths = new Uint32Array(history.length);
      matchLengths(history, dryWindow, lengths);
      this.#u32.fill(0, matches, matches + reach + 3);
      this.#u32.set(lengths.subarray(0, reach), matches);
      this.#u32[w.S_MATCHED] = history.length;
      this.#u32[w.S_SINCE] = tokensSinceBreaker(history, breakers);
    }
    synced.set(history);
  }

  /** A token that a retired step drew. */
  note(position: number, id: number): void {
    this.#synced?.put(position, id);
  }

  /** False if the state has no mask. */
  setMask(mask: Uint32Array): boolean {
    const { mask: at } = this.#layout;
    if (at === 0) return false;
    this.#u32.set(mask, at);
    return true;
  }

  #writeHead(): void {
    const { spec } = this;
    const layout = this.#layout;
    const words = this.#u32;
    const address = (at: number): number => (at === 0 ? 0 : this.allocation.at + at * 4);
    words.fill(0, 0, w.S_WORDS);
    words[w.S_CAPACITY] = this.#capacity;
    words[w.S_HISTORY] = address(layout.history);
    words[w.S_MASK] = address(layout.mask);
    if (layout.mask > 0) words.fill(0xffff_ffff, layout.mask, layout.mask + Math.ceil(this.#vocab / 32));
    words[w.S_BIAS] = address(layout.bias);
    if (layout.bias > 0) {
      words[w.S_BIAS_COUNT] = spec.biasIds.length;
      words.set(spec.biasIds, layout.bias);
      this.#f32.set(spec.biasValues, layout.bias + spec.biasIds.length);
    }
    words[w.S_WITHHELD] = address(layout.withheld);
    if (layout.withheld > 0) {
      words[w.S_WITHHELD_COUNT] = spec.withheld.length;
      words.set(spec.withheld, layout.withheld);
    }
    words[w.S_BANNED] = address(layout.banned);
    if (layout.banned > 0) {
      words[w.S_BANNED_COUNT] = spec.banned.length;
      this.#writeSequences(spec.banned, layout.banned);
    }
    words[w.S_INDEX] = address(layout.index);
    words[w.S_ENTRIES] = address(layout.entries);
    words[w.S_WINDOW] = spec.features & FEATURE.REPETITION ? spec.repetitionWindow : 0;
    words[w.S_MATCHES] = address(layout.matches);
    words[w.S_DRY_WINDOW] = spec.dryWindow;
    words[w.S_BREAKERS] = address(layout.breakers);
    words[w.S_BREAKING] = address(layout.breaking);
    if (layout.breakers > 0) {
      words[w.S_BREAKER_COUNT] = spec.breakers.ids.length;
      words.set(spec.breakers.ids, layout.breakers);
      words[w.S_BREAKING_COUNT] = spec.breakers.sequences.length;
      this.#writeSequences(spec.breakers.sequences, layout.breaking);
    }
    words[w.S_RAW] = address(layout.raw);
    this.#clear();
  }

  #writeSequences(sequences: readonly Uint32Array[], at: number): void {
    let to = at;
    for (const ids of sequences) {
      this.#u32[to] = ids.length;
      this.#u32.set(ids, to + 1);
      to += ids.length + 1;
    }
  }

  /** To no tokens at all. */
  #clear(): void {
    const { index } = this.#layout;
    if (index > 0) this.#u32.fill(0, index, index + this.#vocab);
    this.#u32[w.S_ENTRY_COUNT] = 0;
  }

  /** As absorb of assembly/sample-state.ts, but for what follows from the whole history. */
  #absorb(history: Int32Array, n: number): void {
    const { history: at, index } = this.#layout;
    const id = history[n]!;
    if (at > 0) this.#u32[at + n] = id;
    if (index === 0) return;
    const entry = this.#entry(id, true);
    if (entry > 0) {
      this.#u32[entry + w.E_SEEN]!++;
      if (n >= this.promptLength) this.#u32[entry + w.E_GENERATED]!++;
    }
    const window = this.#u32[w.S_WINDOW]!;
    if (window === 0 || n < window) return;
    const old = this.#entry(history[n - window]!, false);
    if (old > 0) this.#u32[old + w.E_SEEN]!--;
  }

  /** Where an id's entry is, made if it is wanted; 0: there is none. */
  #entry(id: number, make: boolean): number {
    if (!(id >= 0 && id < this.#vocab)) return 0;
    const { index, entries } = this.#layout;
    const words = this.#u32;
    let place = words[index + id]!;
    if (place === 0) {
      if (!make) return 0;
      place = words[w.S_ENTRY_COUNT]! + 1;
      words[w.S_ENTRY_COUNT] = place;
      words[index + id] = place;
      const at = entries + (place - 1) * w.E_WORDS;
      words.fill(0, at, at + w.E_WORDS);
      words[at + w.E_ID] = id;
    }
    return entries + (place - 1) * w.E_WORDS;
  }
}
