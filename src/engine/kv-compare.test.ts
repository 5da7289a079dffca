import { describe, expect, it } from 'vitest';
import { BaselineRow, Distances } from './kv-compare.js';

describe('distances between next-token distributions', () => {
  // Logits that are logarithms of round probabilities, each row moved by a constant that must not count.
  const p = [0.5, 0.25, 0.125, 0.125];
  const q = [0.25, 0.5, 0.125, 0.125];
  const row = (probabilities: readonly number[], shift: number): number[] =>
    probabilities.map((x) => Math.log(x) + shift);
  const compare = (a: readonly number[], b: readonly number[], next: number): Distances => {
    const baseline = new BaselineRow(4);
    baseline.take(Float32Array.from([...row(q, 0), ...a]), 1, next);
    const distances = new Distances();
    distances.add(baseline, Float32Array.from([...row(p, 9), ...b]), 1, next, 'all');
    return distances;
  };

  it('agrees with the definition', () => {
    const { klMean, klMax, top1, perplexity, perplexityChange } = compare(row(p, 3), row(q, -7), 0).summary();
    // Σ p ln(p / q) = 0.5 ln 2 + 0.25 ln(1/2) = 0.25 ln 2
    expect(klMean).toBeCloseTo(0.25 * Math.LN2, 6);
    expect(klMax).toBe(klMean);
    expect(top1).toBe(0);
    expect(perplexity).toBeCloseTo(4, 5);
    expect(perplexityChange).toBeCloseTo(1, 5);
  });

  it('is nothing between equals', () => {
    const { klMean, top1, perplexity, perplexityChange } = compare(row(p, 3), row(p, 3), 1).summary();
    expect(klMean).toBeLessThan(1e-12);
    expect(top1).toBe(1);
    expect(perplexity).toBeCloseTo(4, 5);
    expect(perplexityChange).toBeCloseTo(0, 12);
  });

  it('is infinite where the logits are no numbers', () => {
    expect(compare(row(p, 0), [Number.NaN, 0, 0, 0], 0).summary().klMean).toBe(Number.POSITIVE_INFINITY);
  });

  it('does not count what neither allows', () => {
    const minus = Number.NEGATIVE_INFINITY;
    const { klMean } = compare([0, 0, minus, minus], [0, 0, minus, -5], 0).summary();
    // p = (½, ½), q = (1, 1, 0, e⁻⁵) / (2 + e⁻⁵)
    expect(klMean).toBeCloseTo(Math.log((2 + Math.exp(-5)) / 2), 9);
  });

  it('tells groups apart', () => {
    const baseline = new BaselineRow(4);
    const distances = new Distances();
    for (const [group, logits] of [
      ['near', row(p, 0)],
      ['far', row(q, 0)],
    ] as const) {
      baseline.take(Float32Array.from(row(p, 0)), 0, 0);
      distances.add(baseline, Float32Array.from(logits), 0, 0, group);
    }
    const { near, far } = distances.groups();
    expect(near!.klMean).toBeLessThan(1e-6);
    expect(far!.klMean).toBeCloseTo(0.25 * Math.LN2, 6);
    expect(distances.summary()).toMatchObject({ tokens: 2, top1: 0.5 });
  });
});
