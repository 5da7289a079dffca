/** One attention layer on a device, beside a float64 history of what each slot has stored. */
import type { Device, Matrix, Program } from '../../src/device/device.js';
import type { AttentionShape, QueryGrowth, Tensor } from '../../src/device/graph.js';
import type { KvFormat, KvPool } from '../../src/device/kv.js';
import { makeRopeTable, type RopeSections, type RopeStyle, ropeAxes } from '../../src/device/rope.js';
import { RotaryInputs } from '../../src/device/rotary-inputs.js';
import type { StepInputs } from '../../src/device/step.js';
import { encodeVector, type KvSide, storeVector } from './kv-codec.js';
import { Random, roundF16 } from './numbers.js';
import * as reference from './reference.js';
import { LIMITS, record, stepOf } from './run.js';
import { vectorSource } from './sources.js';

export interface AttentionCase extends AttentionShape {
  readonly key: KvFormat;
  readonly value: KvFormat;
  readonly norm?: boolean;
  /** The norms follow the rotation. */
  readonly normAfter?: boolean;
  readonly growth?: QueryGrowth;
  readonly rope?: RopeStyle | null;
  readonly ropeDims?: number;
  /** Pairs turn by one of three positions each. */
  readonly sections?: RopeSections;
  readonly window?: number | null;
  readonly softcap?: number | null;
  /** Each head has one more score, drawn normal, times this. */
  readonly sinks?: number;
  /** Tokens see up to the end of the picture that they are in. */
  readonly ahead?: boolean;
  readonly blockTokens?: number;
  /** Slots that are kept as floats of this type until they are converted. */
  readonly floatStart?: { readonly dtype: 'f16' | 'f32'; readonly slots: readonly number[] };
  /** The first tokens of every slot are kept as floats for good. */
  readonly head?: { readonly dtype: 'f16' | 'f32'; readonly tokens: number };
  /** Keys, values and queries are drawn normal, times this. */
  readonly spread?: number;
  /** Keys are stored scaled, and without a mean that is rotated with every 256 positions, or is the same everywhere. */
  readonly centre?: 'turning' | 'flat';
}

/** Where a sequence's tokens stand: so far from their cache indexes, or at time, height and width of each. */
export type Standing = number | readonly (readonly [number, number, number])[];

/** Runs of cache indexes, `[from, to)`: the pictures of a sequence. */
export type Pictures = readonly (readonly [from: number, to: number])[];

/** A linear behind attention. Where `keeps`, what is between them is kept for reading, and nothing can be handed over. */
export interface Behind {
  readonly weight: Matrix;
  readonly keeps: boolean;
}

const SLOTS = 8;
const SLOT_TOKENS = 1024;
/** Factors within one binary order. */
const PLACES = Array.from({ length: 8 }, (_, i) => 2 ** (i / 8));

export class AttentionBench {
  readonly #device: Device;
  readonly #case: AttentionCase;
  readonly #random: Random;
  readonly #program: Program;
  readonly #pool: KvPool;
  readonly #tensors;
  readonly #frequencies: Float64Array;
  readonly #norms: { q: Float32Array; k: Float32Array } | null;
  readonly #floatStart: Set<number>;
  /** Scales of keys, of queries, mean: `[3, kvHeads, headDim]`. */
  readonly #centre: Float32Array | null;
  readonly #sinks: Float32Array | null;
  readonly #keys: Float64Array[][][] = [];
  readonly #values: Float64Array[][][] = [];

  static async open(
    device: Device,
    c: AttentionCase,
    seed: number,
    behind: Behind | null = null,
  ): Promise<AttentionBench> {
    const random = new Random(seed);
    const norms = c.norm ? { q: random.normals(c.headDim), k: random.normals(c.headDim) } : null;
    const dims = c.ropeDims ?? c.headDim;
    const frequencies = Float64Array.from({ length: dims / 2 }, (_, i) => 10000 ** ((-2 * i) / dims));
    const blockTokens = c.blockTokens ?? 16;
    const perSlot = SLOT_TOKENS / blockTokens;
    const pool = device.createKvPool({
      layers: [{ kvHeads: c.kvHeads, headDim: c.headDim, key: c.key, value: c.value, group: 0 }],
      blocks: SLOTS * perSlot,
      blockTokens,
      slots: SLOTS,
      maxBlocksPerSlot: perSlot,
      floatStart: c.floatStart
        ? { blocks: SLOTS * perSlot, dtype: c.floatStart.dtype }
        : c.head
          ? { blocks: (SLOTS * c.head.tokens) / blockTokens, dtype: c.head.dtype, head: c.head.tokens }
          : null,
    });
    const rope =
      c.rope === null
        ? null
        : makeRopeTable({
            dims,
            style: c.rope ?? 'half',
            frequencies,
            attentionFactor: 1,
            maxContext: LIMITS.maxContext,
            axes: c.sections === undefined ? null : ropeAxes(c.sections),
          });
    const norm = norms && {
      q: await device.loadVector(vectorSource(norms.q)),
      k: await device.loadVector(vectorSource(norms.k)),
      eps: 1e-6,
      order: c.normAfter ? ('after' as const) : ('before' as const),
    };
    const centre = c.centre === undefined ? null : drawCentre(random, c);
    const keyCentre =
      centre === null
        ? null
        : { vector: await device.loadVector(vectorSource(centre)), turns: c.centre === 'turning' };
    const sinks = c.sinks === undefined ? null : random.normals(c.heads, c.sinks);
    const sinkVector = sinks && (await device.loadVector(vectorSource(sinks)));
    const shape = { heads: c.heads, kvHeads: c.kvHeads, headDim: c.headDim };
    const { graph, tensors } = record((ops) => {
      const qkv = ops.input('tokens', (c.heads + 2 * c.kvHeads) * c.headDim);
      const q = ops.keep(
        ops.ropeAppend(qkv, {
          ...shape,
          layer: 0,
          norm,
          rope,
          queryGrowth: c.growth ?? null,
          centre: keyCentre,
        }),
      );
      const turning = keyCentre?.turns === true && rope !== null ? { ...keyCentre, rope } : null;
      const { window = null, softcap = null } = c;
      const options = { window, softcap, sinks: sinkVector, centre: turning, ahead: c.ahead ?? false };
      const out = ops.attend(q, { ...shape, layer: 0, ...options });
      if (behind?.keeps !== false) ops.keep(out);
      const product = behind === null ? null : ops.keep(ops.linear(out, behind.weight));
      return { qkv, q, out: behind?.keeps === false ? null : out, product };
    });
    const program = await device.compile(graph, LIMITS, pool);
    const parts = { norms, centre, sinks };
    return new AttentionBench(device, c, random, program, pool, tensors, frequencies, parts);
  }

  private constructor(
    device: Device,
    c: AttentionCase,
    random: Random,
    program: Program,
    pool: KvPool,
    tensors: { qkv: Tensor; q: Tensor; out: Tensor | null; product: Tensor | null },
    frequencies: Float64Array,
    {
      norms,
      centre,
      sinks,
    }: {
      norms: { q: Float32Array; k: Float32Array } | null;
      centre: Float32Array | null;
      sinks: Float32Array | null;
    },
  ) {
    this.#device = device;
    this.#case = c;
    this.#random = random;
    this.#program = program;
    this.#pool = pool;
    this.#tensors = tensors;
    this.#frequencies = frequencies;
    this.#norms = norms;
    this.#centre = centre;
    this.#sinks = sinks;
    this.#floatStart = new Set(c.floatStart?.slots ?? []);
    for (let s = 0; s < SLOTS; s++) {
      const first = this.#floatStart.has(s) ? pool.spec.blocks : 0;
      pool.setBlocks(
        s,
        0,
        this.#blocksOf(s).map((block) => block + first),
      );
      pool.setBlocks(s, 0, this.#headOf(s));
    }
    for (let s = 0; s < SLOTS; s++) {
      this.#keys.push(Array.from({ length: c.kvHeads }, () => []));
      this.#values.push(Array.from({ length: c.kvHeads }, () => []));
    }
  }

  get device(): Device {
    return this.#device;
  }

  get program(): Program {
    return this.#program;
  }

  context(slot: number): number {
    return this.#keys[slot]![0]!.length;
  }

  /** Converts a slot that was float-start, to the blocks that were kept for it. */
  async convert(slot: number): Promise<void> {
    const { key, value, blockTokens = 16 } = this.#case;
    const perSlot = SLOT_TOKENS / blockTokens;
    const count = Math.ceil(this.context(slot) / blockTokens);
    const to = this.#blocksOf(slot);
    await this.#pool.convert(
      to.map((block) => block + SLOTS * perSlot).subarray(0, count),
      to.subarray(0, count),
    );
    this.#pool.setBlocks(slot, 0, to);
    this.#floatStart.delete(slot);
    const store = (history: Float64Array[][], format: KvFormat, side: KvSide): void => {
      for (const vectors of history)
        vectors.forEach((x, t) => {
          vectors[t] = storeVector(format, side, x);
        });
    };
    store(this.#keys[slot]!, key, 'key');
    store(this.#values[slot]!, value, 'value');
  }

  get pool(): KvPool {
    return this.#pool;
  }

  /**
   * Lets slot `to` go on where slot `from` stands: `move` is to bring what the blocks of the one hold to those of the
   * other. Both float-start, or neither.
   */
  async adopt(
    from: number,
    to: number,
    move: (from: Uint32Array, to: Uint32Array) => Promise<void>,
  ): Promise<void> {
    const count = Math.ceil(this.context(from) / (this.#case.blockTokens ?? 16));
    const first = this.#floatStart.has(from) ? this.#pool.spec.blocks : 0;
    const heads = this.#headOf(from).length;
    const ids = (slot: number): Uint32Array =>
      Uint32Array.of(
        ...this.#headOf(slot).subarray(0, count),
        ...this.#blocksOf(slot)
          .subarray(heads, Math.max(heads, count))
          .map((block) => block + first),
      );
    await move(ids(from), ids(to));
    this.#keys[to] = this.#keys[from]!.map((head) => [...head]);
    this.#values[to] = this.#values[from]!.map((head) => [...head]);
  }

  /** Fills with NaN the blocks of a slot that lie wholly before the window of its next token. Answers how many. */
  async spoilBehindWindow(slot: number): Promise<number> {
    const { window, blockTokens = 16 } = this.#case;
    const oldest = Math.max(0, this.context(slot) + 1 - window!);
    const blocks = this.#blocksOf(slot).subarray(0, Math.floor(oldest / blockTokens));
    if (blocks.length === 0) return 0;
    await this.#pool.prepare('transfer');
    const now = await this.#pool.read(blocks);
    // All ones are a NaN in f16, in f32, and as a scale.
    await this.#pool.write(
      blocks,
      now.map(({ length }) => new Uint8Array(length).fill(0xff)),
    );
    return blocks.length;
  }

  /** Blocks of a float head, in another order than those of the others. */
  #headOf(slot: number): Uint32Array {
    const { head, blockTokens = 16 } = this.#case;
    const heads = (head?.tokens ?? 0) / blockTokens;
    return Uint32Array.from(
      { length: heads },
      (_, i) => this.#pool.spec.blocks + (heads - 1 - i) * SLOTS + slot,
    );
  }

  #blocksOf(slot: number): Uint32Array {
    const perSlot = SLOT_TOKENS / (this.#case.blockTokens ?? 16);
    // Blocks in a scrambled order, so that nothing works by their lying side by side.
    return Uint32Array.from(
      { length: perSlot },
      (_, i) => ((slot * perSlot + i) * 173 + 29) % (SLOTS * perSlot),
    );
  }

  #formats(slot: number, position: number): { key: KvFormat; value: KvFormat } {
    const { key, value, floatStart, head } = this.#case;
    if (head !== undefined && position < head.tokens) {
      const float: KvFormat = { kind: 'float', dtype: head.dtype };
      return { key: float, value: float };
    }
    if (floatStart === undefined || !this.#floatStart.has(slot)) return { key, value };
    const float: KvFormat = { kind: 'float', dtype: floatStart.dtype };
    return { key: float, value: float };
  }

  async close(): Promise<void> {
    await this.#program.dispose();
    this.#pool.dispose();
  }

  /**
   * Appends tokens to slots and returns the attention of each, with its float64 reference, and, where scores are large,
   * what queries and keys rounded to f16 would make of it: at several places between two powers of two, for what a
   * kernel has scaled is rounded elsewhere. `out` is empty where it is not kept, `product` where there is none.
   */
  async step(
    slots: readonly number[],
    lengths: readonly number[],
    data?: Float32Array,
    standing: readonly Standing[] = slots.map(() => 0),
    pictures: readonly Pictures[] = [],
  ): Promise<{
    out: Float32Array;
    expected: Float64Array;
    expectedHalves: readonly Float64Array[];
    q: Float32Array;
    expectedQ: Float64Array;
    product: Float32Array;
    rows: number;
  }> {
    const { heads, kvHeads, headDim } = this.#case;
    const width = (heads + 2 * kvHeads) * headDim;
    const rows = lengths.reduce((a, b) => a + b, 0);
    const qkv = data ?? this.draw(rows);
    const positions = slots.map((s) => this.context(s));
    const expected = new Float64Array(rows * heads * headDim);
    // Only where scores are so large that it tells.
    const expectedHalves = ((this.#case.spread ?? 1) > 1 ? PLACES : []).map(
      (place) => [place, new Float64Array(rows * heads * headDim)] as const,
    );
    const expectedQ = new Float64Array(rows * heads * headDim);
    const eachToken = (visit: (slot: number, s: number, row: number, i: number) => void): void => {
      let row = 0;
      slots.forEach((slot, s) => {
        for (let i = 0; i < lengths[s]!; i++, row++) visit(slot, s, row, i);
      });
    };
    const headOf = (row: number, h: number): Float64Array =>
      Float64Array.from(qkv.subarray(row * width + h * headDim, row * width + (h + 1) * headDim));
    const placesOf = (s: number, i: number): readonly number[] => {
      const own = standing[s]!;
      return typeof own === 'number' ? AXES.map(() => positions[s]! + i + own) : own[i]!;
    };
    eachToken((slot, s, row, i) => {
      const position = positions[s]! + i;
      const places = placesOf(s, i);
      const head = (h: number): Float64Array => headOf(row, h);
      for (let h = 0; h < kvHeads; h++) {
        const k = this.#turned(head(heads + h), 'k', position, places);
        const v = head(heads + kvHeads + h);
        const formats = this.#formats(slot, position);
        this.#keys[slot]![h]!.push(this.#storeKey(formats.key, k, h, position));
        this.#values[slot]![h]!.push(storeVector(formats.value, 'value', v));
      }
    });
    eachToken((slot, s, row, i) => {
      const position = positions[s]! + i;
      const places = placesOf(s, i);
      const head = (h: number): Float64Array => headOf(row, h);
      const end = seenEnd(position, pictures[s]);
      for (let h = 0; h < heads; h++) {
        const q = this.#scaled(
          this.#turned(head(h), 'q', position, places),
          1,
          Math.floor(h / (heads / kvHeads)),
        );
        expectedQ.set(q, (row * heads + h) * headDim);
        const kv = Math.floor(h / (heads / kvHeads));
        const keys = this.#keys[slot]![kv]!.slice(0, end);
        const values = this.#values[slot]![kv]!.slice(0, end);
        const attend = (by: Float64Array, to: Float64Array[]): Float64Array =>
          reference.attendOne(by, to, values, {
            position,
            scale: 1 / Math.sqrt(headDim),
            window: this.#case.window ?? null,
            softcap: this.#case.softcap ?? null,
            ...(this.#sinks && { sink: this.#sinks[h]! }),
          });
        expected.set(attend(q, keys), (row * heads + h) * headDim);
        for (const [place, out] of expectedHalves) {
          const round = (v: number): number => roundF16(v * place) / place;
          out.set(
            attend(
              q.map(round),
              keys.map((key) => key.map(round)),
            ),
            (row * heads + h) * headDim,
          );
        }
      }
    });
    this.#program.write(this.#tensors.qkv, qkv);
    await this.#program.submit(
      standingStep(aheadStep(stepOf(lengths, positions, slots), pictures), standing),
    );
    const read = async (tensor: Tensor | null): Promise<Float32Array> =>
      tensor === null ? new Float32Array(0) : this.#program.read(tensor, rows);
    const out = await read(this.#tensors.out);
    const q = await read(this.#tensors.q);
    const product = await read(this.#tensors.product);
    const halves = expectedHalves.map(([, values]) => values);
    return { out, expected, expectedHalves: halves, q, expectedQ, product, rows };
  }

  /** Tokens that a slot has stored, computed once more from cache index `from` on: their attention. */
  async again(slot: number, from: number, data: Float32Array, pictures: Pictures): Promise<Float32Array> {
    const { heads, kvHeads, headDim } = this.#case;
    const rows = data.length / ((heads + 2 * kvHeads) * headDim);
    this.#program.write(this.#tensors.qkv, data);
    await this.#program.submit(aheadStep(stepOf([rows], [from], [slot]), [pictures]));
    return this.#program.read(this.#tensors.out!, rows);
  }

  /** Rows of q, k and v. Vectors that f32 arithmetic might store otherwise than float64 are drawn again. */
  draw(rows: number): Float32Array {
    const { heads, kvHeads, headDim, key, value, floatStart } = this.#case;
    const width = (heads + 2 * kvHeads) * headDim;
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
    return this.#centre!.subarray((part * kvHeads + head) * headDim, (part * kvHeads + head + 1) * headDim);
  }

  #scaled(x: Float64Array, part: 0 | 1, head: number): Float64Array {
    return this.#centre === null ? x : x.map((value, d) => value * this.#centreOf(part, head)[d]!);
  }

  /** A key as it is stored, and what was taken off it put back. */
  #storeKey(format: KvFormat, key: Float64Array, head: number, position: number): Float64Array {
    if (this.#centre === null) return storeVector(format, 'key', key);
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
    if (this.#norms === null) return x;
    return reference.rmsNorm(x, this.#norms[which], 1, x.length, 1e-6);
  }

  #rotate(x: Float64Array, position: number, places: readonly number[] = []): void {
    const { rope = 'half', sections } = this.#case;
    if (rope === null) return;
    if (sections === undefined) reference.rotate(x, position, this.#frequencies, rope);
    else {
      const own = pairAxes(sections).map((axis) => places[axis]!);
      // By frequencies that hold the position.
      reference.rotate(
        x,
        1,
        this.#frequencies.map((frequency, i) => frequency * own[i]!),
        rope,
      );
    }
  }
}

const AXES = [0, 1, 2];

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

/** Where what a token sees ends: behind itself, or behind the picture that it is in. */
export function seenEnd(position: number, pictures: Pictures = []): number {
  return pictures.find(([from, to]) => from <= position && position < to)?.[1] ?? position + 1;
}

/** Gives the tokens of pictures the ends of what they see. */
export function aheadStep(step: StepInputs, pictures: readonly Pictures[]): StepInputs {
  if (pictures.length === 0) return step;
  const visibleEnd = new Uint32Array(step.tokens.length);
  pictures.forEach((own, s) => {
    for (let i = 0; i < step.seqLength[s]!; i++) {
      const position = step.seqPosition[s]! + i;
      const end = seenEnd(position, own);
      if (end > position + 1) visibleEnd[step.seqStart[s]! + i] = end;
    }
  });
  return Object.assign(step, { visibleEnd });
}

/** Gives the sequences of a step rotary positions. */
export function standingStep(step: StepInputs, standing: readonly Standing[]): StepInputs {
  const own = new RotaryInputs(step.tokens.length, standing.length);
  standing.forEach((one, s) => {
    if (typeof one === 'number') own.shift[s] = one;
    else {
      own.placed[s] = 1;
      own.positions.set(one.flat(), 3 * step.seqStart[s]!);
    }
  });
  return Object.assign(step, { rotary: own });
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
