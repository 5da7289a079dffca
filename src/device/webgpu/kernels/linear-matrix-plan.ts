/** GEMM on subgroup matrices: what can be chosen of its kernel (linear-matrix.ts), and what follows from that. */

import type { MatrixConfig } from '../kernel.js';
import { hasPairs, tableOf, weightUnit } from './linear-dequantise.js';
import type { LinearSpec } from './linear-spec.js';
import { splitKFits } from './linear-split-k.js';
import { TABLE_BYTES } from './table-numbers.js';

export interface MatrixGemmConfig {
  readonly matrix: MatrixConfig;
  readonly subgroupSize: number;
  readonly bm: number;
  readonly bn: number;
  readonly bk: number;
  readonly sm: number;
  readonly sn: number;
  readonly sk: number;
  /** Copies of the tiles in workgroup memory: with 2 one barrier a step is enough. */
  readonly buffers: 1 | 2;
  /** Steps that are on their way in registers: 1, or even. */
  readonly depth: number;
  /** Split-K: workgroups that share a tile along K, where tiles are few: their sums are put together in a launch of its own. 1 if omitted. */
  readonly splitK?: number;
  /** Neighbouring workgroups share their weights, not their x: for many rows, and weights that no cache holds. */
  readonly rowsFirst?: boolean;
  /**
   * Codes of two steps are fetched at once: a thread has 16 bytes of a row, twice as many side by side are fetched together, and each
   * step takes half of the columns of all of them. What loads cost where rows lie far apart is the lines that they touch.
   */
  readonly paired?: boolean;
  /**
   * As many times more subgroups load as multiply: for few rows, where sums keep the order of one share along K and the stream of weights
   * wants more threads than these sums do. 1 if omitted.
   */
  readonly loaders?: number;
  readonly workgroupBytes: number;
}

export interface MatrixGemmLayout {
  readonly component: 'f16' | 'f32';
  /** Components from a row of a tile to the next. */
  readonly stride: number;
  /** Results are stored from matrices straight to `out`. */
  readonly direct: boolean;
  /** Else they go through workgroup memory. Fragments a subgroup puts there at once, down and across; floats from a row of them to the next. */
  readonly ri: number;
  readonly rj: number;
  readonly endStride: number;
  readonly bytes: number;
}

/** What a slice makes: sums alone, `[slice][row][feature]`. */
export function splitKSpec(spec: LinearSpec): LinearSpec {
  return { ...spec, bias: false, residual: null, out: 'f32', outStride: spec.n, outOffset: 0 };
}

/** Threads of a workgroup. */
export function matrixGemmThreads({ sm, sn, sk, loaders = 1, subgroupSize }: MatrixGemmConfig): number {
  return sm * sn * sk * loaders * subgroupSize;
}

/** Null where the results find no room. */
export function matrixGemmLayout(spec: LinearSpec, c: MatrixGemmConfig): MatrixGemmLayout | null {
  const { matrix } = c;
  if (matrix.component !== 'f16' && matrix.component !== 'f32') return null;
  if (matrix.result !== 'f32') return null;
  const component = matrix.component;
  const size = component === 'f16' ? 2 : 4;
  const stride = c.bk + 16 / size;
  const tiles = c.buffers * (c.bm + c.bn) * stride * size;
  const direct =
    spec.out === 'f32' &&
    spec.stack === undefined &&
    spec.glu === null &&
    spec.residual !== 'f16' &&
    c.sk === 1 &&
    spec.rows % matrix.m === 0 &&
    spec.n % matrix.n === 0 &&
    spec.outStride % 4 === 0 &&
    spec.outOffset % 4 === 0;
  const layout = {
    component,
    stride,
    direct,
    ri: 0,
    rj: 0,
    endStride: 0,
    bytes: Math.max(tiles, direct && spec.bias ? (c.bn + matrix.m) * matrix.k * size : 0),
  } as const;
  if (direct) return layout;
  const down = c.bm / c.sm / matrix.m;
  const across = c.bn / c.sn / matrix.n;
  const rj = spec.glu === null ? 1 : 2;
  if (across % rj !== 0) return null;
  // Padded: else the rows of a matrix that is stored fall into the same banks.
  const endStride = rj * matrix.n + 4;
  const endOf = (ri: number): number => c.sm * c.sn * c.sk * ri * matrix.m * endStride * 4;
  // Where the tiles were (linear-matrix-end.ts).
  const bytes = Math.max(tiles, endOf(1));
  let ri = down;
  while (down % ri !== 0 || (ri > 1 && endOf(ri) > bytes)) ri--;
  return { ...layout, ri, rj, endStride, bytes };
}

/** Whether the kernel exists for this spec. */
export function matrixGemmFits(spec: LinearSpec, c: MatrixGemmConfig): boolean {
  const { matrix } = c;
  const unit = weightUnit(spec.weight);
  if (spec.norm !== null || spec.k % c.bk !== 0 || c.bk % unit.cols !== 0) return false;
  if (spec.weight.kind === 'float' && spec.k % 8 !== 0) return false;
  if (spec.weight.kind === 'affine' && spec.weight.meta !== 'f16') return false;
  if (spec.glu !== null && (spec.residual !== null || spec.n % 2 !== 0)) return false;
  if (c.bm % (c.sm * matrix.m) !== 0 || c.bn % (c.sn * matrix.n) !== 0) return false;
  if (c.bk % (c.sk * matrix.k) !== 0 || c.bk % 8 !== 0) return false;
  if (c.depth !== 1 && c.depth % 2 !== 0) return false;
  if (c.paired && c.depth > 2) return false;
  const { splitK = 1 } = c;
  if (spec.k % (c.bk * splitK) !== 0) return false;
  if (splitK > 1 && !splitKFits(spec)) return false;
  if (spec.stack !== undefined && (splitK > 1 || c.rowsFirst)) return false;
  // Results that are stored straight, and pairs of steps, count on subgroups that all multiply.
  if (c.loaders !== undefined && (spec.stack === undefined || c.paired)) return false;
  if (c.paired && !pairedFits(spec, c)) return false;
  // A tile's features are one head's.
  if (spec.heads !== undefined && (spec.heads.rows % c.bn !== 0 || spec.x !== 'f32' || c.rowsFirst))
    return false;
  const layout = matrixGemmLayout(spec, c);
  if (layout === null) return false;
  return (
    layout.bytes + (tableOf(spec.weight, layout.component) === null ? 0 : TABLE_BYTES) <= c.workgroupBytes
  );
}

/** Whether threads have whole words of both steps, and there are whole pairs of these. */
function pairedFits(
  spec: LinearSpec,
  { bn, bk, sm, sn, sk, subgroupSize, buffers, splitK = 1 }: MatrixGemmConfig,
): boolean {
  const { weight, k } = spec;
  const { cols } = weightUnit(weight);
  if (!hasPairs(weight) || buffers !== 1) return false;
  return k % (2 * bk * splitK) === 0 && (2 * bn * bk) % (cols * sm * sn * sk * subgroupSize) === 0;
}

/**
 * The order of the sums, as text. Without shares along K a sum goes from the first column to the last whatever the tile;
 * a residual and a bias are where it starts in results that are stored straight from matrices, else they come last.
 */
export function matrixGemmOrder(spec: LinearSpec, c: MatrixGemmConfig): string {
  const { m, n, k } = c.matrix;
  const direct = matrixGemmLayout(spec, c)?.direct === true;
  const first = `${direct && spec.residual !== null ? ' residual first' : ''}${direct && spec.bias ? ' bias first' : ''}`;
  const { sk, bk, splitK = 1, paired = false } = c;
  return `${m}.${n}.${k}${sk === 1 ? '' : ` k${bk}/${sk}`}${paired ? ` pairs${bk}` : ''}${splitK === 1 ? '' : ` z${splitK}`}${first}`;
}
