import { share } from './math';

/**
 * The op `columns` of graph.ts.
 *
 * [out, rowsAt, cols, parts, and of each part: x, columns of x, from, to, cols, count, fromStep, toStep]
 */
export function columns(p: usize, thread: u32, threads: u32): void {
  const rows = load<u32>(load<u32>(p, 4));
  const cols = load<u32>(p, 8);
  const parts = load<u32>(p, 12);
  const end = share(rows, thread + 1, threads);
  for (let r = share(rows, thread, threads); r < end; r++) {
    const out: usize = load<u32>(p) + r * cols * 4;
    memory.fill(out, 0, cols * 4);
    for (let i: u32 = 0; i < parts; i++) {
      const part: usize = p + 16 + i * 32;
      const x: usize = load<u32>(part) + r * load<u32>(part, 4) * 4;
      const bytes = load<u32>(part, 16) * 4;
      const count = load<u32>(part, 20);
      let from: usize = x + load<u32>(part, 8) * 4;
      let to: usize = out + load<u32>(part, 12) * 4;
      for (let k: u32 = 0; k < count; k++) {
        memory.copy(to, from, bytes);
        from += load<u32>(part, 24) * 4;
        to += load<u32>(part, 28) * 4;
      }
    }
  }
}
