import { promisify } from 'node:util';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
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

// Time is made up, so that a busy machine changes nothing: a turn of the event loop takes 6 µs, and timers go off at whole
// milliseconds, as Node's do.
const TURN = 0.006;
let clock = 0;
let thrown: unknown[] = [];
const node = globalThis.setImmediate;
const turn = Object.defineProperties((task: (...args: unknown[]) => void, ...args: unknown[]) => {
  return node(() => {
    clock += TURN;
    try {
      task(...args);
    } catch (error) {
      thrown.push(error);
    }
  });
}, Object.getOwnPropertyDescriptors(node)) as typeof setImmediate;

let releases: (() => void)[] = [];
beforeEach(() => {
  clock += 1000;
  thrown = [];
  globalThis.setImmediate = turn;
  vi.spyOn(performance, 'now').mockImplementation(() => clock);
  vi.spyOn(globalThis, 'setTimeout').mockImplementation(((task: () => void, ms: number) => {
    const due = Math.floor(clock) + ms;
    return turn(() => {
      clock = Math.max(clock, due);
      task();
    });
  }) as unknown as typeof setTimeout);
});
afterEach(() => {
  for (const release of releases) release();
  releases = [];
  const left = globalThis.setImmediate;
  globalThis.setImmediate = node;
  vi.mocked(performance.now).mockRestore();
  vi.mocked(globalThis.setTimeout).mockRestore();
  expect(left).toBe(turn);
  expect(thrown).toEqual([]);
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

  it('looks some tens of times in 40 ms, not thousands of times, and is an eighth late at most', async () => {
    releases.push(paceDawnTicks());
    const at = await lookFor(40);
    // 8 looks of 50 µs each in the first 0.4 ms, 26 until gaps are a millisecond, one a millisecond from there.
    expect(at.length).toBeLessThan(90);
    expect(at.length).toBeGreaterThan(50);
    at.forEach((now, i) => {
      const before = at[i - 1] ?? 0;
      expect(now - before).toBeLessThanOrEqual(tickGap(now) + 2 * TURN + 1e-9);
    });
  });

  it('looks often again once what was waited for has come', async () => {
    releases.push(paceDawnTicks());
    const waits = await lookFor(60, waitIsOver);
    const one = await lookFor(60);
    expect(waits.length).toBeGreaterThan(10 * one.length);
  });

  it('knows a wait that follows another at once for a new one', async () => {
    releases.push(paceDawnTicks());
    await lookFor(20);
    const [first, second] = await lookFor(1);
    // Had it gone on with the old one, a millisecond would lie between any two looks.
    expect(second! - first!).toBeLessThan(0.1);
  });

  it('looks all the time at what is timed', async () => {
    releases.push(paceDawnTicks());
    const closely = await watchClosely(lookFor(30));
    expect(closely.length).toBeGreaterThan(0.4 * (30 / TURN));
    const paced = await lookFor(30);
    expect(closely.length).toBeGreaterThan(10 * paced.length);
    await expect(watchClosely(Promise.reject(new RangeError('lost')))).rejects.toThrow('lost');
    expect((await lookFor(30)).length).toBe(paced.length);
  });

  it('runs every look of several devices', async () => {
    releases.push(paceDawnTicks());
    const [a, b] = await Promise.all([lookFor(10), lookFor(10)]);
    expect(Math.min(a.length, b.length)).toBeGreaterThan(20);
  });

  it('goes on for one device where another one’s look throws', async () => {
    releases.push(paceDawnTicks());
    setImmediate(
      nativeTick(() => {
        throw new RangeError('this device is gone');
      }),
    );
    expect((await lookFor(10)).length).toBeGreaterThan(20);
    expect(thrown.splice(0)).toEqual([new RangeError('this device is gone')]);
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
    expect(globalThis.setImmediate).not.toBe(turn);
    first();
    first();
    expect(globalThis.setImmediate).not.toBe(turn);
    second();
    expect(globalThis.setImmediate).toBe(turn);
  });

  it('begins anew above somebody who keeps the function of an earlier device', async () => {
    const first = paceDawnTicks();
    const kept = globalThis.setImmediate;
    let calls = 0;
    const theirs = ((...asked: Parameters<typeof setImmediate>) => {
      calls++;
      return kept(...asked);
    }) as typeof setImmediate;
    globalThis.setImmediate = theirs;
    first();
    expect(globalThis.setImmediate).toBe(theirs);
    // Nobody asks for a pace now.
    expect((await lookFor(5)).length).toBeGreaterThan(0.9 * (5 / TURN));
    const second = paceDawnTicks();
    const before = calls;
    await new Promise<void>((resolve) => setImmediate(resolve));
    expect(calls).toBe(before + 1);
    expect((await lookFor(40)).length).toBeLessThan(90);
    second();
    expect(globalThis.setImmediate).toBe(theirs);
    globalThis.setImmediate = turn;
  });
});
