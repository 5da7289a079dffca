/** The keys that open the server: whose a request is, and what its key may do. */
import { createHash, createHmac, randomBytes } from 'node:crypto';
import {
  type ArgumentKind,
  checkArgument,
  checkOption,
  FIELDS,
  FLAG,
  kindOf,
  LIST,
  TEXT,
} from '../arguments.js';
import { PRIORITY_RANGE } from '../engine/request-check.js';
import { KvantError } from '../errors.js';
import { checkOptionNames, type OptionNames } from '../option-names.js';

/** One key, given as itself or as its digest. */
export interface ApiKey {
  /** Whose it is, for logs. Default: `key 1` and so on. */
  readonly name?: string | undefined;
  /** The key. */
  readonly key?: string | undefined;
  /** In its place the SHA-256 of its bytes, 64 hexadecimal digits. */
  readonly sha256?: string | undefined;
  /** Highest priority that its requests may ask for, −10 to 10. Default: `maxPriority`; 10 for an admin. */
  readonly priority?: number | undefined;
  /** It may also read metrics and the state of the cache, and empty the cache. Default false. */
  readonly admin?: boolean | undefined;
}

export const KEY_FIELDS: readonly string[] = [
  'name',
  'key',
  'sha256',
  'priority',
  'admin',
] satisfies (keyof ApiKey)[];

/** What is known of a key that is right. Nothing of it tells the key. */
export interface KeyHolder {
  readonly name: string;
  /** Made from the key alone: the same in every process, whatever other keys there are. */
  readonly tenant: string;
  readonly maxPriority: number;
  readonly admin: boolean;
}

export interface ApiKeysOptions {
  /** Requests without a key may generate: only what is an admin's wants one. Default false. */
  readonly anonymous?: boolean;
  /** Highest priority of keys that do not say. Default 0. */
  readonly maxPriority?: number;
}

const API_KEYS_OPTIONS: OptionNames<ApiKeysOptions> = { anonymous: true, maxPriority: true };

/**
 * All keys of a server. They may be replaced while it runs.
 *
 * @example
 * const keys = new ApiKeys(['secret', { name: 'batch', sha256: digest, priority: -5 }]);
 * const server = await listen({ engine, apiKey: keys });
 * keys.replace([{ name: 'batch', sha256: digest, priority: -5 }]);
 */
export class ApiKeys {
  /** Requests without a key may generate. */
  readonly anonymous: boolean;
  readonly #maxPriority: number;
  /**
   * Keys are looked up by a digest under a secret of this process: nobody else can tell which keys have digests that begin
   * alike, so the time that a comparison takes says nothing.
   */
  readonly #secret = randomBytes(32);
  #holders: ReadonlyMap<string, KeyHolder>;

  /** Errors: `invalid-api-keys`, `invalid-parameter`, `unknown-option`, `invalid-option`. */
  constructor(keys: readonly (string | ApiKey)[], options: ApiKeysOptions = {}) {
    checkOptionNames(options, API_KEYS_OPTIONS, 'ApiKeys');
    const { anonymous = false, maxPriority = 0 } = options;
    checkOption('anonymous', anonymous, FLAG);
    checkOption('maxPriority', maxPriority, PRIORITY);
    this.anonymous = anonymous;
    this.#maxPriority = maxPriority;
    this.#holders = this.#read(keys);
  }

  get size(): number {
    return this.#holders.size;
  }

  /** From now on these count and no others; requests under way are not hurt. Errors: `invalid-api-keys`; then all stays as it was. */
  replace(keys: readonly (string | ApiKey)[]): void {
    this.#holders = this.#read(keys);
  }

  /** Whose key an `Authorization` header holds; undefined for none, and for a wrong one. */
  holderOf(authorization: string | undefined): KeyHolder | undefined {
    if (authorization !== undefined) checkArgument('authorization', authorization, TEXT);
    const given = /^Bearer +(\S.*)$/i.exec(authorization ?? '')?.[1]?.trimEnd();
    return given === undefined
      ? undefined
      : this.#holders.get(this.#blind(sha256(Buffer.from(given, 'latin1'))));
  }

  #read(keys: readonly (string | ApiKey)[]): Map<string, KeyHolder> {
    checkArgument('keys', keys, LIST);
    const merged = new Map<string, Merged>();
    for (const [index, given] of keys.entries()) {
      // An empty one is nobody's, and opens nothing.
      if (given === '') continue;
      const entry = typeof given === 'string' ? { key: given } : given;
      if (!FIELDS.accepts(entry))
        throw invalidKeys(
          `API key ${index + 1} is ${kindOf(entry)}.`,
          'Give the key as a text, or an object.',
        );
      const unknown = Object.keys(entry).find((field) => !KEY_FIELDS.includes(field));
      if (unknown !== undefined)
        throw invalidKeys(
          `API key ${index + 1} has a field that is none.`,
          `Fields are ${KEY_FIELDS.join(', ')}.`,
        );
      const problem = keyProblem(entry);
      const name = entry.name ?? `key ${index + 1}`;
      if (problem !== null) throw invalidKeys(`API key ${name}: ${problem.text}.`, problem.fix);
      const digest = digestOf(entry);
      const id = this.#blind(digest);
      merged.set(
        id,
        merge(merged.get(id), { digest, name, priority: entry.priority, admin: entry.admin === true }),
      );
    }
    return new Map([...merged].map(([id, entry]) => [id, this.#holder(entry)]));
  }

  #holder({ digest, name, priority, admin }: Merged): KeyHolder {
    return {
      name,
      tenant: createHash('sha256').update('kvant tenant\0').update(digest).digest('hex'),
      maxPriority: priority ?? (admin ? PRIORITY_RANGE : this.#maxPriority),
      admin,
    };
  }

  #blind(digest: Buffer): string {
    return createHmac('sha256', this.#secret).update(digest).digest('base64');
  }
}

interface Merged {
  readonly digest: Buffer;
  readonly name: string;
  readonly priority: number | undefined;
  readonly admin: boolean;
}

/** A key that is given twice, in a file and in the environment say: the first counts for what both say, and one that is an admin's is. */
function merge(before: Merged | undefined, entry: Merged): Merged {
  if (before === undefined) return entry;
  return { ...before, priority: before.priority ?? entry.priority, admin: before.admin || entry.admin };
}

/** What is wrong with a key, without saying the key; null where nothing is. */
export function keyProblem(entry: ApiKey): { readonly text: string; readonly fix: string } | null {
  const { name, key, sha256, priority, admin } = entry as Record<keyof ApiKey, unknown>;
  const wrong = (text: string, fix: string) => ({ text, fix });
  if (name !== undefined && (typeof name !== 'string' || !NAME.test(name)))
    return wrong('`name` is no name', 'Give a text of 1 to 100 characters, without control characters.');
  if (key === undefined && sha256 === undefined)
    return wrong('there is neither `key` nor `sha256`', 'Give the key, or the SHA-256 of it.');
  if (key !== undefined && sha256 !== undefined)
    return wrong('there are both `key` and `sha256`', 'Give one of them.');
  if (key === '' || (typeof key === 'string' && key.trim() === ''))
    return wrong(
      'the key is empty',
      'Give a key that nobody guesses, such as 32 random bytes in hexadecimal.',
    );
  if (key !== undefined && (typeof key !== 'string' || !SENDABLE.test(key)))
    return wrong(
      '`key` cannot be sent in a header',
      'Give a text of visible ASCII characters, without spaces at its ends.',
    );
  if (sha256 !== undefined && (typeof sha256 !== 'string' || !/^[0-9a-f]{64}$/i.test(sha256)))
    return wrong('`sha256` is not 64 hexadecimal digits', "Make it with: printf %s 'KEY' | sha256sum");
  if (typeof sha256 === 'string' && sha256.toLowerCase() === EMPTY_DIGEST)
    return wrong('`sha256` is that of an empty text', "Make it with: printf %s 'KEY' | sha256sum");
  if (priority !== undefined && !isPriority(priority))
    return wrong(
      '`priority` is not a priority',
      `Give a whole number from -${PRIORITY_RANGE} to ${PRIORITY_RANGE}: the highest that its requests may ask for.`,
    );
  if (admin !== undefined && typeof admin !== 'boolean')
    return wrong('`admin` is neither true nor false', 'Give true or false.');
  return null;
}

/** Of a key without problems, in hexadecimal: keys are the same if their digests are. */
export function keyDigest(entry: ApiKey): string {
  return digestOf(entry).toString('hex');
}

/** Without a key that is right. 401. */
export function wrongKey(): KvantError {
  return new KvantError('invalid-api-key', 'The API key is missing or wrong.', {
    kind: 'invalid-request',
    fix: 'Send "Authorization: Bearer KEY" with a key the server was started with.',
  });
}

/** With a key that may not do that. 403. */
export function notAdmin(what: string): KvantError {
  return new KvantError('admin-key-needed', `${what} needs an admin key.`, {
    kind: 'invalid-request',
    fix: 'Send a key that the server was given with --admin-key, or with "admin": true in its key file.',
  });
}

const NAME = /^[^\p{Cc}\p{Zl}\p{Zp}]{1,100}$/u;
const SENDABLE = /^[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?$/;
const EMPTY_DIGEST = sha256('').toString('hex');

const isPriority = (value: unknown): value is number =>
  Number.isInteger(value) && Math.abs(value as number) <= PRIORITY_RANGE;
const PRIORITY: ArgumentKind = {
  takes: `a whole number from -${PRIORITY_RANGE} to ${PRIORITY_RANGE}`,
  accepts: isPriority,
};

function digestOf({ key, sha256: hex }: ApiKey): Buffer {
  return key === undefined ? Buffer.from(hex!, 'hex') : sha256(key);
}

function sha256(key: string | Buffer): Buffer {
  return createHash('sha256').update(key).digest();
}

function invalidKeys(message: string, fix: string): KvantError {
  return new KvantError('invalid-api-keys', message, { kind: 'invalid-request', where: 'apiKey', fix });
}
