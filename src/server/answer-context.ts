/** What all endpoints are given, whatever the request. */
import type { BodiesInFlight } from './bodies-in-flight.js';
import type { CallerRules } from './caller.js';
import type { EnginePort } from './engine-port.js';
import type { RequestId } from './request-id.js';
import type { RequestObserver } from './request-observer.js';
import type { Shutdown } from './shutdown.js';

export const REASONING_FORMATS = ['auto', 'none'] as const;
/** `auto`: a `<think>` block is delivered as `reasoning_content`; `none`: it stays in the content. */
export type ReasoningFormat = (typeof REASONING_FORMATS)[number];

export interface AnswerContext {
  readonly engine: EnginePort;
  readonly keepAliveMs: number;
  readonly bodyLimit: number;
  readonly bodies: BodiesInFlight;
  readonly reasoningFormat: ReasoningFormat;
  readonly shutdown: Shutdown;
  readonly rules: CallerRules;
  /** Opens the record of one request: log line and metrics. `key`: name of the key it came with. */
  observe(route: string, key: string | undefined, id: RequestId): RequestObserver;
}
