/**
 * Sizes of the GEMV (linear-gemv.ts): what a lane takes in one step, how much of x is staged at once, and whether a kernel of such
 * sizes exists for a product.
 */

import type { ShardLayout } from '../weights-layout.js';
import { appendBytes, appendFits } from './linear-gemv-append.js';
import type { LinearSpec } from './linear-spec.js';
import { TABLE_BYTES } from './table-numbers.js';

export interface GemvConfig {
  /** Lanes of a subgroup: must be the device's one and only size. */
  readonly subgroupSize: number;
  readonly subgroups: number;
  readonly rowsPerSubgroup: number;
  /** Subgroups that share the rows along K. Divides `subgroups`. */
  readonly splits: number;
  /** Bytes of workgroup memory the kernel may take. */
  readonly workgroupBytes: number;
}

interface Piece {
  /** Columns a lane takes in one step. */
  readonly cols: number;
  /** u32 words that hold them. */
  readonly words: number;
  /** Words fetched by one load: element type of the codes buffer. */
  readonly vector: 1 | 2 | 4;
}

/** Whether rows are whole blocks, whose scales pieces of 32 columns read. */
function blocks({ kind }: ShardLayout): boolean {
  return kind === 'k-quant' || kind === 'lut4';
}

/** The widest piece of a row a lane can load whose columns share a group, or two. */
function pieceOf(spec: LinearSpec, maxCols: number): Piece {
  const { weight } = spec;
  if (weight.kind === 'float') {
    const perWord = weight.dtype === 'f32' ? 1 : 2;
    return { cols: perWord * 4, words: 4, vector: 4 };
  }
  if (weight.bits === 6) return { cols: 32, words: 6, vector: 2 };
  if (weight.bits === 3 || weight.bits === 5) return { cols: 32, words: weight.bits, vector: 1 };
  const perWord = 32 / weight.bits;
  for (const vector of [4, 2] as const) {
    const cols = perWord * vector;
    if (cols <= 32 && (cols <= maxCols || blocks(weight))) return { cols, words: vector, vector };
  }
  return { cols: perWord, words: 1, vector: 1 };
}

/** Bytes of workgroup memory. */
export function gemvBytes(
  spec: LinearSpec,
  config: GemvConfig,
  { piece, chunk }: Pick<GemvPlan, 'piece' | 'chunk'>,
): number {
  const stage = spec.rows * chunk * (piece.cols / 4) * (config.subgroupSize + 1) * 16;
  const append = spec.append === undefined ? 0 : appendBytes(spec.append);
  return stage + reduceBytes(spec, config) + append + (spec.weight.kind === 'lut4' ? TABLE_BYTES : 0);
}

function reduceBytes(spec: LinearSpec, config: GemvConfig): number {
  const sums = config.subgroups * config.rowsPerSubgroup * spec.rows * 4;
  const squares = spec.norm === null ? 0 : config.subgroups * spec.rows * 4;
  return sums + squares;
}

export interface GemvPlan {
  readonly piece: Piece;
  /** Steps of the whole row, each `subgroupSize · piece.cols` columns. */
  readonly steps: number;
  /** Steps staged at once. */
  readonly chunk: number;
}

export function planGemv(spec: LinearSpec, config: GemvConfig): GemvPlan | null {
  const { splits } = config;
  for (const maxCols of [32, 16, 8, 4]) {
    const piece = pieceOf(spec, maxCols);
    if (piece.cols > maxCols && maxCols !== 4 && !blocks(spec.weight)) continue;
    const perStep = config.subgroupSize * piece.cols;
    const steps = Math.ceil(spec.k / perStep / splits) * splits;
    // A split that would walk over nothing but padding is a waste a smaller piece may avoid.
    if (splits > 1 && (steps - splits) * perStep + perStep > spec.k && maxCols > 4 && piece.vector > 1)
      continue;
    for (let chunk = steps; chunk >= splits; chunk = Math.ceil(chunk / 2 / splits) * splits) {
      if (gemvBytes(spec, config, { piece, chunk }) <= config.workgroupBytes) return { piece, steps, chunk };
      if (chunk === splits) break;
    }
  }
  return null;
}

/** Whether the kernel exists for this spec: shapes divide and x fits. */
export function gemvFits(spec: LinearSpec, config: GemvConfig): boolean {
  const { subgroups, rowsPerSubgroup, splits, subgroupSize } = config;
  if (spec.weight.kind === 'affine' && spec.weight.meta === 'f32') return false;
  if (spec.k % 32 !== 0 || subgroups % splits !== 0) return false;
  if (spec.glu !== null && (rowsPerSubgroup % 2 !== 0 || spec.n % 2 !== 0 || spec.residual !== null))
    return false;
  if (spec.append !== undefined && !appendFits(spec, spec.append, config)) return false;
  if (spec.merge !== undefined && (spec.rows !== 1 || spec.norm !== null)) return false;
  if ((subgroupSize & (subgroupSize - 1)) !== 0 || spec.rows < 1 || spec.rows > 8) return false;
  return planGemv(spec, config) !== null;
}

/** Whether a subgroup sums its rows at once: worth it where a workgroup has many, whole heads. */
export function sumsTogether(spec: LinearSpec, { subgroups, rowsPerSubgroup, splits }: GemvConfig): boolean {
  const { append } = spec;
  if (append === undefined || (subgroups / splits) * rowsPerSubgroup !== append.headDim) return false;
  return rowsPerSubgroup > 1 && (rowsPerSubgroup & (rowsPerSubgroup - 1)) === 0;
}

/**
 * The order of the sums, as text: equal for configs that give the same bits. A lane adds piece after piece, whoever owns
 * the row and however x is staged; squares of the norm are shared out over all threads.
 */
export function gemvOrder(spec: LinearSpec, config: GemvConfig): string {
  const plan = planGemv(spec, config);
  if (plan === null) return 'none';
  const order = `c${plan.piece.cols} k${config.splits}${sumsTogether(spec, config) ? ' together' : ''}`;
  if (spec.norm === null) return order;
  const threads = config.subgroups * config.subgroupSize;
  const staged = (plan.chunk * config.subgroupSize * plan.piece.cols) / 4;
  return `${order} n${threads}${plan.chunk === plan.steps || staged % threads === 0 ? '' : `/${staged}`}`;
}
