import { describe, expect, it } from 'vitest';
import { parseTrace, poissonArrivals } from './arrivals.js';

describe('poissonArrivals', () => {
  const arrivals = poissonArrivals({
    requests: 20_000,
    rate: 0.05,
    prompt: [10, 1000],
    generate: [1, 1],
    priorities: [-1, 3],
    shares: ['a', 'b', 'c'],
    seed: 3,
  });

  it('come at the rate that was asked for, with exponential gaps', () => {
    const gaps = arrivals.map(({ at }, i) => at - (arrivals[i - 1]?.at ?? 0));
    const mean = gaps.reduce((a, b) => a + b, 0) / gaps.length;
    const variance = gaps.reduce((sum, gap) => sum + (gap - mean) ** 2, 0) / gaps.length;
    expect(mean).toBeCloseTo(20, 0);
    // The deviation of an exponential distribution is its mean.
    expect(Math.sqrt(variance) / mean).toBeCloseTo(1, 1);
  });

  it('have lengths even on a logarithmic scale, priorities and shares in equal parts', () => {
    const below = arrivals.filter(({ prompt }) => prompt < 100).length / arrivals.length;
    expect(below).toBeCloseTo(0.5, 1);
    for (const { prompt, generate } of arrivals) {
      expect(prompt).toBeGreaterThanOrEqual(10);
      expect(prompt).toBeLessThanOrEqual(1000);
      expect(generate).toBe(1);
    }
    expect(arrivals.filter(({ priority }) => priority === 3).length / 20_000).toBeCloseTo(0.5, 1);
    expect(arrivals.filter(({ share }) => share === 'c').length / 20_000).toBeCloseTo(1 / 3, 1);
  });
});

describe('parseTrace', () => {
  it('reads lines in any order and sorts them by time', () => {
    const text =
      '{"at": 2, "prompt": 5, "generate": 1}\n\n{"at": 0.5, "prompt": 7, "generate": 2, "priority": -3, "key": "x", "timeout": 4}\n';
    expect(parseTrace(text)).toEqual([
      { at: 500, prompt: 7, generate: 2, priority: -3, share: 'x', startWithinMs: 4000 },
      { at: 2000, prompt: 5, generate: 1, priority: 0, share: '', startWithinMs: Number.POSITIVE_INFINITY },
    ]);
    expect(parseTrace('')).toEqual([]);
  });

  for (const [line, what] of [
    ['{', 'not JSON'],
    ['[]', 'not an object'],
    ['{"at": -1, "prompt": 1, "generate": 1}', '"at"'],
    ['{"at": 0, "prompt": 1.5, "generate": 1}', '"prompt"'],
    ['{"at": 0, "prompt": 1, "generate": 0}', '"generate"'],
    ['{"at": 0, "prompt": 1, "generate": 1, "priority": "high"}', '"priority"'],
    ['{"at": 0, "prompt": 1, "generate": 1, "key": 4}', '"key"'],
    ['{"at": 0, "prompt": 1, "generate": 1, "timeout": 0}', '"timeout"'],
    ['{"at": 0, "prompt": 1, "generate": 1, "tokens": 4}', '"tokens"'],
  ] as const)
    it(`refuses ${line}`, () => {
      expect(() => parseTrace(`{"at": 0, "prompt": 1, "generate": 1}\n${line}`)).toThrow(
        expect.objectContaining({
          code: 'trace-invalid',
          where: 'line 2',
          message: expect.stringContaining(what),
        }),
      );
    });
});
