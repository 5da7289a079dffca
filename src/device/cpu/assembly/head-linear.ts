import { floatPiece, pieceBlocks } from './matmul';

/** Bytes of the parameters of one head's product: as of `linear` of matmul.ts, whose last words are this kernel's own here. */
const PRODUCT_BYTES: u32 = 68;

/**
 * Products of heads with matrices of their own: the op `head-linear` of graph.ts. A head's is that of matmul.ts in f32, so a row has the
 * same order of sums among any number of rows. Pieces of work are (head, some blocks of its matrix).
 *
 * As `linear` of matmul.ts, up to [next, done], and then [heads, rows of a head, bytes of x from one head to the next, room for the
 * parameters of one head's product, bytes of it for each thread].
 */
export function headLinear(p: usize, thread: u32, threads: u32): void {
  const heads = load<u32>(p, 76);
  const n = load<u32>(p, 80);
  const step = load<u32>(p, 84);
  const q: usize = load<u32>(p, 88) + thread * load<u32>(p, 92);
  const size = load<u32>(p, 28);
  const rows = load<u32>(load<u32>(p, 40));
  const blocks = n >> 3;
  const piece = min(pieceBlocks(blocks * heads, size, rows, threads), blocks);
  const pieces = (blocks + piece - 1) / piece;
  memory.copy(q, p, PRODUCT_BYTES);
  store<u32>(q, n, 8);
  for (;;) {
    const unit = atomic.add<u32>(p + 68, 1);
    const h = unit / pieces;
    if (h >= heads) break;
    store<u32>(q, load<u32>(p) + h * blocks * size);
    store<u32>(q, load<u32>(p, 32) + h * n * 4, 32);
    store<u32>(q, load<u32>(p, 36) + h * n * 4, 36);
    store<u32>(q, load<u32>(p, 44) + h * step, 44);
    store<u32>(q, load<u32>(p, 52) + h * n * 4, 52);
    const first = (unit - h * pieces) * piece;
    floatPiece(q, first, min(first + piece, blocks), rows);
  }
  // The last to find nothing left makes the command ready for the next step.
  if (atomic.add<u32>(p + 72, 1) == threads - 1) {
    atomic.store<u32>(p + 68, 0);
    atomic.store<u32>(p + 72, 0);
  }
}
