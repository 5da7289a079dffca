import { OPENAI } from './openai/protocol.js';
import type { Endpoint, Protocol } from './protocol.js';

/** All protocols. The first answers errors at paths that are nobody's. */
export const PROTOCOLS: Protocol[] = [OPENAI];

/** The protocol of a path or URL, by its endpoints. */
export function protocolAt(url: string): Protocol {
  const path = pathOf(url);
  return PROTOCOLS.find(({ endpoints }) => endpoints.some((one) => one.path === path)) ?? PROTOCOLS[0]!;
}

/** The endpoint of a path that is known to be one. */
export function endpointAt(path: string): Endpoint {
  return PROTOCOLS.flatMap(({ endpoints }) => endpoints).find((one) => one.path === path)!;
}

/** Of a URL, whole or as a request line has it. */
function pathOf(url: string): string {
  const path = url.replace(/^[a-z]+:\/\/[^/?#]*/i, '');
  const end = path.search(/[?#]/);
  return end < 0 ? path : path.slice(0, end);
}
