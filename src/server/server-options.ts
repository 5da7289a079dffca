/** The options of the server, checked before it listens: what is misspelt or of another kind is not ignored. */

import { PRIORITY_RANGE } from '../engine/request-check.js';
import { KvantError } from '../errors.js';
import { checkOptionNames, type OptionNames } from '../option-names.js';
import { ApiKeys } from './api-keys.js';
import type { AppOptions } from './app.js';
import { REASONING_FORMATS } from './completion-routes.js';
import { CONNECTION_LIMITS, type ConnectionLimits } from './connections.js';
import type { ListenOptions } from './listen.js';

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
  if (host !== undefined && (typeof host !== 'string' || host === '')) throw invalid('host', 'an address');
  if (port !== undefined && !isWhole(port, 0, 65_535)) throw invalid('port', 'a port from 0 to 65535');
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
  if (typeof engine !== 'object' || engine === null) throw invalid('engine', 'an Engine');
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

const isRecord = (value: unknown): boolean =>
  typeof value === 'object' && value !== null && !Array.isArray(value);
const isText = (value: unknown): boolean => typeof value === 'string' && value !== '';
const isWhole = (value: unknown, from: number, to: number): boolean =>
  Number.isSafeInteger(value) && (value as number) >= from && (value as number) <= to;

/** The value is not shown: it may be a secret. */
function invalid(name: string, takes: string): KvantError {
  return new KvantError('invalid-option', `\`${name}\` takes ${takes}.`, {
    kind: 'invalid-request',
    where: name,
    fix: `Give ${takes}.`,
  });
}
