/** From a linear to its products: what is folded into them, and what they hand on in another form than f32. */

import type { NodeOf } from '../graph.js';
import { kvPoolOf, kvTailOf } from '../kv.js';
import type { Producer } from './fusion.js';
import {
  chooseVariant,
  type Handed,
  type Kernel,
  type LinearShape,
  type NormHanded,
  type StepFacts,
} from './kernel.js';
import { MERGED_SPLITS, mergesPartials } from './kernels/attend-merged.js';
import { leavesBytes } from './kernels/attend-out.js';
import { codecOf } from './kernels/kv-formats/list.js';
import { exactLinear } from './kernels/linear-exact.js';
import { chooseLinear } from './kernels/linear-fast.js';
import { formHanded, formOfAll, formTaken, normHanded } from './kernels/linear-handed.js';
import { headsLinear } from './kernels/linear-heads.js';
import { linearVariants, reduceSlices } from './kernels/registry.js';
import { fusionOf, linearShape, linearWork } from './linear-work.js';
import { appendingWork, resolveAppending, splitKLeft } from './resolve-append.js';
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

/** In what form what a node gives goes to the linear behind it, or null where that reads f32. */
export function handsOn(
  producer: Producer | undefined,
  bucket: Bucket,
  r: Pick<Resources, 'capabilities' | 'fusions'>,
): Handed | null {
  const { capabilities, fusions } = r;
  const consumer = producer && fusions.consumers.get(producer);
  if (producer === undefined || consumer === undefined) return null;
  // A product that appends reads f32, whatever it would read without.
  if (fusions.appendOf.has(consumer) && bucket[consumer.x.rows] === 1) return null;
  const choiceOf = (shape: LinearShape) => chooseLinear(capabilities, shape);
  const works = linearWork(consumer, bucket, r);
  if (producer.op === 'attend') {
    const taken = works.map(({ shape }) =>
      formTaken(capabilities, shape, producer.out.cols, choiceOf(shape)),
    );
    const form = formOfAll(taken);
    // Every kernel of attention that writes can leave halves.
    if (form === null || form === 'halves') return form;
    return leavesBytes(producer.shape, form) ? form : null;
  }
  const [first, ...more] = linearWork(producer, bucket, r);
  if (first === undefined || more.length > 0) return null;
  return formOfAll(works.map(({ shape }) => formHanded(capabilities, first.shape, shape, choiceOf)));
}

/** The norm behind a linear that leaves its result for the linear behind that as well, and in what form; null where it does not. */
export function normsOn(
  producer: NodeOf<'linear'> | undefined,
  bucket: Bucket,
  r: Pick<Resources, 'capabilities' | 'fusions'>,
): { readonly norm: NodeOf<'rms-norm'>; readonly form: NormHanded } | null {
  const { capabilities, fusions } = r;
  const consumer = producer && fusions.normConsumers.get(producer);
  if (producer === undefined || consumer === undefined) return null;
  if (fusions.appendOf.has(consumer) && bucket[consumer.x.rows] === 1) return null;
  // Of several shards none has a whole row.
  const [first, ...more] = linearWork(producer, bucket, r);
  if (first === undefined || more.length > 0) return null;
  const choiceOf = (shape: LinearShape) => chooseLinear(capabilities, shape);
  const form = formOfAll(
    linearWork(consumer, bucket, r).map(({ shape }) =>
      normHanded(capabilities, first.shape, shape, choiceOf),
    ),
  );
  const { norm } = fusionOf(consumer, bucket, r);
  if (form === null || norm === null) return null;
  // Bytes are left where a product has those that it makes of its own x; so it must have been handed that elsewhere.
  if (form !== 'halves' && handsOn(r.fusions.producers.get(producer), bucket, r) === null) return null;
  return { norm, form };
}

/**
 * What a product of one row merges itself, of the attention before it: null where it does not. Values that have to be rotated back, float-start
 * rows and windows are left to the launch of the merge.
 */
export function mergeOf(
  node: NodeOf<'linear'>,
  bucket: Bucket,
  r: Resources,
): NonNullable<LinearShape['merge']> | null {
  const attend = r.fusions.producers.get(node);
  if (attend?.op !== 'attend' || bucket[node.x.rows] !== 1 || attend.window !== null) return null;
  if (attend.sinks) return null;
  const place = kvPoolOf(r.caches, attend.layer);
  const layer = place?.pool.spec.layers[place.index];
  if (layer === undefined || place?.pool.spec.floatStart != null) return null;
  if (kvTailOf(r.caches, attend.layer) !== null) return null;
  if (codecOf(layer.value).rotation(layer.value, layer.headDim) !== null) return null;
  const { heads, headDim } = attend.shape;
  if (r.maxItems === 0 || reduceSlices(r.capabilities, 1, headDim) < MERGED_SPLITS) return null;
  const merge = { heads, headDim, splits: MERGED_SPLITS };
  const takes = linearWork(node, bucket, r).every(
    ({ shape }) =>
      chooseVariant(linearVariants, r.capabilities, shape)?.name === 'gemv' &&
      chooseVariant(linearVariants, r.capabilities, { ...shape, merge })?.name === 'gemv',
  );
  return takes ? merge : null;
}

/** One kernel for steps of which something holds, the other for the rest. */
export function either(then: Kernel, otherwise: Kernel, holds: (facts: StepFacts) => boolean): Kernel {
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
    xHanded: handsOn(r.fusions.producers.get(node), bucket, r),
    outHanded: handsOn(node, bucket, r),
    xNormed: normsOn(r.fusions.normProducers.get(node), bucket, r)?.form ?? null,
    outSplitK: splitKLeft(node, bucket, r) !== null,
  };
  const normed = normsOn(node, bucket, r);
  const appending = appendingWork(node, bucket, r);
  if (appending !== null) return [resolveAppending(node, norm, appending, r)];
  const merge = mergeOf(node, bucket, r);
  return linearWork(node, bucket, r).map(({ shape: plain, shard }) => {
    const shape = { ...plain, ...handed, outNorm: normed && { eps: normed.norm.eps, form: normed.form } };
    const build = (of: LinearShape): Kernel =>
      need(chooseVariant(linearVariants, r.capabilities, of), 'linear').build(r.capabilities, of);
    const kernel =
      merge === null ? build(shape) : either(build({ ...shape, merge }), build(shape), mergesPartials);
    return bound(kernel, r, {
      ...planes(shard),
      x: r.tensor((norm ?? node).x),
      out: r.tensor((glu ?? node).out),
      ...(norm === null ? {} : { norm: vector(norm.weight) }),
      ...(normed === null ? {} : { outNorm: vector(normed.norm.weight) }),
      ...(node.residual === null ? {} : { residual: r.tensor(node.residual) }),
    });
  });
}

/** Products of heads with matrices of their own, in one order. A shard has whole heads. */
export function resolveHeads(node: NodeOf<'head-linear'>, bucket: Bucket, r: Resources): Bound[] {
  const { x, weight, heads, from, step, out } = node;
  const rows = weight.rows / heads;
  return matrix(weight).shards.map((shard) => {
    const kernel = headsLinear(r.capabilities, {
      rowKind: x.rows,
      rows: Math.max(1, bucket[x.rows]),
      n: shard.rows,
      k: weight.cols,
      weight: shard.layout,
      xStride: strideOf(x.cols),
      outStride: strideOf(out.cols),
      outOffset: shard.rowStart,
      bias: shard.bias !== null,
      residual: false,
      norm: null,
      glu: null,
      heads: { rows, from, step, first: shard.rowStart / rows },
    });
    return bound(kernel, r, { ...planes(shard), x: r.tensor(x), out: r.tensor(out) });
  });
}

/** A product of f32 that adds up in one order for any number of rows. */
export function resolveExact(node: NodeOf<'linear'>, bucket: Bucket, r: Resources): Bound[] {
  return matrix(node.weight).shards.map((shard) => {
    const kernel = exactLinear(linearShape(node, shard, { norm: null, glu: null }, bucket));
    const residual = node.residual === null ? {} : { residual: r.tensor(node.residual) };
    return bound(kernel, r, { ...planes(shard), x: r.tensor(node.x), out: r.tensor(node.out), ...residual });
  });
}
