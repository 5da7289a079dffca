/**
 * The fast linear kernels as variants: which device and shape gets which kernel, and with what sizes, where nothing was
 * measured on the device itself (tuning/).
 *
 * Both want subgroups of one size, known before the text is made, of 16 lanes or more (narrower ones gain nothing
 * over the portable kernels). Neither keeps the order of sums from one number of rows to another, so both decline
 * when results must be deterministic.
 */

import type { Capabilities, LinearShape, Variant } from '../kernel.js';
import { groupCols } from './group-scales.js';
import {
  gemmSpec,
  gemvSpec,
  LINEAR_FAMILIES,
  type LinearChoice,
  linearKernel,
  matrixOf,
} from './linear-choice.js';
import { type Dp4aConfig, dp4aFits } from './linear-dp4a-plan.js';
import { type GemvConfig, gemvFits } from './linear-gemv-plan.js';
import { MOST_ROWS } from './linear-halves.js';
import { type MatrixGemmConfig, matrixGemmFits } from './linear-matrix-plan.js';
import { type ResidentConfig, residentFits } from './linear-resident.js';
import { type SkinnyConfig, skinnyFits } from './linear-skinny.js';
import { type LinearSpec, linearBindings } from './linear-spec.js';

/** Rows up to which the GEMV exists; up to which matrices never beat it; and the weights from which they then do. */
const GEMV_ROWS = 8;
const GEMV_ROWS_WITH_MATRICES = 4;
const MATRIX_WEIGHTS = 2 ** 26;
/** Workgroups that keep a large GPU busy. */
const BUSY = 96;

/** The one size of the device's subgroups, or 0. */
export function fixedLanes(capabilities: Capabilities): number {
  const { subgroups, subgroupMinSize, subgroupMaxSize, minLanes, deterministic, precision } = capabilities;
  if (!subgroups || deterministic || precision !== 'default') return 0;
  return subgroupMinSize === subgroupMaxSize && subgroupMinSize >= minLanes ? subgroupMinSize : 0;
}

/**
 * Sizes of a GEMV, or null where there is none. Measured on an H200 with 4-bit weights:
 * - many weights (2²⁵ and more, or a vocabulary) want many rows of the weight for each load of x; one row of a long x that is
 *   staged in turns wants its workgroups large instead;
 * - few features (a down projection of a small model) want subgroups that split K, for there are too few otherwise;
 * - between them small workgroups, for each has to stage x first; more rows of x shift the balance to more reuse.
 */
export function chooseGemv(capabilities: Capabilities, spec: LinearSpec): GemvConfig | null {
  const lanes = fixedLanes(capabilities);
  if (lanes === 0) return null;
  const { workgroupBytes, workgroupThreads } = capabilities;
  const { n, k, rows } = spec;
  const sizes: (readonly [subgroups: number, rowsPerSubgroup: number, splits: number])[] = [];
  if (n < 16384 && n * k >= 2 ** 25 && rows === 1) sizes.push([16, 2, 1]);
  else if (n >= 16384 || n * k >= 2 ** 25) sizes.push([8, 4, 1]);
  else if (n <= 2048 && rows === 1 && spec.glu === null) sizes.push([6, 2, 3]);
  else if (n <= 2048 && rows > 4) sizes.push([8, 4, 4]);
  else if (rows > 4 || (rows > 1 && n * k >= 2 ** 24)) sizes.push([8, 4, 1]);
  else if (rows === 1 && k <= 2048) sizes.push([4, 2, 1]);
  sizes.push([8, 2, 1], [4, 2, 1], [1, 2, 1]);
  for (const [subgroups, rowsPerSubgroup, splits] of sizes) {
    const config = { subgroupSize: lanes, subgroups, rowsPerSubgroup, splits, workgroupBytes };
    if (subgroups * lanes <= workgroupThreads && gemvFits(spec, config)) return config;
  }
  return null;
}

/** Weights up to which a workgroup for each head is enough of them, of all and of one: a head's product then is short beside a launch. */
const WHOLE_HEADS_WEIGHTS = 2 ** 24;
const WHOLE_HEAD_WEIGHTS = 3 * 2 ** 17;

/**
 * Sizes of a GEMV that appends what it makes, or null where there is none. Where heads are normed a workgroup owns one; else the sizes
 * are those of the GEMV without the append, or twice as many subgroups, if runs of pairs fit them.
 */
export function chooseAppend(capabilities: Capabilities, spec: LinearSpec): GemvConfig | null {
  const { append, ...plain } = spec;
  const lanes = fixedLanes(capabilities);
  if (append === undefined || lanes === 0) return null;
  const { workgroupBytes, workgroupThreads, storageBuffers } = capabilities;
  if (linearBindings(spec).length > storageBuffers) return null;
  const { headDim, normEps } = append;
  const sizes: (readonly [subgroups: number, rowsPerSubgroup: number, splits: number])[] = [];
  if (normEps === null) {
    const usual = chooseGemv(capabilities, plain);
    if (usual !== null) {
      const { subgroups, rowsPerSubgroup, splits } = usual;
      sizes.push([subgroups, rowsPerSubgroup, splits], [2 * subgroups, rowsPerSubgroup, splits]);
    }
    sizes.push([8, 2, 1], [4, 2, 1]);
  }
  if (spec.n * spec.k <= WHOLE_HEADS_WEIGHTS && headDim * spec.k <= WHOLE_HEAD_WEIGHTS)
    for (const rows of [4, 2, 8, 16, 5]) if (headDim % rows === 0) sizes.push([headDim / rows, rows, 1]);
  for (const [subgroups, rowsPerSubgroup, splits] of sizes) {
    const config = { subgroupSize: lanes, subgroups, rowsPerSubgroup, splits, workgroupBytes };
    if (subgroups * lanes <= workgroupThreads && gemvFits(spec, config)) return config;
  }
  return null;
}

/** Rows that x may have to stay in registers; and the lanes of a workgroup, which have 64 registers of it each. */
const HELD_ROWS: readonly [from: number, to: number] = [2, 4];
const HELD_THREADS = 512;

/**
 * Sizes of a GEMV that holds x, or null where there is none. Measured on an H200: never slower than the other; four rows of many
 * features gain by two turns along K, with half of x in registers each time.
 */
export function chooseResident(capabilities: Capabilities, spec: LinearSpec): ResidentConfig | null {
  const lanes = fixedLanes(capabilities);
  if (lanes === 0 || spec.rows < HELD_ROWS[0] || spec.rows > HELD_ROWS[1]) return null;
  const { workgroupBytes } = capabilities;
  const workgroupThreads = Math.min(HELD_THREADS, capabilities.workgroupThreads);
  const config = {
    subgroupSize: lanes,
    words: 2,
    parts: spec.rows === 4 && spec.n >= 16384 ? 2 : 1,
    features: 16,
    together: 8,
    workgroupBytes,
  } as const;
  const whole = { ...config, workgroupThreads };
  if (residentFits(spec, whole)) return whole;
  return residentFits(spec, { ...whole, parts: 1 }) ? { ...whole, parts: 1 } : null;
}

/** Rows up to which x keeps two bytes: there they cost nothing. And where 8 bits of a weight would be poisoned by one. */
const TWO_PLANES_ROWS = 2;

/** Bytes that x is rounded to where dp4a multiplies it. */
export function dp4aPlanes(weight: LinearSpec['weight'], rows: number): 1 | 2 {
  return rows > TWO_PLANES_ROWS && weight.kind !== 'float' && weight.bits <= 4 ? 1 : 2;
}

/**
 * Rows up to which dp4a is taken, and the weights from which on: x is made bytes in a launch of its own. One row wants
 * many features too: with a long x and few of them the launch takes what it gains.
 */
const DOTS_ROWS = 8;
const DOTS_WEIGHTS = 2 ** 24;
const DOTS_FEATURES_OF_ONE = 16384;
/**
 * Rows up to which a norm between two products has no launch (linear-dp4a-norm.ts): the first then makes whole pieces of 32 of what
 * the second reads. Steps of four rows of Llama-8B take 3.63 ms in place of 3.81.
 */
const NORMED_ROWS = 4;

/**
 * Sizes of a dp4a product, or null where there is none. Measured on an H200: one row has all lanes along K, more rows have
 * fewer lanes there, for x then comes from memory once for several weight rows. Few features want subgroups that share
 * them along K. Beyond four rows gate and up stage x in two turns, and down reads it where it lies: of the forms scanned in
 * whole steps these were the fastest.
 */
function chooseDp4a(capabilities: Capabilities, spec: LinearSpec): Dp4aConfig | null {
  const lanes = fixedLanes(capabilities);
  const { n, k, rows, weight } = spec;
  if (lanes === 0 || !capabilities.packedDots || rows > DOTS_ROWS || n * k < DOTS_WEIGHTS) return null;
  if (rows === 1 && n < DOTS_FEATURES_OF_ONE) return null;
  // Numbers of tables cost more to make bytes of than dp4a saves: matrices and floats were faster.
  if (weight.kind === 'float' || weight.kind === 'lut4' || weight.bits !== 4) return null;
  const sizes: Dp4aSize[] = [];
  if (rows === 1) sizes.push([32, 1, spec.glu === null ? 2 : 4, 8, 1, 1]);
  else if (n <= 8192) {
    if (k >= 8192) sizes.push(rows <= 4 ? [4, 2, 2, 14, 7, 2] : [4, 2, 2, 14, 7, 0]);
    if (rows <= NORMED_ROWS) {
      if (spec.residual !== null) sizes.push([4, 2, 4, 16, 16, 0]);
      if (spec.norm !== null) sizes.push([4, 1, 2, 8, 8, 0]);
    }
    sizes.push([4, 2, 2, 8, 8, 0]);
  } else if (rows <= 4) sizes.push([8, 1, 4, 8, 1, 1]);
  else if (spec.glu !== null) sizes.push([8, 1, 4, 8, 1, 2], [8, 1, 4, 8, 1, 4]);
  else sizes.push([8, 1, 4, 4, 2, 0], [8, 1, 4, 8, 1, 4]);
  // Other lengths: as many subgroups along K as their steps divide by, for without them there are few workgroups.
  if (rows > 1 && n <= 8192) {
    for (const pieces of [2, 1] as const)
      for (const along of [9, 7, 10, 6, 5, 17]) sizes.push([4, pieces, 2, along, along, 0]);
    if (rows <= 4 || k < 8192) sizes.push([4, 2, 2, 4, 4, 0], [4, 1, 2, 4, 4, 0]);
  }
  // Few subgroups have long turns: from five rows on matrices are faster then.
  if (rows <= 4 || n > 8192 || k < 8192)
    sizes.push([4, 2, 2, 8, 2, 1], [8, 1, 2, 8, 1, 1], [4, 1, 2, 8, 1, 0]);
  const { workgroupBytes, workgroupThreads } = capabilities;
  const planes = dp4aPlanes(weight, rows);
  // Groups of 32 have pieces of their own.
  const mostPieces = Math.max(1, groupCols(weight) / 32);
  for (const [across, wanted, each, subgroups, splits, chunks] of sizes) {
    const pieces = wanted > mostPieces ? 1 : wanted;
    const shared = { subgroupSize: lanes, planes, workgroupBytes };
    const config = { across, pieces, each, subgroups, splits, chunks, ...shared };
    if (subgroups * lanes <= workgroupThreads && dp4aFits(spec, config)) return config;
  }
  return null;
}

type Dp4aSize = readonly [
  across: number,
  pieces: 1 | 2,
  each: number,
  subgroups: number,
  splits: number,
  chunks: number,
];

/**
 * Rows from which on the skinny kernel is taken, and up to which; farther where features are few and rows long, but not
 * so long that a GEMM in slices of K is faster.
 */
const FEW_ROWS: readonly [from: number, to: number, narrow: number] = [5, 8, 16];

/**
 * Sizes of the skinny kernel, or null where there is none. Measured on an H200: large tiles where there are enough
 * of them, for each stages x anew; for few features small ones that take long steps along K.
 */
export function chooseSkinny(capabilities: Capabilities, spec: LinearSpec): SkinnyConfig | null {
  const lanes = fixedLanes(capabilities);
  const { n, k, rows, glu } = spec;
  const most = n <= 4096 && k >= 4096 && k < 8192 ? FEW_ROWS[2] : FEW_ROWS[1];
  if (lanes === 0 || !capabilities.f16 || rows < FEW_ROWS[0] || rows > most) return null;
  const width = rows > 8 ? 16 : 8;
  const matrix = capabilities.matrices.find(
    (m) => m.m === 16 && m.n === width && m.k === 16 && m.component === 'f16' && m.result === 'f32',
  );
  if (matrix === undefined) return null;
  type Size = readonly [bn: number, bk: number, subgroups: number, depth: number, buffers: 1 | 2];
  const sizes: Size[] = [];
  if (n >= 16384) sizes.push([64, 128, 4, 1, 1]);
  else if (n <= 2048) sizes.push([16, 512, 8, 2, 1]);
  else if (rows > 8) sizes.push([32, 256, 8, 2, 1]);
  else if (k >= 8192) sizes.push([32, 512, 8, 1, 1]);
  else if (n > 4096 && k >= 4096 && glu === null) sizes.push([32, 256, 4, 2, 1]);
  sizes.push([32, 256, 8, 4, 1], [64, 128, 4, 1, 1], [32, 128, 4, 1, 1], [32, 64, 2, 2, 1]);
  for (const [bn, bk, subgroups, depth, buffers] of sizes) {
    const { workgroupBytes } = capabilities;
    const config = { matrix, subgroupSize: lanes, subgroups, bn, bk, depth, buffers, workgroupBytes };
    if (subgroups * lanes <= capabilities.workgroupThreads && skinnyFits(spec, config)) return config;
  }
  return null;
}

/**
 * Tiles of a GEMM. Up to 64 rows the weights are what matters: subgroups share a small tile along K, deeper for few
 * features or a long K, where there are few tiles, and workgroups share K too. From there on the largest tile that leaves no part of a large GPU
 * idle. Measured on an H200.
 */
export function chooseMatrixGemm(capabilities: Capabilities, spec: LinearSpec): MatrixGemmConfig | null {
  const lanes = fixedLanes(capabilities);
  const matrix = matrixOf(capabilities);
  if (lanes === 0 || matrix === null) return null;
  const { n, k, rows } = spec;
  const base = {
    matrix,
    subgroupSize: lanes,
    workgroupBytes: capabilities.workgroupBytes,
    sk: 1,
    buffers: 1,
    depth: 1,
  } as const;
  const list: MatrixGemmConfig[] = [];
  const fits = (c: MatrixGemmConfig): boolean =>
    c.sm * c.sn * c.sk * lanes <= capabilities.workgroupThreads && matrixGemmFits(spec, c);
  // In parts along K a sum has another order.
  const { oneOrder = false } = capabilities;
  if (matrix.m === 16 && rows <= 64 && !oneOrder) {
    const narrow = n <= 2048;
    const deep = narrow || k >= 8192;
    const wide = n >= 16384;
    if (rows <= 16) {
      if (narrow) list.push({ ...base, bm: 16, bn: 16, bk: 512, sm: 1, sn: 1, sk: 8, depth: 2 });
      if (deep && n <= 4096)
        list.push({ ...base, bm: 16, bn: 128, bk: 64, sm: 1, sn: 2, sk: 4, depth: 2, splitK: 8 });
      if (deep) list.push({ ...base, bm: 16, bn: 32, bk: 256, sm: 1, sn: 1, sk: 8, depth: 2 });
      if (wide) list.push({ ...base, bm: 16, bn: 64, bk: 64, sm: 1, sn: 1, sk: 4, depth: 2 });
      list.push({ ...base, bm: 16, bn: 64, bk: 128, sm: 1, sn: 2, sk: 4, depth: 2 });
      list.push({ ...base, bm: 16, bn: 64, bk: 64, sm: 1, sn: 2, sk: 2, depth: 2 });
    } else if (rows <= 32) {
      const eight = { ...base, bm: 32, bn: 32, bk: 256, sm: 1, sn: 1, sk: 8, depth: 2 };
      const broad = { ...base, bm: 32, bn: 128, bk: 64, sm: 1, sn: 2, sk: 4, depth: 2 };
      // A second slot of x would take more registers than two workgroups have.
      const paired = { ...broad, depth: 1, paired: true };
      const lean = { ...paired, sn: 4, sk: 2 };
      if (narrow) list.push({ ...eight, splitK: 4 });
      else if (k >= 4096 && n <= 4096)
        list.push({ ...lean, splitK: 8 }, { ...broad, splitK: 8 }, { ...broad, splitK: 4 });
      else if (k >= 4096 && !wide) {
        list.push({ ...lean, splitK: 8 });
        list.push({ ...base, bm: 32, bn: 64, bk: 64, sm: 1, sn: 1, sk: 4, depth: 2, splitK: 4 });
      }
      if (wide) list.push(paired, broad);
      if (deep || n <= 4096) list.push(eight);
      if (!wide) list.push({ ...base, bm: 32, bn: 64, bk: 128, sm: 1, sn: 1, sk: 8, depth: 2 });
      list.push({ ...base, bm: 32, bn: 64, bk: 128, sm: 1, sn: 2, sk: 4, depth: 2 });
      // A K of odd numbers of 64.
      list.push({ ...base, bm: 32, bn: 32, bk: 64, sm: 1, sn: 2, sk: 2, depth: 2 });
    } else {
      // Two tiles of 32 rows share the weights that they read one after the other.
      if (wide)
        list.push({ ...base, bm: 32, bn: 128, bk: 64, sm: 1, sn: 2, sk: 4, paired: true, rowsFirst: true });
      const small = { ...base, bm: 64, bn: 64, bk: 64, sm: 2, paired: true };
      const square = k >= 8192 ? { ...small, sn: 2, sk: 2 } : { ...small, sn: 4 };
      const long = { ...base, bm: 64, bn: 128, bk: 64, sm: 2, sn: 4, paired: true };
      if (!wide && n > 8192) list.push({ ...long, splitK: 2 });
      if (!wide) list.push({ ...square, splitK: 4 }, { ...square, splitK: 2 });
      if (narrow) list.push({ ...base, bm: 16, bn: 32, bk: 256, sm: 1, sn: 1, sk: 8, depth: 2 });
      if (n <= 4096) list.push({ ...base, bm: 32, bn: 64, bk: 128, sm: 1, sn: 4, sk: 2, depth: 2 });
      list.push({ ...base, bm: 64, bn: 64, bk: 128, sm: 1, sn: 2, sk: 2 });
    }
  } else if (matrix.m === 16) {
    const large: MatrixGemmConfig[] = [
      { ...base, bm: 128, bn: 128, bk: 64, sm: 2, sn: 4 },
      { ...base, bm: 128, bn: 128, bk: 64, sm: 2, sn: 2 },
      { ...base, bm: 64, bn: 128, bk: 64, sm: 2, sn: 2 },
    ];
    const tilesOf = (c: MatrixGemmConfig): number => Math.ceil(rows / c.bm) * Math.ceil(n / c.bn);
    // A long K is cut where the largest tiles leave parts of a large GPU idle, so that each has a slice of one.
    const largest = large[0]!;
    const splitK = [2, 4].find((count) => tilesOf(largest) * count >= BUSY);
    if (!oneOrder && k >= 4096 && tilesOf(largest) < BUSY && splitK !== undefined)
      list.push({ ...largest, splitK });
    list.push(...large.filter((c) => tilesOf(c) >= BUSY));
  }
  if (matrix.m === 16) {
    list.push({ ...base, bm: 64, bn: 64, bk: 64, sm: 2, sn: 2, buffers: 2 });
    list.push({ ...base, bm: 64, bn: 64, bk: 32, sm: 2, sn: 2 });
  }
  list.push({ ...base, bm: 32, bn: 64, bk: 32, sm: 2, sn: 2 });
  return list.find(fits) ?? null;
}

/** The choice by rule, or null where only portable kernels take the shape. */
export function ruleForLinear(capabilities: Capabilities, shape: LinearShape): LinearChoice | null {
  const { rows, n, k } = shape;
  if (capabilities.oneOrder === true) return ruleForMatrices(capabilities, shape);
  const spec = gemvSpec(shape);
  if (shape.append !== undefined) {
    const config = chooseAppend(capabilities, spec);
    return config === null ? null : { family: 'gemv', config };
  }
  const dp4a = chooseDp4a(capabilities, spec);
  if (dp4a !== null) return { family: 'dp4a', config: dp4a };
  const resident = chooseResident(capabilities, spec);
  if (resident !== null) return { family: 'resident', config: resident };
  const skinny = chooseSkinny(capabilities, spec);
  if (skinny !== null) return { family: 'skinny', config: skinny };
  const most =
    matrixOf(capabilities) !== null && n * k >= MATRIX_WEIGHTS ? GEMV_ROWS_WITH_MATRICES : GEMV_ROWS;
  const gemv = rows <= most ? chooseGemv(capabilities, spec) : null;
  if (gemv !== null) return { family: 'gemv', config: gemv };
  return rows > GEMV_ROWS_WITH_MATRICES ? ruleForMatrices(capabilities, shape) : null;
}

function ruleForMatrices(capabilities: Capabilities, shape: LinearShape): LinearChoice | null {
  if (shape.append !== undefined || shape.rows > MOST_ROWS) return null;
  const config = chooseMatrixGemm(capabilities, gemmSpec(capabilities, shape));
  return config === null ? null : { family: 'matrices', config };
}

/** Choices for shapes at hand: every variant of the list asks for the same one. */
const chosen = new WeakMap<
  LinearShape,
  { readonly by: Capabilities; readonly choice: LinearChoice | null }
>();

/** What was measured to be best on this device, else the choice by rule. Null where only portable kernels take the shape. */
export function chooseLinear(capabilities: Capabilities, shape: LinearShape): LinearChoice | null {
  const known = chosen.get(shape);
  if (known?.by === capabilities) return known.choice;
  const choice = capabilities.tuned?.linear(shape) ?? ruleForLinear(capabilities, shape);
  chosen.set(shape, { by: capabilities, choice });
  return choice;
}

const variantOf = (name: LinearChoice['family']): Variant<LinearShape> => ({
  name,
  supports: (capabilities, shape) => chooseLinear(capabilities, shape)?.family === name,
  build: (capabilities, shape) => linearKernel(capabilities, shape, chooseLinear(capabilities, shape)!),
});

export const fastLinear: readonly Variant<LinearShape>[] = LINEAR_FAMILIES.map(variantOf);
