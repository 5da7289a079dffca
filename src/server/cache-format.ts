/** What `/v1/cache` answers with. */
import type { EngineStats } from '../engine/types.js';
import type { EnginePort } from './engine-port.js';

/** `memory` is null where no prefixes are cached. */
export function cacheBody({ info }: EnginePort, { prefixCache: cache, preemptions }: EngineStats): object {
  return {
    object: 'cache',
    model: info.name,
    block_tokens: info.kv.blockTokens,
    preemptions,
    memory:
      cache === undefined
        ? null
        : {
            lookups: cache.lookups,
            hits: cache.hits,
            hit_tokens: cache.hitTokens,
            resumed_tokens: cache.resumedTokens,
            evictions: cache.evictions,
            blocks: cache.blocks,
            bytes: cache.bytes,
            idle_bytes: cache.idleBytes,
            max_bytes: cache.maxBytes,
          },
  };
}
