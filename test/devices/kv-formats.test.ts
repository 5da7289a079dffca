import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Device } from '../../src/device/device.js';
import { type KvFormat, kvFormatName, kvLayerBlockBytes } from '../../src/device/kv.js';
import { everyCase } from '../setup/every-case.js';
import { type AttentionCase, AttentionBench as Bench } from './attention-bench.js';
import { kernelDevices } from './devices.js';
import { affine, alike, attentionBound, F16, FORMATS, MIXED, STEPS, turbo } from './kv-cases.js';
import { checkKv } from './kv-check.js';
import { Random, worstRow } from './numbers.js';

const BASE = { heads: 4, kvHeads: 2, headDim: 64, rope: null } as const;
const widthOf = (c: AttentionCase): number => (c.heads + 2 * c.kvHeads) * c.headDim;

describe.each(kernelDevices)('quantised KV on $name', (spec) => {
  let device: Device;
  beforeAll(async () => {
    device = await spec.create();
  });
  afterAll(async () => {
    await device[Symbol.asyncDispose]();
  });

  const check = (c: AttentionCase, steps = STEPS, bound?: number): Promise<void> =>
    checkKv(device, spec, c, steps, bound);

  const short = spec.slow ? STEPS.slice(0, 4) : STEPS;

  it('takes the bytes that the format says', () => {
    for (const [key, value] of [...FORMATS.map((f) => [f, f] as const), ...MIXED]) {
      for (const layer of [
        { kvHeads: 2, headDim: 128, key, value, group: 0 },
        { kvHeads: 3, headDim: 80, key, value, group: 0 },
      ]) {
        const bytesOf = (blocks: number): number => {
          const pool = device.createKvPool({
            layers: [layer],
            blocks,
            blockTokens: 16,
            slots: 1,
            maxBlocksPerSlot: 8,
          });
          pool.dispose();
          return pool.bytes;
        };
        const more = bytesOf(96) - bytesOf(32);
        expect(more, kvFormatName(key)).toBe(64 * kvLayerBlockBytes(layer, 16));
      }
    }
  });

  it('K and V of different formats', async () => {
    for (const [key, value] of MIXED) {
      await check({ ...BASE, heads: 3, kvHeads: 3, headDim: 80, key, value }, STEPS.slice(0, 4));
    }
  });

  it('blocks of 32 and 64 tokens', async () => {
    for (const blockTokens of [32, 64]) {
      for (const format of [affine(8), affine(3), turbo(4)]) {
        await check({ ...BASE, blockTokens, ...alike(format) }, short);
      }
    }
  });

  it('batch equal to the number of KV heads, and MHA', async () => {
    for (const format of [affine(4), turbo(3)]) {
      await check({ heads: 4, kvHeads: 4, headDim: 64, rope: null, ...alike(format) }, [
        [
          [0, 1, 2, 3],
          [3, 1, 7, 20],
        ],
        [
          [0, 1, 2, 3],
          [1, 1, 1, 1],
        ],
      ]);
    }
  });

  it('sliding window and soft cap', async () => {
    for (const format of [affine(4), turbo(4)]) {
      for (const window of [1, 7, 33, 100]) await check({ ...BASE, window, ...alike(format) }, short);
      await check({ ...BASE, softcap: 2, ...alike(format) }, short);
    }
  });

  it('sinks', async () => {
    const base = { ...BASE, sinks: 2 };
    const few = STEPS.slice(0, 3);
    await check({ ...base, window: 33, key: affine(4), value: turbo(3) }, few);
    if (spec.slow) return;
    for (const format of [affine(8), turbo(4)]) await check({ ...base, ...alike(format) }, few);
    if (!everyCase) return;
    const dims = [64, 80, 128];
    const pairs = [...FORMATS.map((f) => [f, f] as const), ...MIXED];
    for (const [i, [key, value]] of pairs.entries())
      await check({ ...base, headDim: dims[i % dims.length]!, key, value }, few);
  });

  it('rotated and normed keys', async () => {
    // Codes of 8 bits: a key that f32 arithmetic stores otherwise than float64 is off by little.
    await check({ ...BASE, rope: 'half', norm: true, ...alike(affine(8)) }, short, 2e-3);
    await check({ ...BASE, rope: 'interleaved', ...alike(turbo(8)) }, short.slice(0, 4), 2e-3);
  });

  it('a chunk of a prompt far into its context', async () => {
    const chunks = Array.from({ length: spec.slow ? 2 : 9 }, (): [number[], number[]] => [[0], [110]]);
    const last: [number[], number[]] = [
      [1, 0, 2],
      [20, 34, 1],
    ];
    for (const format of [F16, affine(8), turbo(4)])
      await check({ ...BASE, ...alike(format) }, [...chunks, last]);
  });

  it('very small and very large vectors', async () => {
    for (const spread of [1e-3, 30]) {
      // Scores grow with the square: the bound is on them, so it grows too.
      for (const format of [affine(4, 32), turbo(4)]) {
        const c = { ...BASE, spread, ...alike(format) };
        await check(spread < 1 ? c : { ...c, softcap: 2 }, STEPS.slice(0, 4));
      }
    }
  });

  it('NaN, infinities, zeros and what f16 cannot hold are stored by rule', async () => {
    for (const format of [affine(8), affine(4), turbo(3), turbo(8)]) {
      const c: AttentionCase = { ...BASE, ...alike(format) };
      const bench = await Bench.open(device, c, 11);
      const width = widthOf(c);
      const { headDim, heads, kvHeads } = c;
      const odd = [Number.NaN, Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY, 1e30, -1e5, 0, 1e-30];
      for (const [i, value] of odd.entries()) {
        // An odd vector and a usual one after it in a sequence of their own, beside one where all is in order. Keys of
        // the odd ones are odd too, and their queries nothing.
        for (let turn = 0; turn < 2; turn++) {
          const data = new Random(2 * i + turn).normals(2 * width);
          if (turn === 0) data.fill(value, width + (heads + kvHeads) * headDim + 3);
          data.fill(turn === 0 ? value : 0, width + heads * headDim, width + (heads + kvHeads) * headDim);
          data.fill(0, width, width + heads * headDim);
          const { out, expected } = await bench.step([0, 1 + i], [1, 1], data);
          const where = `${kvFormatName(format)} ${value} turn ${turn}`;
          expect(worstRow(out, expected, 2, heads * headDim), where).toBeLessThan(attentionBound(spec));
        }
      }
      await bench.close();
    }
  });

  it('a query of NaN does not hurt its neighbours', async () => {
    for (const format of [affine(4), turbo(4)]) {
      const c: AttentionCase = { heads: 2, kvHeads: 1, headDim: 64, rope: null, ...alike(format) };
      const bench = await Bench.open(device, c, 9);
      const width = widthOf(c);
      const data = new Random(1).normals(3 * width);
      data.fill(Number.NaN, width, 2 * width);
      const { out, expected } = await bench.step([0, 1, 2], [1, 1, 1], data);
      const row = c.heads * c.headDim;
      for (const r of [0, 2]) {
        expect(
          worstRow(out.subarray(r * row, (r + 1) * row), expected.subarray(r * row, (r + 1) * row), 1, row),
        ).toBeLessThan(attentionBound(spec));
      }
      await bench.close();
    }
  });

  it('gives the same for any cut of a prompt, alone or in company', async () => {
    const pairs: [KvFormat, KvFormat][] = [
      ...[affine(4), affine(3), turbo(8)].map((f): [KvFormat, KvFormat] => [f, f]),
      [turbo(3), turbo(4)],
      [F16, affine(5)],
    ];
    for (const [key, value] of spec.slow ? pairs.slice(1, 2) : pairs) {
      const c: AttentionCase = { ...BASE, headDim: 80, key, value, norm: true, rope: 'half' };
      const width = widthOf(c);
      const total = spec.slow ? 70 : 143;
      const data = new Random(77).normals(total * width);
      const ones = (n: number): number[] => Array.from({ length: n }, () => 1);
      const cuts = [
        [total],
        [1, total - 1],
        [64, total - 64],
        Array.from({ length: Math.ceil(total / 7) }, (_, i) => Math.min(7, total - 7 * i)),
        [total - 20, ...ones(20)],
      ];
      let first: Float32Array | null = null;
      for (const [n, cut] of cuts.entries()) {
        const bench = await Bench.open(device, c, 5);
        let last: Float32Array = new Float32Array(0);
        let at = 0;
        for (const length of cut) {
          const own = data.slice(at * width, (at + length) * width);
          at += length;
          if (n % 2 === 0) {
            last = (await bench.step([3], [length], own)).out;
          } else {
            // Neighbours decode on both sides of it.
            const all = new Float32Array((length + 2) * width);
            all.set(new Random(at).normals(width));
            all.set(own, width);
            all.set(new Random(at + 1).normals(width), (length + 1) * width);
            last = (await bench.step([6, 3, 1], [1, length, 1], all)).out.slice(0, -c.heads * c.headDim);
          }
        }
        const tail = last.slice(-c.heads * c.headDim);
        await bench.close();
        first ??= tail;
        if (spec.bitwise)
          expect(tail, `${kvFormatName(key)}/${kvFormatName(value)} cut ${cut}`).toEqual(first);
        else expect(worstRow(tail, first, 1, tail.length)).toBeLessThan(attentionBound(spec));
      }
    }
  });
});
