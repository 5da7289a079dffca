/** What the products of a linear are, shard by shard, and what is folded into them of their neighbours. */

import type { NodeOf } from '../graph.js';
import type { Fusable } from './fusion.js';
import { chooseVariant, type LinearShape } from './kernel.js';
import { linearVariants } from './kernels/registry.js';
import type { Shard } from './matrix.js';
import { type Bucket, matrix, type Resources, strideOf } from './resources.js';

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
