import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type Device, INVALID_TOKEN } from '../../src/device/device.js';
import { kernelDevices } from './devices.js';
import { Random } from './numbers.js';
import * as reference from './reference.js';
import { LIMITS, record, rowsStep, setSampling, withProgram } from './run.js';
import { randomMatrix } from './sources.js';

/** Draws one token from each row of logits `[rows, vocab]`. */
async function draw(
  device: Device,
  logits: readonly Float32Array[],
  rows: readonly reference.SamplingRow[],
): Promise<Uint32Array> {
  const vocab = logits[0]!.length;
  const recorded = record((ops) => {
    const x = ops.input('outputs', vocab);
    ops.sample(x);
    return { x };
  });
  return withProgram(device, recorded.graph, null, async (program) => {
    const data = new Float32Array(logits.length * vocab);
    logits.forEach((l, r) => {
      data.set(l, r * vocab);
    });
    program.write(recorded.tensors.x, data);
    const step = rowsStep(logits.length);
    rows.forEach((row, r) => {
      setSampling(step, r, row);
    });
    return (await program.submit(step)).ids.slice();
  });
}

describe.each(kernelDevices)('sampling on $name', (spec) => {
  let device: Device;
  beforeAll(async () => {
    device = await spec.create();
  });
  afterAll(async () => {
    await device[Symbol.asyncDispose]();
  });

  it('takes the largest logit, the lowest id of a tie', async () => {
    for (const vocab of [1, 2, 7, 63, 64, 65, 1000, 4099]) {
      const random = new Random(vocab);
      const rows = Array.from({ length: 5 }, () => random.normals(vocab));
      rows[1]!.fill(0.5);
      const at = vocab - 1;
      rows[2]!.fill(-3);
      rows[2]![at] = 9;
      rows[3]!.fill(Number.NEGATIVE_INFINITY);
      rows[3]![Math.floor(vocab / 2)] = -1e30;
      if (vocab > 2) {
        rows[4]![vocab - 2] = 50;
        rows[4]![1] = 50;
      }
      const ids = await draw(
        device,
        rows,
        rows.map(() => ({ temperature: 0 })),
      );
      rows.forEach((row, r) => {
        expect(ids[r], `vocab ${vocab} row ${r}`).toBe(reference.sample(row, { temperature: 0 }).token);
      });
    }
  });

  it('answers INVALID_TOKEN for a row with NaN or nothing finite, and for it alone', async () => {
    const vocab = 300;
    const random = new Random(2);
    const good = random.normals(vocab);
    const nan = random.normals(vocab);
    nan[177] = Number.NaN;
    const infinite = random.normals(vocab);
    infinite[3] = Number.POSITIVE_INFINITY;
    const nothing = new Float32Array(vocab).fill(Number.NEGATIVE_INFINITY);
    for (const temperature of [0, 1]) {
      const rows = [good, nan, good, nothing, infinite, good];
      const ids = await draw(
        device,
        rows,
        rows.map(() => ({ temperature, seed: [1, 2] as const, topP: 0.9 })),
      );
      expect([...ids].map((id) => id === INVALID_TOKEN)).toEqual([false, true, false, true, true, false]);
      expect(ids[0]).toBe(ids[2]);
      expect(ids[0]).toBe(ids[5]);
    }
  });

  it('agrees with sorting in float64 for mixed rows', async () => {
    let checked = 0;
    for (const vocab of spec.slow ? [5, 257] : [1, 5, 64, 257, 1000, 4096]) {
      const random = new Random(vocab * 3);
      const logits: Float32Array[] = [];
      const rows: reference.SamplingRow[] = [];
      for (const temperature of [0.3, 1, 2]) {
        for (const [topK, topP, minP] of [
          [0, 1, 0],
          [1, 1, 0],
          [3, 1, 0],
          [0, 0.5, 0],
          [0, 0.9, 0],
          [0, 1e-6, 0],
          [0, 1, 0.1],
          [20, 0.8, 0.05],
          [vocab + 5, 1, 1],
        ] as const) {
          const l = random.normals(vocab, 2);
          // Ties, also at the border of a top-k.
          if (rows.length % 2) for (let i = 0; i < vocab; i++) l[i] = Math.round(l[i]! * 2) / 2;
          logits.push(l);
          rows.push({
            temperature,
            topK,
            topP,
            minP,
            seed: [random.int(2 ** 31), 5],
            choice: rows.length % 3,
            position: 9,
          });
        }
      }
      rows.push({ temperature: 0 });
      logits.push(random.normals(vocab));
      const ids = await draw(device, logits, rows);
      rows.forEach((row, r) => {
        const want = reference.sample(logits[r]!, row);
        // Within rounding of a threshold either side is right.
        if (want.margin < 1e-4) return;
        checked++;
        expect(ids[r], `vocab ${vocab} ${JSON.stringify(row)}`).toBe(want.token);
      });
    }
    expect(checked).toBeGreaterThan(spec.slow ? 40 : 120);
  });

  it('draws from the distribution of the formula', async () => {
    // Many keyed draws of one row of logits; chi-square against softmax after the filters.
    const vocab = 12;
    const logits = new Random(4).normals(vocab, 1.2);
    for (const row of [
      { temperature: 1 },
      { temperature: 0.7, topK: 6 },
      { temperature: 1.3, topP: 0.8 },
      { temperature: 1, minP: 0.15 },
    ]) {
      const kept = reference.sample(logits, { ...row, seed: [0, 0] }).kept;
      const weights = [...kept].map((i) => Math.exp(logits[i]! / row.temperature));
      const total = weights.reduce((a, b) => a + b, 0);
      const counts = new Map<number, number>();
      const draws = spec.slow ? 640 : 6400;
      for (let n = 0; n < draws; n += 64) {
        const ids = await draw(
          device,
          Array.from({ length: 64 }, () => logits),
          Array.from({ length: 64 }, (_, i) => ({ ...row, seed: [42, 0] as const, position: n + i })),
        );
        for (const id of ids) counts.set(id, (counts.get(id) ?? 0) + 1);
      }
      let chi = 0;
      [...kept].forEach((id, i) => {
        const want = (draws * weights[i]!) / total;
        chi += ((counts.get(id) ?? 0) - want) ** 2 / want;
      });
      expect([...counts.keys()].every((id) => kept.has(id))).toBe(true);
      // 99.9 % point of chi-square by Wilson and Hilferty.
      const k = kept.size - 1;
      const limit = k * (1 - 2 / (9 * k) + 3.09 * Math.sqrt(2 / (9 * k))) ** 3;
      expect(chi).toBeLessThan(limit);
    }
  });

  it('draws the same whatever the row stands beside', async () => {
    const vocab = 500;
    const random = new Random(8);
    const logits = Array.from({ length: 32 }, () => random.normals(vocab, 2));
    const rows = logits.map(
      (_, r): reference.SamplingRow => ({
        temperature: 0.5 + r / 20,
        topK: r % 4 ? 0 : 30,
        topP: r % 3 ? 1 : 0.7,
        seed: [r, 1],
        position: r,
      }),
    );
    const batch = await draw(device, logits, rows);
    for (const r of [0, 5, 31]) expect((await draw(device, [logits[r]!], [rows[r]!]))[0]).toBe(batch[r]);
  });

  it('feeds the sampled token to the next step on the device', async () => {
    const vocab = 40;
    const random = new Random(6);
    // Embedding row i holds a spike where the next token shall be: greedy walks the chain i → (7 i + 3) mod 40.
    const table = randomMatrix(random, vocab, vocab, { kind: 'float', dtype: 'f32' });
    const data = new Float32Array(vocab * vocab);
    for (let i = 0; i < vocab; i++) data[i * vocab + ((7 * i + 3) % vocab)] = 1;
    const bytes = new Uint8Array(data.buffer);
    const matrix = await device.loadMatrix(
      [{ ...table.source, readRows: async (a, b) => ({ data: bytes.slice(a * vocab * 4, b * vocab * 4) }) }],
      { use: 'embedding' },
    );
    const recorded = record((ops) => ops.sample(ops.selectOutputs(ops.embed(matrix))));
    await withProgram(
      device,
      recorded.graph,
      null,
      async (program) => {
        const step = rowsStep(3);
        step.tokens.set([1, 2, 3]);
        step.outputSlot.set([4, 0, 9]);
        let want = [1, 2, 3].map((t) => (7 * t + 3) % vocab);
        let pending = program.submit(step);
        for (let n = 0; n < 6; n++) {
          // Submitted before the ids of the step before are known.
          step.tokens.set([-5, -1, -10]);
          const next = program.submit(step);
          expect([...(await pending).ids]).toEqual(want);
          want = want.map((t) => (7 * t + 3) % vocab);
          pending = next;
        }
        expect([...(await pending).ids]).toEqual(want);
      },
      LIMITS,
    );
  });
});
