/** What the products of a linear are, shard by shard, and what is folded into them of their neighbours. */

import type { NodeOf } from '../graph.js';
import type { Fusable } from './fusion.js';
import { type Capabilities, chooseVariant, type LinearShape } from './kernel.js';
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

export function linearShape(
  node: NodeOf<'linear'>,
  shard: Shard,
  fusion: Fusable,
  bucket: Bucket,
): LinearShape {
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

/** A product of a linear, and the part of the weight that it is of. */
interface Work {
  readonly shape: LinearShape;
  readonly shard: Shard;
}

/** By rows, what the products of a linear are: nodes ask for their neighbours' again and again. */
const known = new WeakMap<Capabilities, WeakMap<NodeOf<'linear'>, Map<number, readonly Work[]>>>();

/** The products of a linear: one for each shard of its weight. The same ones whenever they are asked for. */
export function linearWork(
  node: NodeOf<'linear'>,
  bucket: Bucket,
  r: Pick<Resources, 'capabilities' | 'fusions'>,
): readonly Work[] {
  const nodes = known.get(r.capabilities) ?? new WeakMap<NodeOf<'linear'>, Map<number, readonly Work[]>>();
  known.set(r.capabilities, nodes);
  const byRows = nodes.get(node) ?? new Map<number, readonly Work[]>();
  nodes.set(node, byRows);
  const rows = bucket[node.x.rows];
  const works = byRows.get(rows) ?? makeWork(node, bucket, r);
  byRows.set(rows, works);
  return works;
}

function makeWork(
  node: NodeOf<'linear'>,
  bucket: Bucket,
  r: Pick<Resources, 'capabilities' | 'fusions'>,
): Work[] {
  const fusion = fusionOf(node, bucket, r);
  return matrix(node.weight).shards.map((shard) => ({
    shape: linearShape(node, shard, fusion, bucket),
    shard,
  }));
}
