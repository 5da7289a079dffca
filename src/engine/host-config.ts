import { isOn } from '../env-flag.js';
import { KV_OPTION_NAMES, type KvOptions } from '../kv/options.js';
import type { EmbeddingPlan, HostConfig, WeightOrigin } from './messages.js';
import { type EngineOption, OPTION_TABLE } from './option-table.js';
import type { EngineOptions } from './types.js';

/** The options that concern the engine's thread. */
export function hostConfig(
  weights: WeightOrigin,
  options: EngineOptions,
  embedding: EmbeddingPlan | null = null,
): HostConfig {
  const environment = typeof process === 'undefined' ? {} : process.env;
  const table: Readonly<Record<string, EngineOption>> = OPTION_TABLE;
  const told = Object.keys(table)
    .filter((name) => table[name]!.host)
    .map((name) => [name, options[name as keyof EngineOptions]]);
  return {
    ...(Object.fromEntries(told) as HostConfig),
    weights,
    embedding,
    device: options.device ?? 'auto',
    prefixCache: options.prefixCache ?? true,
    kv: kvOptions(options),
    resourceDebug: isOn(environment.KVANT_RESOURCE_DEBUG),
  };
}

/** The options that concern the KV cache, and no others: those that are given. */
function kvOptions(options: KvOptions): KvOptions {
  return Object.fromEntries(
    KV_OPTION_NAMES.flatMap((name) => (options[name] === undefined ? [] : [[name, options[name]]])),
  );
}
