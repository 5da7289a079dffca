/**
 * A linear kernel that is decided upon: its family and its sizes. Rules choose one (linear-fast.ts), and where a device
 * was tuned, measurements (tuning/). Both end here, so that a choice means the same kernel wherever it came from.
 */

import { kvFormatName } from '../../kv.js';
import type { Capabilities, Kernel, LinearShape, MatrixConfig, NormHanded, Stage } from '../kernel.js';
import type { BytesLayout, RopeAppendShape } from '../shapes.js';
import { bytesScratch, HANDED_BYTES, NORMED_BYTES, OWN_BYTES } from './linear-bytes.js';
import { dp4aKernel, dp4aRoles } from './linear-dp4a.js';
import { SQUARES } from './linear-dp4a-norm.js';
import { type Dp4aConfig, type Dp4aEnds, dp4aFits, dp4aLayout, dp4aOrder } from './linear-dp4a-plan.js';
import { bytesStage } from './linear-dp4a-x.js';
import { gemvKernel } from './linear-gemv.js';
import { type GemvConfig, gemvFits, gemvOrder } from './linear-gemv-plan.js';
import { HALVES, HANDED, halvesBytes, halvesStage, MOST_ROWS } from './linear-halves.js';
import { matrixGemmKernel } from './linear-matrix.js';
import { type MatrixGemmConfig, matrixGemmFits, matrixGemmOrder, splitKSpec } from './linear-matrix-plan.js';
import { type ResidentConfig, residentFits, residentKernel, residentOrder } from './linear-resident.js';
import { type SkinnyConfig, skinnyFits, skinnyKernel, skinnyOrder } from './linear-skinny.js';
import { type KernelText, type LinearKernel, type LinearSpec, outCols, weightName } from './linear-spec.js';
import {
  leavesSplitK,
  normedSplitKStage,
  normsSplitK,
  SPLIT_K_SUMS,
  splitKBytes,
  splitKFits,
  splitKStage,
} from './linear-split-k.js';

export type LinearChoice =
  | { readonly family: 'resident'; readonly config: ResidentConfig }
  | { readonly family: 'skinny'; readonly config: SkinnyConfig }
  | { readonly family: 'dp4a'; readonly config: Dp4aConfig }
  | { readonly family: 'gemv'; readonly config: GemvConfig }
  | { readonly family: 'matrices'; readonly config: MatrixGemmConfig };

/** All families: what a choice names is found among the variants of the registry. */
const FAMILIES: Readonly<Record<LinearChoice['family'], true>> = {
  resident: true,
  skinny: true,
  gemv: true,
  dp4a: true,
  matrices: true,
};
export const LINEAR_FAMILIES = Object.keys(FAMILIES) as readonly LinearChoice['family'][];

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
  const { n, k, weight, rows, rowKind, xStride, outStride, outOffset, bias, norm, glu } = shape;
  const residual = shape.residual ? 'f32' : null;
  return {
    n,
    k,
    weight,
    rows,
    rowKind,
    xStride,
    outStride,
    outOffset,
    x: 'f32',
    out: 'f32',
    bias,
    residual,
    norm,
    glu,
    ...(shape.merge === undefined ? {} : { merge: shape.merge }),
    ...(shape.append === undefined ? {} : { append: shape.append }),
  };
}

/** A GEMV, or the skinny kernel, computes all rows of the bucket: those that are not there lie in the buffers too, and nobody reads them. */
export function gemvSpec(shape: LinearShape): LinearSpec {
  const { rowKind: _, ...spec } = specOf(shape);
  return spec;
}

/** What the GEMM of a shape reads: x as halves that a stage before it makes, normed, where matrices are of halves. */
export function gemmSpec(capabilities: Capabilities, shape: LinearShape): LinearSpec {
  const spec = specOf(shape);
  if (matrixOf(capabilities)?.component !== 'f16') return spec;
  const reading: LinearSpec = { ...spec, x: 'f16', xStride: shape.k, norm: null };
  return shape.outHanded === 'halves' ? { ...reading, out: 'f16', outStride: outCols(spec) } : reading;
}

/** All that a choice depends on, as text. Kinds of rows differ in nothing that a kernel's sizes care for, nor does what is handed over. */
export function linearKey(shape: LinearShape): string {
  const { n, k, weight, rows, xStride, outStride, outOffset, bias, residual, norm, glu, append } = shape;
  const meta = weight.kind === 'affine' ? `-${weight.meta}` : '';
  const extras = [norm && 'norm', glu, residual && 'residual', bias && 'bias', append && appendKey(append)];
  const places = `x${xStride} out${outStride}+${outOffset}`;
  const named = ['linear', `${n}x${k}`, weightName(weight) + meta, `rows${rows}`, places, ...extras];
  return named.filter((part) => part).join(' ');
}

function appendKey(append: RopeAppendShape): string {
  const { heads, kvHeads, headDim, key, value, normEps, rope, queryGrowth: growth } = append;
  const rotated = rope === null ? '' : ` ${rope.style}${rope.dims}${rope.axes === undefined ? '' : ' axes'}`;
  const norm = normEps === null ? '' : ' norm';
  const grown = growth == null ? '' : ` grown ${growth.beta}/${growth.every}`;
  return `append ${heads}/${kvHeads}x${headDim}${norm}${rotated}${grown} ${kvFormatName(key)} ${kvFormatName(value)}`;
}

/** A choice in short: family and sizes, unique among the choices for a shape. */
export function linearName({ family, config: c }: LinearChoice): string {
  switch (family) {
    case 'gemv':
      return `gemv s${c.subgroups} r${c.rowsPerSubgroup} k${c.splits} b${c.workgroupBytes}`;
    case 'resident':
      return `resident w${c.words} p${c.parts} f${c.features} r${c.together}`;
    case 'skinny':
      return `skinny t${c.bn}x${c.bk} s${c.subgroups} d${c.depth} b${c.buffers} n${c.matrix.n}`;
    case 'dp4a':
      return `dp4a l${c.across} p${c.pieces} r${c.each} s${c.subgroups} k${c.splits} c${c.chunks} q${c.planes}`;
    case 'matrices':
      return `matrix t${c.bm}x${c.bn}x${c.bk} s${c.sm}.${c.sn}.${c.sk} d${c.depth} b${c.buffers}${c.rowsFirst ? ' rows' : ''}${c.paired ? ' p' : ''}${c.splitK === undefined ? '' : ` z${c.splitK}`}`;
  }
}

/** The bytes that the next product wants the result as, or null. */
function leftBytes({ outHanded = null, outNorm = null }: LinearShape): BytesLayout | null {
  if (outNorm !== null && outNorm.form !== 'halves') return outNorm.form.bytes;
  return outHanded === 'halves' ? null : outHanded;
}

function dp4aEnds(shape: LinearShape): Dp4aEnds {
  const { outNorm = null, xNormed = null } = shape;
  return {
    left: leftBytes(shape),
    leftNormed: outNorm !== null,
    xTiles: tilesOf(xNormed),
  };
}

/** Sums of squares of a row that go with what is left for a norm. */
function tilesOf(form: NormHanded | null = null): number {
  return form === null || form === 'halves' ? 0 : form.tiles;
}

/** Whether the kernel exists for the shape on such a device, and leaves the result as the shape says. */
export function linearFits(capabilities: Capabilities, shape: LinearShape, choice: LinearChoice): boolean {
  const { workgroupBytes, workgroupThreads } = capabilities;
  const { family, config } = choice;
  if (config.workgroupBytes > workgroupBytes) return false;
  if (shape.append !== undefined && family !== 'gemv') return false;
  if (leftBytes(shape) !== null && family !== 'dp4a') return false;
  if (shape.outHanded === 'halves' && family !== 'matrices') return false;
  if ((shape.outNorm?.form === 'halves' || shape.outSplitK === true) && family !== 'matrices') return false;
  switch (family) {
    case 'gemv':
      return config.subgroups * config.subgroupSize <= workgroupThreads && gemvFits(gemvSpec(shape), config);
    case 'resident':
      return config.workgroupThreads <= workgroupThreads && residentFits(gemvSpec(shape), config);
    case 'skinny':
      return (
        capabilities.f16 &&
        config.subgroups * config.subgroupSize <= workgroupThreads &&
        skinnyFits(gemvSpec(shape), config)
      );
    case 'dp4a':
      return (
        capabilities.packedDots &&
        config.subgroups * config.subgroupSize <= workgroupThreads &&
        dp4aFits(gemvSpec(shape), config, dp4aEnds(shape)) &&
        (shape.outNorm == null ||
          dp4aRoles(gemvSpec(shape), dp4aEnds(shape)).bindings.length <= capabilities.storageBuffers)
      );
    case 'matrices':
      return (
        shape.rows <= MOST_ROWS &&
        ((config.splitK ?? 1) === 1 || splitKFits(shape)) &&
        (shape.outNorm == null || leavesNormed(shape, config)) &&
        (shape.outSplitK !== true || ((config.splitK ?? 1) > 1 && leavesSplitK(shape))) &&
        config.sm * config.sn * config.sk * config.subgroupSize <= workgroupThreads &&
        matrixGemmFits(gemmSpec(capabilities, shape), config)
      );
  }
}

/** Whether the launch behind the GEMM, that of its slices, can norm what it leaves. */
function leavesNormed(shape: LinearShape, { splitK = 1, matrix }: MatrixGemmConfig): boolean {
  return splitK > 1 && matrix.component === 'f16' && normsSplitK(shape);
}

/**
 * The order in which a kernel adds up, as text: two choices of equal text give the same bits. What is not in it (rows
 * of a workgroup, depth of loads, tiles) decides who computes an output and when, and not what is added to what.
 */
export function linearOrder(capabilities: Capabilities, shape: LinearShape, choice: LinearChoice): string {
  const { family, config } = choice;
  switch (family) {
    case 'gemv':
      return `gemv ${gemvOrder(gemvSpec(shape), config)}`;
    case 'resident':
      return `resident ${residentOrder(config)}`;
    case 'skinny':
      return `skinny ${skinnyOrder(config)}`;
    case 'dp4a':
      return `dp4a ${dp4aOrder(config)}`;
    case 'matrices':
      return `matrix ${matrixGemmOrder(gemmSpec(capabilities, shape), config)}`;
  }
}

/** The kernel of a choice that fits. */
export function linearKernel(capabilities: Capabilities, shape: LinearShape, choice: LinearChoice): Kernel {
  if (choice.family === 'matrices') {
    const { config } = choice;
    const spec = gemmSpec(capabilities, shape);
    const { xStride: stride, norm, outNorm = null, xNormed = null, outSplitK = false } = shape;
    const [xHanded, outHanded] = [shape.xHanded === 'halves', shape.outHanded === 'halves'];
    return once(capabilities, { spec, config, stride, norm, xHanded, outNorm, xNormed, outSplitK }, () => {
      const gemm = gemmOf(shape, spec, config, capabilities.workgroupThreads);
      if (spec.x === 'f32') return gemm;
      const from = xHanded ? HANDED : HALVES;
      const reading = gemm.stages.map(renamed({ x: from, ...(outHanded ? { out: HANDED } : {}) }));
      const made = xHanded || xNormed !== null ? [] : [halvesStage(shape, config.subgroupSize)];
      const left = outHanded ? HANDED : outNorm === null ? null : HALVES;
      const scratch: Record<string, number> = { ...gemm.scratch, [from]: halvesBytes(shape.rows, shape.k) };
      if (left !== null) scratch[left] = Math.max(scratch[left] ?? 0, halvesBytes(shape.rows, outCols(spec)));
      return { stages: [...made, ...reading], scratch };
    });
  }
  const spec = gemvSpec(shape);
  const { rowKind, xHanded = null, outHanded = null, outNorm = null, xNormed = null } = shape;
  return once(capabilities, { spec, ...choice, rowKind, xHanded, outHanded, outNorm, xNormed }, () =>
    choice.family === 'dp4a'
      ? dp4aOf(capabilities, shape, choice.config)
      : kernelOf(shape, decodeKernel(spec, choice), 1, 0),
  );
}

/** The dp4a product, and the launch that makes bytes of its x where nobody left them. */
function dp4aOf(capabilities: Capabilities, shape: LinearShape, config: Dp4aConfig): Kernel {
  const spec = gemvSpec(shape);
  const layout = dp4aLayout(spec, config);
  const ends = dp4aEnds(shape);
  const { left, leftNormed, xTiles } = ends;
  const given = shape.xHanded != null;
  const roles = given ? HANDED_BYTES : OWN_BYTES;
  const product = kernelOf(shape, dp4aKernel(spec, config, ends), 1, 0);
  const reading = renamed({
    [OWN_BYTES.bytes]: roles.bytes,
    [OWN_BYTES.terms]: roles.terms,
    [NORMED_BYTES.bytes]: OWN_BYTES.bytes,
    [NORMED_BYTES.terms]: OWN_BYTES.terms,
  });
  const made =
    given || xTiles > 0
      ? []
      : [bytesStage(shape, layout, config.subgroupSize, capabilities.workgroupThreads)];
  const sums = Math.max(xTiles, tilesOf(shape.outNorm?.form));
  return {
    stages: [...made, ...product.stages.map(reading)],
    scratch: {
      ...bytesScratch(layout, roles),
      ...(left === null ? {} : bytesScratch(left, leftNormed ? OWN_BYTES : HANDED_BYTES)),
      ...(sums === 0 ? {} : { [SQUARES]: sums * shape.rows * 4 }),
    },
  };
}

/** The GEMM alone, of x as the spec says: where K is cut into slices, with the launch that puts these together, if nobody else does. `threads`: of a workgroup at most. */
export function gemmOf(
  shape: LinearShape,
  spec: LinearSpec,
  config: MatrixGemmConfig,
  threads: number,
): Kernel {
  const { splitK = 1, bm, bn, subgroupSize } = config;
  const { outNorm = null, outSplitK = false } = shape;
  const made = matrixGemmKernel(splitK === 1 ? spec : splitKSpec(spec), config);
  const gemm = kernelOf(shape, made, shape.glu === null ? bn : bn / 2, bm, config);
  if (splitK === 1) return gemm;
  const end =
    outNorm === null
      ? splitKStage(shape, splitK)
      : normedSplitKStage(shape, splitK, outNorm.eps, subgroupSize, threads);
  return {
    stages: [...gemm.stages.map(renamed({ out: SPLIT_K_SUMS })), ...(outSplitK ? [] : [end])],
    scratch: { [SPLIT_K_SUMS]: splitKBytes(splitK, shape.rows, shape.n) },
  };
}

/** Kernels that compute all rows of a bucket at once. */
function decodeKernel(
  spec: LinearSpec,
  { family, config }: Exclude<LinearChoice, { family: 'matrices' | 'dp4a' }>,
): LinearKernel {
  switch (family) {
    case 'gemv':
      return gemvKernel(spec, config);
    case 'resident':
      return residentKernel(spec, config);
    case 'skinny':
      return skinnyKernel(spec, config);
  }
}

function kernelOf(
  shape: LinearShape,
  made: KernelText,
  featuresPerTile: number,
  rowsPerTile: number,
  { rowsFirst = false, splitK = 1 }: Pick<MatrixGemmConfig, 'rowsFirst' | 'splitK'> = {},
): Kernel {
  const tiles = Math.ceil(outCols(specOf(shape)) / featuresPerTile);
  return {
    stages: [
      {
        label: made.label,
        wgsl: made.wgsl,
        bindings: made.bindings.map((name) => ({
          name,
          access: made.writes.includes(name) ? ('read_write' as const) : ('read' as const),
          type: `array<${made.types[name] ?? 'f32'}>`,
        })),
        workgroups: (facts, out) => {
          const rows = facts[shape.rowKind];
          if (rowsPerTile === 0) {
            [out[0], out[1], out[2]] = made.workgroups;
            if (rows === 0) out[0] = 0;
            return;
          }
          const rowTiles = Math.ceil(rows / rowsPerTile);
          out[0] = rowsFirst ? rowTiles : tiles;
          out[1] = rowsFirst ? tiles : rowTiles;
          out[2] = splitK;
        },
      },
    ],
  };
}

/** A stage that reads or leaves something elsewhere. */
function renamed(roles: Readonly<Record<string, string>>): (stage: Stage) => Stage {
  return (stage) => ({
    ...stage,
    bindings: stage.bindings.map((b) => ({ ...b, name: roles[b.name] ?? b.name })),
  });
}

/** Kernels by what they are made from: layers of one shape need not write the same text again. */
const made = new WeakMap<Capabilities, Map<string, Kernel>>();

export function once(capabilities: Capabilities, parts: object, make: () => Kernel): Kernel {
  const kernels = made.get(capabilities) ?? new Map<string, Kernel>();
  made.set(capabilities, kernels);
  const key = JSON.stringify(parts);
  let kernel = kernels.get(key);
  if (kernel === undefined) {
    kernel = make();
    kernels.set(key, kernel);
  }
  return kernel;
}
