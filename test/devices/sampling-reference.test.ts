/** The reference itself, against numbers worked out by hand and against other ways to the same thing. */
import { describe, expect, it } from 'vitest';
import * as r from './sampling-reference.js';

const log = (...p: number[]): Float64Array => Float64Array.from(p, Math.log);
const tokens = (history: number[], promptLength = 0): r.RowTokens => ({ history, promptLength });
const all = (x: ArrayLike<number>): r.Kept => ({ ids: r.ordered(x), margin: Infinity });

describe('the reference of the sampler', () => {
  it('penalises by the formulas, in order', () => {
    const logits = [2, -2, 1, 0, 3];
    const row: r.RowParams = {
      bias: { 0: 1, 4: Number.NEGATIVE_INFINITY },
      repetition: { penalty: 2 },
      frequency: 0.5,
      presence: 0.25,
    };
    // 0: prompt only; 1: generated twice; 2: generated once; 3: never.
    const x = r.penalise(logits, row, tokens([0, 1, 1, 2], 1));
    expect([...x]).toEqual([1.5, -4 - 1.25, 0.5 - 0.75, 0, Number.NEGATIVE_INFINITY]);
    const windowed = r.penalise(logits, { repetition: { penalty: 2, window: 2 } }, tokens([0, 1, 1, 2], 1));
    expect([...windowed]).toEqual([2, -4, 0.5, 0, 3]);
  });

  it('masks, bans, withholds', () => {
    const x = r.penalise(
      [1, 2, 3, 4, 5],
      {
        mask: [0, 2, 3],
        banned: [
          [7, 8, 2],
          [9, 0],
        ],
        withheld: [3],
      },
      tokens([7, 8]),
    );
    expect([...x]).toEqual([1, ...Array(4).fill(Number.NEGATIVE_INFINITY)]);
  });

  it('finds DRY matches: a b c … a b → c, cut at breakers and at the window', () => {
    const dry = { multiplier: 1, base: 2, allowedLength: 2 };
    expect([...r.dryMatches([1, 2, 3, 9, 1, 2], dry)]).toEqual([[3, 2]]);
    expect([...r.dryMatches([1, 2, 3, 9, 1, 2], { ...dry, breakers: [1] })]).toEqual([[3, 1]]);
    expect([...r.dryMatches([1, 2, 3, 9, 1, 2], { ...dry, breakerSequences: [[1, 2]] })]).toEqual([]);
    expect([...r.dryMatches([1, 2, 3, 9, 1, 2], { ...dry, window: 5 })]).toEqual([[3, 1]]);
    expect([...r.dryMatches([5, 5, 5, 5], dry)]).toEqual([[5, 3]]);
    const x = r.penalise([0, 0, 0, 0, 0, 0], { dry }, tokens([5, 5, 5, 5]));
    expect([...x]).toEqual([0, 0, 0, 0, 0, -2]);
  });

  it('agrees with the example that llama.cpp gives, and spares breakers as it does', () => {
    const [a, b, c, y] = [1, 2, 3, 4] as const;
    const history = [a, b, c, c, b, c, y, a, b, c];
    const dry = { multiplier: 1, base: 2, allowedLength: 1 };
    expect(r.dryMatches(history, dry)).toEqual(
      new Map([
        [c, 3],
        [b, 1],
        [y, 2],
      ]),
    );
    expect([...r.penalise([0, 0, 0, 0, 0], { dry }, tokens(history))]).toEqual([0, 0, -1, -4, -2]);
    // y broke the sequence, so no match is longer than the three tokens after it; itself it is not penalised.
    const spared = { ...dry, breakers: [y] };
    expect([...r.penalise([0, 0, 0, 0, 0], { dry: spared }, tokens(history))]).toEqual([0, 0, -1, -4, 0]);
  });

  it('keeps by top-p, min-p, typical-p, top-n-sigma', () => {
    const z = log(0.4, 0.3, 0.2, 0.1);
    expect(r.keepTopP(all(z), z, 0.65).ids).toEqual([0, 1]);
    expect(r.keepTopP(all(z), z, 0.75).ids).toEqual([0, 1, 2]);
    const relative = z.map((v) => v - z[0]!);
    expect(r.keepMinP(all(z), relative, 0.45).ids).toEqual([0, 1, 2]);
    // H = 1.2799; |−ln p − H|: 0.364, 0.076, 0.330, 1.023.
    expect(r.keepTypical(all(z), z, 0.25).ids).toEqual([1]);
    expect(r.keepTypical(all(z), z, 0.45).ids).toEqual([1, 2]);
    expect(r.keepTypical(all(z), z, 0.55).ids).toEqual([0, 1, 2]);
    // Mean 1, σ √2 of 0, 0, 1, 3 → with −∞ left out: mean 1, σ² = (1 + 1 + 0 + 4) / 4.
    const x = Float64Array.of(3, 1, 0, 0, Number.NEGATIVE_INFINITY);
    expect(r.keepSigma(all(x), x, 1.7).ids).toEqual([0, 1]);
    expect(r.keepSigma(all(x), x, 1.6).ids).toEqual([0]);
  });

  it('drops all but the last of the top choices by XTC', () => {
    const z = log(0.4, 0.3, 0.2, 0.1);
    const xtc = { probability: 0.5, threshold: 0.15 };
    expect(r.keepXtc(all(z), z, xtc, 0.6).ids).toEqual([0, 1, 2, 3]);
    expect(r.keepXtc(all(z), z, xtc, 0.4).ids).toEqual([2, 3]);
    expect(r.keepXtc(all(z), z, { probability: 1, threshold: 0.35 }, 0.4).ids).toEqual([0, 1, 2, 3]);
  });

  it('follows mirostat', () => {
    const z = log(0.5, 0.25, 0.125, 0.125);
    expect(r.keepMirostat(all(z), z, 2.5).ids).toEqual([0, 1]);
    expect(r.keepMirostat(all(z), z, 0).ids).toEqual([0]);
    const row: r.RowParams = { temperature: 1, mirostat: { tau: 1, eta: 0.1, mu: 0.5 } };
    // One id is kept, so nothing surprises: μ ← 0.5 − 0.1 (0 − 1).
    expect(r.sampleRow(z, row, tokens([])).mu).toBeCloseTo(0.6, 12);
    expect(r.sampleRow(z, { ...row, forced: 3 }, tokens([]))).toMatchObject({ token: 3, mu: 0.5 });
  });

  it('gives log-probabilities, ranks and the first of the order', () => {
    const x = log(0.1, 0.4, 0.1, 0.4);
    const got = r.logprobsOf(x, 2, 3);
    expect(got.chosen).toBeCloseTo(Math.log(0.1), 12);
    expect(got).toMatchObject({ rank: 4, ids: [1, 3, 0] });
    expect(got.values[0]).toBeCloseTo(Math.log(0.4), 12);
    expect(r.sampleRow([0, Number.NaN], { logprobs: 2 }, tokens([])).token).toBe(-1);
  });
});
