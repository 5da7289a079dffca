import { SIDE_BYTES, SIDE_CODES, SIDE_META, STORE_FLOAT_START } from '../kv-layout';
import { BLOCKS_COUNT, BLOCKS_LISTS } from '../opcodes';
import { share } from './math';

/**
 * Copies blocks within a layer's cache, as they are stored. Pieces of work are (block, side).
 * [layer, step, listed, then for K, V, float-start K, float-start V: bytes of codes of a block, bytes of what goes with them]
 * `layer`: see ../kv-layout.ts. `step`: at BLOCKS_COUNT how many blocks; at BLOCKS_LISTS their ids, and `listed` words
 * further on those they go to.
 */
export function copyBlocks(p: usize, thread: u32, threads: u32): void {
  const layer: usize = load<u32>(p);
  const step: usize = load<u32>(p, 4);
  const from = step + BLOCKS_LISTS * 4;
  const to = from + load<u32>(p, 8) * 4;
  const sizes = p + 12;
  const floatStart = load<u32>(layer, STORE_FLOAT_START);
  const pieces = load<u32>(step + BLOCKS_COUNT * 4) * 2;
  const end = share(pieces, thread + 1, threads);
  for (let piece = share(pieces, thread, threads); piece < end; piece++) {
    const source = load<u32>(from + (piece >> 1) * 4);
    const target = load<u32>(to + (piece >> 1) * 4);
    const side = (source < floatStart ? 0 : 2) + (piece & 1);
    const store = layer + side * SIDE_BYTES;
    const codes = load<u32>(sizes + side * 8);
    const meta = load<u32>(sizes + side * 8, 4);
    const codesAt = load<u32>(store, SIDE_CODES);
    const metaAt = load<u32>(store, SIDE_META);
    memory.copy(codesAt + target * codes, codesAt + source * codes, codes);
    if (meta != 0) memory.copy(metaAt + target * meta, metaAt + source * meta, meta);
  }
}
