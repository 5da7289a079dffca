/**
 * Dawn waits in Node by asking the GPU again on every turn of the event loop: 165,000 times a second, as measured, and
 * for each it makes a native function whose finaliser lets it outlive the float-start generation. Seconds of that are
 * collected in pauses of a tenth of a second and more, in which no step is submitted. So its `setImmediate` is given a
 * pace here: a wait is stretched by an eighth at most, by 50 µs where it is short and by a millisecond where it is long.
 *
 * Nothing else is touched: Dawn's function is told from others by being native, nameless and one that could be
 * constructed, which neither bound functions nor those that resolve a promise are.
 */

type Tick = () => void;

/** Milliseconds between two looks at the least and at the most, and their part of the time waited so far. */
const LEAST = 0.05;
const MOST = 1;
const PART = 1 / 8;

const NATIVE = /\{\s*\[native code\]\s*\}$/;

/** Whether Dawn's binding made this function to look after its tasks. */
export function isDawnTick(task: unknown, args: number): task is Tick {
  return (
    args === 0 &&
    typeof task === 'function' &&
    task.name === '' &&
    task.length === 0 &&
    Object.hasOwn(task, 'prototype') &&
    NATIVE.test(Function.prototype.toString.call(task))
  );
}

/** Milliseconds until the next look at something that has been waited for so long. */
export function tickGap(waited: number): number {
  return Math.min(MOST, Math.max(LEAST, waited * PART));
}

let users = 0;
let since = 0;
let last = 0;
let looking = false;
let inside = false;
let watched = 0;
let pending: Tick[] = [];
/** What stood there before `paced`, which stands there now unless somebody else came. */
let plain: typeof setImmediate;
let paced: typeof setImmediate;

/** Waits with no pace at all: for what is timed by the host's clock. */
export async function watchClosely<T>(wait: Promise<T>): Promise<T> {
  watched++;
  try {
    return await wait;
  } finally {
    watched--;
  }
}

/** What was waited for has come: the next wait begins. Costs a clock's reading; does nothing without Dawn in Node. */
export function waitIsOver(): void {
  if (users > 0) since = performance.now();
}

function lookIfDue(): void {
  const now = performance.now();
  const rest = (watched > 0 ? 0 : tickGap(now - since)) - (now - last);
  if (rest <= 0) {
    look();
    return;
  }
  looking = false;
  lookLater(rest);
}

function look(): void {
  looking = false;
  last = performance.now();
  const due = pending;
  pending = [];
  let begun = 0;
  inside = true;
  try {
    while (begun < due.length) due[begun++]!();
  } finally {
    inside = false;
    // One that throws takes no other device's look with it.
    if (begun < due.length) {
      pending.push(...due.slice(begun));
      lookLater(0);
    }
  }
}

function lookLater(gap: number): void {
  if (looking) return;
  looking = true;
  // A timer goes off at the next whole millisecond, which is soon enough: to wait on would take another one.
  if (gap < MOST) plain(lookIfDue);
  else setTimeout(look, gap);
}

function lookFor(tick: Tick): void {
  const now = performance.now();
  // Dawn goes on looking from within a look. Asked from outside, with nothing on its way: a wait begins.
  if (!inside && pending.length === 0 && !looking) since = now;
  pending.push(tick);
  lookLater(watched > 0 ? 0 : tickGap(now - since));
}

/** A `setImmediate` that goes on to `below`: its own, for a later one may stand on somebody who keeps this one. */
function pacing(below: typeof setImmediate): typeof setImmediate {
  const pace = (task: (...args: unknown[]) => void, ...args: unknown[]): NodeJS.Immediate => {
    if (users === 0 || !isDawnTick(task, args.length)) return below(task, ...args);
    lookFor(task);
    // Dawn does not look at what it gets back.
    return undefined as unknown as NodeJS.Immediate;
  };
  return Object.defineProperties(pace, Object.getOwnPropertyDescriptors(below)) as typeof setImmediate;
}

/** Paces Dawn in this thread until the function that comes back is called; once for each caller. */
export function paceDawnTicks(): () => void {
  if (users++ === 0) {
    plain = globalThis.setImmediate;
    paced = pacing(plain);
    globalThis.setImmediate = paced;
  }
  let mine = true;
  return () => {
    if (!mine) return;
    mine = false;
    // Somebody who came later and keeps what was there goes on through `paced`, which then passes everything on.
    if (--users === 0 && globalThis.setImmediate === paced) globalThis.setImmediate = plain;
  };
}
