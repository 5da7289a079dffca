import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Device, Program } from '../../src/device/device.js';
import type { AttentionShape } from '../../src/device/graph.js';
import type { FloatKv, KvPool } from '../../src/device/kv.js';
import { makeRopeTable, type RopeStyle } from '../../src/device/rope.js';
import { type DeviceSpec, devices, grid } from './devices.js';
import { Random, roundF16, worstRow } from './numbers.js';
import * as reference from './reference.js';
import { LIMITS, record, stepOf } from './run.js';
import { vectorSource } from './sources.js';

interface Case extends AttentionShape {
  readonly format: FloatKv;
  readonly norm?: boolean;
  readonly rope?: RopeStyle | null;
  readonly ropeDims?: number;
  readonly window?: number | null;
  readonly softcap?: number | null;
}

const F32: FloatKv = { kind: 'float', dtype: 'f32' };
const F16: FloatKv = { kind: 'float', dtype: 'f16' };
const SLOTS = 8;
const BLOCK = 16;
const BLOCKS_PER_SLOT = 64;

/**
 * f32 arithmetic on stored values, or f16 operands on a GPU. A key that lies halfway between two f16 numbers may be
 * stored as either, for it is rotated in f32 here and in f64 there.
 */
function bound(spec: DeviceSpec, format = F32): number {
  if (format === F16 && (spec.kind === 'cpu' || spec.precision === 'reference')) return 1e-3;
  return spec.kind === 'webgpu' && spec.precision === 'default' ? 2e-3 : 1e-4;
}

/** A layer's cache on the device, beside the float64 history of every slot. */
class Bench {
  readonly #device: Device;
  readonly #case: Case;
  readonly #random: Random;
  readonly #program: Program;
  readonly #pool: KvPool;
  readonly #tensors;
  readonly #frequencies: Float64Array;
  readonly #norms: { q: Float32Array; k: Float32Array } | null;
  readonly #keys: Float64Array[][][] = [];
  readonly #values: Float64Array[][][] = [];

  static async open(device: Device, c: Case, seed: number): Promise<Bench> {
    const random = new Random(seed);
    const norms = c.norm ? { q: random.normals(c.headDim), k: random.normals(c.headDim) } : null;
    const dims = c.ropeDims ?? c.headDim;
    const frequencies = Float64Array.from({ length: dims / 2 }, (_, i) => 10000 ** ((-2 * i) / dims));
    const pool = device.createKvPool({
      layers: [{ kvHeads: c.kvHeads, headDim: c.headDim, key: c.format, value: c.format, group: 0 }],
      blocks: SLOTS * BLOCKS_PER_SLOT,
      blockTokens: BLOCK,
      slots: SLOTS,
      maxBlocksPerSlot: BLOCKS_PER_SLOT,
    });
    // Blocks in a scrambled order, so that nothing works by their lying side by side.
    const order = Uint32Array.from(
      { length: SLOTS * BLOCKS_PER_SLOT },
      (_, i) => (i * 173 + 29) % (SLOTS * BLOCKS_PER_SLOT),
    );
    for (let s = 0; s < SLOTS; s++)
      pool.setBlocks(s, 0, order.slice(s * BLOCKS_PER_SLOT, (s + 1) * BLOCKS_PER_SLOT));
    const rope =
      c.rope === null
        ? null
        : makeRopeTable({
            dims,
            style: c.rope ?? 'half',
            frequencies,
            attentionFactor: 1,
            maxContext: LIMITS.maxContext,
          });
    const norm = norms && {
      q: await device.loadVector(vectorSource(norms.q)),
      k: await device.loadVector(vectorSource(norms.k)),
      eps: 1e-6,
    };
    const shape = { heads: c.heads, kvHeads: c.kvHeads, headDim: c.headDim };
    const { graph, tensors } = record((ops) => {
      const qkv = ops.input('tokens', (c.heads + 2 * c.kvHeads) * c.headDim);
      const q = ops.keep(ops.ropeAppend(qkv, { ...shape, layer: 0, norm, rope }));
      const out = ops.keep(
        ops.attend(q, { ...shape, layer: 0, window: c.window ?? null, softcap: c.softcap ?? null }),
      );
      return { qkv, q, out };
    });
    const program = await device.compile(graph, LIMITS, pool);
    return new Bench(device, c, random, program, pool, tensors, frequencies, norms);
  }

  private constructor(
    device: Device,
    c: Case,
    random: Random,
    program: Program,
    pool: KvPool,
    tensors: {
      qkv: Parameters<Program['write']>[0];
      q: Parameters<Program['write']>[0];
      out: Parameters<Program['write']>[0];
    },
    frequencies: Float64Array,
    norms: { q: Float32Array; k: Float32Array } | null,
  ) {
    this.#device = device;
    this.#case = c;
    this.#random = random;
    this.#program = program;
    this.#pool = pool;
    this.#tensors = tensors;
    this.#frequencies = frequencies;
    this.#norms = norms;
    for (let s = 0; s < SLOTS; s++) {
      this.#keys.push(Array.from({ length: c.kvHeads }, () => []));
      this.#values.push(Array.from({ length: c.kvHeads }, () => []));
    }
  }

  get device(): Device {
    return this.#device;
  }

  context(slot: number): number {
    return this.#keys[slot]![0]!.length;
  }

  async close(): Promise<void> {
    await this.#program.dispose();
    this.#pool.dispose();
  }

  /** Appends tokens to slots and returns the attention of each, with its float64 reference. */
  async step(
    slots: readonly number[],
    lengths: readonly number[],
    data?: Float32Array,
  ): Promise<{
    out: Float32Array;
    expected: Float64Array;
    q: Float32Array;
    expectedQ: Float64Array;
    rows: number;
  }> {
    const { heads, kvHeads, headDim, format } = this.#case;
    const width = (heads + 2 * kvHeads) * headDim;
    const rows = lengths.reduce((a, b) => a + b, 0);
    const qkv = data ?? this.#random.normals(rows * width);
    const positions = slots.map((s) => this.context(s));
    const expected = new Float64Array(rows * heads * headDim);
    const expectedQ = new Float64Array(rows * heads * headDim);
    let row = 0;
    slots.forEach((slot, s) => {
      for (let i = 0; i < lengths[s]!; i++, row++) {
        const position = positions[s]! + i;
        const head = (h: number): Float64Array =>
          Float64Array.from(qkv.subarray(row * width + h * headDim, row * width + (h + 1) * headDim));
        for (let h = 0; h < kvHeads; h++) {
          const k = this.#normed(head(heads + h), 'k');
          this.#rotate(k, position);
          const v = head(heads + kvHeads + h);
          this.#keys[slot]![h]!.push(format.dtype === 'f16' ? k.map(roundF16) : k);
          this.#values[slot]![h]!.push(format.dtype === 'f16' ? v.map(roundF16) : v);
        }
        for (let h = 0; h < heads; h++) {
          const q = this.#normed(head(h), 'q');
          this.#rotate(q, position);
          expectedQ.set(q, (row * heads + h) * headDim);
          const kv = Math.floor(h / (heads / kvHeads));
          const o = reference.attendOne(q, this.#keys[slot]![kv]!, this.#values[slot]![kv]!, {
            scale: 1 / Math.sqrt(headDim),
            window: this.#case.window ?? null,
            softcap: this.#case.softcap ?? null,
          });
          expected.set(o, (row * heads + h) * headDim);
        }
      }
    });
    this.#program.write(this.#tensors.qkv, qkv);
    await this.#program.submit(stepOf(lengths, positions, slots));
    const out = await this.#program.read(this.#tensors.out, rows);
    const q = await this.#program.read(this.#tensors.q, rows);
    return { out, expected, q, expectedQ, rows };
  }

  #normed(x: Float64Array, which: 'q' | 'k'): Float64Array {
    if (this.#norms === null) return x;
    return reference.rmsNorm(x, this.#norms[which], 1, x.length, 1e-6);
  }

  #rotate(x: Float64Array, position: number): void {
    if (this.#case.rope !== null) reference.rotate(x, position, this.#frequencies, this.#case.rope ?? 'half');
  }
}

describe.each(devices)('attention on $name', (spec) => {
  let device: Device;
  beforeAll(async () => {
    device = await spec.create();
  });
  afterAll(async () => {
    await device[Symbol.asyncDispose]();
  });

  async function check(
    c: Case,
    steps: readonly (readonly [slots: number[], lengths: number[]])[],
  ): Promise<void> {
    const bench = await Bench.open(device, c, 1 + c.headDim + c.heads);
    try {
      const width = c.heads * c.headDim;
      for (const [slots, lengths] of steps) {
        const { out, expected, q, expectedQ, rows } = await bench.step(slots, lengths);
        const where = `${JSON.stringify(c)} slots ${slots} lengths ${lengths}`;
        expect(worstRow(q, expectedQ, rows, width), `q of ${where}`).toBeLessThan(bound(spec, F32));
        expect(worstRow(out, expected, rows, width), where).toBeLessThan(bound(spec, c.format));
      }
    } finally {
      await bench.close();
    }
  }

  // Prompts of awkward lengths, then decode beside a prompt chunk, across block and split edges.
  const steps: [slots: number[], lengths: number[]][] = [
    [[0], [1]],
    [
      [1, 2, 3],
      [15, 16, 17],
    ],
    [
      [0, 1, 2, 3, 4],
      [1, 1, 1, 1, 33],
    ],
    [
      [4, 0, 3],
      [1, 50, 1],
    ],
    [[5], [130]],
    [
      [5, 4, 0],
      [1, 1, 1],
    ],
  ];

  it.each([64, 80, 96, 128, 256])('head_dim %i, every GQA ratio and float format', async (headDim) => {
    const points = grid({ gqa: [1, 2, 4, 8], kvHeads: [1, 2], format: [F32, F16] }, spec.slow);
    for (const { gqa, kvHeads, format } of points) {
      await check({ heads: gqa * kvHeads, kvHeads, headDim, format }, steps);
    }
  });

  it('batch equal to the number of KV heads, and MHA', async () => {
    await check({ heads: 4, kvHeads: 4, headDim: 64, format: F16 }, [
      [
        [0, 1, 2, 3],
        [3, 1, 7, 20],
      ],
      [
        [0, 1, 2, 3],
        [1, 1, 1, 1],
      ],
    ]);
  });

  it('head norms, interleaved and partial rotation, no rotation', async () => {
    const base = { heads: 4, kvHeads: 2, headDim: 64, format: F32 };
    await check({ ...base, norm: true }, steps.slice(0, 4));
    await check({ ...base, rope: 'interleaved' }, steps.slice(0, 4));
    await check({ ...base, ropeDims: 32 }, steps.slice(0, 4));
    await check({ ...base, rope: null, norm: true }, steps.slice(0, 4));
  });

  it('sliding window and soft cap', async () => {
    const base = { heads: 4, kvHeads: 2, headDim: 64, format: F16 };
    for (const window of [1, 16, 20, 100]) await check({ ...base, window }, steps);
    await check({ ...base, softcap: 2 }, steps);
  });

  it('a long context over several splits', async () => {
    const split = device.info.attentionSplit;
    const lengths = [split - 1, 1, 1, split + 1].map((n) => Math.min(n, LIMITS.maxTokens));
    const plan: (readonly [number[], number[]])[] = [];
    for (const n of lengths) plan.push([[0], [n]]);
    plan.push([
      [0, 1],
      [1, 3],
    ]);
    await check({ heads: 4, kvHeads: 2, headDim: 128, format: F16 }, plan);
  });

  it('gives the same for any cut of a prompt, alone or in company', async () => {
    const c: Case = { heads: 4, kvHeads: 2, headDim: 64, format: F16, norm: true };
    const width = (c.heads + 2 * c.kvHeads) * c.headDim;
    const total = spec.slow ? 70 : 200;
    const data = new Random(77).normals(total * width);
    const cuts = [
      [total],
      [1, total - 1],
      [64, total - 64],
      Array.from({ length: Math.ceil(total / 7) }, (_, i) => Math.min(7, total - 7 * i)),
    ];
    let first: ArrayLike<number> | null = null;
    for (const [n, cut] of cuts.entries()) {
      const bench = await Bench.open(device, c, 5);
      let last: Float32Array = new Float32Array(0);
      let at = 0;
      for (const length of cut) {
        const own = data.subarray(at * width, (at + length) * width);
        at += length;
        if (n % 2 === 0) {
          last = (await bench.step([3], [length], own.slice())).out;
        } else {
          // A neighbour decodes in front of it.
          const both = new Float32Array((length + 1) * width);
          both.set(new Random(at).normals(width));
          both.set(own, width);
          last = (await bench.step([6, 3], [1, length], both)).out;
        }
      }
      const tail = last.slice(-c.heads * c.headDim);
      await bench.close();
      first ??= tail;
      if (spec.bitwise) expect(tail, `cut ${cut}`).toEqual(first);
      else expect(worstRow(tail, first, 1, tail.length)).toBeLessThan(bound(spec, c.format));
    }
  });

  it('a row of NaN does not hurt its neighbours', async () => {
    const c: Case = { heads: 2, kvHeads: 1, headDim: 64, format: F32 };
    const bench = await Bench.open(device, c, 9);
    const width = (c.heads + 2 * c.kvHeads) * c.headDim;
    const data = new Random(1).normals(3 * width);
    data.fill(Number.NaN, width, 2 * width);
    const { out, expected } = await bench.step([0, 1, 2], [1, 1, 1], data);
    const row = c.heads * c.headDim;
    for (const r of [0, 2]) {
      expect(
        worstRow(out.subarray(r * row, (r + 1) * row), expected.subarray(r * row, (r + 1) * row), 1, row),
      ).toBeLessThan(bound(spec, c.format));
    }
    await bench.close();
  });
});
