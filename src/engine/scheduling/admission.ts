/**
 * Who of those that wait comes in next.
 *
 * By level: the priority, and one more for every `ageingMs` waited, but never above the highest priority that waits. So a
 * higher priority goes first, a lower one is as good after a known time, and among equals that have waited long nobody's flood
 * of requests counts as age. Then the share that has been served least; then the order of arrival. Whoever is first waits until
 * there is room for it, and the others behind it: what is small does not slip past what is large for ever.
 */

import { countFloatStart, hasRoom } from './blocks.js';
import type { SchedulerConfig, SchedulerState, StepPlan } from './step-plan.js';

/** Lists those whose time to start is over. */
export function expire({ waiting, now }: SchedulerState, plan: StepPlan): void {
  for (let at = 0; at < waiting.length; at++)
    if (waiting[at]!.deadline <= now) plan.expires[plan.expired++] = at;
}

/** Waiting sequences that may come in, now or later. */
export function countWaiting({ waiting, now }: SchedulerState): number {
  let count = 0;
  for (let at = 0; at < waiting.length; at++) if (!waiting[at]!.held && waiting[at]!.deadline > now) count++;
  return count;
}

/** Index of the waiting sequence that is next after those the plan admits already; −1 for none. */
export function nextWaiting(state: SchedulerState, config: SchedulerConfig, plan: StepPlan): number {
  const { waiting } = state;
  let top = -1;
  let found = -1;
  for (let at = 0; at < waiting.length; at++) {
    const { held, deadline, priority } = waiting[at]!;
    if (held || deadline <= state.now || isAdmitted(plan, at)) continue;
    if (found < 0 || priority > top) top = priority;
    found = at;
  }
  if (found < 0) return -1;
  found = -1;
  for (let at = 0; at < waiting.length; at++) {
    const { held, deadline } = waiting[at]!;
    if (held || deadline <= state.now || isAdmitted(plan, at)) continue;
    if (found < 0 || goesFirst(state, config, plan, at, found, top)) found = at;
  }
  return found;
}

/** A row is free, and there is room for the sequence beside the rows there are. */
export function mayEnter(
  state: SchedulerState,
  config: SchedulerConfig,
  plan: StepPlan,
  at: number,
): boolean {
  if (plan.admitted >= state.freeSlots) return false;
  const rows = state.running.length + plan.admitted;
  return hasRoom(
    state.waiting[at]!,
    config,
    plan,
    rows,
    countFloatStart(state, config) + plan.floatStartAdmitted,
  );
}

/** `a`, further back in the queue, goes before `b`. */
function goesFirst(
  state: SchedulerState,
  config: SchedulerConfig,
  plan: StepPlan,
  a: number,
  b: number,
  top: number,
): boolean {
  const first = state.waiting[a]!;
  const second = state.waiting[b]!;
  const difference = level(state, config, a, top) - level(state, config, b, top);
  if (difference !== 0) return difference > 0;
  if (first.share !== second.share) {
    const one = state.served[first.share]! + admittedTokens(state, plan, first.share);
    const other = state.served[second.share]! + admittedTokens(state, plan, second.share);
    if (one !== other) return one < other;
  }
  return first.arrival < second.arrival;
}

function level(state: SchedulerState, config: SchedulerConfig, at: number, top: number): number {
  const { priority, arrival } = state.waiting[at]!;
  // As integers: a quotient would be a number of the heap.
  return Math.min(top, priority + (((state.now - arrival) / config.ageingMs) | 0)) | 0;
}

/** Prompt tokens of a share that this plan admits: not in its account yet. */
function admittedTokens({ waiting }: SchedulerState, plan: StepPlan, share: number): number {
  let tokens = 0;
  for (let i = 0; i < plan.admitted; i++) {
    const next = waiting[plan.admits[i]!]!;
    if (next.share === share) tokens += next.length - next.computed;
  }
  return tokens | 0;
}

function isAdmitted(plan: StepPlan, at: number): boolean {
  for (let i = 0; i < plan.admitted; i++) if (plan.admits[i] === at) return true;
  return false;
}
