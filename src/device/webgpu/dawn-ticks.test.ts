import { promisify } from 'node:util';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { isDawnTick, paceDawnTicks, tickGap, waitIsOver, watchClosely } from './dawn-ticks.js';

function nameless(run: () => void = () => {}): () => void {
  return Object.defineProperties(() => run(), { name: { value: '' }, prototype: { value: {} } });
}

/** As Dawn's binding makes them: native, nameless, no parameters, with a prototype. */
function nativeTick(run: () => void): () => void {
  const tick = nameless(run);
  natives.add(tick);
  return tick;
}
const natives = new Set<unknown>();
const source = Function.prototype.toString;
vi.spyOn(Function.prototype, 'toString').mockImplementation(function (this: unknown) {
  return natives.has(this) ? 'function () { [native code] }' : source.call(this as () => void);
});

/** Looks again and again for so many milliseconds, as Dawn does, and answers when. */
async function lookFor(ms: number, onLook: () => void = () => {}): Promise<number[]> {
  const at: number[] = [];
  const began = performance.now();
  await new Promise<void>((resolve) => {
    const run = (): void => {
      at.push(performance.now() - began);
      onLook();
      if (performance.now() - began > ms) resolve();
      else setImmediate(nativeTick(run));
    };
    setImmediate(nativeTick(run));
  });
  return at;
}

const original = globalThis.setImmediate;
let releases: (() => void)[] = [];
afterEach(() => {
  for (const release of releases) release();
  releases = [];
  expect(globalThis.setImmediate).toBe(original);
});

describe('the pace of Dawn’s looks', () => {
  it('is an eighth of the wait, 50 µs at the least and a millisecond at the most', () => {
    expect(tickGap(0)).toBe(0.05);
    expect(tickGap(0.4)).toBeCloseTo(0.05);
    expect(tickGap(4)).toBe(0.5);
    expect(tickGap(1e4)).toBe(1);
  });

  it('tells Dawn’s function from every other', async () => {
    expect(
      isDawnTick(
        nativeTick(() => {}),
        0,
      ),
    ).toBe(true);
    expect(
      isDawnTick(
        nativeTick(() => {}),
        1,
      ),
    ).toBe(false);
    expect(isDawnTick(() => {}, 0)).toBe(false);
    expect(isDawnTick(nameless(), 0)).toBe(false);
    expect(isDawnTick((() => {}).bind(null), 0)).toBe(false);
    await new Promise<void>((resolve) => {
      expect(isDawnTick(resolve, 0)).toBe(false);
      resolve();
    });
    expect(isDawnTick(Map, 0)).toBe(false);
    expect(isDawnTick(undefined, 0)).toBe(false);
  });

  it('looks some tens of times in 40 ms, not tens of thousands of times', async () => {
    releases.push(paceDawnTicks());
    const at = await lookFor(40);
    // 8 looks of 50 µs each in the first 0.4 ms, 26 until gaps are a millisecond, one a millisecond from there.
    expect(at.length).toBeLessThan(90);
    expect(at.length).toBeGreaterThan(3);
  });

  it('looks often again once what was waited for has come', async () => {
    releases.push(paceDawnTicks());
    const waits = await lookFor(60, waitIsOver);
    const one = await lookFor(60);
    expect(waits.length).toBeGreaterThan(2 * one.length);
  });

  it('knows a wait that follows another at once for a new one', async () => {
    releases.push(paceDawnTicks());
    // Had it gone on with the old one, a millisecond would lie between any two looks. The machine may be busy: the least counts.
    let least = Number.POSITIVE_INFINITY;
    for (let i = 0; i < 5; i++) {
      await lookFor(20);
      const [first, second] = await lookFor(1);
      least = Math.min(least, second! - first!);
    }
    expect(least).toBeLessThan(0.9);
  });

  it('looks all the time at what is timed', async () => {
    releases.push(paceDawnTicks());
    const closely = await watchClosely(lookFor(30));
    const paced = await lookFor(30);
    expect(closely.length).toBeGreaterThan(3 * paced.length);
  });

  it('runs every look of several devices', async () => {
    releases.push(paceDawnTicks());
    const [a, b] = await Promise.all([lookFor(10), lookFor(10)]);
    expect(Math.min(a.length, b.length)).toBeGreaterThan(2);
  });

  it('leaves other immediates as they are: order, arguments, clearing, promises', async () => {
    releases.push(paceDawnTicks());
    const seen: unknown[] = [];
    setImmediate((...args: unknown[]) => seen.push(args), 1, 'two');
    clearImmediate(setImmediate(() => seen.push('cleared')));
    await promisify(setImmediate)();
    await new Promise<void>((resolve) => setImmediate(resolve));
    expect(seen).toEqual([[1, 'two']]);
  });

  it('ends with the last who asked for it, and once for each', () => {
    const [first, second] = [paceDawnTicks(), paceDawnTicks()];
    expect(globalThis.setImmediate).not.toBe(original);
    first();
    first();
    expect(globalThis.setImmediate).not.toBe(original);
    second();
    expect(globalThis.setImmediate).toBe(original);
  });
});
