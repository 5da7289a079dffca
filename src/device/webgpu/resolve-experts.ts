/** From an experts node to its products: two for each shard of the stacks. */

import { KvantError } from '../../errors.js';
import type { NodeOf } from '../graph.js';
import {
  type ExpertShard,
  type ExpertsShape,
  expertsDownKernel,
  expertsUpKernel,
} from './kernels/experts.js';
import type { GpuMatrix, Shard } from './matrix.js';
import { type Bound, type Bucket, bound, matrix, planes, type Resources } from './resources.js';

export function resolveExperts(node: NodeOf<'experts'>, bucket: Bucket, r: Resources): Bound[] {
  const { x, route, count, activation, residual, out } = node;
  const shape: ExpertsShape = {
    rowKind: x.rows,
    rows: Math.max(1, bucket[x.rows]),
    k: route.cols / 2,
    cols: x.cols,
    inner: node.down.cols,
    outCols: out.cols,
    activation,
  };
  const shared = { route: r.tensor(route), x: r.tensor(x), out: r.tensor(out) };
  const ups = partsOf(matrix(node.gateUp), count).map(({ part, shard }) =>
    bound(expertsUpKernel(shape, part), r, { ...planes(shard), ...shared }),
  );
  const downs = partsOf(matrix(node.down), count).map(({ part, shard }, index) => {
    const first = index === 0;
    const added = residual === null || !first ? {} : { residual: r.tensor(residual) };
    const kernel = expertsDownKernel(shape, part, first && residual !== null, !first);
    return bound(kernel, r, { ...planes(shard), ...shared, ...added });
  });
  return [...ups, ...downs];
}

/** The shards of a stack and the experts in them: whole ones. */
function partsOf(stack: GpuMatrix, count: number): { readonly part: ExpertShard; readonly shard: Shard }[] {
  const each = stack.rows / count;
  return stack.shards.map((shard) => {
    const first = shard.rowStart / each;
    const end = (shard.rowStart + shard.rows) / each;
    if (!Number.isInteger(first) || !Number.isInteger(end)) throw splitExpert(stack);
    return { part: { first, end, layout: shard.layout, bias: shard.bias !== null }, shard };
  });
}

function splitExpert({ rows, cols }: GpuMatrix): KvantError {
  return new KvantError('shape-mismatch', `experts: an expert of a stack [${rows}, ${cols}] is cut in two.`, {
    where: 'experts',
    fix: 'Load the stack with the rows of an expert as its unit, and all its experts in one format.',
  });
}
