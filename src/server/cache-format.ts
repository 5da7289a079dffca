/** What `/v1/cache` answers with. */
import type { EngineStats, PrefixDiskStats } from '../engine/types.js';
import type { EnginePort } from './engine-port.js';

/** `disk` is null without a folder; `memory` is null where no prefixes are cached. */
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
    disk: cache?.disk === undefined ? null : diskBody(cache.disk),
  };
}

function diskBody(disk: PrefixDiskStats): object {
  return {
    restored_blocks: disk.restoredBlocks,
    restored_tokens: disk.restoredTokens,
    files: disk.files,
    bytes: disk.bytes,
    max_bytes: disk.maxBytes,
    read_bytes: disk.readBytes,
    written_bytes: disk.writtenBytes,
    queued_bytes: disk.queuedBytes,
    evictions: disk.evicted,
    dropped: disk.dropped,
    corrupt: disk.corrupt,
    foreign: disk.foreign,
    read_errors: disk.readErrors,
    write_errors: disk.writeErrors,
    slow_reads: disk.slowReads,
    reading: disk.reading,
    writing: disk.writing,
  };
}
