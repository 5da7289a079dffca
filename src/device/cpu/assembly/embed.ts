import { gatherRow } from './gather';
import { share } from './math';

// @ts-ignore: decorator
@inline const FEATURE_TOKEN: u32 = 0x40000000;

/**
 * Rows of the table for the step's tokens. [table, tokens, rowsAt, out, cols, scale, slab, slabRows, slabCols, featureRow]; table: see
 * gatherRow. Tokens from FEATURE_TOKEN on are rows of the slab (../../feature-slab.ts), or all of them the row featureRow of the table.
 */
export function embed(p: usize, thread: u32, threads: u32): void {
  const table: usize = load<u32>(p);
  const tokens: usize = load<u32>(p, 4);
  const rows = load<u32>(load<u32>(p, 8));
  const out: usize = load<u32>(p, 12);
  const bytes = load<u32>(p, 16) * 4;
  const scale = load<f32>(p, 20);
  const slab: usize = load<u32>(p, 24);
  const slabRows = load<u32>(p, 28);
  const slabBytes = load<u32>(p, 32) * 4;
  const featureRow = load<u32>(p, 36);
  const known = load<u32>(table, 4);
  const end = share(rows, thread + 1, threads);
  for (let r = share(rows, thread, threads); r < end; r++) {
    let token = load<u32>(tokens + r * 4);
    if (featureRow < known && <i32>token >= <i32>FEATURE_TOKEN) token = featureRow;
    if (token < known) gatherRow(table, token, scale, out + r * bytes);
    else if (token - FEATURE_TOKEN < slabRows)
      memory.copy(out + r * bytes, slab + (token - FEATURE_TOKEN) * slabBytes, bytes);
    else memory.fill(out + r * bytes, 0, bytes);
  }
}
