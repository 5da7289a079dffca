/** What is written down about one request: a log line, counters and histograms. */
import type { Logger } from 'pino';
import type { ChatRequest, Delta, GenerateRequest, GenerationResult } from '../engine/types.js';
import type { KvantError } from '../errors.js';
import { printable, shown } from '../printable.js';
import { statusOf } from './http-errors.js';
import type { ServerMetrics } from './metrics.js';
import type { RequestId } from './request-id.js';

const SHOWN_ENTRIES = 20;
const SHOWN_DEPTH = 8;

export class RequestObserver {
  /** The endpoint's name. */
  readonly #route: string;
  /** Name of the key that the request came with. */
  readonly #key: string | undefined;
  readonly #id: RequestId;
  readonly #log: Logger;
  readonly #metrics: ServerMetrics;
  readonly #startedAt = performance.now();
  /** When each choice had its last tokens. */
  readonly #lastDeltaAt = new Map<number, number>();
  #stream: boolean | undefined;
  #over = false;

  constructor(route: string, key: string | undefined, id: RequestId, log: Logger, metrics: ServerMetrics) {
    this.#route = route;
    this.#key = key;
    this.#id = id;
    this.#log = log;
    this.#metrics = metrics;
  }

  started(stream: boolean, request: ChatRequest | GenerateRequest | undefined): void {
    this.#stream = stream;
    if (!this.#log.isLevelEnabled('debug')) return;
    // Share and salt are made from the key: not even a digest of it is for a log.
    const { share: _, cacheSalt: __, ...parameters } = request ?? {};
    this.#log.debug({ ...this.#id.fields, key: this.#key, parameters: shorten(parameters) }, 'request');
  }

  /** `choice`: of all choices of the response. */
  delta(delta: Delta, choice: number): void {
    if (delta.tokenIds.length === 0) return;
    const now = performance.now();
    const last = this.#lastDeltaAt.get(choice);
    if (this.#lastDeltaAt.size === 0) this.#metrics.timeToFirstToken.observe((now - this.#startedAt) / 1000);
    if (last !== undefined) {
      const each = (now - last) / 1000 / delta.tokenIds.length;
      for (let i = 0; i < delta.tokenIds.length; i++) this.#metrics.interToken.observe(each);
    }
    this.#lastDeltaAt.set(choice, now);
  }

  finished(results: readonly GenerationResult[]): void {
    const reasons = results.flatMap((r) => r.choices.map((c) => c.finishReason));
    if (!this.#close('ok')) return;
    const first = results[0];
    const usage = {
      prompt: results.reduce((sum, r) => sum + r.usage.promptTokens, 0),
      cached: results.reduce((sum, r) => sum + r.usage.cachedTokens, 0),
      completion: results.reduce((sum, r) => sum + r.usage.completionTokens, 0),
    };
    this.#log.info(
      {
        ...this.#id.fields,
        key: this.#key,
        route: this.#route,
        stream: this.#stream,
        promptTokens: usage.prompt,
        cachedTokens: usage.cached,
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
        { ...this.#id.fields, seed: first?.seed, timings: first?.timings, text: shorten(first?.text) },
        'response',
      );
    }
  }

  failed(error: KvantError): void {
    const status = statusOf(error);
    if (!this.#close(status < 500 ? 'refused' : 'error')) return;
    const fields = {
      ...this.#id.fields,
      key: this.#key,
      route: this.#route,
      status,
      code: error.code,
      where: error.where === undefined ? undefined : shown(error.where),
      ms: round(performance.now() - this.#startedAt),
    };
    if (status >= 500 && error.kind !== 'overloaded')
      this.#log.error({ ...fields, err: error.cause ?? error }, printable(error.message));
    else this.#log.info(fields, printable(error.message));
  }

  /** The response is over, whatever became of it: if nobody said so before, the client went away. */
  ended(): void {
    if (!this.#close('cancelled')) return;
    this.#log.info(
      {
        ...this.#id.fields,
        key: this.#key,
        route: this.#route,
        ms: round(performance.now() - this.#startedAt),
      },
      'client went away',
    );
  }

  #close(outcome: 'ok' | 'refused' | 'error' | 'cancelled'): boolean {
    if (this.#over) return false;
    this.#over = true;
    this.#metrics.requests.inc({ route: this.#route, outcome });
    this.#metrics.duration.observe({ route: this.#route }, (performance.now() - this.#startedAt) / 1000);
    return true;
  }
}

const round = (value: number | undefined): number | undefined =>
  value === undefined ? undefined : Math.round(value * 10) / 10;

/** A copy fit for a log: long strings cut, with what was left out; no deeper than a log is read. */
function shorten(value: unknown, depth = 0): unknown {
  if (typeof value === 'string') return shown(value);
  if (ArrayBuffer.isView(value)) return `… ${value.byteLength} bytes`;
  if (Array.isArray(value)) {
    if (depth >= SHOWN_DEPTH) return '[…]';
    const head = value.slice(0, SHOWN_ENTRIES).map((v) => shorten(v, depth + 1));
    return value.length > SHOWN_ENTRIES ? [...head, `… ${value.length} in all`] : head;
  }
  if (typeof value === 'object' && value !== null) {
    if (depth >= SHOWN_DEPTH) return '{…}';
    const names = Object.keys(value);
    const head = names
      .slice(0, 2 * SHOWN_ENTRIES)
      .map((name) => [shown(name), shorten((value as Record<string, unknown>)[name], depth + 1)]);
    if (names.length > head.length) head.push(['…', `${names.length} in all`]);
    return Object.fromEntries(head);
  }
  return value;
}
