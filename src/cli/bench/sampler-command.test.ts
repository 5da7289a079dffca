import { describe, expect, it } from 'vitest';
import { resolveSampling } from '../../sampling/params.js';
import { casesFor, GREEDY } from './sampler-cases.js';
import { samplerTable, summarise } from './sampler-command.js';

describe('kvant bench sampler', () => {
  it('has cases that requests take, greedy first, and mixed rows that all differ', () => {
    const cases = casesFor(32);
    expect(cases[0]!.name).toBe(GREEDY);
    for (const { sampling } of cases)
      for (let row = 0; row < 32; row++)
        expect(() => resolveSampling({ temperature: 0, ...sampling(row) })).not.toThrow();
    const mixed = cases.find(({ name }) => name === 'all rows different')!;
    expect(new Set(Array.from({ length: 32 }, (_, row) => JSON.stringify(mixed.sampling(row)))).size).toBe(
      32,
    );
    expect(casesFor(1).map(({ name }) => name)).not.toContain('all rows different');
  });

  it('compares neighbours and takes the median', () => {
    const cases = casesFor(1).filter(({ name }) => name === GREEDY || name === 'repetition');
    // The device slows down from round to round; the ratio does not care.
    const results = summarise(
      cases,
      [
        [1, 2, 4].map((ms) => ({ ms, greedy: ms })),
        [
          { ms: 1.25, greedy: 1 },
          { ms: 2, greedy: 2 },
          { ms: 8, greedy: 4 },
        ],
      ],
      1,
      64,
      'webgpu',
    );
    expect(results[0]).toMatchObject({ case: GREEDY, stepMs: 2, ratio: 1, aim: null });
    expect(results[1]).toMatchObject({ stepMs: 2, ratio: 0.8, lowest: 0.5, highest: 1, aim: 0.99 });
    const table = samplerTable({
      model: 'm',
      vocab: 9,
      device: { kind: 'cpu', name: 'd', features: [] },
      generate: 8,
      rounds: 3,
      date: '',
      results,
    });
    expect(table.split('\n')[3]).toMatch(/repetition +2\.000 +0\.800 +0\.500–1\.000 +≥ 0\.99/);
  });
});
