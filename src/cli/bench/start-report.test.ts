import { describe, expect, it } from 'vitest';
import type { StartProbe, StartRound } from './start.js';
import { median, startReport, startText } from './start-report.js';

const round = (node: number, read: number, firstToken: number): StartRound => ({ node, read, firstToken });
const probe = (more: Partial<StartProbe>): StartProbe => ({
  device: 'two threads',
  kind: 'cpu',
  loadMs: 100,
  weights: 1000e6,
  kv: 600e6,
  deviceBytes: 1700e6,
  loadedRss: 900e6,
  peakRss: 1200e6,
  ...more,
});

describe('median', () => {
  it('is the middle, or between the two in the middle', () => {
    expect(median([3])).toBe(3);
    expect(median([9, 1, 3])).toBe(3);
    expect(median([9, 1, 3, 4])).toBe(3.5);
  });
});

describe('startReport', () => {
  const rounds = [round(50, 10, 400), round(70, 30, 900), round(60, 20, 500)];

  it('holds the CPU to multiples of an empty process, beside the read, and to weights and KV', () => {
    const report = startReport('m', 900e6, 1234, rounds, [
      probe({}),
      probe({ loadMs: 300, peakRss: 1300e6 }),
    ]);
    expect(report.medians).toEqual(round(60, 20, 500));
    expect(report.least).toEqual(round(50, 10, 400));
    expect(report.loadMs).toBe(200);
    expect(report.loadBytesPerSecond).toBeCloseTo(4.5e9, 0);
    // 8 × 60 + 20, and 1.25 × (1000 + 600) + 400 MB.
    expect(report.bounds).toEqual([
      { name: 'start, ms', value: 500, limit: 500, ratio: 1 },
      { name: 'peak resident, bytes', value: 1300e6, limit: 2400e6, ratio: 1300 / 2400 },
    ]);
  });

  it('holds a GPU to seconds, device bytes, host bytes and the time of 4.5 GB', () => {
    const gpu = probe({ kind: 'webgpu', loadMs: 2000, loadedRss: 500e6 });
    const { bounds } = startReport('m', 900e6, 1234, rounds, [gpu]);
    expect(bounds.map(({ value, limit }) => [value, Math.round(limit)])).toEqual([
      [500, 3000],
      [1700e6, 1840e6],
      [500e6, 1e9],
      [2000, 1200],
    ]);
    expect(bounds.at(-1)!.ratio).toBeCloseTo(2000 / 1200, 12);
  });

  it('says what is kept and what is not', () => {
    const text = startText(startReport('m', 900e6, 1234, [round(50, 10, 500)], [probe({})]));
    expect(text).toMatch(/without the read 9\.80 × node -e 0; the run before these took 1234 ms/);
    expect(text).toMatch(/start, ms +500 of +410 {2}1\.22 {2}above/);
    expect(text).toMatch(/peak resident, bytes .* 0\.50 {2}within/);
  });
});
