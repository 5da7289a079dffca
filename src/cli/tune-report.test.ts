import { describe, expect, it } from 'vitest';
import type { TunedDecision } from '../device/webgpu/tuning/tune.js';
import { candidateTable, shareOf, tuneSummary, tuneTable, workName } from './tune-report.js';

const key = 'linear 28672x4096 q4g64-f16 rows4 x4096 out14336+0 norm silu';
const base: TunedDecision = {
  key,
  rows: 4,
  by: 'measured',
  rule: 'resident w2 p1 f16 r8',
  choice: 'resident w1 p1 f16 r4',
  neutral: false,
  ruleUs: 69,
  us: 34.5,
  bytes: 69e6,
  operations: 9.4e8,
  times: [
    { id: 'resident w2 p1 f16 r8', neutral: true, us: 69 },
    { id: 'resident w1 p1 f16 r4', neutral: false, us: 34.5 },
    { id: 'skinny t32x128 s1 d1 b1 n8', neutral: false, us: Number.NaN },
  ],
};
const ceilings = { read: 4e12, matrix: 6e14 };

describe('the report of tuning', () => {
  it('compares with the limit that comes first', () => {
    // 69 MB at 4 TB/s are 17.25 µs, 9.4e8 operations at 600 T 1.6 µs.
    expect(shareOf(base, 34.5, ceilings)).toEqual({ share: 0.5, of: 'reads' });
    const many = { ...base, operations: 6e10 };
    const { share, of } = shareOf(many, 200, ceilings);
    expect(share).toBeCloseTo(0.5, 12);
    expect(of).toBe('matrices');
    expect(shareOf(many, 34.5, { ...ceilings, matrix: null }).of).toBe('reads');
  });

  it('says what was chosen, what it gains and what is left', () => {
    const kept = { ...base, choice: base.rule, us: 69, neutral: true };
    const skipped = { ...kept, by: 'skipped', ruleUs: Number.NaN, us: Number.NaN, times: [] } as const;
    const lines = tuneTable([base, kept, skipped], ceilings).split('\n');
    expect(lines[1]).toMatch(
      /^linear 28672x4096 q4g64-f16 norm silu +4 +69\.0 +25 % +34\.5 +50 % +50 % {2}resident w2 p1 f16 r8 → resident w1 p1 f16 r4 \(another order\)$/,
    );
    expect(lines[2]).toMatch(/silu +4 +69\.0 +25 % {2,}resident w2 p1 f16 r8$/);
    expect(lines[3]).toMatch(/silu +4 +– +– {2,}resident w2 p1 f16 r8 {2}\[skipped\]$/);
    expect(tuneSummary([base, kept, skipped], 1234)).toBe(
      '3 decisions, 1 for another kernel than by rule, 2 measured in 1.2 s, 0 known, 1 left for the next time\n',
    );
  });

  it('lists candidates, the fastest first, and those that do not run last', () => {
    const lines = candidateTable([base], ceilings).trimEnd().split('\n');
    expect(lines[0]).toBe('linear 28672x4096 q4g64-f16 norm silu, 4 rows (share of reads)');
    expect(lines.slice(1).map((line) => line.trim().split(/ {2,}/).slice(1).join('|'))).toEqual([
      '50 %|resident w1 p1 f16 r4|another order, chosen',
      '25 %|resident w2 p1 f16 r8|by rule',
      '–|skinny t32x128 s1 d1 b1 n8|another order, does not run',
    ]);
  });

  it('names the work', () => {
    expect(workName(key)).toBe('linear 28672x4096 q4g64-f16 norm silu');
  });
});
