/** Defaults of the engine's options, and the refusal of what makes no sense. */

import type { DeviceKind } from '../device/device.js';
import { KvantError } from '../errors.js';
import type { CacheGroup } from '../kv/groups.js';
import { readKvOptions } from '../kv/options.js';
import { headBlocks, rowBlocks } from '../kv/retention.js';
import { checkOptionNames } from '../option-names.js';
import type { HostConfig } from './messages.js';
import { ENGINE_OPTIONS, HUB_OPTIONS } from './option-lists.js';
import { type EngineOption, OPTION_TABLE } from './option-table.js';
import type { SchedulerConfig } from './scheduling/step-plan.js';
import type { EngineLimits, EngineOptions, HubAccess } from './types.js';

export const DEFAULT_MAX_ROWS = 16;
const DEFAULT_MAX_QUEUE = 256;
export const DEFAULT_BLOCK_TOKENS = 16;
/** What the prefix cache may take on disk unasked. */
export const DEFAULT_DISK_BYTES = 16 * 2 ** 30;
/** Waiting so long weighs as much as one step of priority. */
const AGEING_MS = 2000;
/** A step should not keep decoding rows waiting: a CPU computes prompts far more slowly. */
export const DEFAULT_BATCH_TOKENS = { cpu: 256, webgpu: 2048 } as const;
export const DEFAULT_TARGET_ITL_MS = { cpu: 200, webgpu: 100 } as const;
/**
 * Prompt tokens of a step, beside decoding rows: the least, and as many as are worth a step with more than those rows. And how far runs
 * fill a step: a GPU has kernels of its own for up to 32 tokens (8B shapes on an H100: 5.9 ms for 32, 13.5 for 33 to 64).
 */
const CHUNKS = {
  cpu: { minChunk: 16, chunkTokens: 64, evenTokens: 0 },
  webgpu: { minChunk: 64, chunkTokens: 2048, evenTokens: 32 },
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
  {
    maxBatchTokens,
    targetItlMs,
    maxContext = Number.POSITIVE_INFINITY,
  }: Pick<EngineLimits, 'maxBatchTokens' | 'targetItlMs'> & Partial<Pick<EngineLimits, 'maxContext'>>,
  device: DeviceKind,
  blockTokens: number,
  floatStartTokens: number,
  groups: readonly CacheGroup[] = [{ window: null, layers: [] }],
): SchedulerConfig {
  const { minChunk, chunkTokens, evenTokens } = CHUNKS[device];
  return {
    maxBatchTokens,
    blockTokens,
    prefillReserve: Math.ceil(maxBatchTokens / 4),
    minChunk: Math.min(minChunk, maxBatchTokens),
    chunkTokens: Math.min(chunkTokens, maxBatchTokens),
    evenTokens,
    floatStartTokens,
    groups: groups.map(({ window, state = false, head }) => ({
      window: window ?? 0,
      rowBlocks:
        head !== undefined
          ? headBlocks(head, maxContext, blockTokens)
          : state
            ? 1
            : rowBlocks(window, blockTokens, maxBatchTokens),
      ...(state ? { state } : {}),
      ...(head === undefined ? {} : { head: true }),
    })),
    ageingMs: AGEING_MS,
    targetItl: targetItlMs,
  };
}

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
  const given = config as Readonly<Record<string, unknown>>;
  for (const [name, { accepts, takes }] of Object.entries<EngineOption>(OPTION_TABLE))
    if (given[name] !== undefined && !accepts(given[name])) throw invalidOption(name, given[name], takes);
  checkHub(config.hub);
  const { prefixCache, prefixCacheDir: folder, prefixCacheDiskBytes: disk } = config;
  if (folder !== undefined && prefixCache === false)
    throw invalidOption('prefixCacheDir', folder, 'a folder, where prefixes are cached');
  if (disk !== undefined && folder === undefined)
    throw invalidOption('prefixCacheDiskBytes', disk, 'a size, beside `prefixCacheDir`');
  readKvOptions(config);
}

function checkHub(hub: HubAccess | undefined): void {
  if (hub === undefined) return;
  checkOptionNames(hub, HUB_OPTIONS, '`hub`');
  for (const text of HUB_TEXTS) checkKind(`hub.${text}`, hub[text], 'string', 'a string');
  checkKind('hub.offline', hub.offline, 'boolean', 'true or false');
}

function checkKind(name: string, value: unknown, kind: string, takes: string): void {
  if (value !== undefined && typeof value !== kind) throw invalidOption(name, value, takes);
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
  const texts = Array.isArray(value) && value.length > 0 && value.every((one) => typeof one === 'string');
  if (typeof value === 'object' && value !== null && !texts)
    return Array.isArray(value) ? 'a list' : 'an object';
  const text = texts ? JSON.stringify(value) : String(value);
  return text.length > 80 ? `${text.slice(0, 77)}...` : text;
}
