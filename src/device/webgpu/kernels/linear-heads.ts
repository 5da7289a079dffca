/**
 * Products of heads with matrices of their own, as latent attention has before and behind it, on subgroup matrices: the GEMM of
 * linear-matrix.ts, whose tiles are of one head each. x is rounded to halves.
 *
 * There is one order of sums for any number of rows: along K from the first column to the last. So tiles may be of any size, but K is
 * never shared out, and a shape has either a tile for any number of rows or is left to the kernel of f32.
 */

import type { Capabilities, Kernel, LinearShape } from '../kernel.js';
import { gemmOf, matrixOf, once, specOf } from './linear-choice.js';
import { exactLinear } from './linear-exact.js';
import { fixedLanes } from './linear-fast.js';
import { type MatrixGemmConfig, matrixGemmFits } from './linear-matrix-plan.js';
import type { LinearSpec } from './linear-spec.js';

type Tile = Pick<MatrixGemmConfig, 'bm' | 'bn' | 'bk' | 'sm' | 'sn' | 'depth'>;

/** Rows up to which a list is taken, and tiles, the best first. */
const TILES: readonly (readonly [most: number, tiles: readonly Tile[]])[] = [
  [
    16,
    [128, 64, 32].flatMap((bk): Tile[] => [
      { bm: 16, bn: 32, bk, sm: 1, sn: 2, depth: 2 },
      { bm: 16, bn: 16, bk, sm: 1, sn: 1, depth: 2 },
    ]),
  ],
  [
    64,
    [64, 32].flatMap((bk): Tile[] => [
      { bm: 32, bn: 64, bk, sm: 1, sn: 4, depth: 2 },
      { bm: 32, bn: 16, bk, sm: 2, sn: 1, depth: 2 },
    ]),
  ],
  [
    Number.POSITIVE_INFINITY,
    [64, 32].flatMap((bk): Tile[] => [
      { bm: 128, bn: 128, bk, sm: 2, sn: 4, depth: 1 },
      { bm: 64, bn: 64, bk, sm: 2, sn: 2, depth: 1 },
      { bm: 64, bn: 16, bk, sm: 4, sn: 1, depth: 1 },
    ]),
  ],
];

/** Tiles that keep a large GPU busy: with fewer, smaller ones are taken. */
const BUSY = 96;

/** The tile for a shape's rows; null where some number of rows has none. */
export function headsTile(capabilities: Capabilities, shape: LinearShape): MatrixGemmConfig | null {
  const lanes = fixedLanes(capabilities);
  const matrix = matrixOf(capabilities);
  if (lanes === 0 || matrix === null || matrix.component !== 'f16' || matrix.m !== 16) return null;
  const { workgroupBytes, workgroupThreads } = capabilities;
  const spec = headsSpec(shape);
  const lists = TILES.map(([most, tiles]) => ({
    most,
    fitting: tiles
      .map((tile): MatrixGemmConfig => {
        return { ...tile, matrix, subgroupSize: lanes, sk: 1, buffers: 1, workgroupBytes };
      })
      .filter((c) => c.sm * c.sn * lanes <= workgroupThreads && matrixGemmFits(spec, c)),
  }));
  if (lists.some(({ fitting }) => fitting.length === 0)) return null;
  const { fitting } = lists.find(({ most }) => shape.rows <= most)!;
  const count = (c: MatrixGemmConfig): number => Math.ceil(shape.rows / c.bm) * (shape.n / c.bn);
  return fitting.find((c) => c.bm <= 64 || count(c) >= BUSY) ?? fitting.at(-1)!;
}

/** x is read as it is. */
function headsSpec(shape: LinearShape): LinearSpec {
  return { ...specOf(shape), ...(shape.heads && { heads: shape.heads }) };
}

/** The kernel of a shape that has `heads`. */
export function headsLinear(capabilities: Capabilities, shape: LinearShape): Kernel {
  const config = headsTile(capabilities, shape);
  if (config === null) return exactLinear(shape);
  return once(capabilities, { heads: shape, config }, () => {
    const { stages, ...kernel } = gemmOf(shape, headsSpec(shape), config, capabilities.workgroupThreads);
    return { ...kernel, stages: stages.map((stage) => ({ ...stage, label: `heads ${stage.label}` })) };
  });
}
