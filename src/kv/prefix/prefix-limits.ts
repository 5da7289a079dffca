/** What the prefix cache may keep, in blocks; and what it keeps, in bytes. */

import { type KvPoolSpec, kvBlockBytes } from '../../device/kv.js';
import { floatStartBlockBytes } from '../sizing.js';

export interface PrefixLimits {
  readonly blocks: number;
  readonly floatStart: number;
}

/** Bytes of one block of each kind. */
export function prefixBlockBytes({ layers, blockTokens, floatStart }: KvPoolSpec): PrefixLimits {
  return {
    blocks: kvBlockBytes(layers, blockTokens),
    floatStart: floatStart ? floatStartBlockBytes(layers, floatStart.dtype, blockTokens) : 0,
  };
}

/** As many blocks of each group and kind as fit into so many bytes, in the proportion that the pools have them. */
export function prefixLimits(pools: readonly KvPoolSpec[], maxBytes: number): readonly PrefixLimits[] {
  let bytes = 0;
  for (const spec of pools) {
    const each = prefixBlockBytes(spec);
    bytes += each.blocks * spec.blocks + each.floatStart * (spec.floatStart?.blocks ?? 0);
  }
  const share = Math.min(1, maxBytes / Math.max(1, bytes));
  return pools.map(({ blocks, floatStart }) => ({
    blocks: Math.floor(blocks * share),
    floatStart: Math.floor((floatStart?.blocks ?? 0) * share),
  }));
}
