/** Defaults of the engine's options, and the refusal of what makes no sense. */

import { AUTOTUNE_MODES, type DeviceKind, PRECISIONS } from '../device/device.js';
import { KvantError } from '../errors.js';
import type { CacheGroup } from '../kv/groups.js';
import { readKvOptions } from '../kv/options.js';
import { rowBlocks } from '../kv/retention.js';
import { checkOptionNames } from '../option-names.js';
import type { HostConfig } from './messages.js';
import { ENGINE_OPTIONS, HUB_OPTIONS } from './option-lists.js';
import { isSignal } from './request-check.js';
import type { SchedulerConfig } from './scheduling/step-plan.js';
import { DEVICE_CHOICES, type EngineLimits, type EngineOptions } from './types.js';

export const DEFAULT_MAX_ROWS = 16;
export const DEFAULT_MAX_QUEUE = 256;
export const DEFAULT_BLOCK_TOKENS = 16;
/** What the prefix cache may take on disk unasked. */
export const DEFAULT_DISK_BYTES = 16 * 2 ** 30;
/** Waiting so long weighs as much as one step of priority. */
export const AGEING_MS = 2000;
/** A step should not keep decoding rows waiting: a CPU computes prompts far more slowly. */
export const DEFAULT_BATCH_TOKENS = { cpu: 256, webgpu: 2048 } as const;
export const DEFAULT_TARGET_ITL_MS = { cpu: 200, webgpu: 100 } as const;
/** Prompt tokens of a step, beside decoding rows: the least, and as many as are worth a step with more than those rows. */
const CHUNKS = {
  cpu: { minChunk: 16, chunkTokens: 64 },
  webgpu: { minChunk: 64, chunkTokens: 2048 },
} as const;

export function engineLimits(config: HostConfig, device: DeviceKind, maxContext: number): EngineLimits {
  return {
    maxContext,
    maxRows: config.maxRows ?? DEFAULT_MAX_ROWS,
    maxBatchTokens: config.maxBatchTokens ?? DEFAULT_BATCH_TOKENS[device],
    maxQueue: config.maxQueue ?? DEFAULT_MAX_QUEUE,
    targetItlMs: config.targetItlMs ?? DEFAULT_TARGET_ITL_MS[device],
  };
}

export function schedulerConfig(
  { maxBatchTokens, targetItlMs }: Pick<EngineLimits, 'maxBatchTokens' | 'targetItlMs'>,
  device: DeviceKind,
  blockTokens: number,
  youngTokens: number,
  groups: readonly CacheGroup[] = [{ window: null, layers: [] }],
): SchedulerConfig {
  const { minChunk, chunkTokens } = CHUNKS[device];
  return {
    maxBatchTokens,
    blockTokens,
    prefillReserve: Math.ceil(maxBatchTokens / 4),
    minChunk: Math.min(minChunk, maxBatchTokens),
    chunkTokens: Math.min(chunkTokens, maxBatchTokens),
    youngTokens,
    groups: groups.map(({ window }) => ({
      window: window ?? 0,
      rowBlocks: rowBlocks(window, blockTokens, maxBatchTokens),
    })),
    ageingMs: AGEING_MS,
    targetItl: targetItlMs,
  };
}

const WHOLE_NUMBERS = ['threads', 'kvMemory', 'maxContext', 'maxRows', 'maxBatchTokens'] as const;
const BOOLEANS = ['deterministic', 'allowSoftwareGpu', 'prefixCache', 'worker'] as const;
const FUNCTIONS = ['onProgress', 'onLog'] as const;
const HUB_TEXTS = ['token', 'cacheDir', 'endpoint', 'revision'] as const;

/**
 * What can be told without the model: before it is fetched and loaded. `of` is whose options they are, `known` their names.
 * Errors: `unknown-option`, `invalid-option`, naming it; `kv-format-unknown`, `kv-options-invalid`.
 */
export function checkOptions(
  config: EngineOptions,
  known: Readonly<Record<string, true>> = ENGINE_OPTIONS,
  of = 'Engine.load',
): void {
  checkOptionNames(config, known, of);
  checkKinds(config);
  for (const name of WHOLE_NUMBERS) {
    const value = config[name];
    if (value !== undefined && !(Number.isSafeInteger(value) && value >= 1))
      throw invalidOption(name, value, 'a whole number above 0');
  }
  const { prefixCache, prefixCacheBytes: cap, prefixCacheDir: folder, prefixCacheDiskBytes: disk } = config;
  if (cap !== undefined && !(Number.isSafeInteger(cap) && cap >= 0))
    throw invalidOption('prefixCacheBytes', cap, 'a whole number');
  if (folder !== undefined && (typeof folder !== 'string' || folder === ''))
    throw invalidOption('prefixCacheDir', folder, 'a folder');
  if (folder !== undefined && prefixCache === false)
    throw invalidOption('prefixCacheDir', folder, 'a folder, where prefixes are cached');
  if (disk !== undefined && folder === undefined)
    throw invalidOption('prefixCacheDiskBytes', disk, 'a size, beside `prefixCacheDir`');
  if (disk !== undefined && !(Number.isSafeInteger(disk) && disk >= 1))
    throw invalidOption('prefixCacheDiskBytes', disk, 'a whole number above 0');
  checkOneOf('device', config.device, DEVICE_CHOICES);
  checkOneOf('precision', config.precision, PRECISIONS);
  checkOneOf('autotune', config.autotune, AUTOTUNE_MODES);
  const { autotuneMs } = config;
  if (autotuneMs !== undefined && !(autotuneMs >= 0))
    throw invalidOption('autotuneMs', autotuneMs, 'a number of milliseconds from 0');
  readKvOptions(config);
  const { maxQueue, blockTokens, quantize, targetItlMs, queueTimeoutMs } = config;
  if (targetItlMs !== undefined && !(Number.isFinite(targetItlMs) && targetItlMs >= 0))
    throw invalidOption('targetItlMs', targetItlMs, 'a number of milliseconds from 0');
  if (queueTimeoutMs !== undefined && !(queueTimeoutMs > 0))
    throw invalidOption('queueTimeoutMs', queueTimeoutMs, 'a number of milliseconds above 0');
  if (maxQueue !== undefined && !(Number.isSafeInteger(maxQueue) && maxQueue >= 0))
    throw invalidOption('maxQueue', maxQueue, 'a whole number');
  if (blockTokens !== undefined && ![16, 32, 64].includes(blockTokens))
    throw invalidOption('blockTokens', blockTokens, '16, 32 or 64');
  if (quantize !== undefined && quantize !== 4 && quantize !== 8)
    throw invalidOption('quantize', quantize, '4 or 8');
}

/** Options of which only the kind of value can be wrong. A text such as "false" would count as true. */
function checkKinds(config: EngineOptions): void {
  for (const name of BOOLEANS) checkKind(name, config[name], 'boolean', 'true or false');
  for (const name of FUNCTIONS) checkKind(name, config[name], 'function', 'a function');
  const { name, toolFormat, signal, hub } = config;
  if (toolFormat !== undefined && (typeof toolFormat !== 'string' || toolFormat === ''))
    throw invalidOption('toolFormat', toolFormat, 'the name of a format');
  if (name !== undefined && (typeof name !== 'string' || name === ''))
    throw invalidOption('name', name, 'a string that is not empty');
  if (signal !== undefined && !isSignal(signal)) throw invalidOption('signal', signal, 'an AbortSignal');
  if (hub === undefined) return;
  checkOptionNames(hub, HUB_OPTIONS, '`hub`');
  for (const text of HUB_TEXTS) checkKind(`hub.${text}`, hub[text], 'string', 'a string');
  checkKind('hub.offline', hub.offline, 'boolean', 'true or false');
}

function checkKind(name: string, value: unknown, kind: string, takes: string): void {
  if (value !== undefined && typeof value !== kind) throw invalidOption(name, value, takes);
}

function checkOneOf(name: string, value: string | undefined, known: readonly string[]): void {
  if (value !== undefined && !known.includes(value))
    throw invalidOption(name, value, `one of ${known.join(', ')}`);
}

function invalidOption(name: string, value: unknown, takes: string): KvantError {
  return new KvantError('invalid-option', `\`${name}\` is ${shown(value)}; it takes ${takes}.`, {
    kind: 'invalid-request',
    where: name,
    fix: `Give ${takes}, or leave it out.`,
  });
}

/** As far as one would read it in a message. */
function shown(value: unknown): string {
  if (typeof value === 'object' && value !== null) return Array.isArray(value) ? 'a list' : 'an object';
  const text = String(value);
  return text.length > 80 ? `${text.slice(0, 77)}...` : text;
}
