/** The sampler where rows have several chunks: what the suites of all devices are too small for on a software GPU. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Random } from '../../../../test/devices/numbers.js';
import { logitsOf, rowCases, SHAPES, tokensOf } from '../../../../test/devices/sampling-cases.js';
import { check } from '../../../../test/devices/sampling-check.js';
import { type RowParams, sampleRow } from '../../../../test/devices/sampling-reference.js';
import { type SampledRow, sampleRows } from '../../../../test/devices/sampling-run.js';
import { everyCase } from '../../../../test/setup/every-case.js';
import { compute, openTestDevice } from '../../../../test/setup/swiftshader.js';
import type { WebGpuDevice } from '../device.js';
import { KEY_BELOW_WGSL, ORDER_WGSL } from './sample-wgsl.js';

/** Five chunks, the last of them not full. */
const VOCAB = 4500;

describe('the sampler over several chunks', () => {
  let device: WebGpuDevice;
  let raw: GPUDevice;
  beforeAll(async () => {
    ({ device, raw } = await openTestDevice());
  });
  afterAll(async () => {
    await device[Symbol.asyncDispose]();
  });

  /** Draws each row from its own logits and holds all against float64; the share whose token could be compared. */
  async function compare(
    rows: readonly (SampledRow & { name: string; logits: Float32Array })[],
  ): Promise<number> {
    let compared = 0;
    for (let at = 0; at < rows.length; at += 64) {
      const batch = rows.slice(at, at + 64);
      const drawn = await sampleRows(
        device,
        batch.map((r) => r.logits),
        batch,
      );
      batch.forEach((r, i) => {
        if (check(drawn[i]!, sampleRow(r.logits, r.row, r.tokens), r.row, r.name)) compared++;
      });
    }
    return compared / rows.length;
  }

  it('agrees with float64 over every parameter and shape of logits', async () => {
    const random = new Random(91);
    const rows: (SampledRow & { name: string; logits: Float32Array })[] = [];
    for (const shape of SHAPES) {
      const tokens = tokensOf(VOCAB, 1 + random.int(60), random);
      // Each parameter on every other shape of logits, and each shape with every other parameter.
      for (const [n, [name, row]] of Object.entries(rowCases(VOCAB, tokens, random)).entries())
        if (everyCase || (n + SHAPES.indexOf(shape)) % 2 === 0)
          rows.push({ row, tokens, name: `${name}, ${shape}`, logits: logitsOf(shape, VOCAB, random) });
    }
    expect(await compare(rows)).toBeGreaterThan(0.8);
  });

  it('leaves nothing out that stands at a border: ties, zeros of both signs, and logits of every size', async () => {
    const random = new Random(92);
    const awkward: Record<string, (i: number) => number> = {
      'negative, in steps': () => -50 - Math.round(random.normal() * 4) / 4,
      'zeros of both signs': (i) => (i % 3 === 0 ? -0 : i % 3 === 1 ? 0 : -1e-3 * random.int(9)),
      tiny: () => random.normal() * 1e-30,
      large: () => Math.round(random.normal() * 3) * 1e6,
      'far apart': (i) => (i % 97 === 0 ? random.normal() : -1e20 * random.int(5)),
      'the best at the end': (i) => (i >= VOCAB - 6 ? 3 : Math.round(random.normal() * 4) / 2 - 9),
    };
    const filters: RowParams[] = [
      { topK: 2 },
      { topK: 5 },
      { topK: 6 },
      { topK: 900 },
      { topP: 0.5 },
      { topP: 0.99 },
      { topK: 4, topP: 0.8, minP: 0.2 },
      { minP: 1 },
      { minP: 0.3 },
      { minP: 1e-4 },
      { typicalP: 0.4 },
      { topK: 40, typicalP: 0.9, minP: 0.01 },
      { topNSigma: 0.5 },
      { topNSigma: 2, xtc: { probability: 1, threshold: 0.01 } },
      { xtc: { probability: 1, threshold: 0.2 } },
      { topK: 30, xtc: { probability: 1, threshold: 0.05 } },
      { mirostat: { tau: 4, eta: 0.2 } },
      { logprobs: 3 },
      { logprobs: 20, minP: 0.1 },
      { logprobs: 5, processed: true, frequency: 0.5, presence: 0.5 },
    ];
    const rows: (SampledRow & { name: string; logits: Float32Array })[] = [];
    for (const [kind, of] of Object.entries(awkward)) {
      for (const [n, filter] of filters.entries()) {
        const temperature = [0.3, 1, 40][n % 3]!;
        const row = { temperature, seed: [n, kind.length] as const, ...filter };
        const logits = Float32Array.from({ length: VOCAB }, (_, i) => of(i));
        rows.push({
          row,
          tokens: { history: [1, 2, 1], promptLength: 1 },
          logits,
          name: `${kind}, ${JSON.stringify(row)}`,
        });
      }
    }
    expect(await compare(rows)).toBeGreaterThan(0.5);
  });

  it('passes over no logit that a bound on z would keep', async () => {
    const random = new Random(93);
    const cases: number[][] = [];
    const zs = [0, -1e-38, -1e-20, -1e-6, -0.05, -3, -87, -1e8, -9e29, -1e30, -3e38, 0.7];
    const bests = [0, -0, 1e-40, -1e-36, 1e-30, 0.1, -7, 33.3, 1e6, -1e20, 1e30, 3e38, -3e38];
    for (const z of zs)
      for (const best of bests)
        for (const inverse of [0.01, 0.3, 1, 1.1, 1e5]) cases.push([z, best, inverse]);
    for (let i = 0; i < 500; i++)
      cases.push([
        -Math.abs(random.normal()) * 10,
        random.normal() * 30,
        1 / (0.05 + Math.abs(random.normal())),
      ]);
    const floats = Float32Array.from(cases.flat());
    const out = await compute(
      raw,
      `${ORDER_WGSL}${KEY_BELOW_WGSL}`,
      `if (i >= ${cases.length}u) { return; }
       let z = bitcast<f32>(given[i * 3u]);
       let best = bitcast<f32>(given[i * 3u + 1u]);
       let inverse = bitcast<f32>(given[i * 3u + 2u]);
       let bound = key_below(z, best, inverse);
       var wrong = 0u;
       for (var n = 1u; n < 2000u; n++) {
         // Next below the bound, and farther and farther off.
         let below = n + select(0u, n * n * 16u, n > 1000u);
         if (bound < 0x00800000u + below) { break; }
         let x = number_of(bound - below);
         if (max((x - best) * inverse, -1.0e30f) >= z) { wrong++; }
       }
       out[i * 2u] = wrong;
       out[i * 2u + 1u] = bound;`,
      new Uint32Array(floats.buffer),
      cases.length * 2,
    );
    const number = (key: number): number =>
      new Float32Array(Uint32Array.of(key >= 0x80000000 ? key & 0x7fffffff : ~key).buffer)[0]!;
    for (let i = 0; i < cases.length; i++) {
      const [z, best, inverse] = [floats[i * 3]!, floats[i * 3 + 1]!, floats[i * 3 + 2]!];
      const what = `z ${z}, best ${best}, 1 / temperature ${inverse}`;
      expect(out[i * 2], what).toBe(0);
      const away = z / inverse;
      if (z <= -1e30 || away < -1e30) {
        expect(out[i * 2 + 1], what).toBe(0);
        continue;
      }
      // And it is worth having.
      const slack = 2e-5 * (Math.abs(best) + Math.abs(away)) + 1e-29;
      const bound = number(out[i * 2 + 1]!);
      if (best - slack > -3.4e38)
        expect(bound, what).toBeGreaterThanOrEqual(Math.fround(best + away - slack));
    }
  });
});
