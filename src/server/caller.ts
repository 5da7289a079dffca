/** Who sends a request, and what follows for its place in the queue and for the prefixes it may share. */
import { createHash } from 'node:crypto';
import { PRIORITY_RANGE } from '../engine/request-check.js';
import type { ChatRequest, GenerateRequest } from '../engine/types.js';
import { KvantError } from '../errors.js';
import { shown } from '../printable.js';
import type { KeyHolder } from './api-keys.js';

export interface Caller {
  /** Whose key it came with; undefined where none was asked for. */
  readonly key?: KeyHolder;
  /** Where it comes from: whose large bodies and texts are counted together, where there is no key. */
  readonly address?: string;
  /** The header `X-Priority`. */
  readonly priority?: string;
}

/** What holds for all callers of a server. */
export interface CallerRules {
  /** Highest priority of requests without a key. */
  readonly maxPriority: number;
  /** Keys share cached prefixes with one another. */
  readonly prefixCacheShared: boolean;
}

const LEVELS: Readonly<Record<string, number>> = { high: 5, normal: 0, low: -5 };

/**
 * The request as the engine gets it: with its caller's share, priority and salt. What the body says of its priority goes
 * before the header.
 *
 * Errors: `invalid-parameter`, `priority-not-allowed` (400).
 */
export function fromCaller<T extends ChatRequest | GenerateRequest>(
  request: T,
  caller: Caller,
  rules: CallerRules,
): T {
  const { key } = caller;
  const most = key?.maxPriority ?? rules.maxPriority;
  const header = readPriority(caller.priority);
  const asked = request.priority ?? header;
  if (asked !== undefined && asked > most)
    throw priorityTooHigh(asked, most, request.priority === undefined ? 'X-Priority' : 'priority', key);
  // Who does not say is ordinary, or as near to it as the key may come.
  const priority = asked ?? (most < 0 ? most : undefined);
  const cacheSalt =
    key === undefined || rules.prefixCacheShared ? request.cacheSalt : tenantSalt(key, request.cacheSalt);
  return {
    ...request,
    ...(priority === undefined ? {} : { priority }),
    ...(key === undefined ? {} : { share: key.tenant }),
    ...(cacheSalt === undefined ? {} : { cacheSalt }),
  };
}

/** `X-Priority`. Errors: `invalid-parameter`. */
export function readPriority(header: string | undefined): number | undefined {
  if (header === undefined) return undefined;
  const text = header.trim().toLowerCase();
  if (Object.hasOwn(LEVELS, text)) return LEVELS[text];
  const value = Number(text);
  if (text !== '' && Number.isInteger(value) && Math.abs(value) <= PRIORITY_RANGE) return value;
  throw new KvantError('invalid-parameter', `The header X-Priority is "${shown(header)}".`, {
    kind: 'invalid-request',
    where: 'X-Priority',
    fix: `Send high, normal, low, or a whole number from -${PRIORITY_RANGE} to ${PRIORITY_RANGE}.`,
  });
}

/**
 * Of the key itself: neither its name nor its place in a list gives one tenant what another one has on disk. A salt of the
 * client's own is beneath it.
 */
function tenantSalt({ tenant }: KeyHolder, salt: string | undefined): string {
  return createHash('sha256')
    .update(JSON.stringify([tenant, salt ?? null]))
    .digest('hex');
}

function priorityTooHigh(asked: number, most: number, where: string, key: KeyHolder | undefined): KvantError {
  const whose = key === undefined ? 'a request without a key' : 'this API key';
  return new KvantError(
    'priority-not-allowed',
    `\`${where}\` asks for ${asked}; the highest for ${whose} is ${most}.`,
    {
      kind: 'invalid-request',
      where,
      fix: `Send ${most} or lower, or leave it out; the server's operator sets the highest (\`priority\` in the key file, or --max-priority).`,
    },
  );
}
