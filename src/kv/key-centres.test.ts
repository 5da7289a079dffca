import { describe, expect, it } from 'vitest';
import { makeRopeTable, type RopeTable } from '../device/rope.js';
import { keyCentre } from './key-centres.js';

const HEAD = 32;
const turbo = { kind: 'turboquant', bits: 4 } as const;
const affine = { kind: 'affine', bits: 4, groupSize: 64 } as const;

function table(style: RopeTable['style'], dims: number, factor: number): [RopeTable, number[]] {
  const frequencies = Array.from({ length: dims / 2 }, (_, i) => 10000 ** ((-2 * i) / dims));
  return [
    makeRopeTable({ dims, style, frequencies, attentionFactor: factor, maxContext: 4096 }),
    frequencies,
  ];
}

/** A vector rotated by a position, from frequencies alone. */
function rotated(
  x: ArrayLike<number>,
  style: RopeTable['style'],
  frequencies: number[],
  p: number,
  factor: number,
) {
  const out = Array.from(x);
  const half = frequencies.length;
  frequencies.forEach((frequency, i) => {
    const [a, b] = style === 'half' ? [i, half + i] : [2 * i, 2 * i + 1];
    const [cos, sin] = [Math.cos(p * frequency) * factor, Math.sin(p * frequency) * factor];
    out[a] = x[a]! * cos - x[b]! * sin;
    out[b] = x[a]! * sin + x[b]! * cos;
  });
  return out;
}

const layer = (at: (d: number) => readonly [mean: number, keys: number, queries: number]) => ({
  kvHeads: 1,
  headDim: HEAD,
  mean: Float32Array.from({ length: HEAD }, (_, d) => at(d)[0]),
  first: Float32Array.from({ length: HEAD }, (_, d) => at(d)[0]),
  keys: Float32Array.from({ length: HEAD }, (_, d) => at(d)[1]),
  queries: Float32Array.from({ length: HEAD }, (_, d) => at(d)[2]),
});

describe('key centres', () => {
  it.each([
    ['half', 32, 1],
    ['half', 16, 1.2],
    ['interleaved', 32, 1],
  ] as const)('%s, %i dims: the mean of the rotated mean over each 256 positions', (style, dims, factor) => {
    const [rope, frequencies] = table(style, dims, factor);
    const of = layer((d) => [Math.sin(d + 1), 1, 1]);
    const { values, turns } = keyCentre(of, turbo, rope, 0)!;
    expect(turns).toBe(true);
    // A device turns it by the first position of the split.
    for (const split of [0, 1, 7]) {
      const want = new Float64Array(HEAD);
      for (let p = 256 * split; p < 256 * (split + 1); p++)
        rotated(of.mean, style, frequencies, p, factor).forEach((x, d) => {
          want[d]! += x / 256;
        });
      const have = rotated(values.subarray(2 * HEAD), style, frequencies, 256 * split, factor);
      for (let d = 0; d < HEAD; d++) expect(have[d]).toBeCloseTo(want[d]!, 5);
    }
    // One for all positions is the mean over those that are told.
    const flat = keyCentre(of, turbo, rope, 1024)!;
    expect(flat.turns).toBe(false);
    const want = new Float64Array(HEAD);
    for (let p = 0; p < 1024; p++)
      rotated(of.mean, style, frequencies, p, factor).forEach((x, d) => {
        want[d]! += x / 1024;
      });
    for (let d = 0; d < HEAD; d++) expect(flat.values[2 * HEAD + d]).toBeCloseTo(want[d]!, 5);
  });

  it('scales: of queries against keys where vectors are rotated, none where they are not', () => {
    const of = layer((d) => [1, 4 ** (d % 3), 16 ** (d % 2)]);
    // The first key is the mean, so that of the squares 0.7 is left.
    const { values } = keyCentre(of, turbo, null, 0)!;
    const [keys, queries, mean] = [0, 1, 2].map((i) => values.subarray(i * HEAD, (i + 1) * HEAD));
    for (let d = 0; d < HEAD; d++) {
      expect(keys![d]! / keys![0]!).toBeCloseTo((16 ** (d % 2) / 4 ** (d % 3)) ** 0.25, 4);
      expect(keys![d]! * queries![d]!).toBeCloseTo(1, 5);
      // The mean is one of scaled keys.
      expect(mean![d]).toBeCloseTo(keys![d]!, 5);
    }
    expect(keys!.reduce((sum, s) => sum + Math.log(s), 0)).toBeCloseTo(0, 4);
    expect(keyCentre(of, affine, null, 0)!.values).toEqual(new Float32Array(3 * HEAD).fill(1));
  });

  it('the first key draws the mean, and dims in which it is far off are made narrow', () => {
    const same = layer(() => [1, 1, 1]);
    const of = { ...same, first: same.mean.map((x, d) => (d === 0 ? x + 10 : x)) };
    const { values } = keyCentre(of, turbo, null, 0)!;
    expect(values[2 * HEAD]! / values[0]!).toBeGreaterThan(1.5);
    expect(values[2 * HEAD]! / values[0]!).toBeLessThan(8);
    expect(values[2 * HEAD + 1]! / values[1]!).toBeCloseTo(1, 5);
    expect(values[0]!).toBeLessThan(0.7 * values[1]!);
    // One that stays float draws nothing.
    const headed = keyCentre(of, turbo, null, 0, true)!.values;
    headed.forEach((value) => {
      expect(value).toBeCloseTo(1, 5);
    });
  });

  it('float keys stay as they are', () => {
    expect(
      keyCentre(
        layer(() => [1, 1, 1]),
        { kind: 'float', dtype: 'f16' },
        null,
        0,
      ),
    ).toBeNull();
  });
});
