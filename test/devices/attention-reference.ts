/**
 * What attention over a paged cache comes to, in float64: a history of what each slot has stored, and the rows of each step.
 * All that devices are asked of one case and seed is the same, so a step is computed for the first of them and kept for
 * the others.
 */
import type { KvFormat } from '../../src/device/kv.js';
import type { RopeSections } from '../../src/device/rope.js';
import type { AttentionCase, Pictures, Standing } from './attention-case.js';
import { encodeVector, type KvSide, storeVector } from './kv-codec.js';
import { Random, roundF16 } from './numbers.js';
import * as reference from './reference.js';

/** Slots of a bench. */
export const SLOTS = 8;
/** Factors within one binary order. */
const PLACES = Array.from({ length: 8 }, (_, i) => 2 ** (i / 8));

/** A step of a case: what goes in, `[rows, (heads + 2 · kvHeads) · headDim]`, and what comes of it. */
export interface AttentionStep {
  readonly rows: number;
  readonly qkv: Float32Array;
  /** Where each sequence begins. */
  readonly positions: readonly number[];
  readonly expected: Float64Array;
  readonly expectedQ: Float64Array;
  /**
   * Where scores are large, what queries and keys rounded to f16 would make of it: at several places between two powers of two, for what
   * a kernel has scaled is rounded elsewhere. Before anything is converted.
   */
  halves(): readonly Float64Array[];
}

interface Stored {
  readonly slot: number;
  readonly head: number;
  readonly key: Float64Array;
  readonly value: Float64Array;
  /** As a float tail has it: null where there is none. */
  readonly newest: Newest | null;
}

interface Newest {
  readonly key: Float64Array;
  readonly value: Float64Array;
}

interface Kept {
  readonly step: AttentionStep;
  readonly stored: readonly Stored[];
  readonly random: number;
}

/** By case, seed and all that was asked before. Of one test file. */
const kept = new Map<string, Kept>();
let keptBytes = 0;
const MOST_KEPT_BYTES = 384 * 2 ** 20;

export class AttentionReference {
  readonly norms: { readonly q: Float32Array; readonly k: Float32Array } | null;
  /** Scales of keys, of queries, mean: `[3, kvHeads, headDim]`. */
  readonly centre: Float32Array | null;
  readonly sinks: Float32Array | null;
  readonly frequencies: Float64Array;
  /** Slots that are kept as floats until they are converted. */
  readonly floatStart: Set<number>;
  readonly #case: AttentionCase;
  readonly #random: Random;
  readonly #keys: Float64Array[][][] = [];
  readonly #values: Float64Array[][][] = [];
  /** What a float tail has of each slot and head. */
  readonly #newest: (Newest | null)[][][] = [];
  /** What was asked so far; null once that was more than this class can see. */
  #asked: string | null;

  constructor(c: AttentionCase, seed: number) {
    const random = new Random(seed);
    this.#case = c;
    this.#random = random;
    this.#asked = JSON.stringify([c, seed]);
    this.norms = c.norm ? { q: random.normals(c.headDim), k: random.normals(c.headDim) } : null;
    this.centre = c.centre === undefined ? null : drawCentre(random, c);
    this.sinks = c.sinks === undefined ? null : random.normals(c.heads, c.sinks);
    const dims = c.ropeDims ?? c.headDim;
    this.frequencies = Float64Array.from({ length: dims / 2 }, (_, i) => 10000 ** ((-2 * i) / dims));
    this.floatStart = new Set(c.floatStart?.slots ?? []);
    for (let s = 0; s < SLOTS; s++) {
      this.#keys.push(Array.from({ length: c.kvHeads }, () => []));
      this.#values.push(Array.from({ length: c.kvHeads }, () => []));
      this.#newest.push(Array.from({ length: c.kvHeads }, () => []));
    }
  }

  context(slot: number): number {
    return this.#keys[slot]![0]!.length;
  }

  /** Stores a slot that was float-start in the formats of the case. */
  convert(slot: number): void {
    const { key, value } = this.#case;
    this.#note('convert', slot);
    this.floatStart.delete(slot);
    const store = (history: Float64Array[][], format: KvFormat, side: KvSide): void => {
      for (const vectors of history)
        vectors.forEach((x, t) => {
          vectors[t] = storeVector(format, side, x);
        });
    };
    store(this.#keys[slot]!, key, 'key');
    store(this.#values[slot]!, value, 'value');
  }

  /** Slot `to` holds what slot `from` does. */
  adopt(from: number, to: number): void {
    this.#note('adopt', from, to);
    this.#keys[to] = this.#keys[from]!.map((head) => [...head]);
    this.#values[to] = this.#values[from]!.map((head) => [...head]);
    this.#newest[to] = this.#newest[from]!.map((head) => [...head]);
  }

  /** Appends tokens to slots: of `data`, or drawn. */
  step(
    slots: readonly number[],
    lengths: readonly number[],
    standing: readonly Standing[],
    pictures: readonly Pictures[],
    data: Float32Array | undefined,
  ): AttentionStep {
    if (data === undefined) this.#note('step', slots, lengths, standing, pictures);
    else this.#asked = null;
    const known = this.#asked === null ? undefined : kept.get(this.#asked);
    if (known !== undefined) {
      for (const one of known.stored) this.#store(one);
      this.#random.state = known.random;
      return known.step;
    }
    const stored: Stored[] = [];
    const rows = lengths.reduce((a, b) => a + b, 0);
    const step = this.#compute(slots, lengths, standing, pictures, data ?? this.#drawn(rows), stored);
    const bytes = step.qkv.byteLength + 2 * step.expected.byteLength + 2 * byteLength(stored);
    if (this.#asked !== null && keptBytes + bytes <= MOST_KEPT_BYTES) {
      keptBytes += bytes;
      kept.set(this.#asked, { step, stored, random: this.#random.state });
    }
    return step;
  }

  /** Rows of q, k and v for a step to be given as its data. */
  draw(rows: number): Float32Array {
    this.#asked = null;
    return this.#drawn(rows);
  }

  #note(...what: unknown[]): void {
    if (this.#asked !== null) this.#asked += JSON.stringify(what);
  }

  #store({ slot, head, key, value, newest }: Stored): void {
    this.#keys[slot]![head]!.push(key);
    this.#values[slot]![head]!.push(value);
    this.#newest[slot]![head]!.push(newest);
  }

  /** What a token at `position` reads of `side` before `end`: of a float tail from where that begins. */
  #read(side: keyof Newest, slot: number, head: number, position: number, end: number): Float64Array[] {
    const { tail } = this.#case;
    const stored = (side === 'key' ? this.#keys : this.#values)[slot]![head]!.slice(0, end);
    if (tail === undefined) return stored;
    const from = Math.max(0, position + 1 - tail.tokens);
    const newest = this.#newest[slot]![head]!;
    return stored.map((x, at) => (at < from ? x : newest[at]![side]));
  }

  #compute(
    slots: readonly number[],
    lengths: readonly number[],
    standing: readonly Standing[],
    pictures: readonly Pictures[],
    qkv: Float32Array,
    stored: Stored[],
  ): AttentionStep {
    const { heads, kvHeads, headDim, window = null, softcap = null, spread = 1 } = this.#case;
    const { valueDim } = this.#case;
    const given = valueDim ?? headDim;
    const width = rowWidth(this.#case);
    const rows = qkv.length / width;
    const positions = slots.map((s) => this.context(s));
    const expected = new Float64Array(rows * heads * given);
    const expectedQ = new Float64Array(rows * heads * headDim);
    /** Attention of one head again, with its operands rounded so. */
    const again: ((round: (v: number) => number) => Float64Array)[] = [];
    const eachToken = (visit: (slot: number, s: number, row: number, i: number) => void): void => {
      let row = 0;
      slots.forEach((slot, s) => {
        for (let i = 0; i < lengths[s]!; i++, row++) visit(slot, s, row, i);
      });
    };
    const head = (row: number, h: number): Float64Array =>
      Float64Array.from(qkv.subarray(row * width + h * headDim, row * width + (h + 1) * headDim));
    const placesOf = (s: number, i: number): readonly number[] => {
      const own = standing[s]!;
      return typeof own === 'number' ? AXES.map(() => positions[s]! + i + own) : own[i]!;
    };
    eachToken((slot, s, row, i) => {
      const position = positions[s]! + i;
      for (let h = 0; h < kvHeads; h++) {
        const k = this.#turned(head(row, heads + h), 'k', position, placesOf(s, i));
        const formats = this.#formats(slot, position);
        const key = this.#storeKey(formats.key, k, h, position);
        const storedValue = (format: KvFormat, of: Float64Array): Float64Array =>
          valueDim === undefined
            ? storeVector(format, 'value', head(row, heads + kvHeads + h))
            : of.slice(headDim - valueDim);
        const value = storedValue(formats.value, key);
        const { tail } = this.#case;
        const float: KvFormat | null = tail ? { kind: 'float', dtype: tail.dtype } : null;
        const newestKey = float && this.#storeKey(float, k, h, position);
        const newest = float && newestKey && { key: newestKey, value: storedValue(float, newestKey) };
        const one = { slot, head: h, key, value, newest };
        this.#store(one);
        stored.push(one);
      }
    });
    eachToken((slot, s, row, i) => {
      const position = positions[s]! + i;
      const end = seenEnd(position, pictures[s]);
      for (let h = 0; h < heads; h++) {
        const kv = Math.floor(h / (heads / kvHeads));
        const q = this.#scaled(this.#turned(head(row, h), 'q', position, placesOf(s, i)), 1, kv);
        expectedQ.set(q, (row * heads + h) * headDim);
        const keys = this.#read('key', slot, kv, position, end);
        const values = this.#read('value', slot, kv, position, end);
        const options = {
          position,
          scale: 1 / Math.sqrt(headDim),
          window,
          softcap,
          ...(this.sinks && { sink: this.sinks[h]! }),
        };
        expected.set(reference.attendOne(q, keys, values, options), (row * heads + h) * given);
        if (spread <= 1) continue;
        again.push((round) =>
          reference.attendOne(
            q.map(round),
            keys.map((key) => key.map(round)),
            values,
            options,
          ),
        );
      }
    });
    const halves = (): Float64Array[] =>
      (spread > 1 ? PLACES : []).map((place) => {
        const out = new Float64Array(expected.length);
        again.forEach((attend, i) => {
          out.set(
            attend((v) => roundF16(v * place) / place),
            i * given,
          );
        });
        return out;
      });
    return { rows, qkv, positions, expected, expectedQ, halves };
  }

  #formats(slot: number, position: number): { key: KvFormat; value: KvFormat } {
    const { key, value, floatStart, head } = this.#case;
    if (head !== undefined && position < head.tokens) {
      const float: KvFormat = { kind: 'float', dtype: head.dtype };
      return { key: float, value: float };
    }
    if (floatStart === undefined || !this.floatStart.has(slot)) return { key, value };
    const float: KvFormat = { kind: 'float', dtype: floatStart.dtype };
    return { key: float, value: float };
  }

  /** Vectors that f32 arithmetic might store otherwise than float64 are drawn again. */
  #drawn(rows: number): Float32Array {
    const { heads, kvHeads, headDim, key, value, floatStart } = this.#case;
    const width = rowWidth(this.#case);
    const qkv = this.#random.normals(rows * width, this.#case.spread ?? 1);
    for (let at = 0; at < qkv.length; at += headDim) {
      const h = (at % width) / headDim;
      if (h < heads) continue;
      const side: KvSide = h < heads + kvHeads ? 'key' : 'value';
      const format = side === 'key' ? key : value;
      const decided = (): boolean => {
        const x = qkv.subarray(at, at + headDim);
        return (
          isDecided(format, side, x) && (floatStart === undefined || isDecided(format, side, x.map(roundF16)))
        );
      };
      while (!decided()) {
        qkv.set(this.#random.normals(headDim, this.#case.spread ?? 1), at);
      }
    }
    return qkv;
  }

  /** Part `part` of the centre for a KV head. */
  #centreOf(part: 0 | 1 | 2, head: number): Float32Array {
    const { kvHeads, headDim } = this.#case;
    return this.centre!.subarray((part * kvHeads + head) * headDim, (part * kvHeads + head + 1) * headDim);
  }

  #scaled(x: Float64Array, part: 0 | 1, head: number): Float64Array {
    return this.centre === null ? x : x.map((value, d) => value * this.#centreOf(part, head)[d]!);
  }

  /** A key as it is stored, and what was taken off it put back. */
  #storeKey(format: KvFormat, key: Float64Array, head: number, position: number): Float64Array {
    if (this.centre === null) return storeVector(format, 'key', key);
    const mean = Float64Array.from(this.#centreOf(2, head));
    if (this.#case.centre === 'turning') this.#rotate(mean, position - (position % 256));
    const off = this.#scaled(key, 0, head).map((value, d) => value - mean[d]!);
    return storeVector(format, 'key', off).map((value, d) => value + mean[d]!);
  }

  /** Norm, rotation and growth of a head. */
  #turned(x: Float64Array, which: 'q' | 'k', position: number, places: readonly number[]): Float64Array {
    const { normAfter = false, growth } = this.#case;
    const first = normAfter ? x : this.#normed(x, which);
    this.#rotate(first, position, places);
    const turned = normAfter ? this.#normed(first, which) : first;
    if (which === 'k' || growth === undefined) return turned;
    const factor = 1 + growth.beta * Math.log(1 + Math.floor(position / growth.every));
    return turned.map((value) => value * factor);
  }

  #normed(x: Float64Array, which: 'q' | 'k'): Float64Array {
    if (this.norms === null) return x;
    return reference.rmsNorm(x, this.norms[which], 1, x.length, 1e-6);
  }

  #rotate(x: Float64Array, position: number, places: readonly number[] = []): void {
    const { rope = 'half', sections } = this.#case;
    if (rope === null) return;
    if (sections === undefined) reference.rotate(x, position, this.frequencies, rope);
    else {
      const own = pairAxes(sections).map((axis) => places[axis]!);
      // By frequencies that hold the position.
      reference.rotate(
        x,
        1,
        this.frequencies.map((frequency, i) => frequency * own[i]!),
        rope,
      );
    }
  }
}

/** Columns of a row of q, k and v; there is no v where it is a view of k. */
export function rowWidth({ heads, kvHeads, headDim, valueDim }: AttentionCase): number {
  return (heads + (valueDim === undefined ? 2 : 1) * kvHeads) * headDim;
}

const AXES = [0, 1, 2];

/** Where what a token sees ends: behind itself, or behind the picture that it is in. */
export function seenEnd(position: number, pictures: Pictures = []): number {
  return pictures.find(([from, to]) => from <= position && position < to)?.[1] ?? position + 1;
}

/** The axis of each pair, as transformers lays the frequencies of Qwen2-VL and Qwen3-VL out. */
export function pairAxes({ sizes, interleaved }: RopeSections): number[] {
  const [time, height, width] = sizes;
  const runs = sizes.flatMap((size, axis) => Array<number>(size).fill(axis));
  if (!interleaved) return runs;
  const out = Array<number>(time + height + width).fill(0);
  for (let i = 1; i < 3 * height; i += 3) out[i] = 1;
  for (let i = 2; i < 3 * width; i += 3) out[i] = 2;
  return out;
}

function drawCentre(
  random: Random,
  { kvHeads, headDim, rope, ropeDims = headDim }: AttentionCase,
): Float32Array {
  const size = kvHeads * headDim;
  const centre = random.normals(3 * size, 3);
  for (let at = 0; at < size; at += headDim)
    for (let d = 0; d < headDim; d++) {
      // The two of a pair have one scale.
      const pair = rope === 'interleaved' ? d - (d % 2) : d < ropeDims ? d % (ropeDims / 2) : d;
      const scale = Math.fround(2 ** (((pair * 7) % 11) / 5 - 1));
      centre[at + d] = scale;
      centre[size + at + d] = 1 / scale;
    }
  return centre;
}

/** Whether f32 arithmetic stores what float64 does: no code and no scale is close to its neighbour. */
function isDecided(format: KvFormat, side: KvSide, x: Float32Array): boolean {
  if (encodeVector(format, side, x).margin < (format.kind === 'turboquant' ? 1e-6 : 1e-4)) return false;
  if (format.kind !== 'affine') return true;
  for (let d = 0; d < x.length; d += format.groupSize) {
    const group = x.subarray(d, d + format.groupSize);
    const scale = (Math.max(...group) - Math.min(...group)) / (2 ** format.bits - 1);
    if (roundF16(scale * (1 - 1e-6)) !== roundF16(scale * (1 + 1e-6))) return false;
  }
  return true;
}

function byteLength(stored: readonly Stored[]): number {
  return stored.reduce((sum, { key }) => sum + key.byteLength, 0);
}
