import { describe, expect, it } from 'vitest';
import { plotSvg } from './svg-plot.js';

const circles = (svg: string): [number, number][] =>
  [...svg.matchAll(/<circle cx="([\d.]+)" cy="([\d.]+)" r="4"/g)].map((m) => [Number(m[1]), Number(m[2])]);

describe('plots', () => {
  const one = { title: 'T', xLabel: 'x', yLabel: 'y' };

  it('puts points in proportion, larger values higher', () => {
    const points = [1, 2, 3].map((n) => ({ x: n, y: 10 * n }));
    const [a, b, c] = circles(plotSvg({ ...one, series: [{ name: 's', points }] })) as [number, number][];
    expect(b![0] - a![0]).toBeCloseTo(c![0] - b![0], 0);
    expect(a![1] - b![1]).toBeCloseTo(b![1] - c![1], 0);
    expect(c![1]).toBeLessThan(a![1]);
  });

  it('puts equal ratios at equal distances on a logarithmic axis, and leaves out what it cannot show', () => {
    const points = [0.001, 0.01, 0.1, 0, Number.POSITIVE_INFINITY].map((y, x) => ({ x, y }));
    const drawn = circles(plotSvg({ ...one, yLog: true, series: [{ name: 's', points }] }));
    expect(drawn).toHaveLength(3);
    expect(drawn[0]![1] - drawn[1]![1]).toBeCloseTo(drawn[1]![1] - drawn[2]![1], 0);
  });

  it('labels every point, apart from each other and from the points', () => {
    const points = Array.from({ length: 6 }, (_, i) => ({ x: 1 + i / 500, y: 1, label: `format-${i}` }));
    const series = [{ name: 's', points: [...points, { x: 3, y: 3, label: 'far' }] }];
    const svg = plotSvg({ ...one, series });
    const places = [
      ...svg.matchAll(/<text x="([\d.]+)" y="([\d.]+)" fill="#[0-9a-f]+">(format-\d|far)</g),
    ].map((m) => `${m[1]} ${m[2]}`);
    expect(places).toHaveLength(7);
    expect(new Set(places).size).toBe(7);
  });

  it('is well formed whatever the names hold, and without any point', () => {
    const svg = plotSvg({ ...one, title: 'a < b & c', series: [{ name: '<none>', points: [] }] });
    expect(svg).toContain('a &lt; b &amp; c');
    expect(svg).not.toContain('<none>');
    expect(svg).not.toContain('NaN');
  });
});
