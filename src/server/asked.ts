/** What a body asks for, whichever endpoint it came to: read here or, where it is large, on a thread for texts. */
import type { EngineLimits } from '../engine/types.js';
import { KvantError } from '../errors.js';
import { shown } from '../printable.js';
import type { ReceivedBody } from './body-text.js';
import type { Asked, Endpoint } from './protocol.js';

/** What a body is held to besides its form. */
export interface Served {
  /** The name of the model. */
  readonly name: string;
  readonly limits: Pick<EngineLimits, 'maxRows' | 'maxQueue'>;
}

/** Errors: 400s that name the field, `model-not-found` (404). */
export function parseAsked(endpoint: Endpoint, received: ReceivedBody, served: Served): Asked {
  const asked = endpoint.parse(received);
  servedName(served.name, asked.model);
  refuseTooMany(asked.requests, served.limits);
  return asked;
}

/** Errors: `model-not-found` (404). */
export function servedName(name: string, asked: string | undefined): string {
  if (asked === undefined || asked === name || lastPart(asked) === name || asked === lastPart(name))
    return name;
  throw new KvantError('model-not-found', `The model "${shown(asked)}" is not served here.`, {
    kind: 'not-found',
    where: 'model',
    fix: `Ask for "${name}", or leave \`model\` out.`,
  });
}

/** Of a name on the hub, or of a path to the model's folder. */
const lastPart = (name: string): string =>
  name
    .slice(0, 4096)
    .split(/[\\/]/)
    .findLast((part) => part !== '') ?? name;

/**
 * More sequences than rows and queue hold together never fit: to come again later would not help. One request's own choices the
 * engine counts itself.
 */
function refuseTooMany(requests: Asked['requests'], { maxRows, maxQueue }: Served['limits']): void {
  if (requests.length < 2) return;
  const all = requests.reduce((sum, { n, bestOf }) => sum + (bestOf ?? n ?? 1), 0);
  if (all <= maxRows + maxQueue) return;
  throw new KvantError(
    'invalid-parameter',
    `The request is for ${all} answers, ${requests.length} prompts together; rows and queue take ${maxRows + maxQueue}.`,
    {
      kind: 'invalid-request',
      where: 'prompt',
      fix: 'Send fewer prompts, or ask for fewer choices of each.',
    },
  );
}
