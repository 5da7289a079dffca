/**
 * Draws from wide rows whose filters end amid tokens that are drawn: many seeds, for a device may look for the exact end
 * of a filter only if the token stands near it.
 */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Device } from '../../src/device/device.js';
import { kernelDevices } from './devices.js';
import { Random } from './numbers.js';
import { logitsOf, type Shape } from './sampling-cases.js';
import { check } from './sampling-check.js';
import { type RowParams, sampleRow } from './sampling-reference.js';
import { canDo, sampleRows } from './sampling-run.js';

/** Beyond the lists of the portable kernels, so that histograms are used. */
const VOCAB = 5003;
const TOKENS = { history: [3, 4, 5, 3, 4], promptLength: 2 };

/** Most of the weight, or of the tokens, near an end. */
const FILTERS: Record<string, RowParams> = {
  'top-p': { topP: 0.6 },
  'top-p, nearly all': { topP: 0.97 },
  'top-k': { topK: 900 },
  'top-k and top-p': { topK: 2500, topP: 0.7 },
  'top-k and min-p': { topK: 1500, minP: 0.05 },
  'top-p and top-n-sigma': { topP: 0.8, topNSigma: 2 },
  'top-p of penalised': { topP: 0.8, repetition: { penalty: 1.5 }, bias: { 7: 3 } },
  'top-p and xtc': { topP: 0.8, xtc: { probability: 1, threshold: 0.001 } },
  'typical-p': { typicalP: 0.5 },
  'typical-p and top-n-sigma': { typicalP: 0.8, topNSigma: 2 },
  'top-p and typical-p': { topP: 0.9, typicalP: 0.5 },
};
const WIDE: readonly (Shape | 'crowd')[] = ['normal', 'ties', 'half', 'holes', 'equal', 'steep', 'crowd'];

/** Sixty equal tokens weigh most: filters end among them, each has a hundredth, and float64 can tell where. */
function crowd(random: Random): Float32Array {
  const logits = random.normals(VOCAB, 1);
  for (let i = 0; i < 60; i++) logits[random.int(VOCAB)] = 6;
  return logits;
}

describe.each(kernelDevices)('the ends of filters on $name', (spec) => {
  let device: Device;
  beforeAll(async () => {
    device = await spec.create();
  });
  afterAll(async () => {
    await device[Symbol.asyncDispose]();
  });

  it('are kept to by every draw', { timeout: 120_000 }, async () => {
    const random = new Random(11);
    let compared = 0;
    let all = 0;
    for (const shape of WIDE) {
      const logits = shape === 'crowd' ? crowd(random) : logitsOf(shape, VOCAB, random);
      const rows = Object.entries(FILTERS).flatMap(([name, filter]) =>
        Array.from({ length: 8 }, (_, s) => ({
          name: `${name}, ${shape}, seed ${s}`,
          row: { temperature: 0.8 + 0.06 * s, seed: [s * 77 + 1, 5] as const, ...filter },
          tokens: TOKENS,
        })),
      );
      const able = rows.filter(({ row }) => canDo(spec, row));
      for (let at = 0; at < able.length; at += 48) {
        const batch = able.slice(at, at + 48);
        const drawn = await sampleRows(
          device,
          batch.map(() => logits),
          batch,
        );
        batch.forEach(({ row, name }, i) => {
          all++;
          if (check(drawn[i]!, sampleRow(logits, row, TOKENS), row, name)) compared++;
        });
      }
    }
    expect(all).toBeGreaterThan(300);
    expect(compared / all).toBeGreaterThan(0.45);
  });
});
