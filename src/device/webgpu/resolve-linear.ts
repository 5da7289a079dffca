/** From a linear to its products: what is folded into them, and what is handed on as halves. */

import type { NodeOf } from '../graph.js';
import type { Giver } from './fusion.js';
import { chooseVariant, type Kernel, type LinearShape, type StepFacts } from './kernel.js';
import { MERGED_SPLITS, mergesPartials } from './kernels/attend-merged.js';
import { handsHalves, takesHalves } from './kernels/linear-choice.js';
import { linearVariants, reduceSlices } from './kernels/registry.js';
import { fusionOf, linearWork } from './linear-work.js';
import { appendingWork, resolveAppending } from './resolve-append.js';
import { type Bound, type Bucket, bound, need, planes, type Resources, vector } from './resources.js';

/** Whether what a node gives goes to the linear behind it as halves. */
export function handsOn(giver: Giver | undefined, bucket: Bucket, r: Resources): boolean {
  const taker = giver && r.fusions.takers.get(giver);
  if (giver === undefined || taker === undefined) return false;
  const family = (shape: LinearShape) => chooseVariant(linearVariants, r.capabilities, shape)?.name;
  const works = linearWork(taker, bucket, r);
  // Every kernel of attention that writes can.
  if (giver.op === 'attend')
    return works.every(({ shape }) => takesHalves(r.capabilities, shape, giver.out.cols, family));
  const [first, ...more] = linearWork(giver, bucket, r);
  if (first === undefined || more.length > 0) return false;
  return works.every(({ shape }) => handsHalves(r.capabilities, first.shape, shape, family));
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
  const attend = r.fusions.givers.get(node);
  if (attend?.op !== 'attend' || bucket[node.x.rows] !== 1 || attend.window !== null) return null;
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
  const { norm, glu } = fusionOf(node, bucket, r);
  const handed = {
    xHanded: handsOn(r.fusions.givers.get(node), bucket, r),
    outHanded: handsOn(node, bucket, r),
  };
  const appending = appendingWork(node, bucket, r);
  if (appending !== null) return [resolveAppending(node, norm, appending, r)];
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
