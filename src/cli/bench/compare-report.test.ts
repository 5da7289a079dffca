import { describe, expect, it } from 'vitest';
import { type CompareReport, compareBars, compared, compareText, floorOf } from './compare-report.js';
import type { Ceilings } from './floor-measure.js';
import { barsSvg } from './svg-bars.js';

const ceilings: Ceilings = {
  readBandwidth: 1e9,
  products: { operationsPerSecond: 1e12, size: 4096 },
  launchSeconds: 2e-6,
};
const measured = {
  rows: 8,
  prompt: 100,
  generate: 16,
  prefillTokensPerSecond: 20_000,
  ttftMs: 1,
  decodeTokensPerSecond: 1000,
  stepMs: 8,
  steadyStepMs: 8,
};
// 2 ms of reading, 1 ms of operations, 0.2 ms of launches.
const work = { bytes: 2e6, operations: 1e9, launches: 100 };

const report = (peer: number | null): CompareReport => ({
  model: 'demo',
  vocab: 256,
  weightBytes: 5e6,
  kv: 'f16/f16',
  device: 'a device',
  features: [],
  date: '2026-01-02',
  versions: {},
  ceilings,
  peer: peer === null ? null : 'peer.json',
  results: [
    compared('decode', measured, work, ceilings, peer),
    compared('prefill', measured, { ...work, operations: 5e9 }, ceilings, null),
  ],
});

describe('the report of kvant bench compare', () => {
  it('takes the longest of reading, computing and launching as the floor', () => {
    const floor = floorOf(work, ceilings, 8, 1000);
    expect(floor!.parts).toEqual({ bytes: 2, operations: 1, launches: expect.closeTo(0.2, 9) });
    // 8 tokens in 2 ms.
    expect(floor).toMatchObject({ ms: 2, boundBy: 'bytes', tokensPerSecond: 4000, share: 0.25 });
    expect(floorOf({ ...work, launches: 5000 }, ceilings, 8, 1)!.boundBy).toBe('launches');
  });

  it('does without what could not be measured', () => {
    const poor = { ...ceilings, readBandwidth: null, launchSeconds: null };
    const floor = floorOf(work, poor, 8, 1000);
    expect(floor!.parts).toEqual({ bytes: null, operations: 1, launches: null });
    expect(floor).toMatchObject({ ms: 1, boundBy: 'operations', tokensPerSecond: 8000 });
    const text = compareText({ ...report(null), ceilings: poor });
    expect(text).toContain('reads not measured');
    expect(text).toContain('lost in noise');
    const none = { readBandwidth: null, products: null, launchSeconds: null };
    expect(floorOf(work, none, 8, 1000)).toBeNull();
    const results = [compared('decode', measured, work, none, null)];
    const silent = compareText({ ...report(null), ceilings: none, results });
    expect(silent).toContain('no two measurements of products agreed');
    expect(silent).not.toMatch(/NaN|Infinity|∞/);
    expect(compareBars({ results })[0]!.bars).toHaveLength(1);
  });

  it('counts all rows of a step, and all tokens of the prompts', () => {
    const [decode, prefill] = report(400).results;
    expect(decode).toMatchObject({
      tokensPerSecond: 1000,
      ms: 8,
      peer: { tokensPerSecond: 400, ratio: 2.5 },
    });
    // 800 tokens at 20,000 a second, and in 5 ms at best.
    expect(prefill).toMatchObject({ tokensPerSecond: 20_000, ms: 40, peer: null });
    expect(prefill!.floor).toMatchObject({ ms: 5, boundBy: 'operations', tokensPerSecond: 160_000 });
    expect(prefill!.floor!.share).toBeCloseTo(0.125, 12);
  });

  it('is a table of a line for each case', () => {
    const lines = compareText(report(400)).split('\n');
    expect(lines[1]).toBe(
      'measured in this run: reads 1 GB/s, products 1 TOP/s (4096³), a launch 2 µs; peer: peer.json',
    );
    const cells = lines.slice(3).map((line) => line.trim().split(/ {2,}/));
    expect(cells[1]).toEqual([
      'decode',
      '8',
      '100',
      '1,000',
      '8',
      '400',
      '2.50',
      '4,000',
      '25 %',
      '2',
      '1',
      '0.2',
      'bytes',
    ]);
    expect(cells[2]!.slice(0, 7)).toEqual(['prefill', '8', '100', '20,000', '40', '–', '–']);
    expect(compareText(report(null))).not.toContain('peer:');
  });

  it('is drawn as bars in proportion within a case, longest to the edge', () => {
    const groups = compareBars(report(400));
    expect(groups.map(({ name, bars }) => [name, bars.length])).toEqual([
      ['decode, 8 rows', 3],
      ['prefill, 8 rows', 2],
    ]);
    const svg = barsSvg({ title: 'a < b', subtitle: '', series: ['kvant', 'peer', 'floor'], groups });
    const bars = [...svg.matchAll(/width="([\d.]+)" height="16" fill="(#\w+)"/g)];
    const widths = bars.map((bar) => Number(bar[1]));
    expect(widths).toHaveLength(5);
    const [ours, theirs, floor, prefill, prefillFloor] = widths as [number, number, number, number, number];
    expect(ours / floor).toBeCloseTo(0.25, 2);
    expect(theirs / floor).toBeCloseTo(0.1, 2);
    expect(prefill / prefillFloor).toBeCloseTo(0.125, 2);
    expect(prefillFloor).toBe(floor);
    // Ours have one colour in all cases, and so has the floor.
    const [a, b, c, d, e] = bars.map((bar) => bar[2]);
    expect(new Set([a, b, c]).size).toBe(3);
    expect([d, e]).toEqual([a, c]);
    expect(svg).toContain('a &lt; b');
    const alone = compareBars(report(null));
    expect(svg).toContain('>peer<');
    expect(
      barsSvg({ title: '', subtitle: '', series: ['kvant', 'peer', 'floor'], groups: alone }),
    ).not.toContain('>peer<');
    expect(svg).toContain('400 (ours 2.50 ×)');
    expect(svg).toContain('4,000 (bytes; ours 25 %)');
  });

  it('draws nothing for what is no number', () => {
    const bars = [{ series: 0, value: Number.NaN, label: '–' }];
    const svg = barsSvg({ title: '', subtitle: '', series: ['s'], groups: [{ name: 'g', bars }] });
    expect(svg).not.toContain('NaN');
  });
});
