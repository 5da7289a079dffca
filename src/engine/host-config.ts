import type { HostConfig, WeightOrigin } from './messages.js';
import type { ModelText } from './model-text.js';
import type { EngineOptions } from './types.js';

/** The options that concern the engine's thread, with what it needs to know of the text side. */
export function hostConfig(weights: WeightOrigin, text: ModelText, options: EngineOptions): HostConfig {
  const environment = typeof process === 'undefined' ? {} : process.env;
  return {
    weights,
    device: options.device ?? 'auto',
    precision: options.precision,
    deterministic: options.deterministic,
    threads: options.threads,
    allowSoftwareGpu: options.allowSoftwareGpu,
    quantize: options.quantize,
    kvFormat: options.kvFormat,
    kvMemory: options.kvMemory,
    maxContext: options.maxContext,
    maxRows: options.maxRows,
    maxBatchTokens: options.maxBatchTokens,
    maxQueue: options.maxQueue,
    blockTokens: options.blockTokens,
    tokenTable: text.tokenTable,
    eosIds: text.eosIds,
    resourceDebug: environment.KVANT_RESOURCE_DEBUG === '1',
  };
}
