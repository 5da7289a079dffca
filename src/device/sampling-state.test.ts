import { describe, expect, it } from 'vitest';
import type { RowSpec } from './sampling.js';
import { countTokens, equalSpecs, matchLengths, SyncedTokens, tokensSinceBreaker } from './sampling-state.js';

/** Small alphabets, so that matches are long. */
function histories(): Int32Array[] {
  let state = 12345;
  const next = (below: number): number => {
    state = (Math.imul(state, 1103515245) + 12345) >>> 0;
    return Math.floor((state / 2 ** 32) * below);
  };
  const random = [1, 2, 3, 10, 100, 301].flatMap((length) =>
    [1, 2, 3, 40].map((letters) => Int32Array.from({ length }, () => next(letters))),
  );
  return [new Int32Array(0), Int32Array.from('abcabcabxabcabcab', (c) => c.charCodeAt(0)), ...random];
}

function suffixMatch(history: Int32Array, d: number): number {
  let m = 0;
  const last = history.length - 1;
  while (last - d - m >= 0 && history[last - m] === history[last - d - m]) m++;
  return m;
}

describe('state of a row from its history', () => {
  it('finds match lengths as a comparison of every pair does', () => {
    for (const history of histories())
      for (const window of [0, 1, 2, 7, 64]) {
        const out = new Uint32Array(history.length + 4).fill(77);
        matchLengths(history, window, out);
        const end = window === 0 ? history.length : Math.min(window, history.length);
        const want = Array.from(out, (_, d) => (d >= 1 && d < end ? suffixMatch(history, d) : 0));
        expect([...out]).toEqual(want);
      }
  });

  it('gives the same matches token by token, in place', () => {
    for (const history of histories()) {
      const carried = new Uint32Array(history.length + 1);
      history.forEach((token, n) => {
        for (let d = 1; d <= n; d++) carried[d] = history[n - d] === token ? carried[d]! + 1 : 0;
        const rebuilt = new Uint32Array(history.length + 1);
        matchLengths(history.slice(0, n + 1), 0, rebuilt);
        expect([...carried]).toEqual([...rebuilt]);
      });
    }
  });

  it('counts what was generated, and what stands in the window', () => {
    const history = Int32Array.of(3, 1, 3, 9, 3, 1, 200);
    const count = (window: number) => {
      const seen = new Uint32Array(10);
      const generated = new Uint32Array(10);
      countTokens(history, 4, window, seen, generated);
      return { seen: [...seen], generated: [...generated] };
    };
    const generated = [0, 1, 0, 1, 0, 0, 0, 0, 0, 0];
    expect(count(0)).toEqual({ seen: [0, 2, 0, 3, 0, 0, 0, 0, 0, 1], generated });
    expect(count(3)).toEqual({ seen: [0, 1, 0, 1, 0, 0, 0, 0, 0, 0], generated });
    expect(count(5)).toEqual({ seen: [0, 1, 0, 2, 0, 0, 0, 0, 0, 1], generated });
    expect(count(99)).toEqual(count(0));
  });

  it('counts from the end of the last breaker', () => {
    const breakers = { ids: Uint32Array.of(7), sequences: [Uint32Array.of(1, 2, 3)] };
    const since = (...tokens: number[]): number => tokensSinceBreaker(Int32Array.from(tokens), breakers);
    expect(since()).toBe(0);
    expect(since(4, 4)).toBe(2);
    expect(since(4, 7, 4, 4)).toBe(2);
    expect(since(7, 1, 2, 3, 4)).toBe(1);
    expect(since(1, 2, 3, 7)).toBe(0);
    expect(since(2, 3, 1, 2)).toBe(4);
  });

  it('tells equal, continued and other histories, also behind an equal last token', () => {
    const synced = new SyncedTokens(16);
    synced.set(Int32Array.of(1, 2, 3));
    expect(synced.compare(Int32Array.of(1, 2, 3))).toBe('equal');
    expect(synced.compare(Int32Array.of(1, 2, 3, 4))).toBe('continued');
    expect(synced.compare(Int32Array.of(1, 2))).toBe('other');
    expect(synced.compare(Int32Array.of(1, 9, 3))).toBe('other');
    expect(synced.compare(Int32Array.of(1, 9, 3, 4))).toBe('other');
    synced.put(3, 8);
    expect(synced.compare(Int32Array.of(1, 2, 3, 8))).toBe('equal');
    synced.put(1, 5);
    expect(synced.compare(Int32Array.of(1, 5))).toBe('equal');
  });

  it('compares specs by what they say, μ aside', () => {
    const spec = (): RowSpec => ({
      features: 3,
      repetitionWindow: 0,
      dryWindow: 0,
      biasIds: Uint32Array.of(1),
      biasValues: Float32Array.of(Number.NEGATIVE_INFINITY),
      withheld: Uint32Array.of(),
      banned: [Uint32Array.of(1, 2)],
      breakers: { ids: Uint32Array.of(4), sequences: [] },
      mu: 1,
    });
    expect(equalSpecs(spec(), { ...spec(), mu: 2 })).toBe(true);
    expect(equalSpecs(spec(), { ...spec(), features: 1 })).toBe(false);
    expect(equalSpecs(spec(), { ...spec(), banned: [Uint32Array.of(1, 3)] })).toBe(false);
    expect(equalSpecs(spec(), { ...spec(), biasValues: Float32Array.of(-5) })).toBe(false);
    expect(equalSpecs(spec(), { ...spec(), breakers: { ids: Uint32Array.of(4, 5), sequences: [] } })).toBe(
      false,
    );
  });
});
