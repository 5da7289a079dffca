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
import { sampleRowOnce } from './sampling-once.js';
import { featuresOfRow, type RowParams } from './sampling-reference.js';
import { canDo, Sampler } from './sampling-run.js';

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
  'top-k, top-p and min-p': { topK: 2500, topP: 0.7, minP: 0.1 },
  'top-p and top-n-sigma': { topP: 0.8, topNSigma: 2 },
  'top-p of penalised': { topP: 0.8, repetition: { penalty: 1.5 }, bias: { 7: 3 } },
  'top-p and xtc': { topP: 0.8, xtc: { probability: 1, threshold: 0.001 } },
  'typical-p': { typicalP: 0.5 },
  'typical-p and top-n-sigma': { typicalP: 0.8, topNSigma: 2 },
  'top-p and typical-p': { topP: 0.9, typicalP: 0.5 },
};
const WIDE: readonly (Shape | 'crowd')[] = ['normal', 'ties', 'half', 'holes', 'equal', 'steep', 'crowd'];

interface Draw {
  readonly name: string;
  readonly row: RowParams;
  readonly tokens: typeof TOKENS;
}

const seedOf = (s: number): readonly [number, number] => [s * 77 + 1, 5];
const drawOf = (name: string, filter: RowParams, s: number, temperature: number): Draw => ({
  name: `${name}, seed ${s}`,
  row: { temperature, seed: seedOf(s), ...filter },
  tokens: TOKENS,
});

function wide(shape: (typeof WIDE)[number], random: Random): Float32Array {
  return shape === 'crowd' ? crowd(random) : logitsOf(shape, VOCAB, random);
}

/** Sixty equal tokens weigh most: filters end among them, each has a hundredth, and float64 can tell where. */
function crowd(random: Random): Float32Array {
  const logits = random.normals(VOCAB, 1);
  for (let i = 0; i < 60; i++) logits[random.int(VOCAB)] = 6;
  return logits;
}

/** More equal tokens than any list holds: a filter that ends among them is searched for. */
function multitude(): Float32Array {
  const logits = new Random(11).normals(VOCAB, 1);
  for (let i = 0; i < 2600; i++) logits[(i * 2 + 1) % VOCAB] = 4;
  return logits;
}

/** One token a little above sixty equal ones, and two more such crowds below. */
function layers(): Float32Array {
  const logits = new Random(5).normals(VOCAB, 1);
  for (let i = 0; i < 60; i++) logits[i * 16 + 3] = 6;
  logits[500] = 6.01;
  for (let i = 0; i < 100; i++) logits[i * 10 + 5 + (i % 2 ? 0 : 1)] = 4.5;
  for (let i = 0; i < 40; i++) logits[i * 25 + 1] = 5.2;
  return logits;
}

/** Standard deviation of all logits. */
function deviationOf(logits: Float32Array): number {
  const mean = logits.reduce((sum, x) => sum + x, 0) / logits.length;
  return Math.sqrt(logits.reduce((sum, x) => sum + (x - mean) ** 2, 0) / logits.length);
}

describe.each(kernelDevices)('the ends of filters on $name', (spec) => {
  let device: Device;
  let sampler: Sampler;
  beforeAll(async () => {
    device = await spec.create();
    sampler = await Sampler.make(device, VOCAB);
  });
  afterAll(async () => {
    await sampler.program.dispose();
    await device[Symbol.asyncDispose]();
  });

  /** Draws from the same logits in batches, and how many tokens could be compared. */
  async function compare(logits: Float32Array, draws: readonly Draw[]): Promise<number> {
    let compared = 0;
    for (let at = 0; at < draws.length; at += 48) {
      const batch = draws.slice(at, at + 48);
      const drawn = await sampler.drawOnce(
        batch.map(() => logits),
        batch,
      );
      batch.forEach(({ row, name }, i) => {
        if (check(drawn[i]!, sampleRowOnce(logits, row, TOKENS), row, name)) compared++;
      });
    }
    return compared;
  }

  it('are kept to by every draw', { timeout: 120_000 }, async () => {
    const random = new Random(11);
    let compared = 0;
    let all = 0;
    for (const shape of WIDE) {
      const logits = wide(shape, random);
      const draws = Object.entries(FILTERS)
        .flatMap(([name, filter]) =>
          Array.from({ length: 8 }, (_, s) => drawOf(`${name}, ${shape}`, filter, s, 0.8 + 0.06 * s)),
        )
        .filter(({ row }) => canDo(spec, row));
      // Steps in which no row has features have kernels of their own.
      for (const featureless of [true, false]) {
        const some = draws.filter(({ row }) => (featuresOfRow(row) === 0) === featureless);
        all += some.length;
        compared += await compare(logits, some);
      }
    }
    expect(all).toBeGreaterThan(300);
    expect(compared / all).toBeGreaterThan(0.45);
  });

  it('are where they are alone, whatever the rows beside', { timeout: 120_000 }, async () => {
    const random = new Random(12);
    for (const shape of WIDE) {
      const logits = wide(shape, random);
      const draws = Object.entries(FILTERS)
        .map(([name, filter], s) => drawOf(`${name}, ${shape}`, filter, s, 0.9))
        .filter(({ row }) => canDo(spec, row));
      expect(new Set(draws.map(({ row }) => featuresOfRow(row) === 0)).size).toBe(2);
      const beside = await sampler.drawOnce(
        draws.map(() => logits),
        draws,
      );
      for (const [i, draw] of draws.entries()) {
        const [alone] = await sampler.drawOnce([logits], [draw]);
        if (spec.bitwise || sampleRowOnce(logits, draw.row, TOKENS).margin > 1e-4)
          expect(alone!.token, draw.name).toBe(beside[i]!.token);
      }
    }
  });

  // Seeds whose token is another one if a step of the search is left out.
  it('are looked for where the first draw cannot tell', { timeout: 120_000 }, async () => {
    const layered = layers();
    const cases: readonly (readonly [Float32Array, readonly Draw[]])[] = [
      // The best of all is not the most typical: that it is drawn does not say that it is kept.
      [layered, [0, 70].map((s) => drawOf('typical-p', { typicalP: 0.7 }, s, 1))],
      // Top-n-sigma is counted from the best that typical-p keeps. From the best of all it would end above the last
      // crowd.
      [
        layered,
        [0, 22, 40, 68, 83].map((s) =>
          drawOf(
            'typical-p and top-n-sigma',
            { typicalP: 0.7, topNSigma: (6.005 - 4.5) / deviationOf(layered) },
            s,
            1,
          ),
        ),
      ],
      // What the first draw assumed is forgotten before the second, which searches from the start.
      [multitude(), [0, 2, 10, 12].map((s) => drawOf('top-p and min-p', { topP: 0.9, minP: 0.3 }, s, 1.4))],
      // What top-p is a share of does not end where min-p does.
      [
        crowd(new Random(11)),
        [0, 6].map((s) =>
          drawOf('top-k, top-p and min-p', { topK: 2500, topP: 0.7, minP: 0.1 }, s, 0.8 + 0.06 * s),
        ),
      ],
    ];
    for (const [logits, draws] of cases) {
      const able = draws.filter(({ row }) => canDo(spec, row));
      expect(await compare(logits, able)).toBe(able.length);
    }
  });
});
