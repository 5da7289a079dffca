/** What the prefix cache may keep, in blocks; and what it keeps, in bytes. */

import { type KvPoolSpec, kvBlockBytes } from '../../device/kv.js';
import { youngBlockBytes } from '../sizing.js';

export interface PrefixLimits {
  readonly blocks: number;
  readonly young: number;
}

/** Bytes of one block of each kind. */
export function prefixBlockBytes({ layers, blockTokens, young }: KvPoolSpec): PrefixLimits {
  return {
    blocks: kvBlockBytes(layers, blockTokens),
    young: young ? youngBlockBytes(layers, young.dtype, blockTokens) : 0,
  };
}

/** As many blocks of either kind as fit into so many bytes, in the proportion that the pool has them. */
export function prefixLimits(spec: KvPoolSpec, maxBytes: number): PrefixLimits {
  const each = prefixBlockBytes(spec);
  const main = each.blocks * spec.blocks;
  const young = each.young * (spec.young?.blocks ?? 0);
  const share = Math.min(1, maxBytes / Math.max(1, main + young));
  return {
    blocks: Math.floor(spec.blocks * share),
    young: Math.floor((spec.young?.blocks ?? 0) * share),
  };
}
