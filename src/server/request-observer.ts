/** What is written down about one request: a log line, counters and histograms. */
import type { Logger } from 'pino';
import type { ChatRequest, Delta, GenerateRequest, Generation, GenerationResult } from '../engine/types.js';
import type { KvantError } from '../errors.js';
import type { RouteKind } from './completion-format.js';
import type { ServerMetrics } from './metrics.js';

const SHOWN_TEXT = 200;

export class RequestObserver {
  readonly #kind: RouteKind;
  readonly #stream: boolean;
  readonly #log: Logger;
  readonly #metrics: ServerMetrics;
  readonly #startedAt = performance.now();
  #lastDeltaAt: number | null = null;
  #id = '';
  #over = false;

  constructor(kind: RouteKind, stream: boolean, log: Logger, metrics: ServerMetrics) {
    this.#kind = kind;
    this.#stream = stream;
    this.#log = log;
    this.#metrics = metrics;
  }

  started(request: ChatRequest | GenerateRequest | undefined, generations: readonly Generation[]): void {
    this.#id = generations[0]?.requestId ?? '';
    if (!this.#log.isLevelEnabled('debug')) return;
    const { signal: _, ...parameters } = request ?? {};
    this.#log.debug({ id: this.#id, parameters: shorten(parameters) }, 'request');
  }

  delta(delta: Delta): void {
    if (delta.tokenIds.length === 0) return;
    const now = performance.now();
    if (this.#lastDeltaAt === null) {
      this.#metrics.timeToFirstToken.observe((now - this.#startedAt) / 1000);
    } else {
      const each = (now - this.#lastDeltaAt) / 1000 / delta.tokenIds.length;
      for (let i = 0; i < delta.tokenIds.length; i++) this.#metrics.interToken.observe(each);
    }
    this.#lastDeltaAt = now;
  }

  finished(results: readonly GenerationResult[]): void {
    const reasons = results.flatMap((r) => r.choices.map((c) => c.finishReason));
    if (!this.#close(reasons.every((r) => r === 'cancelled') ? 'cancelled' : 'ok')) return;
    const first = results[0];
    const usage = {
      prompt: results.reduce((sum, r) => sum + r.usage.promptTokens, 0),
      completion: results.reduce((sum, r) => sum + r.usage.completionTokens, 0),
    };
    this.#log.info(
      {
        id: this.#id,
        route: this.#kind,
        stream: this.#stream,
        promptTokens: usage.prompt,
        completionTokens: usage.completion,
        finish: reasons.length === 1 ? reasons[0] : reasons,
        ttftMs: round(first?.timings.ttftMs),
        tokensPerSecond: round(first?.timings.decodeTokensPerSecond),
        ms: round(performance.now() - this.#startedAt),
      },
      'completed',
    );
    if (this.#log.isLevelEnabled('debug')) {
      this.#log.debug(
        { id: this.#id, seed: first?.seed, timings: first?.timings, text: shorten(first?.text) },
        'response',
      );
    }
  }

  failed(error: KvantError): void {
    if (!this.#close('error')) return;
    const fields = {
      id: this.#id,
      route: this.#kind,
      code: error.code,
      where: error.where,
      ms: round(performance.now() - this.#startedAt),
    };
    if (error.status >= 500) this.#log.error({ ...fields, err: error.cause ?? error }, error.message);
    else this.#log.info(fields, error.message);
  }

  /** The stream is over, whatever became of it: if nobody said so before, the client went away. */
  ended(): void {
    if (!this.#close('cancelled')) return;
    this.#log.info(
      { id: this.#id, route: this.#kind, ms: round(performance.now() - this.#startedAt) },
      'client went away',
    );
  }

  #close(outcome: 'ok' | 'error' | 'cancelled'): boolean {
    if (this.#over) return false;
    this.#over = true;
    this.#metrics.requests.inc({ route: this.#kind, outcome });
    this.#metrics.duration.observe({ route: this.#kind }, (performance.now() - this.#startedAt) / 1000);
    return true;
  }
}

const round = (value: number | undefined): number | undefined =>
  value === undefined ? undefined : Math.round(value * 10) / 10;

/** A copy fit for a log: long strings cut, with what was left out. */
function shorten(value: unknown): unknown {
  if (typeof value === 'string' && value.length > SHOWN_TEXT) {
    return `${value.slice(0, SHOWN_TEXT)}… (${value.length} characters)`;
  }
  if (Array.isArray(value)) {
    const head = value.slice(0, 20).map(shorten);
    return value.length > 20 ? [...head, `… ${value.length} in all`] : head;
  }
  if (typeof value === 'object' && value !== null) {
    return Object.fromEntries(Object.entries(value).map(([k, v]) => [k, shorten(v)]));
  }
  return value;
}
