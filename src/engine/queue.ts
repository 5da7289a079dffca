/** The sequences that wait, as far as it is not the scheduler that looks at them. */

import type { Sequence } from './sequence.js';

/** Longest that a timer can be set for. */
const MAX_TIMER_MS = 2 ** 31 - 1;

/** Takes out those that have come in. */
export function removeAdmitted(waiting: Sequence[]): void {
  let kept = 0;
  for (const sequence of waiting) if (sequence.phase === 'waiting') waiting[kept++] = sequence;
  waiting.length = kept;
}

/** Milliseconds that the one that has waited for longest has waited; 0 if none waits. */
export function oldestAge(waiting: readonly Sequence[], now: number): number {
  return waiting.reduce((most, { arrival }) => Math.max(most, now - arrival), 0);
}

/** For when nothing runs, so that no step comes to see that somebody waits too long. Undefined where nobody minds. */
export function deadlineTimer(
  waiting: readonly Sequence[],
  now: number,
  wake: () => void,
): ReturnType<typeof setTimeout> | undefined {
  const deadline = waiting.reduce((least, next) => Math.min(least, next.deadline), Infinity);
  if (deadline === Infinity) return undefined;
  return setTimeout(wake, Math.min(MAX_TIMER_MS, Math.max(1, deadline - now)));
}
