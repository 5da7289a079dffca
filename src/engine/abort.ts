/**
 * Many requests may share one AbortSignal (a client's, a shutdown's). Each having its own listener makes Node warn
 * of a leak from the eleventh on; so a signal gets one listener, which is gone when nobody waits any more.
 */

interface Shared {
  readonly calls: Set<() => void>;
  readonly listener: () => void;
}

const shared = new WeakMap<AbortSignal, Shared>();

/** Calls once when the signal aborts. Returns what takes that back; it may be called at any time, and twice. */
export function onAbort(signal: AbortSignal, call: () => void): () => void {
  const { calls, listener } = shared.get(signal) ?? listen(signal);
  calls.add(call);
  return () => {
    if (!calls.delete(call) || calls.size > 0) return;
    signal.removeEventListener('abort', listener);
    if (shared.get(signal)?.listener === listener) shared.delete(signal);
  };
}

function listen(signal: AbortSignal): Shared {
  const calls = new Set<() => void>();
  const listener = (): void => {
    for (const call of calls) call();
  };
  const made = { calls, listener };
  shared.set(signal, made);
  signal.addEventListener('abort', listener, { once: true });
  return made;
}
