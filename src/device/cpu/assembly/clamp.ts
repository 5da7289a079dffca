import { share } from './math';

/** The op `clamp` of graph.ts. [x, bounds, rowsAt, out, width, runs], width the columns of a run. */
export function clamp(p: usize, thread: u32, threads: u32): void {
  const x: usize = load<u32>(p);
  const bounds: usize = load<u32>(p, 4);
  const width = load<u32>(p, 16);
  const runs = load<u32>(p, 20);
  const all = load<u32>(load<u32>(p, 8)) * runs;
  const out: usize = load<u32>(p, 12);
  const end = share(all, thread + 1, threads);
  for (let r = share(all, thread, threads); r < end; r++) {
    const pair = bounds + (r % runs) * 8;
    const low = v128.load32_splat(pair);
    const high = v128.load32_splat(pair + 4);
    const from = x + r * width * 4;
    const to = out + r * width * 4;
    let c: u32 = 0;
    for (; c + 4 <= width; c += 4)
      v128.store(to + c * 4, f32x4.min(f32x4.max(v128.load(from + c * 4), low), high));
    for (; c < width; c++)
      store<f32>(to + c * 4, min<f32>(max<f32>(load<f32>(from + c * 4), load<f32>(pair)), load<f32>(pair + 4)));
  }
}
