/** The options of the server, checked before it listens: what is misspelt or of another kind is not ignored. */

import type { Logger } from 'pino';
import type { ArgumentKind } from '../arguments.js';
import { PRIORITY_RANGE } from '../engine/request-check.js';
import { KvantError } from '../errors.js';
import { checkOptionNames, type OptionNames } from '../option-names.js';
import { REASONING_FORMATS, type ReasoningFormat } from './answer-context.js';
import { type ApiKey, ApiKeys } from './api-keys.js';
import { CONNECTION_LIMITS, type ConnectionLimits, type ConnectionOptions } from './connections.js';
import type { EnginePort } from './engine-port.js';
import type { Origins } from './origins.js';
import type { Shutdown } from './shutdown.js';

export interface AppOptions {
  readonly engine: EnginePort;
  /** Default: nothing is logged. */
  readonly log?: Logger | undefined;
  /**
   * Every route but `/health` then wants `Authorization: Bearer KEY`, of several any: time is shared evenly between them, and
   * cached prefixes are not shared. An `ApiKeys` can be replaced while the server runs.
   */
  readonly apiKey?: string | readonly (string | ApiKey)[] | ApiKeys | undefined;
  /**
   * Keys that `/metrics` and `/v1/cache` want, and that may do anything else. Without them these routes want an `apiKey` with
   * `admin`, or, where there are no keys at all, none. Not beside an `ApiKeys`, which says itself who is an admin.
   */
  readonly adminKey?: string | readonly string[] | undefined;
  /** Keys share cached prefixes with one another. Default false: the time to a first token would tell what another key asked. */
  readonly prefixCacheShared?: boolean | undefined;
  /** Highest priority of requests whose key does not say. Default: 0 with keys, 10 without. */
  readonly maxPriority?: number | undefined;
  /** Largest body in bytes. Default: 64 for each token of the context, at least 1 MiB and at most 16 MiB. */
  readonly bodyLimit?: number | undefined;
  /** Most bytes of large bodies that are held at once; more get a 503. Default: 32 MiB, at least two of the largest. */
  readonly bodyMemory?: number | undefined;
  /** Origins of web pages that may use the server, `*` for any; see {@link Origins}. Default: none but its own. */
  readonly corsOrigin?: string | readonly string[] | undefined;
  /** Names that requests may ask for (`Host`) besides loopback names and addresses; `*` for any. */
  readonly allowedHosts?: readonly string[] | undefined;
  /** What the socket listens on, where requests come straight from it. Default: the names they ask for are not looked at. */
  readonly address?: string | undefined;
  /** Silence on a stream after which a comment is sent. Default 10 s. */
  readonly keepAliveMs?: number | undefined;
  /** What becomes of a `<think>` block at the start of a chat answer. Default `auto`. */
  readonly reasoningFormat?: ReasoningFormat | undefined;
  /** Tells the application that it is on its way out of service. */
  readonly shutdown?: Shutdown | undefined;
}

export interface ListenOptions extends AppOptions, ConnectionOptions {
  /** Default 127.0.0.1. */
  readonly host?: string | undefined;
  /** Default 8080; 0 takes any free port. */
  readonly port?: number | undefined;
}

const APP_OPTIONS: OptionNames<AppOptions> = {
  engine: true,
  log: true,
  apiKey: true,
  adminKey: true,
  prefixCacheShared: true,
  maxPriority: true,
  bodyLimit: true,
  bodyMemory: true,
  corsOrigin: true,
  allowedHosts: true,
  address: true,
  keepAliveMs: true,
  reasoningFormat: true,
  shutdown: true,
};

const LIMIT_NAMES = Object.keys(CONNECTION_LIMITS) as (keyof ConnectionLimits)[];
const LISTEN_OPTIONS: OptionNames<ListenOptions> = {
  ...APP_OPTIONS,
  ...(Object.fromEntries(LIMIT_NAMES.map((name) => [name, true])) as OptionNames<ConnectionLimits>),
  host: true,
  port: true,
};
/** What a timer takes, in milliseconds; far more than there can be connections. */
const LONGEST_TIMER = 2 ** 31 - 1;

/** Errors: `unknown-option`, `invalid-option`, naming it. */
export function checkAppOptions(options: AppOptions): void {
  checkOptionNames(options, APP_OPTIONS, 'createApp');
  checkValues(options);
}

/** Errors: `unknown-option`, `invalid-option`, naming it. */
export function checkListenOptions(options: ListenOptions): void {
  checkOptionNames(options, LISTEN_OPTIONS, 'listen');
  const { host, port } = options;
  if (host !== undefined && !HOST.accepts(host)) throw invalid('host', HOST.takes);
  if (port !== undefined && !PORT.accepts(port)) throw invalid('port', PORT.takes);
  for (const name of LIMIT_NAMES) {
    const value: unknown = options[name];
    if (value === undefined || (typeof value === 'number' && value >= 0 && value <= LONGEST_TIMER)) continue;
    throw invalid(name, 'a number of 0 or more, 0 for no limit');
  }
  checkValues(options);
}

function checkValues(options: AppOptions): void {
  const { engine, bodyLimit, bodyMemory, corsOrigin, allowedHosts, address, keepAliveMs, reasoningFormat } =
    options;
  if (!isEngine(engine)) throw invalid('engine', 'an Engine');
  const { log, shutdown } = options;
  if (log !== undefined && !has(log, ['info', 'warn', 'error']))
    throw invalid('log', 'a logger, as pino makes them');
  if (shutdown !== undefined && !has(shutdown, ['drain', 'end', 'track', 'idle']))
    throw invalid('shutdown', 'a Shutdown');
  checkKeys(options);
  if (bodyLimit !== undefined && !isWhole(bodyLimit, 1, Number.MAX_SAFE_INTEGER))
    throw invalid('bodyLimit', 'a whole number of bytes above 0');
  if (bodyMemory !== undefined && !isWhole(bodyMemory, 1, Number.MAX_SAFE_INTEGER))
    throw invalid('bodyMemory', 'a whole number of bytes above 0');
  if (corsOrigin !== undefined && ![corsOrigin].flat().every(isText))
    throw invalid('corsOrigin', 'an origin, a list of them, or *');
  if (allowedHosts !== undefined && !(Array.isArray(allowedHosts) && allowedHosts.every(isText)))
    throw invalid('allowedHosts', 'a list of names of hosts');
  if (address !== undefined && !isText(address)) throw invalid('address', 'an address');
  if (keepAliveMs !== undefined && !(typeof keepAliveMs === 'number' && keepAliveMs > 0))
    throw invalid('keepAliveMs', 'a number of milliseconds above 0');
  if (reasoningFormat !== undefined && !REASONING_FORMATS.includes(reasoningFormat))
    throw invalid('reasoningFormat', `one of ${REASONING_FORMATS.join(', ')}`);
}

/** What is in a key is checked where keys are read. An empty one lets nobody in. */
function checkKeys({ apiKey, adminKey, maxPriority, prefixCacheShared }: AppOptions): void {
  if (apiKey !== undefined && ![apiKey].flat().every((key) => typeof key === 'string' || isRecord(key)))
    throw invalid('apiKey', 'a string, an ApiKey, a list of them, or an ApiKeys');
  if (adminKey !== undefined && ![adminKey].flat().every((key) => typeof key === 'string'))
    throw invalid('adminKey', 'a string, or a list of them');
  if (adminKey !== undefined && apiKey instanceof ApiKeys)
    throw invalid('adminKey', 'nothing beside an ApiKeys: there a key has `admin`');
  if (maxPriority !== undefined && !isWhole(maxPriority, -PRIORITY_RANGE, PRIORITY_RANGE))
    throw invalid('maxPriority', `a whole number from -${PRIORITY_RANGE} to ${PRIORITY_RANGE}`);
  if (prefixCacheShared !== undefined && typeof prefixCacheShared !== 'boolean')
    throw invalid('prefixCacheShared', 'true or false');
}

/** Whether an object has these methods. */
const has = (value: unknown, methods: readonly string[]): boolean =>
  isRecord(value) && methods.every((name) => typeof (value as Record<string, unknown>)[name] === 'function');
const isEngine = (value: unknown): boolean =>
  has(value, ['stats', 'generate', 'chat']) && isRecord((value as { readonly info?: unknown }).info);
const isRecord = (value: unknown): boolean =>
  typeof value === 'object' && value !== null && !Array.isArray(value);
const isText = (value: unknown): boolean => typeof value === 'string' && value !== '';
const isWhole = (value: unknown, from: number, to: number): boolean =>
  Number.isSafeInteger(value) && (value as number) >= from && (value as number) <= to;

export const HOST: ArgumentKind = { takes: 'an address', accepts: isText };
export const PORT: ArgumentKind = {
  takes: 'a port from 0 to 65535',
  accepts: (value) => isWhole(value, 0, 65_535),
};

/** The value is not shown: it may be a secret. */
function invalid(name: string, takes: string): KvantError {
  return new KvantError('invalid-option', `\`${name}\` takes ${takes}.`, {
    kind: 'invalid-request',
    where: name,
    fix: `Give ${takes}.`,
  });
}
