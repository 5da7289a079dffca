import { gatherRow } from './gather';
import { share } from './math';

/** Rows of the table for the step's tokens. [table, tokens, rowsAt, out, cols, scale]; table: see gatherRow. */
export function embed(p: usize, thread: u32, threads: u32): void {
  const table: usize = load<u32>(p);
  const tokens: usize = load<u32>(p, 4);
  const rows = load<u32>(load<u32>(p, 8));
  const out: usize = load<u32>(p, 12);
  const bytes = load<u32>(p, 16) * 4;
  const scale = load<f32>(p, 20);
  const known = load<u32>(table, 4);
  const end = share(rows, thread + 1, threads);
  for (let r = share(rows, thread, threads); r < end; r++) {
    const token = load<u32>(tokens + r * 4);
    if (token < known) gatherRow(table, token, scale, out + r * bytes);
    else memory.fill(out + r * bytes, 0, bytes);
  }
}
