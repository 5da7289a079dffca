import { describe, expect, it } from 'vitest';
import { type BenchKvReport, benchTable, median, results, type Samples } from './kv-report.js';

const samples = (name: string, bytesPerToken: number, decode: number[], prefill: number[]): Samples => ({
  name,
  layers: [{ layer: 0, kind: 'full', key: name, value: name, keyBytes: 1, valueBytes: 1 }],
  bytesPerToken,
  poolBytes: 0,
  decode,
  attend: [0.5],
  prefill,
});

describe('the report of kvant bench kv', () => {
  it('holds formats against the fastest float cache, by medians', () => {
    const all = [
      samples('f32', 400, [5, 4, 9], [8]),
      samples('f16', 200, [4, 3, 2], [10]),
      samples('affine8', 100, [2, 1, 2], [16]),
    ];
    const run = { rows: 4, context: 1000, prefillTokens: 64, readBandwidth: 3.2e6 };
    const [f32, f16, affine8] = results(all, run);
    expect([f32!.decode.ratio, f16!.decode.ratio, affine8!.decode.ratio]).toEqual([3 / 5, 1, 1.5]);
    expect([f32!.prefill!.ratio, f16!.prefill!.ratio, affine8!.prefill!.ratio]).toEqual([1, 0.8, 0.5]);
    expect(affine8!.decode).toMatchObject({ stepMs: 2000, tokensPerSecond: 2 });
    // 100 bytes · 4 rows · 1000 tokens in half a second.
    expect(affine8!.attention).toMatchObject({ ms: 500, gigabytesPerSecond: 0.8e-3, share: 0.25 });
  });

  it('has no ratio without a float cache, and no prefill where none was measured', () => {
    const [one] = results([samples('turbo4', 10, [1], [])], {
      rows: 1,
      context: 1,
      prefillTokens: 0,
      readBandwidth: 1,
    });
    expect(one).toMatchObject({ decode: { ratio: null }, prefill: null });
    expect(benchTable({ formats: [one!], prefillTokens: 0 } as unknown as BenchKvReport)).toMatch(
      /^format .*\nturbo4 .* – .*\n$/,
    );
  });

  it('takes the mean of the middle two of an even number', () => {
    expect(median([4, 1, 3, 2])).toBe(2.5);
  });
});
