import { describe, expect, it } from 'vitest';
import { gumbelFromWord, randomWord, uniformFromWord } from './random.js';

describe('random numbers of the sampler', () => {
  it('are uniform over every coordinate of the key', () => {
    const draws: Record<string, (i: number) => number> = {
      seedLow: (i) => randomWord(i, 0, 0, 0, 0),
      seedHigh: (i) => randomWord(7, i, 0, 0, 0),
      choice: (i) => randomWord(7, 1, i, 5, 9),
      position: (i) => randomWord(7, 1, 0, i, 9),
      token: (i) => randomWord(7, 1, 0, 3, i),
    };
    const n = 100_000;
    const bins = 100;
    for (const [name, draw] of Object.entries(draws)) {
      const counts = new Array<number>(bins).fill(0);
      let lag = 0;
      let last = 0.5;
      for (let i = 0; i < n; i++) {
        const u = uniformFromWord(draw(i));
        counts[Math.floor(u * bins)]!++;
        lag += (u - 0.5) * (last - 0.5);
        last = u;
      }
      const chi = counts.reduce((sum, c) => sum + (c - n / bins) ** 2 / (n / bins), 0);
      expect(chi, name).toBeLessThan(149); // 99.9 % point at 99 degrees of freedom: 148.2
      expect(Math.abs(lag / n) * 12, `${name}: neighbours correlate`).toBeLessThan(0.0105); // 3.3 / √n
    }
  });

  it('differ between positions for one token and between tokens for one position', () => {
    const seen = new Set<number>();
    for (let p = 0; p < 200; p++) for (let t = 0; t < 200; t++) seen.add(randomWord(1, 2, 0, p, t));
    // 40,000 words of 32 bits: a birthday or two at most.
    expect(seen.size).toBeGreaterThan(39_995);
  });

  it('never give 0, 1 or an infinite Gumbel', () => {
    expect(uniformFromWord(0)).toBeGreaterThan(0);
    expect(uniformFromWord(0xffffffff)).toBeLessThan(1);
    for (const w of [0, 0xffffffff]) {
      expect(Number.isFinite(gumbelFromWord(w))).toBe(true);
      // Exact in f32, so that every device has the same u.
      expect(Math.fround(uniformFromWord(w))).toBe(uniformFromWord(w));
    }
  });
});
