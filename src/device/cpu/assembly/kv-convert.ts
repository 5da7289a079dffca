import { KIND_F16, SIDE_BYTES, SIDE_CODES, SIDE_HEAD_BYTES, SIDE_KIND } from '../kv-layout';
import { BLOCKS_COUNT, BLOCKS_LISTS } from '../opcodes';
import { loadKey, loadValue } from './kv';
import { POSITION_UNKNOWN, storeVector } from './kv-append';
import { share } from './math';

/**
 * Stores what float-start blocks hold into blocks of the layer's own formats. Pieces of work are (block, side, KV head).
 * [layer, step, listed, kvHeads, headDim, blockShift, scratch, scratchStride]
 * `layer`: see ../kv-layout.ts. `step`: at BLOCKS_COUNT how many blocks; at BLOCKS_LISTS their ids, and `listed` words
 * further on those they go to. `scratch`: 4 · headDim floats a thread.
 */
export function convert(p: usize, thread: u32, threads: u32): void {
  const layer: usize = load<u32>(p);
  const step: usize = load<u32>(p, 4);
  const from = step + BLOCKS_LISTS * 4;
  const to = from + load<u32>(p, 8) * 4;
  const kvHeads = load<u32>(p, 12);
  const dim = load<u32>(p, 16);
  const blockTokens: u32 = 1 << load<u32>(p, 20);
  const x: usize = load<u32>(p, 24) + load<u32>(p, 28) * thread;
  const pieces = load<u32>(step + BLOCKS_COUNT * 4) * 2 * kvHeads;
  const end = share(pieces, thread + 1, threads);
  for (let piece = share(pieces, thread, threads); piece < end; piece++) {
    const h = piece % kvHeads;
    const isKey = ((piece / kvHeads) & 1) == 0;
    const i = piece / kvHeads / 2;
    const floatStart = load<u32>(from + i * 4);
    const block = load<u32>(to + i * 4);
    const side = layer + (isKey ? 0 : SIDE_BYTES);
    const source = side + 2 * SIDE_BYTES;
    const bytes = load<u32>(source, SIDE_HEAD_BYTES);
    const at: usize = load<u32>(source, SIDE_CODES) + (floatStart * kvHeads + h) * bytes;
    if (load<u32>(source, SIDE_CODES) == load<u32>(side, SIDE_CODES)) {
      // Stored alike.
      memory.copy(load<u32>(side, SIDE_CODES) + (block * kvHeads + h) * bytes, at, bytes);
      continue;
    }
    const half = load<i32>(source, SIDE_KIND) == KIND_F16;
    for (let token: u32 = 0; token < blockTokens; token++) {
      if (isKey) loadKey(at, token, dim, half, x);
      else loadValue(at, token, dim, blockTokens, half, x);
      storeVector(side, isKey, x, block, h, kvHeads, token, dim, blockTokens, POSITION_UNKNOWN, x + dim * 4);
    }
  }
}
