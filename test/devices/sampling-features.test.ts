import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Device } from '../../src/device/device.js';
import { FEATURE } from '../../src/device/sampling.js';
import { everyCase } from '../setup/every-case.js';
import { kernelDevices } from './devices.js';
import { Random } from './numbers.js';
import { logitsOf, rowCases, SHAPES, tokensOf } from './sampling-cases.js';
import { check } from './sampling-check.js';
import { sampleRowOnce } from './sampling-once.js';
import { featuresOfRow } from './sampling-reference.js';
import { canDo, SAMPLER_FEATURES, type SampledRow, Sampler, sampleRows } from './sampling-run.js';

describe.each(kernelDevices)('sampler features on $name', (spec) => {
  let device: Device;
  beforeAll(async () => {
    device = await spec.create();
  });
  afterAll(async () => {
    await device[Symbol.asyncDispose]();
  });

  it('says what it has, and refuses the rest', async () => {
    const sampler = await Sampler.make(device, 8);
    expect(sampler.rows.features).toBe(SAMPLER_FEATURES[spec.kind]);
    for (const [name, bit] of Object.entries(FEATURE)) {
      if (SAMPLER_FEATURES[spec.kind] & bit) continue;
      const row = { ...rowCases(8, { history: [1], promptLength: 1 }, new Random(1)).mask!, mask: [1] };
      expect(name).toBeTypeOf('string');
      await expect(sampler.sync(0, { row, tokens: { history: [], promptLength: 0 } })).rejects.toMatchObject({
        code: 'sampling-unsupported',
      });
    }
    await sampler.program.dispose();
  });

  it('agrees with float64 over every parameter, vocabulary and shape of logits', async () => {
    let compared = 0;
    let all = 0;
    for (const vocab of spec.slow && !everyCase ? [33, 1000] : [1, 2, 7, 63, 65, 300, 1000, 4099]) {
      const random = new Random(vocab * 7 + 1);
      const rows: (SampledRow & { name: string; logits: Float32Array })[] = [];
      for (const shape of SHAPES) {
        const tokens = tokensOf(vocab, 1 + random.int(60), random);
        for (const [name, row] of Object.entries(rowCases(vocab, tokens, random))) {
          if (!canDo(spec, row)) continue;
          rows.push({
            row,
            tokens,
            name: `${name}, ${shape}, vocab ${vocab}`,
            logits: logitsOf(shape, vocab, random),
          });
        }
      }
      for (let at = 0; at < rows.length; at += 64) {
        const batch = rows.slice(at, at + 64);
        const drawn = await sampleRows(
          device,
          batch.map((r) => r.logits),
          batch,
        );
        batch.forEach((r, i) => {
          all++;
          if (check(drawn[i]!, sampleRowOnce(r.logits, r.row, r.tokens), r.row, r.name)) compared++;
        });
      }
    }
    expect(compared / all).toBeGreaterThan(0.85);
  });

  it('agrees with float64 over a vocabulary of 262,144', { timeout: 120_000 }, async () => {
    const vocab = 262_144;
    const random = new Random(5);
    const tokens = tokensOf(vocab, 40, random);
    const cases = Object.entries(rowCases(vocab, tokens, random)).filter(([, row]) => canDo(spec, row));
    const chosen = cases.filter((_, i) => !spec.slow || i % 6 === 0);
    let compared = 0;
    for (let at = 0; at < chosen.length; at += 8) {
      const batch = chosen.slice(at, at + 8).map(([name, row], i) => {
        // Every other one as a model in f16 would give them: full of ties.
        const shape = (at + i) % 2 === 0 ? 'normal' : 'half';
        return { name: `${name}, ${shape}`, row, tokens, logits: logitsOf(shape, vocab, random) };
      });
      const drawn = await sampleRows(
        device,
        batch.map(({ logits }) => logits),
        batch,
      );
      for (const [i, one] of batch.entries())
        if (check(drawn[i]!, sampleRowOnce(one.logits, one.row, tokens), one.row, one.name)) compared++;
    }
    expect(compared / chosen.length).toBeGreaterThan(0.7);
  });

  it('lets a row that is not a number fail alone, masked or not, and leaves its state as it was', async () => {
    const vocab = 200;
    const random = new Random(5);
    const tokens = tokensOf(vocab, 30, random);
    const names = [
      'mask',
      'suppressed',
      'withheld',
      'all penalties',
      'raw logprobs of penalised',
      'forced',
      'mirostat',
    ];
    const cases = rowCases(vocab, tokens, random);
    const rows = names.map((name) => ({ row: cases[name]!, tokens })).filter(({ row }) => canDo(spec, row));
    if (rows.length === 0) return;
    const good = logitsOf('normal', vocab, random);
    const wanted = await sampleRows(
      device,
      rows.map(() => good),
      rows,
    );
    for (const bad of [Number.NaN, Number.POSITIVE_INFINITY]) {
      const logits = rows.map(({ row }, r) => {
        const own = good.slice();
        // Where the row's own lists suppress it, if they do.
        const hidden = row.withheld?.[0] ?? Number(Object.keys(row.bias ?? {}).at(-1) ?? 3);
        if (r % 2 === 0)
          own[row.mask === undefined ? hidden : own.findIndex((_, i) => !row.mask!.includes(i))] = bad;
        return own;
      });
      const sampler = await Sampler.make(device, vocab);
      for (const [slot, row] of rows.entries()) await sampler.sync(slot, row);
      const drawn = await sampler.draw(logits, rows);
      drawn.forEach((got, r) => {
        if (r % 2 === 1) {
          expect(got).toEqual(wanted[r]);
          return;
        }
        expect(got.token).toBe(-1);
        expect(got.words.every((word) => word === 0)).toBe(true);
      });
      // A second draw finds the state that the first should have found.
      const again = rows.filter((_, r) => r % 2 === 0);
      const slots = rows.map((_, r) => r).filter((r) => r % 2 === 0);
      const later = await sampler.draw(
        again.map(() => good),
        again,
        slots,
      );
      later.forEach((got, i) => {
        expect(got.token).toBe(wanted[slots[i]!]!.token);
        if (got.record && featuresOfRow(again[i]!.row) & FEATURE.LOGPROBS)
          expect(got.words).toEqual(wanted[slots[i]!]!.words);
      });
      await sampler.program.dispose();
    }
  });
});
