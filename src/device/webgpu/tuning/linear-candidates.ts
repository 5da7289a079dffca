/**
 * The kernels that could do a product: what a device is tuned among.
 *
 * The first candidate is the rules' own choice. The others are drawn from lists of sizes, and only those remain whose
 * kernel exists for the shape on this device. A candidate is *neutral* if it adds up in the order of the first
 * (linearOrder): its bits are the same.
 *
 * The lists hold what measurements on large GPUs point at beside what was best there: tiles that leave room for many
 * workgroups where these share 48 KB of memory, x in fewer registers, and smaller tiles for products that would leave
 * multiprocessors idle.
 */

import type { Capabilities, LinearShape, MatrixConfig } from '../kernel.js';
import {
  gemvSpec,
  type LinearChoice,
  linearFits,
  linearName,
  linearOrder,
  matrixOf,
} from '../kernels/linear-choice.js';
import { dp4aPlanes, fixedLanes, ruleForLinear } from '../kernels/linear-fast.js';
import type { MatrixGemmConfig } from '../kernels/linear-matrix-plan.js';

export interface LinearCandidate {
  readonly id: string;
  readonly choice: LinearChoice;
  readonly neutral: boolean;
}

/** Empty where only portable kernels take the shape: these have no sizes to choose. */
export function linearCandidates(capabilities: Capabilities, shape: LinearShape): LinearCandidate[] {
  const rule = ruleForLinear(capabilities, shape);
  if (rule === null) return [];
  const order = linearOrder(capabilities, shape, rule);
  const found = new Map<string, LinearCandidate>();
  const others = [
    ...gemvs(capabilities, shape),
    ...residents(capabilities, shape),
    ...skinnies(capabilities, shape),
    ...dp4a(capabilities, shape),
    ...gemms(capabilities, shape),
  ];
  for (const choice of [rule, ...others]) {
    const id = linearName(choice);
    if (found.has(id) || !linearFits(capabilities, shape, choice)) continue;
    found.set(id, { id, choice, neutral: linearOrder(capabilities, shape, choice) === order });
  }
  return [...found.values()];
}

/** Rows up to which a GEMV can be worth a try: it multiplies row by row. */
const GEMV_ROWS = 8;

/** Subgroups, rows of each, and subgroups that share a row. */
const GEMV_SIZES: readonly (readonly [subgroups: number, rows: number, splits: number])[] = [
  [1, 2, 1],
  [2, 2, 1],
  [4, 1, 1],
  [4, 2, 1],
  [4, 4, 1],
  [8, 1, 1],
  [8, 2, 1],
  [8, 4, 1],
  [16, 2, 1],
  [2, 2, 2],
  [4, 2, 2],
  [4, 4, 2],
  [8, 4, 2],
  [6, 2, 3],
  [4, 2, 4],
  [8, 2, 4],
  [8, 4, 4],
  [8, 2, 8],
];
/** Whole heads, for a product that appends what it makes. */
const APPEND_SIZES: typeof GEMV_SIZES = [
  [32, 4, 1],
  [32, 2, 1],
  [16, 8, 1],
  [16, 4, 1],
  [24, 4, 1],
  [8, 8, 1],
  [32, 8, 2],
  [32, 4, 2],
  [16, 8, 2],
];
/** Workgroup memory that x may be staged in at once. Less means more turns, and more workgroups side by side. */
const GEMV_BYTES = [9 * 1024, 18 * 1024];

function gemvs(capabilities: Capabilities, shape: LinearShape): LinearChoice[] {
  const lanes = fixedLanes(capabilities);
  if (shape.rows > GEMV_ROWS) return [];
  const limits = [capabilities.workgroupBytes, ...GEMV_BYTES.filter((b) => b < capabilities.workgroupBytes)];
  const sizes = shape.append === undefined ? GEMV_SIZES : [...GEMV_SIZES, ...APPEND_SIZES];
  return sizes.flatMap(([subgroups, rowsPerSubgroup, splits]) =>
    limits.map((workgroupBytes): LinearChoice => {
      const config = { subgroupSize: lanes, subgroups, rowsPerSubgroup, splits, workgroupBytes };
      return { family: 'gemv', config };
    }),
  );
}

/** Registers that x may take of a lane, and threads of a workgroup. */
const HELD_REGISTERS = 128;
const HELD_THREADS = 512;
const HELD_SIZES: readonly (readonly [features: number, together: number])[] = [
  [16, 8],
  [16, 4],
  [16, 2],
  [8, 8],
  [8, 4],
  [32, 8],
  [32, 4],
  [64, 4],
];

function residents(capabilities: Capabilities, shape: LinearShape): LinearChoice[] {
  const { rows, k, weight } = shape;
  if (rows > GEMV_ROWS || weight.kind === 'float') return [];
  const { workgroupBytes } = capabilities;
  const workgroupThreads = Math.min(HELD_THREADS, capabilities.workgroupThreads);
  const lanes = fixedLanes(capabilities);
  const list: LinearChoice[] = [];
  for (const words of [1, 2, 4] as const) {
    const cols = (words * 32) / weight.bits;
    if (rows * cols > HELD_REGISTERS) continue;
    for (const parts of [1, 2, 4, 8]) {
      const threads = k / cols / parts;
      // A turn of one or two subgroups is all end and no stream.
      if (threads > workgroupThreads || (parts > 1 && threads < 4 * lanes)) continue;
      for (const [features, together] of HELD_SIZES) {
        const config = { words, parts, features, together, subgroupSize: lanes };
        list.push({ family: 'resident', config: { ...config, workgroupBytes, workgroupThreads } });
      }
    }
  }
  return list;
}

/** Rows up to which the skinny kernel is tried. */
const FEW_ROWS = 16;
const FEW_SIZES: readonly (readonly [
  bn: number,
  bk: number,
  subgroups: number,
  depth: number,
  buffers: 1 | 2,
])[] = [
  // 4 to 9 KB: many workgroups on a multiprocessor, each of one or two subgroups.
  [16, 64, 1, 2, 1],
  [16, 64, 1, 4, 1],
  [32, 64, 1, 2, 1],
  [32, 64, 2, 2, 1],
  [64, 64, 2, 2, 1],
  [64, 64, 4, 2, 1],
  [16, 128, 1, 1, 1],
  [16, 128, 1, 2, 1],
  [16, 128, 2, 2, 1],
  [32, 128, 1, 1, 1],
  [32, 128, 2, 2, 1],
  [32, 128, 4, 1, 1],
  [32, 128, 4, 2, 1],
  [16, 256, 2, 2, 1],
  [16, 256, 4, 2, 1],
  [32, 256, 4, 2, 1],
  [32, 256, 8, 2, 1],
  [32, 256, 8, 4, 1],
  [16, 512, 4, 2, 1],
  [16, 512, 8, 2, 1],
  [32, 512, 8, 1, 1],
  [64, 128, 2, 1, 1],
  [64, 128, 4, 1, 1],
  [64, 128, 4, 2, 1],
  [64, 128, 4, 1, 2],
  [64, 256, 8, 1, 1],
  [128, 128, 8, 1, 1],
];

function skinnies(capabilities: Capabilities, shape: LinearShape): LinearChoice[] {
  if (!capabilities.f16 || shape.rows < 2 || shape.rows > FEW_ROWS) return [];
  const width = shape.rows > 8 ? 16 : 8;
  const matrix = capabilities.matrices.find(
    (m) => m.m === 16 && m.n === width && m.k === 16 && m.component === 'f16' && m.result === 'f32',
  );
  if (matrix === undefined) return [];
  const { workgroupBytes } = capabilities;
  const subgroupSize = fixedLanes(capabilities);
  return FEW_SIZES.map(([bn, bk, subgroups, depth, buffers]) => ({
    family: 'skinny',
    config: { matrix, subgroupSize, bn, bk, subgroups, depth, buffers, workgroupBytes },
  }));
}

/** Rows up to which dp4a is tried. */
const DOTS_ROWS = 16;
/** Lanes along K, pieces and weight rows of a lane, subgroups, those that share rows, and turns in which x is staged. */
const DOTS_SIZES: readonly (readonly [
  across: number,
  pieces: 1 | 2,
  each: number,
  subgroups: number,
  splits: number,
  chunks: number,
])[] = [
  // A row or two: all lanes along K.
  [32, 1, 2, 4, 1, 1],
  [32, 1, 2, 8, 1, 1],
  [32, 1, 4, 8, 1, 1],
  [32, 1, 4, 16, 1, 1],
  [32, 1, 2, 8, 2, 1],
  [32, 1, 2, 14, 7, 1],
  [8, 1, 4, 8, 1, 1],
  [8, 1, 4, 8, 1, 2],
  [8, 1, 4, 8, 1, 4],
  [8, 1, 2, 8, 1, 1],
  [8, 1, 2, 8, 2, 4],
  [8, 1, 2, 8, 4, 1],
  // 64 features or more of a workgroup, with a glu: whole pieces of what the next product reads.
  [8, 1, 4, 16, 1, 1],
  [8, 1, 4, 16, 2, 0],
  [8, 1, 2, 16, 1, 1],
  [4, 2, 2, 8, 2, 1],
  [4, 2, 2, 8, 8, 0],
  [4, 2, 2, 8, 8, 1],
  [4, 2, 2, 14, 7, 0],
  [4, 2, 2, 14, 7, 2],
  [4, 2, 2, 14, 7, 4],
  [4, 2, 2, 8, 4, 2],
  [4, 1, 2, 8, 1, 1],
  [4, 1, 2, 16, 16, 0],
  // Odd numbers of steps along K.
  [4, 2, 2, 17, 17, 0],
  [4, 2, 2, 4, 4, 0],
  [4, 1, 2, 4, 4, 0],
  [4, 1, 1, 4, 4, 0],
  [8, 1, 1, 8, 2, 0],
  [4, 1, 2, 14, 7, 4],
  [2, 2, 2, 8, 4, 4],
  [2, 2, 2, 8, 8, 1],
  [2, 2, 2, 8, 8, 7],
];

function dp4a(capabilities: Capabilities, shape: LinearShape): LinearChoice[] {
  if (shape.rows > DOTS_ROWS || shape.weight.kind === 'float') return [];
  const { workgroupBytes } = capabilities;
  const subgroupSize = fixedLanes(capabilities);
  const planes = dp4aPlanes(shape.weight, shape.rows);
  return DOTS_SIZES.map(([across, pieces, each, subgroups, splits, chunks]) => ({
    family: 'dp4a',
    config: { subgroupSize, across, pieces, each, subgroups, splits, chunks, planes, workgroupBytes },
  }));
}

/** Rows from which on a GEMM on matrices is tried. */
const GEMM_FROM = 5;
type GemmSize = readonly [
  bm: number,
  bn: number,
  bk: number,
  sm: number,
  sn: number,
  sk: number,
  depth: number,
  buffers: 1 | 2,
  more?: Pick<MatrixGemmConfig, 'rowsFirst' | 'splitK' | 'paired'>,
];
/** Up to 64 rows, the stream of weights is what matters: small tiles, shares along K, loads on their way. */
const GEMM_SMALL: readonly GemmSize[] = [
  [16, 16, 512, 1, 1, 8, 2, 1],
  [16, 32, 256, 1, 1, 8, 2, 1],
  [16, 32, 128, 1, 1, 4, 2, 1],
  [16, 64, 128, 1, 2, 4, 2, 1],
  [16, 64, 64, 1, 2, 2, 2, 1],
  [16, 128, 64, 1, 4, 2, 2, 1],
  [32, 32, 256, 1, 1, 8, 2, 1],
  [32, 32, 128, 1, 1, 4, 2, 1],
  [32, 32, 64, 1, 2, 2, 2, 1],
  [32, 64, 128, 1, 2, 4, 2, 1],
  [32, 64, 128, 1, 4, 2, 2, 1],
  [32, 64, 64, 1, 4, 1, 2, 1],
  [32, 128, 64, 1, 4, 1, 2, 1],
  [32, 128, 64, 1, 2, 4, 2, 1],
  [32, 64, 64, 2, 1, 2, 2, 1],
  [32, 64, 128, 1, 1, 8, 2, 1],
  // Few tiles: workgroups share them along K.
  [16, 32, 128, 1, 1, 4, 2, 1, { splitK: 4 }],
  [32, 32, 256, 1, 1, 8, 2, 1, { splitK: 2 }],
  [32, 32, 256, 1, 1, 8, 2, 1, { splitK: 4 }],
  [32, 64, 64, 2, 1, 2, 2, 1, { splitK: 4 }],
  [32, 128, 64, 1, 2, 4, 2, 1, { splitK: 2 }],
  [32, 128, 64, 1, 2, 4, 2, 1, { splitK: 4 }],
  // Codes of two steps at once.
  [32, 128, 64, 1, 2, 4, 1, 1, { paired: true }],
  [32, 128, 64, 1, 4, 2, 1, 1, { paired: true }],
  [32, 128, 64, 1, 4, 2, 1, 1, { paired: true, splitK: 4 }],
  [32, 128, 64, 1, 4, 2, 1, 1, { paired: true, splitK: 8 }],
  [32, 128, 64, 1, 2, 4, 1, 1, { paired: true, rowsFirst: true }],
  [64, 64, 64, 2, 2, 2, 1, 1, { paired: true, splitK: 4 }],
  [64, 64, 64, 2, 4, 1, 1, 1, { paired: true, splitK: 4 }],
  [64, 128, 64, 2, 4, 1, 1, 1, { paired: true }],
  [64, 128, 64, 2, 4, 1, 1, 1, { paired: true, splitK: 2 }],
  [64, 128, 64, 2, 4, 1, 1, 1, { paired: true, splitK: 4 }],
  [64, 32, 128, 2, 1, 4, 2, 1],
  [64, 64, 128, 1, 2, 2, 1, 1],
  [64, 64, 64, 2, 2, 2, 2, 1],
  [64, 128, 64, 2, 4, 1, 1, 1],
];
const GEMM_LARGE: readonly GemmSize[] = [
  [128, 128, 64, 2, 4, 1, 1, 1],
  [128, 128, 64, 2, 4, 1, 1, 1, { rowsFirst: true }],
  [128, 128, 64, 2, 2, 1, 1, 1],
  [128, 128, 32, 2, 4, 1, 1, 1],
  [128, 128, 32, 2, 2, 1, 1, 2],
  [128, 128, 32, 2, 4, 1, 1, 2],
  [128, 256, 32, 2, 4, 1, 1, 1],
  [256, 128, 32, 4, 2, 1, 1, 1],
  [128, 64, 64, 4, 2, 1, 1, 1],
  [128, 64, 64, 2, 2, 1, 1, 1],
  [64, 128, 64, 2, 2, 1, 1, 1],
  [64, 128, 64, 2, 4, 1, 1, 1],
  [64, 128, 32, 2, 2, 1, 1, 1],
  [64, 64, 64, 2, 2, 1, 1, 2],
  [64, 64, 64, 2, 2, 1, 1, 1],
  [64, 64, 64, 2, 2, 1, 2, 1],
  [64, 64, 32, 2, 2, 1, 1, 1],
  [64, 64, 32, 2, 2, 1, 2, 2],
  [64, 64, 128, 2, 2, 2, 1, 1],
  [64, 32, 64, 2, 2, 1, 1, 1],
  [32, 128, 64, 1, 4, 1, 1, 1],
  [32, 64, 64, 2, 2, 1, 1, 1],
  [32, 64, 32, 2, 2, 1, 1, 1],
  [32, 64, 128, 1, 2, 4, 2, 1],
  [32, 32, 64, 2, 2, 1, 1, 1],
];
const SMALL_ROWS = 64;

function gemms(capabilities: Capabilities, shape: LinearShape): LinearChoice[] {
  const matrix: MatrixConfig | null = matrixOf(capabilities);
  if (matrix === null || shape.rows < GEMM_FROM) return [];
  const { workgroupBytes } = capabilities;
  const subgroupSize = fixedLanes(capabilities);
  const sizes = shape.rows <= SMALL_ROWS ? GEMM_SMALL : GEMM_LARGE;
  return sizes.flatMap(([bm, bn, bk, sm, sn, sk, depth, buffers, more]): LinearChoice[] => {
    // Of a tile with far more rows than there are most is thrown away.
    if (bm > Math.max(16, shape.rows * 2)) return [];
    const config = { matrix, subgroupSize, workgroupBytes, ...more };
    return [{ family: 'matrices', config: { ...config, bm, bn, bk, sm, sn, sk, depth, buffers } }];
  });
}

/** Bytes that a product reads and writes at the least, and its operations. */
export function linearCost(
  shape: LinearShape,
  weightBytes: number,
): { readonly bytes: number; readonly operations: number } {
  const { rows, n, k } = gemvSpec(shape);
  const results = rows * (shape.glu === null ? n : n / 2) * 4;
  return {
    bytes: weightBytes + rows * k * 4 + results * (shape.residual ? 2 : 1),
    operations: 2 * rows * n * k,
  };
}
