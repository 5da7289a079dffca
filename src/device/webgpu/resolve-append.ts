/** From a rope-append to its kernels: one for each kind of rows. */

import { KvantError } from '../../errors.js';
import type { NodeOf } from '../graph.js';
import { ROPE_FINE } from '../rope.js';
import { type RopeAppendShape, ropeAppendKernel } from './kernels/rope-append.js';
import { cacheOf } from './layer-caches.js';
import { type Bound, bound, type Resources, vector } from './resources.js';

/** A rope-append of one kind of rows, and the buffers of its roles but for q, k, v and the norms. */
export interface AppendKind {
  readonly shape: RopeAppendShape;
  readonly buffers: Readonly<Record<string, GPUBuffer>>;
}

export function appendKinds(node: NodeOf<'rope-append'>, r: Resources): AppendKind[] {
  const { pool, kinds } = cacheOf(r, node.layer, node.shape);
  const { norm, rope } = node;
  if (
    rope !== null &&
    (rope.coarse.length / rope.dims) * ROPE_FINE <
      Math.min(r.maxContext, pool.spec.maxBlocksPerSlot * pool.spec.blockTokens)
  ) {
    throw new KvantError('shape-mismatch', `The rope table ends before position ${r.maxContext}.`, {
      where: 'rope-append',
      fix: 'Make the table for the context that the program is compiled for.',
    });
  }
  return kinds.map(({ key, value, rows, keys, values }) => ({
    shape: {
      ...node.shape,
      key,
      value,
      rows,
      blockTokens: pool.spec.blockTokens,
      maxBlocksPerSlot: pool.spec.maxBlocksPerSlot,
      normEps: norm === null ? null : norm.eps,
      rope: rope === null ? null : { dims: rope.dims, style: rope.style },
    },
    buffers: {
      tables: pool.tables,
      ...(rope === null ? {} : { rope: r.rope(rope) }),
      out: r.tensor(node.out),
      keys,
      values,
    },
  }));
}

export function resolveRopeAppend(node: NodeOf<'rope-append'>, r: Resources): Bound[] {
  const { norm, qkv } = node;
  const bytes = node.shape.headDim * 4;
  return appendKinds(node, r).map(({ shape, buffers }) => {
    const norms = [norm?.q, norm?.k].flatMap((of) => (of === undefined ? [] : { buffer: vector(of), bytes }));
    return bound(ropeAppendKernel(shape), r, {
      ...buffers,
      qkv: r.tensor(qkv),
      ...(norm === null ? {} : { headNorms: r.joined('head norms', norms) }),
    });
  });
}
