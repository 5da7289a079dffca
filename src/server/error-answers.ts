/** Answers to requests that fail, in the words of the protocol whose path they asked for. */
import type { KvantError } from '../errors.js';
import { errorHeaders, statusOf } from './http-errors.js';
import { protocolAt } from './protocols.js';

export interface ErrorAnswer {
  readonly status: number;
  readonly headers: Record<string, string>;
  readonly body: string;
}

/** `url`: what was asked for; empty where that is not known. */
export function errorAnswer(error: KvantError, url: string): ErrorAnswer {
  const protocol = protocolAt(url);
  const status = protocol.errorStatus?.(error) ?? statusOf(error);
  return { status, headers: errorHeaders(error), body: JSON.stringify(protocol.errorBody(error)) };
}

/** The response for an error: its status, its body, and when to come again. */
export function errorResponse(error: KvantError, url: string): Response {
  const { body, ...head } = errorAnswer(error, url);
  return new Response(body, head);
}
