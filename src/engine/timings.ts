import type { ChoiceTimes } from './sequence.js';
import type { Timings } from './types.js';
import { epochNow } from './yield.js';

export interface TimedChoice {
  readonly times: ChoiceTimes | null;
  readonly tokens: number;
}

/** A request's timings from those of its choices: the earliest start and first token, the latest end. `promptTokens`: those computed. */
export function timingsOf(
  receivedAt: number,
  choices: readonly TimedChoice[],
  promptTokens: number,
): Timings {
  const earliest = (pick: (times: ChoiceTimes) => number): number =>
    choices.reduce((least, { times }) => {
      const at = times === null ? 0 : pick(times);
      return at > 0 && (least === 0 || at < least) ? at : least;
    }, 0);
  const finished = choices.reduce((most, { times }) => Math.max(most, times?.finished ?? 0), 0) || epochNow();
  // Clocks of two threads may differ by a hair: nothing is shorter than 0.
  const span = (from: number, to: number): number => (from > 0 && to > 0 ? Math.max(0, to - from) : 0);
  const started = earliest((times) => times.started);
  const firstToken = earliest((times) => times.firstToken);
  const tokens = choices.reduce((sum, choice) => sum + Math.max(0, choice.tokens - 1), 0);
  const prefillMs = span(started, firstToken);
  const decodeMs = span(firstToken, finished);
  return {
    queueMs: span(receivedAt, started),
    prefillMs,
    ttftMs: span(receivedAt, firstToken),
    decodeMs,
    totalMs: span(receivedAt, finished),
    prefillTokensPerSecond: rate(promptTokens, prefillMs),
    decodeTokensPerSecond: rate(tokens, decodeMs),
  };
}

function rate(count: number, ms: number): number {
  return ms > 0 ? (count * 1000) / ms : 0;
}
