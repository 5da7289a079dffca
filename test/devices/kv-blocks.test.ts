import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Device, Program } from '../../src/device/device.js';
import { type KvFormat, type KvPool, kvBlockBytes, kvFormatName } from '../../src/device/kv.js';
import type { Ops } from '../../src/device/ops.js';
import type { StepInputs } from '../../src/device/step.js';
import { type AttentionCase, AttentionBench as Bench } from './attention-bench.js';
import { devices } from './devices.js';
import { affine, attentionBound, F16, F32, FORMATS, MIXED, turbo } from './kv-cases.js';
import { Random, worstRow } from './numbers.js';
import { LIMITS, record, stepOf } from './run.js';

const PAIRS: readonly (readonly [key: KvFormat, value: KvFormat])[] = [
  [F16, F16],
  [F32, F32],
  ...FORMATS.map((format) => [format, format] as const),
  ...MIXED,
];

/** Of large arrays in no time. */
function expectSame(got: readonly Uint8Array[], wanted: readonly Uint8Array[]): void {
  expect(got).toHaveLength(wanted.length);
  got.forEach((bytes, i) => {
    expect(Buffer.compare(bytes, wanted[i]!), `block ${i}`).toBe(0);
  });
}

describe.each(devices)('whole blocks on $name', (spec) => {
  let device: Device;
  beforeAll(async () => {
    device = await spec.create();
  });
  afterAll(async () => {
    await device[Symbol.asyncDispose]();
  });

  /** A pool of two layers that differ, and a program that stores what it is given in both. */
  async function twoLayers(
    formats: readonly [KvFormat, KvFormat, KvFormat, KvFormat],
    floatStart: { blocks: number; dtype: 'f16' | 'f32' } | null = null,
  ): Promise<{
    pool: KvPool;
    program: Program;
    write: (first: Float32Array, second: Float32Array) => void;
    close: () => Promise<void>;
  }> {
    const pool = device.createKvPool({
      layers: [
        { kvHeads: 3, headDim: 32, key: formats[0], value: formats[1], group: 0 },
        { kvHeads: 1, headDim: 64, key: formats[2], value: formats[3], group: 0 },
      ],
      blocks: 8,
      floatStart,
      blockTokens: 16,
      slots: 2,
      maxBlocksPerSlot: 4,
    });
    const store = (ops: Ops, layer: number, kvHeads: number, headDim: number) => {
      const qkv = ops.input('tokens', 3 * kvHeads * headDim);
      ops.keep(ops.ropeAppend(qkv, { layer, heads: kvHeads, kvHeads, headDim, norm: null, rope: null }));
      return qkv;
    };
    const { graph, tensors } = record((ops) => [store(ops, 0, 3, 32), store(ops, 1, 1, 64)] as const);
    const program = await device.compile(graph, LIMITS, pool);
    return {
      pool,
      program,
      write: (first, second) => {
        program.write(tensors[0], first);
        program.write(tensors[1], second);
      },
      close: async () => {
        await program.dispose();
        pool.dispose();
      },
    };
  }

  it('copied, or read and written, they are what they were, in every format', async () => {
    // Slow devices share the formats among them, and move each one way.
    const part = devices.indexOf(spec) % 3;
    for (const [i, [key, value]] of PAIRS.entries()) {
      if (spec.slow && i % 3 !== part) continue;
      const c: AttentionCase = { heads: 3, kvHeads: 3, headDim: 80, rope: null, key, value };
      const bench = await Bench.open(device, c, 40 + i);
      const { pool } = bench;
      const row = c.heads * c.headDim;
      // Slots 1 and 2 hold something else before.
      await bench.step([0, 1, 2], [37, 50, 20]);
      if (!spec.slow || i % 2 === 0) await bench.adopt(0, 1, (from, to) => pool.copy(from, to));
      if (!spec.slow || i % 2 === 1)
        await bench.adopt(0, 2, async (from, to) => pool.write(to, await pool.read(from)));
      const others = spec.slow ? [1 + (i % 2)] : [1, 2];
      const slots = [0, ...others];
      const lengths = slots.map(() => 1);
      const where = `${kvFormatName(key)}/${kvFormatName(value)}`;
      const first = await bench.step(slots, lengths);
      expect(worstRow(first.out, first.expected, first.rows, row), where).toBeLessThan(attentionBound(spec));
      // The same token for all: the slots differ by the token before, and by nothing else.
      await bench.adopt(0, others[0]!, (from, to) => pool.copy(from, to));
      const token = new Random(i).normals(3 * row);
      const { out } = await bench.step([0, others[0]!], [1, 1], Float32Array.from([...token, ...token]));
      if (spec.bitwise) expect(out.subarray(row), where).toEqual(out.subarray(0, row));
      else expect(worstRow(out.subarray(row), out.subarray(0, row), 1, row), where).toBeLessThan(1e-5);
      await bench.close();
    }
  });

  it('float-start ones too, with a place of their own or without', async () => {
    for (const [key, value] of [
      [affine(4), turbo(3)],
      [F16, affine(8)],
    ] as const) {
      const c: AttentionCase = {
        heads: 4,
        kvHeads: 2,
        headDim: 64,
        rope: null,
        key,
        value,
        floatStart: { dtype: 'f16', slots: [1, 2, 3] },
      };
      const bench = await Bench.open(device, c, 9);
      const { pool } = bench;
      await bench.step([1, 2, 3, 0], [40, 5, 60, 20]);
      await bench.adopt(1, 2, (from, to) => pool.copy(from, to));
      await bench.adopt(1, 3, async (from, to) => pool.write(to, await pool.read(from)));
      for (const slots of [
        [1, 2, 3],
        [3, 0, 2],
      ]) {
        const { out, expected, rows } = await bench.step(slots, [1, 1, 1]);
        expect(worstRow(out, expected, rows, c.heads * c.headDim)).toBeLessThan(attentionBound(spec));
      }
      await bench.close();
    }
  });

  it('as bytes: layer after layer, codes of K and what goes with them, then V', async () => {
    const tokens = 16;
    const floats = await twoLayers([F32, F32, F32, F32]);
    const draw = new Random(3);
    const [first, second] = [draw.normals(tokens * 9 * 32), draw.normals(tokens * 3 * 64)];
    floats.write(first, second);
    floats.pool.setBlocks(1, 0, Uint32Array.of(5, 2));
    await floats.program.submit(stepOf([tokens], [0], [1]));
    const [bytes] = await floats.pool.read(Uint32Array.of(5));
    expect(bytes).toHaveLength(kvBlockBytes(floats.pool.spec.layers, tokens));
    // Whatever the order of values in a plane: sorted they are those that were given.
    let at = 0;
    for (const [data, heads, dim] of [
      [first, 3, 32],
      [second, 1, 64],
    ] as const) {
      for (const side of [1, 2]) {
        const given: number[] = [];
        for (let t = 0; t < tokens; t++) {
          const from = (t * 3 + side) * heads * dim;
          given.push(...data.subarray(from, from + heads * dim));
        }
        const plane = new Float32Array(bytes!.slice(at, at + given.length * 4).buffer);
        expect(plane.sort()).toEqual(Float32Array.from(given).sort());
        at += given.length * 4;
      }
    }
    expect(at).toBe(bytes!.length);
    await floats.close();

    // Vectors of equal values have codes of 0 and say all with their bias.
    const coded = await twoLayers([affine(4, 32), affine(8, 32), F32, affine(3)]);
    const constant = (heads: number, dim: number, k: number, v: number): Float32Array =>
      Float32Array.from({ length: tokens * 3 * heads * dim }, (_, i) => {
        const side = Math.floor(i / (heads * dim)) % 3;
        return side === 1 ? k : side === 2 ? v : 0;
      });
    coded.write(constant(3, 32, 1.5, -2), constant(1, 64, 0.25, 3));
    coded.pool.setBlocks(0, 0, Uint32Array.of(7));
    await coded.program.submit(stepOf([tokens], [0], [0]));
    const [block] = await coded.pool.read(Uint32Array.of(7));
    const words = new Uint32Array(block!.buffer, block!.byteOffset, block!.length / 4);
    const filled = (count: number, word: number): number[] => new Array<number>(count).fill(word);
    expect([...words]).toEqual([
      ...filled(tokens * 3 * 4, 0),
      ...filled(tokens * 3, 0x3e00_0000),
      ...filled(tokens * 3 * 8, 0),
      ...filled(tokens * 3, 0xc000_0000),
      ...filled(tokens * 64, new Uint32Array(Float32Array.of(0.25).buffer)[0]!),
      ...filled(tokens * 6, 0),
      ...filled(tokens, 0x4200_0000),
    ]);
    await coded.close();
  });

  it('take their turn among the steps', async () => {
    const { pool, program, write, close } = await twoLayers([affine(4, 32), F16, F32, turbo(4)]);
    pool.setBlocks(0, 0, Uint32Array.of(3, 1));
    pool.setBlocks(1, 0, Uint32Array.of(6));
    const draw = new Random(8);
    const run = async (slot: number, position: number): Promise<void> => {
      write(draw.normals(16 * 9 * 32), draw.normals(16 * 3 * 64));
      await program.submit(stepOf([16], [position], [slot]));
    };
    await run(0, 0);
    const [old] = await pool.read(Uint32Array.of(3));
    write(draw.normals(16 * 9 * 32), draw.normals(16 * 3 * 64));
    // Written again by a step under way, copied behind it and read; then written once more, and copied as it is then.
    const under: StepInputs = stepOf([16], [0], [0]);
    const steps = [program.submit(under)];
    const copied = pool.copy(Uint32Array.of(3), Uint32Array.of(4));
    const early = pool.read(Uint32Array.of(3, 4));
    await Promise.all([...steps, copied]);
    const [now, copy] = await early;
    expect(now).not.toEqual(old);
    expect(copy).toEqual(now);
    const next = program.submit(stepOf([16], [16], [0]));
    const written = pool.write(Uint32Array.of(6, 0), [old!, now!]);
    const after = pool.read(Uint32Array.of(6, 3, 0));
    await Promise.all([next, written]);
    expect(await after).toEqual([old, now, now]);
    const [second] = await pool.read(Uint32Array.of(1));
    expect(second).not.toEqual(now);
    // A copy, and a step that writes to the source behind it.
    const again = pool.copy(Uint32Array.of(3), Uint32Array.of(5));
    const over = run(0, 0);
    await Promise.all([again, over]);
    const [source, target] = await pool.read(Uint32Array.of(3, 5));
    expect(target).toEqual(now);
    expect(source).not.toEqual(now);
    await close();
  });

  it('many at once, in room that is made once', async () => {
    const layer = { kvHeads: 4, headDim: 128, key: F32, value: F32, group: 0 };
    const pool = device.createKvPool({
      layers: [layer],
      blocks: 96,
      floatStart: null,
      blockTokens: 32,
      slots: 1,
      maxBlocksPerSlot: 8,
    });
    await pool.prepare('copy');
    await pool.prepare('transfer');
    const size = kvBlockBytes([layer], 32);
    const ids = Uint32Array.from({ length: 48 }, (_, i) => (i * 7) % 48);
    const data = Array.from(ids, (id) => new Uint8Array(size).map((_, i) => (i * 31 + id * 17) & 0xff));
    const moves = async (): Promise<void> => {
      await pool.write(ids, data);
      const [once, twice, few] = await Promise.all([
        pool.read(ids),
        pool.read(ids),
        pool.read(ids.subarray(9, 12)),
      ]);
      expectSame(once, data);
      expectSame(twice, data);
      expectSame(few, data.slice(9, 12));
      await pool.copy(
        ids,
        ids.map((id) => 95 - id),
      );
      expectSame(await pool.read(ids.map((id) => 95 - id)), data);
    };
    await moves();
    const { buffers, bytes } = device.stats();
    const created = (device as { created?: number }).created;
    await moves();
    await moves();
    expect(device.stats()).toMatchObject({ buffers, bytes });
    expect((device as { created?: number }).created).toBe(created);
    const before = device.stats().bytes - pool.bytes;
    pool.dispose();
    expect(device.stats().bytes).toBeLessThanOrEqual(before);
    await expect(pool.read(ids)).rejects.toMatchObject({ code: 'disposed' });
  });

  it('refuses what cannot be moved', async () => {
    const layer = { kvHeads: 2, headDim: 64, key: affine(4), value: affine(4), group: 0 };
    const pool = device.createKvPool({
      layers: [layer],
      blocks: 4,
      floatStart: { blocks: 2, dtype: 'f16' },
      blockTokens: 16,
      slots: 1,
      maxBlocksPerSlot: 4,
    });
    const code = { code: 'kv-block-invalid' };
    const ids = (...list: number[]): Uint32Array => Uint32Array.from(list);
    const block = new Uint8Array(kvBlockBytes([layer], 16));
    const refused = [
      () => pool.copy(ids(0), ids(1, 2)),
      () => pool.copy(ids(6), ids(0)),
      () => pool.copy(ids(0), ids(6)),
      () => pool.copy(ids(0), ids(4)),
      () => pool.copy(ids(4), ids(0)),
      () => pool.copy(ids(0, 1), ids(2, 2)),
      () => pool.copy(ids(0, 1), ids(1, 2)),
      () => pool.read(ids(0, 6)),
      () => pool.write(ids(6), [block]),
      () => pool.write(ids(0, 1), [block]),
      () => pool.write(ids(0, 0), [block, block]),
      () => pool.write(ids(0), [block.subarray(1)]),
      () => pool.write(ids(4), [block]),
    ];
    for (const call of refused) await expect(call()).rejects.toMatchObject(code);
    await pool.copy(ids(), ids());
    expect(await pool.read(ids())).toEqual([]);
    await pool.write(ids(), []);
    await pool.copy(ids(4, 0), ids(5, 3));
    pool.dispose();
  });
});
