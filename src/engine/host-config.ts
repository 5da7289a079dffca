import { isOn } from '../env-flag.js';
import { KV_OPTION_NAMES, type KvOptions } from '../kv/options.js';
import type { HostConfig, WeightOrigin } from './messages.js';
import type { EngineOptions } from './types.js';

/** The options that concern the engine's thread. */
export function hostConfig(weights: WeightOrigin, options: EngineOptions): HostConfig {
  const environment = typeof process === 'undefined' ? {} : process.env;
  return {
    weights,
    device: options.device ?? 'auto',
    precision: options.precision,
    deterministic: options.deterministic,
    threads: options.threads,
    allowSoftwareGpu: options.allowSoftwareGpu,
    autotune: options.autotune,
    autotuneMs: options.autotuneMs,
    quantize: options.quantize,
    kv: kvOptions(options),
    kvMemory: options.kvMemory,
    prefixCache: options.prefixCache ?? true,
    prefixCacheBytes: options.prefixCacheBytes,
    prefixCacheDir: options.prefixCacheDir,
    prefixCacheDiskBytes: options.prefixCacheDiskBytes,
    maxContext: options.maxContext,
    maxRows: options.maxRows,
    maxBatchTokens: options.maxBatchTokens,
    maxQueue: options.maxQueue,
    targetItlMs: options.targetItlMs,
    blockTokens: options.blockTokens,
    resourceDebug: isOn(environment.KVANT_RESOURCE_DEBUG),
  };
}

/** The options that concern the KV cache, and no others: those that are given. */
function kvOptions(options: KvOptions): KvOptions {
  return Object.fromEntries(
    KV_OPTION_NAMES.flatMap((name) => (options[name] === undefined ? [] : [[name, options[name]]])),
  );
}
