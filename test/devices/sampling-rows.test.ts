import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Device } from '../../src/device/device.js';
import { everyCase } from '../setup/every-case.js';
import { kernelDevices } from './devices.js';
import { Random } from './numbers.js';
import { logitsOf, rowCases, SHAPES, tokensOf } from './sampling-cases.js';
import { sampleRowOnce } from './sampling-once.js';
import { type RowParams, sampleRow } from './sampling-reference.js';
import { canDo, type SampledRow, Sampler, sampleRows } from './sampling-run.js';

describe.each(kernelDevices)('rows of the sampler on $name', (spec) => {
  let device: Device;
  beforeAll(async () => {
    device = await spec.create();
  });
  afterAll(async () => {
    await device[Symbol.asyncDispose]();
  });

  // On a slow device the draws are compared one by one alone (sampling-features.test.ts): they are those of a CPU.
  if (!spec.slow || everyCase)
    it('are drawn from the distributions of the filters', async () => {
      const vocab = 12;
      const logits = new Random(4).normals(vocab, 1.2);
      const tokens = tokensOf(vocab, 30, new Random(6));
      const filters: Record<string, RowParams> = {
        none: {},
        'top-k': { topK: 6 },
        'top-p': { topP: 0.8 },
        'min-p': { minP: 0.15 },
        'typical-p': { typicalP: 0.6 },
        'top-n-sigma': { topNSigma: 1 },
        xtc: { xtc: { probability: 1, threshold: 0.08 } },
        'top-k, top-p, typical-p': { topK: 9, topP: 0.95, typicalP: 0.7 },
        // η 0 leaves μ where it is, so that all draws are alike.
        mirostat: { mirostat: { tau: 2, eta: 0, mu: 3 } },
        penalties: { repetition: { penalty: 1.4 }, frequency: 0.1, presence: 0.2 },
        mask: { mask: [0, 2, 3, 7, 11] },
      };
      for (const [name, filter] of Object.entries(filters)) {
        const row = (n: number): RowParams => ({ temperature: 1.1, ...filter, seed: [n, 42] });
        if (!canDo(spec, row(0))) continue;
        const want = sampleRow(logits, row(0), tokens);
        const kept = [...want.kept];
        const weights = kept.map((id) => Math.exp(want.processed[id]! / 1.1));
        const total = weights.reduce((a, b) => a + b, 0);
        const counts = new Map<number, number>();
        const draws = spec.slow ? 640 : 6400;
        const sampler = await Sampler.make(device, vocab);
        for (let n = 0; n < draws; n += 64) {
          const rows = Array.from({ length: 64 }, (_, i): SampledRow => ({ row: row(n + i), tokens }));
          // The state has moved on with the draw before.
          const drawn = await sampler.drawOnce(
            rows.map(() => logits),
            rows,
          );
          for (const { token } of drawn) counts.set(token, (counts.get(token) ?? 0) + 1);
        }
        await sampler.program.dispose();
        expect(
          [...counts.keys()].every((id) => want.kept.has(id)),
          name,
        ).toBe(true);
        let chi = 0;
        kept.forEach((id, i) => {
          const expected = (draws * weights[i]!) / total;
          chi += ((counts.get(id) ?? 0) - expected) ** 2 / expected;
        });
        // 99.9 % point of chi-square by Wilson and Hilferty.
        const k = kept.length - 1;
        expect(k, name).toBeGreaterThan(0);
        expect(chi, name).toBeLessThan(k * (1 - 2 / (9 * k) + 3.09 * Math.sqrt(2 / (9 * k))) ** 3);
      }
    });

  it('are in a batch, all different, what they are alone', async () => {
    const vocab = spec.slow ? 700 : 9001;
    const random = new Random(31);
    const rows: SampledRow[] = [];
    const logits: Float32Array[] = [];
    for (const shape of SHAPES) {
      const tokens = tokensOf(vocab, 10 + random.int(80), random);
      for (const row of Object.values(rowCases(vocab, tokens, random))) {
        if (!canDo(spec, row) || random.int(3) > 0) continue;
        rows.push({ row, tokens });
        logits.push(logitsOf(shape, vocab, random));
      }
    }
    rows.splice(64);
    // And one that is no number at all.
    logits[rows.length - 1] = new Float32Array(vocab).fill(Number.NaN);
    const batch = await sampleRows(device, logits.slice(0, rows.length), rows);
    const sampler = await Sampler.make(device, vocab);
    for (const [r, row] of rows.entries()) {
      const [alone] = await sampler.drawOnce([logits[r]!], [row]);
      const wide = sampleRowOnce(logits[r]!, row.row, row.tokens).margin > 1e-4;
      if (spec.bitwise || wide)
        expect(batch[r]!.token, `row ${r} ${JSON.stringify(row.row)}`).toBe(alone!.token);
      // A row that asks for nothing has no record alone, and an empty one in company.
      if (alone!.record === null) expect(batch[r]!.words.every((word) => word === 0)).toBe(true);
      else if (spec.bitwise) expect(batch[r]!.words, `row ${r}`).toEqual(alone!.words);
      else if (wide) expect(batch[r]!.record!.logprob).toBeCloseTo(alone!.record.logprob, 4);
    }
    await sampler.program.dispose();
  });

  it('may be masked by their own last token beside 31 free ones', async () => {
    const vocab = 300;
    const random = new Random(77);
    const free: RowParams = { temperature: 1.5, seed: [9, 9] };
    // Legal after token t: those of its own residue, one further.
    const legal = (last: number): number[] =>
      Array.from({ length: vocab }, (_, id) => id).filter((id) => id % 7 === (last + 1) % 7);
    const bound = (last: number): RowParams => ({ ...free, mask: legal(last) });
    const sampler = await Sampler.make(device, vocab);
    if (!canDo(spec, bound(0))) return sampler.program.dispose();
    const alone = await Sampler.make(device, vocab);
    const rows = Array.from({ length: 32 }, (): number[] => [random.int(vocab)]);
    for (let step = 0; step < 20; step++) {
      const logits = rows.map(() => logitsOf('normal', vocab, random));
      const asked = rows.map((history, r): SampledRow => {
        const row = { ...(r === 5 ? bound(history.at(-1)!) : free), choice: r };
        return { row, tokens: { history, promptLength: 1 } };
      });
      await sampler.sync(5, asked[5]!);
      const drawn = await sampler.draw(logits, asked);
      const others = await alone.draw(
        logits,
        asked.map(({ tokens }, r) => ({ tokens, row: { ...free, choice: r } })),
      );
      drawn.forEach(({ token }, r) => {
        if (r !== 5) expect(token).toBe(others[r]!.token);
        rows[r]!.push(token);
      });
      expect(legal(rows[5]!.at(-2)!)).toContain(rows[5]!.at(-1)!);
    }
    await sampler.program.dispose();
    await alone.program.dispose();
  });
});
