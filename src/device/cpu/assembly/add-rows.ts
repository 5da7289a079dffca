import { share } from './math';

// @ts-ignore: decorator
@inline const FEATURE_TOKEN: u32 = 0x40000000;

/**
 * Rows of the feature slab (../../feature-slab.ts) on top of those of x.
 * [x, tokens, rowsAt, out, cols, slab, slabRows, slabCols], slab the address of the first column that is added.
 */
export function addFeatures(p: usize, thread: u32, threads: u32): void {
  const x: usize = load<u32>(p);
  const tokens: usize = load<u32>(p, 4);
  const rows = load<u32>(load<u32>(p, 8));
  const out: usize = load<u32>(p, 12);
  const cols = load<u32>(p, 16);
  const slab: usize = load<u32>(p, 20);
  const slabRows = load<u32>(p, 24);
  const slabBytes = load<u32>(p, 28) * 4;
  const bytes = cols * 4;
  const end = share(rows, thread + 1, threads);
  for (let r = share(rows, thread, threads); r < end; r++) {
    const row = load<u32>(tokens + r * 4) - FEATURE_TOKEN;
    const from = x + r * bytes;
    const to = out + r * bytes;
    if (row >= slabRows) {
      memory.copy(to, from, bytes);
      continue;
    }
    const added = slab + row * slabBytes;
    let c: u32 = 0;
    for (; c + 4 <= cols; c += 4)
      v128.store(to + c * 4, f32x4.add(v128.load(from + c * 4), v128.load(added + c * 4)));
    for (; c < cols; c++) store<f32>(to + c * 4, load<f32>(from + c * 4) + load<f32>(added + c * 4));
  }
}

/** The op `add-gathered` of graph.ts. [x, table, taps, rowsAt, out, cols, count, tableRows], count the number of taps. */
export function addGathered(p: usize, thread: u32, threads: u32): void {
  const x: usize = load<u32>(p);
  const table: usize = load<u32>(p, 4);
  const taps: usize = load<u32>(p, 8);
  const rows = load<u32>(load<u32>(p, 12));
  const out: usize = load<u32>(p, 16);
  const cols = load<u32>(p, 20);
  const count = load<u32>(p, 24);
  const last = load<u32>(p, 28) - 1;
  const bytes = cols * 4;
  const end = share(rows, thread + 1, threads);
  for (let r = share(rows, thread, threads); r < end; r++) {
    const tap = taps + r * count * 8;
    const from = x + r * bytes;
    const to = out + r * bytes;
    let c: u32 = 0;
    for (; c + 4 <= cols; c += 4) {
      let sum = f32x4.splat(0);
      for (let j: u32 = 0; j < count; j++) {
        const value = v128.load(rowOf(table, tap + j * 4, last, bytes) + c * 4);
        sum = f32x4.add(sum, f32x4.mul(v128.load32_splat(tap + (count + j) * 4), value));
      }
      v128.store(to + c * 4, f32x4.add(v128.load(from + c * 4), sum));
    }
    for (; c < cols; c++) {
      let sum: f32 = 0;
      for (let j: u32 = 0; j < count; j++)
        sum += load<f32>(tap + (count + j) * 4) * load<f32>(rowOf(table, tap + j * 4, last, bytes) + c * 4);
      store<f32>(to + c * 4, load<f32>(from + c * 4) + sum);
    }
  }
}

// @ts-ignore: decorator
@inline function rowOf(table: usize, index: usize, last: u32, bytes: u32): usize {
  return table + min<u32>(<u32>load<f32>(index), last) * bytes;
}
