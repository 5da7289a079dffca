import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Device } from '../../src/device/device.js';
import { everyCase } from '../setup/every-case.js';
import { type AttentionCase, AttentionBench as Bench } from './attention-bench.js';
import {
  type AttentionSteps,
  attentionCheckBound as bound,
  checkAttention,
  AWKWARD as steps,
} from './attention-check.js';
import { devices } from './devices.js';
import { F16, F32 } from './kv-cases.js';
import { Random, worstRow } from './numbers.js';
import { LIMITS } from './run.js';

type Case = AttentionCase;

describe.each(devices)('attention on $name', (spec) => {
  let device: Device;
  beforeAll(async () => {
    device = await spec.create();
  });
  afterAll(async () => {
    await device[Symbol.asyncDispose]();
  });

  const check = (c: Case, runs: AttentionSteps): Promise<void> => checkAttention(device, spec, c, runs);

  it('batch equal to the number of KV heads, and MHA', async () => {
    await check({ heads: 4, kvHeads: 4, headDim: 64, key: F16, value: F16 }, [
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
    const base = { heads: 4, kvHeads: 2, headDim: 64, key: F32, value: F32 };
    await check({ ...base, norm: true }, steps.slice(0, 4));
    await check({ ...base, rope: 'interleaved' }, steps.slice(0, 4));
    await check({ ...base, ropeDims: 32 }, steps.slice(0, 4));
    // Halves that are no whole vectors.
    await check({ ...base, ropeDims: 20 }, steps.slice(0, 4));
    await check({ ...base, rope: null, norm: true }, steps.slice(0, 4));
  });

  it('sinks', async () => {
    const base = { heads: 6, kvHeads: 2, headDim: 64, rope: null, sinks: 2, key: F16, value: F16 };
    await check({ ...base, window: 33 }, steps.slice(0, 4));
    await check({ ...base, key: F32, value: F32, softcap: 2, sinks: 40 }, steps.slice(0, spec.slow ? 2 : 4));
    if (!everyCase) return;
    for (const headDim of [16, 64, 128, 256]) await check({ ...base, headDim }, steps);
    await check({ ...base, heads: 8, kvHeads: 8 }, steps);
  });

  it('head norms after the rotation, and queries that grow with the position', async () => {
    const base = { heads: 4, kvHeads: 2, headDim: 64, key: F32, value: F32 };
    await check({ ...base, norm: true, normAfter: true }, steps.slice(0, 4));
    await check(
      { ...base, norm: true, normAfter: true, rope: 'interleaved', ropeDims: 24 },
      steps.slice(0, 4),
    );
    await check({ ...base, growth: { beta: 0.3, every: 4 } }, steps.slice(0, 4));
    await check({ ...base, norm: true, growth: { beta: 0.3, every: 1 }, ropeDims: 20 }, steps.slice(0, 4));
  });

  it('sliding window and soft cap', async () => {
    const base = { heads: 4, kvHeads: 2, headDim: 64, key: F16, value: F16 };
    for (const window of [1, 16, 20, 100]) await check({ ...base, window }, steps);
    await check({ ...base, softcap: 2 }, steps);
  });

  it('windows of the tokens of a chunk that begin in different blocks', async () => {
    const base = { heads: 8, kvHeads: 8, headDim: 64, window: 33 };
    for (const format of [F16, F32])
      await check({ ...base, key: format, value: format }, [
        [[0], [46]],
        [[0], [4]],
        [[0], [5]],
      ]);
  });

  it('blocks wholly before the window are never read: whatever lies there by then', async () => {
    const width = 4 * 64;
    const runs: (readonly [number[], number[]])[] = [
      [[0], [150]],
      [[0], [1]],
      [[0], [40]],
      [
        [0, 1],
        [3, 200],
      ],
      [
        [1, 0],
        [1, 1],
      ],
      [[1], [83]],
      [[1], [1]],
    ];
    const coded = { kind: 'affine', bits: 8, groupSize: 64 } as const;
    for (const key of spec.slow ? [F16, coded] : [F16, F32, coded])
      for (const window of spec.slow ? [20] : [16, 20, 64]) {
        const c: Case = { heads: 4, kvHeads: 2, headDim: 64, key, value: key, window };
        const bench = await Bench.open(device, c, 9);
        let poisoned = 0;
        for (const [slots, lengths] of runs) {
          const { out, expected, rows } = await bench.step(slots, lengths);
          const where = `${JSON.stringify(c)} slots ${slots} lengths ${lengths}`;
          expect(worstRow(out, expected, rows, width), where).toBeLessThan(
            key === coded ? 3e-3 : bound(spec, key),
          );
          for (const slot of slots) poisoned += await bench.spoilBehindWindow(slot);
        }
        expect(poisoned).toBeGreaterThan(20);
        await bench.close();
      }
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
    await check({ heads: 4, kvHeads: 2, headDim: 128, key: F16, value: F16 }, plan);
  });

  it('gives the same for any cut of a prompt, alone or in company', async () => {
    const c: Case = { heads: 4, kvHeads: 2, headDim: 64, key: F16, value: F16, norm: true };
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
      else expect(worstRow(tail, first, 1, tail.length)).toBeLessThan(bound(spec, c.key));
    }
  });

  it('a row of NaN does not hurt its neighbours', async () => {
    const c: Case = { heads: 2, kvHeads: 1, headDim: 64, key: F32, value: F32 };
    const bench = await Bench.open(device, c, 9);
    const width = (c.heads + 2 * c.kvHeads) * c.headDim;
    const data = new Random(1).normals(3 * width);
    data.fill(Number.NaN, width, 2 * width);
    const { out, expected } = await bench.step([0, 1, 2], [1, 1, 1], data);
    const row = c.heads * c.headDim;
    for (const r of [0, 2]) {
      expect(
        worstRow(out.subarray(r * row, (r + 1) * row), expected.subarray(r * row, (r + 1) * row), 1, row),
      ).toBeLessThan(bound(spec, c.key));
    }
    await bench.close();
  });
});
