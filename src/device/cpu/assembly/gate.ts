import { geluTanh, normRow, silu } from './elementwise';
import { exp4, loadPart, share, storePart } from './math';

/**
 * `norm(x) · act(gate)`. Pieces of work are runs of `width` columns, each normed by itself.
 * [x, gate, out, rowsAt, cols, width, weight, eps, activation, columns of x, the first of them, columns of gate], weight 0: no norm; activations in the order of ../../graph.ts.
 */
export function gate(p: usize, thread: u32, threads: u32): void {
  const rows = load<u32>(load<u32>(p, 12));
  const cols = load<u32>(p, 16);
  const width = load<u32>(p, 20);
  const weight = load<u32>(p, 24);
  const kind = load<u32>(p, 32);
  const stride = load<u32>(p, 36);
  const first = load<u32>(p, 40);
  const each = cols / width;
  const runs = rows * each;
  const end = share(runs, thread + 1, threads);
  for (let run = share(runs, thread, threads); run < end; run++) {
    const at: usize = run * width * 4;
    let x: usize = load<u32>(p) + ((run / each) * stride + first + (run % each) * width) * 4;
    const by: usize = load<u32>(p, 4) + ((run / each) * load<u32>(p, 44) + (run % each) * width) * 4;
    const out: usize = load<u32>(p, 8) + at;
    if (weight != 0) {
      normRow(x, weight, out, width, load<f32>(p, 28));
      x = out;
    }
    let c: u32 = 0;
    for (; c + 4 <= width; c += 4) {
      v128.store(out + c * 4, f32x4.mul(v128.load(x + c * 4), act(v128.load(by + c * 4), kind)));
    }
    if (c < width) {
      const n = width - c;
      storePart(out + c * 4, f32x4.mul(loadPart(x + c * 4, n), act(loadPart(by + c * 4, n), kind)), n);
    }
  }
}

// @ts-ignore: decorator
@inline function act(x: v128, kind: u32): v128 {
  if (kind == 1) return silu(x);
  if (kind == 2) return geluTanh(x);
  const one = f32x4.splat(1);
  return f32x4.div(one, f32x4.add(one, exp4(f32x4.neg(x))));
}
