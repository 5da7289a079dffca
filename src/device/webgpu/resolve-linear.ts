/** From a linear to its products: what is folded into them, and what they hand to each other as halves. */

import type { NodeOf } from '../graph.js';
import type { Fusable } from './fusion.js';
import { chooseVariant, type Kernel, type LinearShape, type StepFacts } from './kernel.js';
import { MERGED_SPLITS, mergesPartials } from './kernels/attend-merged.js';
import { handsHalves } from './kernels/linear-choice.js';
import { CONSTANTS, type Constant, constantLengths } from './kernels/linear-gemv-append.js';
import { linearVariants, reduceSlices } from './kernels/registry.js';
import type { Shard } from './matrix.js';
import { type AppendKind, appendKinds } from './resolve-append.js';
import {
  type Bound,
  type Bucket,
  bound,
  matrix,
  need,
  planes,
  type Resources,
  strideOf,
  vector,
} from './resources.js';

/** What a linear of this bucket does beside its own work: as much as some kernel offers. */
export function fusionOf(
  node: NodeOf<'linear'>,
  bucket: Bucket,
  r: Pick<Resources, 'capabilities' | 'fusions'>,
): Fusable {
  const none: Fusable = { norm: null, glu: null };
  const { norm, glu } = r.fusions.ofLinear.get(node) ?? none;
  const { shards } = matrix(node.weight);
  const options: Fusable[] = [
    // The halves of a glu lie in one shard or the kernel does not see both.
    ...(shards.length === 1 && glu !== null
      ? [
          { norm, glu },
          { norm: null, glu },
        ]
      : []),
    { norm, glu: null },
  ];
  const offered = (fusion: Fusable): boolean =>
    shards.every((shard) => {
      const shape = linearShape(node, shard, fusion, bucket);
      return chooseVariant(linearVariants, r.capabilities, shape) !== undefined;
    });
  return options.find(offered) ?? none;
}

function linearShape(node: NodeOf<'linear'>, shard: Shard, fusion: Fusable, bucket: Bucket): LinearShape {
  const { norm, glu } = fusion;
  const k = node.x.cols;
  return {
    rowKind: node.x.rows,
    rows: Math.max(1, bucket[node.x.rows]),
    n: shard.rows,
    k,
    weight: shard.layout,
    xStride: strideOf(k),
    outStride: strideOf((glu ?? node).out.cols),
    outOffset: shard.rowStart,
    bias: shard.bias !== null,
    residual: node.residual !== null,
    norm: norm === null ? null : { eps: norm.eps },
    glu: glu === null ? null : glu.activation,
  };
}

/** Whether one linear hands the other what its glu leaves as halves. */
function hands(
  from: NodeOf<'linear'> | undefined,
  to: NodeOf<'linear'> | undefined,
  bucket: Bucket,
  r: Resources,
): boolean {
  if (from === undefined || to === undefined) return false;
  const [first, ...more] = linearWork(from, bucket, r);
  if (first === undefined || more.length > 0) return false;
  const family = (shape: LinearShape) => chooseVariant(linearVariants, r.capabilities, shape)?.name;
  return linearWork(to, bucket, r).every(({ shape }) =>
    handsHalves(r.capabilities, first.shape, shape, family),
  );
}

/** The products of a linear: one for each shard of its weight. */
export function linearWork(
  node: NodeOf<'linear'>,
  bucket: Bucket,
  r: Pick<Resources, 'capabilities' | 'fusions'>,
): { readonly shape: LinearShape; readonly shard: Shard }[] {
  const fusion = fusionOf(node, bucket, r);
  return matrix(node.weight).shards.map((shard) => ({
    shape: linearShape(node, shard, fusion, bucket),
    shard,
  }));
}

/**
 * What a product of one row merges itself, of the attention before it: null where it does not. Values that have to be turned back, young
 * rows and windows are left to the launch of the merge.
 */
export function mergeOf(
  node: NodeOf<'linear'>,
  bucket: Bucket,
  r: Resources,
): NonNullable<LinearShape['merge']> | null {
  const attend = r.fusions.attendOf.get(node);
  if (attend === undefined || bucket[node.x.rows] !== 1 || attend.window !== null) return null;
  const layer = r.pool?.spec.layers[attend.layer];
  if (layer === undefined || r.pool?.spec.young != null || layer.value.kind === 'turboquant') return null;
  if (r.maxItems === 0 || reduceSlices(r.capabilities) !== MERGED_SPLITS) return null;
  const { heads, headDim } = attend.shape;
  const merge = { heads, headDim, splits: MERGED_SPLITS };
  const takes = linearWork(node, bucket, r).every(
    ({ shape }) =>
      chooseVariant(linearVariants, r.capabilities, shape)?.name === 'gemv' &&
      chooseVariant(linearVariants, r.capabilities, { ...shape, merge })?.name === 'gemv',
  );
  return takes ? merge : null;
}

/** A rope-append that a product of one token does itself. */
interface Appended {
  readonly kind: AppendKind;
  readonly constants: Readonly<Partial<Record<Constant, GPUBuffer>>>;
}

/** What a product of one token does itself of the rope-append behind it: null where it does not. Young rows are left to their launches. */
export function appendOf(node: NodeOf<'linear'>, bucket: Bucket, r: Resources): Appended | null {
  const append = r.fusions.appendOf.get(node);
  if (append === undefined || bucket[node.x.rows] !== 1 || r.fusions.attendOf.has(node)) return null;
  const [kind, ...kinds] = appendKinds(append, r);
  const [work, ...works] = linearWork(node, bucket, r);
  if (kind === undefined || work === undefined || kinds.length > 0 || works.length > 0) return null;
  const shape = { ...work.shape, append: kind.shape };
  if (chooseVariant(linearVariants, r.capabilities, shape)?.name !== 'gemv') return null;
  const { norm } = fusionOf(node, bucket, r);
  return {
    kind,
    constants: {
      ...(norm === null ? {} : { norm: vector(norm.weight) }),
      ...(work.shard.bias === null ? {} : { bias: work.shard.bias }),
      ...(append.norm === null ? {} : { qNorm: vector(append.norm.q), kNorm: vector(append.norm.k) }),
    },
  };
}

function resolveAppended(
  node: NodeOf<'linear'>,
  { kind, constants }: Appended,
  bucket: Bucket,
  r: Resources,
): Bound[] {
  const { norm } = fusionOf(node, bucket, r);
  return linearWork(node, bucket, r).map(({ shape: plain, shard }) => {
    const shape = { ...plain, append: kind.shape };
    const lengths = constantLengths(shape, kind.shape);
    const parts = CONSTANTS.flatMap((name) => {
      const buffer = constants[name];
      return buffer === undefined ? [] : { buffer, bytes: lengths[name] * 4 };
    });
    const variant = need(chooseVariant(linearVariants, r.capabilities, shape), 'linear');
    return bound(variant.build(r.capabilities, shape), r, {
      ...planes(shard),
      ...kind.buffers,
      x: r.tensor((norm ?? node).x),
      ...(parts.length === 0 ? {} : { constants: r.joined('norms and biases', parts) }),
    });
  });
}

/** One kernel for steps of which something holds, the other for the rest. */
function either(then: Kernel, otherwise: Kernel, holds: (facts: StepFacts) => boolean): Kernel {
  return {
    stages: [...only(then, holds).stages, ...only(otherwise, (facts) => !holds(facts)).stages],
    scratch: { ...then.scratch, ...otherwise.scratch },
  };
}

/** The kernel, left out of steps of which something does not hold. */
export function only(kernel: Kernel, holds: (facts: StepFacts) => boolean): Kernel {
  return {
    ...kernel,
    stages: kernel.stages.map((stage) => ({
      ...stage,
      workgroups: (facts, out) => {
        if (holds(facts)) stage.workgroups(facts, out);
        else out[0] = 0;
      },
    })),
  };
}

export function resolveLinear(node: NodeOf<'linear'>, bucket: Bucket, r: Resources): Bound[] {
  const { next, previous } = r.fusions;
  const { norm, glu } = fusionOf(node, bucket, r);
  const handed = {
    xHanded: hands(previous.get(node), node, bucket, r),
    outHanded: hands(node, next.get(node), bucket, r),
  };
  const appended = appendOf(node, bucket, r);
  if (appended !== null) return resolveAppended(node, appended, bucket, r);
  const merge = mergeOf(node, bucket, r);
  return linearWork(node, bucket, r).map(({ shape: plain, shard }) => {
    const shape = { ...plain, ...handed };
    const build = (of: LinearShape): Kernel =>
      need(chooseVariant(linearVariants, r.capabilities, of), 'linear').build(r.capabilities, of);
    const kernel =
      merge === null ? build(shape) : either(build({ ...shape, merge }), build(shape), mergesPartials);
    return bound(kernel, r, {
      ...planes(shard),
      x: r.tensor((norm ?? node).x),
      out: r.tensor((glu ?? node).out),
      ...(norm === null ? {} : { norm: vector(norm.weight) }),
      ...(node.residual === null ? {} : { residual: r.tensor(node.residual) }),
    });
  });
}
