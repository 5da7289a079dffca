/** From an experts node to its products: two for each shard of the stacks, of pairs or of tiles of them. */

import { KvantError } from '../../errors.js';
import type { NodeOf } from '../graph.js';
import {
  type ExpertShard,
  type ExpertsShape,
  expertsDownKernel,
  expertsUpKernel,
} from './kernels/experts.js';
import {
  chooseExpertTiles,
  expertTilesDown,
  expertTilesEnd,
  expertTilesStart,
  expertTilesUp,
} from './kernels/experts-tiles.js';
import { pieceOf } from './kernels/unpack.js';
import type { GpuMatrix, Shard } from './matrix.js';
import { type Bound, type Bucket, bound, matrix, planes, type Resources } from './resources.js';

export function resolveExperts(node: NodeOf<'experts'>, bucket: Bucket, r: Resources): Bound[] {
  const { x, route, count, activation, residual, out } = node;
  const pieceCols = new Set(matrix(node.down).shards.map(({ layout }) => pieceOf(layout).cols));
  const shape: ExpertsShape = {
    rowKind: x.rows,
    rows: Math.max(1, bucket[x.rows]),
    k: route.cols / 2,
    cols: x.cols,
    inner: node.down.cols,
    outCols: out.cols,
    activation,
    pieceCols: pieceCols.size === 1 ? [...pieceCols][0]! : 4,
    workgroupBytes: r.capabilities.workgroupBytes,
  };
  const shared = { route: r.tensor(route), x: r.tensor(x), out: r.tensor(out) };
  const ups = partsOf(matrix(node.gateUp), count);
  const downs = partsOf(matrix(node.down), count);
  const added = residual === null ? {} : { residual: r.tensor(residual) };
  const only = (parts: readonly StackPart[]): ExpertShard[] => parts.map(({ part }) => part);
  const tiles = chooseExpertTiles(r.capabilities, shape, count, only(ups), only(downs));
  if (tiles !== null)
    return [
      bound(expertTilesStart(r.capabilities, shape, tiles), r, { x: shared.x, route: shared.route }),
      ...ups.map(({ part, shard }) => bound(expertTilesUp(shape, part, tiles), r, planes(shard))),
      ...downs.map(({ part, shard }) => bound(expertTilesDown(shape, part, tiles), r, planes(shard))),
      bound(expertTilesEnd(shape, tiles, residual !== null), r, { ...shared, ...added }),
    ];
  const makesInner = ups.map(({ part, shard }) =>
    bound(expertsUpKernel(shape, part), r, { ...planes(shard), ...shared }),
  );
  const makesOut = downs.map(({ part, shard }, index) => {
    const first = index === 0;
    const kernel = expertsDownKernel(shape, part, first && residual !== null, !first);
    return bound(kernel, r, { ...planes(shard), ...shared, ...(first ? added : {}) });
  });
  return [...makesInner, ...makesOut];
}

interface StackPart {
  readonly part: ExpertShard;
  readonly shard: Shard;
}

/** The shards of a stack and the experts in them: whole ones. */
function partsOf(stack: GpuMatrix, count: number): StackPart[] {
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
