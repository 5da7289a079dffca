/**
 * The fast linear kernels as variants: which device and shape gets which kernel, and with what sizes.
 *
 * Both want subgroups of one size, known before the text is made, of 16 lanes or more (narrower ones gain nothing
 * over the portable kernels). Neither keeps the order of sums from one number of rows to another, so both decline
 * when results must be deterministic.
 */

import type { Capabilities, Kernel, LinearShape, MatrixConfig, Variant } from '../kernel.js';
import { type GemvConfig, gemvFits, gemvKernel } from './linear-gemv.js';
import { type MatrixGemmConfig, matrixGemmFits, matrixGemmKernel } from './linear-matrix.js';
import { type LinearKernel, type LinearSpec, outCols } from './linear-spec.js';

/** Rows up to which the GEMV is faster than matrices; and up to which it exists. */
const GEMV_ROWS_WITH_MATRICES = 4;
const GEMV_ROWS = 8;
/** Subgroups that keep a large GPU busy. */
const BUSY = 1024;

/** The one size of the device's subgroups, or 0. */
export function fixedLanes(capabilities: Capabilities): number {
  const { subgroups, subgroupMinSize, subgroupMaxSize, deterministic } = capabilities;
  if (!subgroups || deterministic || subgroupMinSize !== subgroupMaxSize) return 0;
  return subgroupMinSize >= 16 ? subgroupMinSize : 0;
}

/** The matrix shape the GEMMs are written for: 16 × 16 × 16 of halves, or Apple's 8 × 8 × 8. f32 sums only. */
export function matrixOf(capabilities: Capabilities): MatrixConfig | null {
  const sized = (size: number, component: string): MatrixConfig | undefined =>
    capabilities.matrices.find(
      (m) => m.m === size && m.n === size && m.k === size && m.component === component && m.result === 'f32',
    );
  const half = capabilities.f16 ? (sized(16, 'f16') ?? sized(8, 'f16')) : undefined;
  return half ?? sized(8, 'f32') ?? null;
}

export function specOf(shape: LinearShape): LinearSpec {
  const { n, k, weight, rows, xStride, outStride, outOffset, bias, norm, glu } = shape;
  const residual = shape.residual ? 'f32' : null;
  return {
    n,
    k,
    weight,
    rows,
    xStride,
    outStride,
    outOffset,
    x: 'f32',
    out: 'f32',
    bias,
    residual,
    norm,
    glu,
  };
}

/** Sizes of a GEMV, or null where there is none. Enough subgroups first, then few loads of x for many weights. */
export function chooseGemv(capabilities: Capabilities, spec: LinearSpec): GemvConfig | null {
  const lanes = fixedLanes(capabilities);
  if (lanes === 0) return null;
  const { workgroupBytes } = capabilities;
  const most = Math.max(1, Math.min(8, Math.floor(Math.min(256, capabilities.workgroupThreads) / lanes)));
  const config = (rowsPerSubgroup: number, splits: number): GemvConfig => ({
    subgroupSize: lanes,
    subgroups: Math.max(splits, Math.min(most, 4)),
    rowsPerSubgroup,
    splits,
    workgroupBytes,
  });
  const perSubgroup = spec.n >= BUSY * 4 ? [4, 2] : [2, 4];
  for (const rows of perSubgroup) {
    for (let splits = most; splits >= 1; splits /= 2) {
      const wanted = splits === 1 || (spec.n / rows) * (splits / 2) < BUSY;
      const c = config(rows, splits);
      if (wanted && spec.k >= splits * lanes * 32 && gemvFits(spec, c)) return c;
    }
    const c = config(rows, 1);
    if (gemvFits(spec, c)) return c;
  }
  return null;
}

/** Tiles from the largest that the rows fill down to what fits at all. */
export function chooseMatrixGemm(capabilities: Capabilities, spec: LinearSpec): MatrixGemmConfig | null {
  const lanes = fixedLanes(capabilities);
  const matrix = matrixOf(capabilities);
  if (lanes === 0 || matrix === null) return null;
  const base = {
    matrix,
    subgroupSize: lanes,
    workgroupBytes: capabilities.workgroupBytes,
    tile: 'vec4',
    sk: 1,
    buffers: 1,
    depth: 1,
  } as const;
  const list: MatrixGemmConfig[] = [];
  if (matrix.m === 16) {
    if (spec.rows <= 16)
      for (const bk of [256, 128] as const)
        list.push({ ...base, bm: 16, bn: 32, bk, sm: 1, sn: 1, sk: bk / 32, depth: 2 });
    if (spec.rows <= 32) list.push({ ...base, bm: 32, bn: 64, bk: 64, sm: 1, sn: 4, buffers: 2, depth: 2 });
    if (spec.rows > 64) list.push({ ...base, bm: 128, bn: 128, bk: 32, sm: 2, sn: 2 });
    list.push({ ...base, bm: 64, bn: 64, bk: 64, sm: 2, sn: 2, buffers: 2 });
    list.push({ ...base, bm: 64, bn: 64, bk: 32, sm: 2, sn: 2 });
  }
  list.push({ ...base, bm: 32, bn: 64, bk: 32, sm: 2, sn: 2 });
  return (
    list.find(
      (c) => c.sm * c.sn * c.sk * lanes <= capabilities.workgroupThreads && matrixGemmFits(spec, c),
    ) ?? null
  );
}

function kernelOf(
  shape: LinearShape,
  made: LinearKernel,
  featuresPerTile: number,
  rowsPerTile: number,
): Kernel {
  const tiles = Math.ceil(outCols(specOf(shape)) / featuresPerTile);
  return {
    stages: [
      {
        label: made.label,
        wgsl: made.wgsl,
        bindings: made.bindings.map((name) => ({
          name,
          access: name === 'out' ? 'read_write' : 'read',
          type: `array<${made.types[name] ?? 'f32'}>`,
        })),
        workgroups: (facts, out) => {
          const rows = facts[shape.rowKind];
          if (rowsPerTile === 0) {
            [out[0], out[1], out[2]] = made.workgroups;
            if (rows === 0) out[0] = 0;
            return;
          }
          out[0] = tiles;
          out[1] = Math.ceil(rows / rowsPerTile);
          out[2] = 1;
        },
      },
    ],
  };
}

const gemv: Variant<LinearShape> = {
  name: 'gemv',
  supports: (capabilities, shape) => {
    const most = matrixOf(capabilities) === null ? GEMV_ROWS : GEMV_ROWS_WITH_MATRICES;
    return shape.rows <= most && chooseGemv(capabilities, specOf(shape)) !== null;
  },
  build: (capabilities, shape) => {
    const spec = specOf(shape);
    return kernelOf(shape, gemvKernel(spec, chooseGemv(capabilities, spec)!), 1, 0);
  },
};

const matrices: Variant<LinearShape> = {
  name: 'matrices',
  supports: (capabilities, shape) =>
    shape.rows > GEMV_ROWS_WITH_MATRICES && chooseMatrixGemm(capabilities, specOf(shape)) !== null,
  build: (capabilities, shape) => {
    const spec = specOf(shape);
    const config = chooseMatrixGemm(capabilities, spec)!;
    const perTile = shape.glu === null ? config.bn : config.bn / 2;
    return kernelOf(shape, matrixGemmKernel(spec, config), perTile, config.bm);
  },
};

export const fastLinear: readonly Variant<LinearShape>[] = [gemv, matrices];
