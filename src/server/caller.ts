/** Who sends a request, and how urgent it is: from its headers. */
import { createHash, timingSafeEqual } from 'node:crypto';
import { KvantError } from '../errors.js';
import { shown } from '../printable.js';

/** What a request takes from its headers. */
export interface Caller {
  /** Whose it is: time is shared evenly between callers. */
  readonly share?: string;
  readonly priority?: number;
}

const LEVELS: Readonly<Record<string, number>> = { high: 5, normal: 0, low: -5 };

/** Headers that a request's place in the queue depends on. Errors: `invalid-parameter`. */
export function readPriority(header: string | undefined): number | undefined {
  if (header === undefined) return undefined;
  const text = header.trim().toLowerCase();
  if (Object.hasOwn(LEVELS, text)) return LEVELS[text];
  const value = Number(text);
  if (text !== '' && Number.isInteger(value) && Math.abs(value) <= 10) return value;
  throw new KvantError('invalid-parameter', `The header X-Priority is "${shown(header)}".`, {
    kind: 'invalid-request',
    where: 'X-Priority',
    fix: 'Send high, normal, low, or a whole number from -10 to 10.',
  });
}

/** The keys that a server was started with. */
export class ApiKeys {
  readonly #digests: readonly Buffer[];

  constructor(keys: readonly string[]) {
    this.#digests = keys.map(digest);
  }

  /** Which share a request with this `Authorization` header belongs to. Errors: `invalid-api-key` (401). */
  shareOf(authorization: string | undefined): string {
    const given = /^Bearer (.+)$/i.exec(authorization ?? '')?.[1] ?? '';
    const seen = digest(given);
    // Digests have one length, and all are compared: it takes the same time for every wrong key.
    let found = -1;
    for (const [index, expected] of this.#digests.entries())
      if (timingSafeEqual(seen, expected)) found = index;
    if (given !== '' && found >= 0) return `key ${found + 1}`;
    throw new KvantError('invalid-api-key', 'The API key is missing or wrong.', {
      kind: 'invalid-request',
      fix: 'Send "Authorization: Bearer KEY" with a key the server was started with.',
    });
  }
}

function digest(key: string): Buffer {
  return createHash('sha256').update(key).digest();
}
