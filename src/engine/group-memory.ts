/** What the engine has of one cache group: the device's pool, who owns which of its blocks, and how long rows keep them. */

import type { KvPool } from '../device/kv.js';
import { BlockPool } from '../kv/block-pool.js';
import { HeadHolder, holderOf, type LayerHolder, StateHolder } from '../kv/prefix/holders.js';
import type { SchedulerGroup } from './scheduling/step-plan.js';

export interface GroupMemory {
  readonly pool: KvPool;
  readonly blocks: BlockPool;
  /** Null where sequences are never float-start: in all groups but the first one. */
  readonly floatStart: BlockPool | null;
  readonly holder: LayerHolder;
  /** Most blocks that a row holds at once. */
  readonly rowBlocks: number;
  /** Its layers are recurrent: a block is a slot of state, of a row or a snapshot. */
  readonly state: boolean;
}

export function groupMemory(
  pool: KvPool,
  { window, rowBlocks, state = false, head = false }: SchedulerGroup,
): GroupMemory {
  const { blocks, floatStart, blockTokens } = pool.spec;
  return {
    pool,
    blocks: new BlockPool(blocks),
    floatStart: floatStart ? new BlockPool(floatStart.blocks) : null,
    holder: head
      ? new HeadHolder(rowBlocks)
      : state
        ? new StateHolder(blockTokens)
        : holderOf(window === 0 ? null : window, blockTokens),
    rowBlocks,
    state,
  };
}
