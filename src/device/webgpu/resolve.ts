/** From a node of the graph to kernels, and to the buffers of their roles. */

import { KvantError } from '../../errors.js';
import type { Node, NodeOf } from '../graph.js';
import type { KvFormat } from '../kv.js';
import { ROPE_FINE } from '../rope.js';
import { chooseVariant, type Kernel, type Variant } from './kernel.js';
import { type AttendShape, attendScratch } from './kernels/attend.js';
import { tileWorkgroups, wideItemsFrom } from './kernels/attend-fast.js';
import { mergesPartials } from './kernels/attend-merged.js';
import { reduceStage } from './kernels/attend-reduce.js';
import { addKernel, gluKernel, rmsNormKernel, selectOutputsKernel } from './kernels/elementwise.js';
import { embedKernel } from './kernels/embed.js';
import { allRows, type KvRows } from './kernels/kv-rows.js';
import { attendItemsVariants, attendTilesVariants, reduceSlices } from './kernels/registry.js';
import { ropeAppendKernel } from './kernels/rope-append.js';
import { sampleKernel } from './kernels/sample.js';
import type { GpuKvPool, SideCache } from './kv-pool.js';
import { fusionOf, mergeOf, only, resolveLinear } from './resolve-linear.js';
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

export function resolveNode(node: Node, bucket: Bucket, r: Resources): Bound[] {
  const host = r.fusions.into.get(node);
  if (host !== undefined) {
    const { norm, glu } = fusionOf(host, bucket, r);
    if (norm === node || glu === node) return [];
  }
  switch (node.op) {
    case 'input':
      return [];
    case 'embed':
      return resolveEmbed(node, r);
    case 'rms-norm': {
      const { x, out } = node;
      const kernel = rmsNormKernel({ rowKind: x.rows, cols: x.cols, eps: node.eps });
      return [bound(kernel, r, { x: r.tensor(x), weight: vector(node.weight), out: r.tensor(out) })];
    }
    case 'linear':
      return resolveLinear(node, bucket, r);
    case 'rope-append':
      return resolveRopeAppend(node, r);
    case 'attend':
      return resolveAttend(node, bucket, r);
    case 'glu': {
      const { x, out, activation } = node;
      const kernel = gluKernel({ rowKind: x.rows, half: out.cols, activation });
      return [bound(kernel, r, { x: r.tensor(x), out: r.tensor(out) })];
    }
    case 'add': {
      const { a, b, out } = node;
      const kernel = addKernel({ rowKind: a.rows, cols: a.cols });
      return [bound(kernel, r, { a: r.tensor(a), b: r.tensor(b), out: r.tensor(out) })];
    }
    case 'select-outputs': {
      const { x, out } = node;
      return [bound(selectOutputsKernel({ cols: x.cols }), r, { x: r.tensor(x), out: r.tensor(out) })];
    }
    case 'sample': {
      const { cols } = node.logits;
      const shape = { vocab: cols, stride: strideOf(cols), rows: r.maxOutputs };
      const kernel = sampleKernel(r.capabilities, shape);
      const { ids, lastToken } = r;
      return [bound(kernel, r, { logits: r.tensor(node.logits), ids, lastToken })];
    }
  }
}

function resolveEmbed(node: NodeOf<'embed'>, r: Resources): Bound[] {
  const table = matrix(node.table);
  return table.shards.map((shard) => {
    const kernel = embedKernel({
      n: shard.rows,
      rowStart: shard.rowStart,
      tableRows: table.rows,
      k: table.cols,
      layout: shard.layout,
      scale: node.scale,
    });
    return bound(kernel, r, { ...planes(shard), last_token: r.lastToken, out: r.tensor(node.out) });
  });
}

function resolveRopeAppend(node: NodeOf<'rope-append'>, r: Resources): Bound[] {
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
  return kinds.map(({ key, value, rows, keys, values }) => {
    const kernel = ropeAppendKernel({
      ...node.shape,
      key,
      value,
      rows,
      blockTokens: pool.spec.blockTokens,
      maxBlocksPerSlot: pool.spec.maxBlocksPerSlot,
      normEps: norm === null ? null : norm.eps,
      rope: rope === null ? null : { dims: rope.dims, style: rope.style },
    });
    return bound(kernel, r, {
      qkv: r.tensor(node.qkv),
      tables: pool.tables,
      ...(norm === null
        ? {}
        : { headNorms: r.headNorms(vector(norm.q), vector(norm.k), node.shape.headDim) }),
      ...(rope === null ? {} : { rope: r.rope(rope) }),
      out: r.tensor(node.out),
      keys,
      values,
    });
  });
}

/** A kind of rows of an attend node, as kernels see it. */
interface AttendKind {
  readonly shape: AttendShape;
  readonly keys: GPUBuffer;
  readonly values: GPUBuffer;
}

/** The shapes of an attention, one for each kind of rows. */
export function attendShapes(
  node: NodeOf<'attend'>,
  r: Pick<Resources, 'pool' | 'maxItems'>,
): readonly AttendShape[] {
  return attendKinds(node, r).map(({ shape }) => shape);
}

function attendKinds(node: NodeOf<'attend'>, r: Pick<Resources, 'pool' | 'maxItems'>): AttendKind[] {
  const { pool, kinds } = cacheOf(r, node.layer, node.shape);
  return kinds.map(({ key, value, rows, keys, values }) => ({
    shape: {
      ...node.shape,
      key,
      value,
      rows,
      blockTokens: pool.spec.blockTokens,
      maxBlocksPerSlot: pool.spec.maxBlocksPerSlot,
      scale: node.scale,
      window: node.window,
      softcap: node.softcap,
      maxItems: r.maxItems,
    },
    keys,
    values,
  }));
}

/** Splits in a step from which on its items are wide, the same for all nodes; infinite if one has no kernel for such. */
export function wideFrom(nodes: readonly Node[], r: Resources): number {
  if (r.maxItems === 0) return Number.POSITIVE_INFINITY;
  let from = 0;
  for (const node of nodes) {
    if (node.op !== 'attend') continue;
    for (const { shape } of attendKinds(node, r)) from = Math.max(from, wideItemsFrom(r.capabilities, shape));
  }
  return from === 0 ? Number.POSITIVE_INFINITY : from;
}

/** Workgroups of a tile of prompts, the most of all nodes; 0 if one has no kernel that takes a part of its positions. */
export function workgroupsOfTile(nodes: readonly Node[], r: Resources): number {
  let most = 0;
  for (const node of nodes) {
    if (node.op !== 'attend') continue;
    for (const { shape } of attendKinds(node, r)) {
      const count = tileWorkgroups(r.capabilities, shape);
      if (count === 0) return 0;
      most = Math.max(most, count);
    }
  }
  return most;
}

/**
 * Items of every kind of rows, the reduce of them all, tiles of every kind. The reduce binds the values of the
 * quantised blocks, for what it turns sums back with lies there.
 */
function resolveAttend(node: NodeOf<'attend'>, bucket: Bucket, r: Resources): Bound[] {
  const product = r.fusions.linearOf.get(node);
  const merged = product !== undefined && mergeOf(product, bucket, r) !== null;
  const pick = (variants: readonly Variant<AttendShape>[], shape: AttendShape): Kernel =>
    need(chooseVariant(variants, r.capabilities, shape), 'attend').build(r.capabilities, shape);
  const items: Bound[] = [];
  const reduces: Bound[] = [];
  const tiles: Bound[] = [];
  for (const { shape, keys, values } of attendKinds(node, r)) {
    const { tables } = cacheOf(r, node.layer, node.shape).pool;
    const buffers = { q: r.tensor(node.q), tables, out: r.tensor(node.out), keys, values };
    tiles.push(bound(pick(attendTilesVariants, shape), r, buffers));
    if (shape.maxItems === 0) continue;
    const kernel = pick(attendItemsVariants, shape);
    const scratch = { ...attendScratch(shape), ...kernel.scratch };
    items.push(bound({ ...kernel, scratch }, r, buffers));
    if (shape.rows.only === 'young') continue;
    const reduce: Kernel = { stages: [reduceStage(shape, reduceSlices(r.capabilities))] };
    reduces.push(bound(merged ? only(reduce, (facts) => !mergesPartials(facts)) : reduce, r, buffers));
  }
  return [...items, ...reduces, ...tiles];
}

/** How rows of one kind are stored in a layer. */
interface CacheKind {
  readonly key: KvFormat;
  readonly value: KvFormat;
  readonly rows: KvRows;
  readonly keys: GPUBuffer;
  readonly values: GPUBuffer;
}

/** One kind where all rows are stored alike, else the quantised and the young ones. */
function cacheOf(
  r: Pick<Resources, 'pool'>,
  index: number,
  shape: { readonly kvHeads: number; readonly headDim: number },
): { readonly pool: GpuKvPool; readonly kinds: readonly CacheKind[] } {
  const pool = r.pool;
  const layer = pool?.spec.layers[index];
  const cache = pool?.layers[index];
  if (pool === null || layer === undefined || cache === undefined) {
    throw mismatch(`layer ${index} has no cache in the pool`);
  }
  if (layer.kvHeads !== shape.kvHeads || layer.headDim !== shape.headDim) {
    throw mismatch(
      `layer ${index} attends with ${shape.kvHeads}×${shape.headDim}, its cache is ${layer.kvHeads}×${layer.headDim}`,
    );
  }
  const { key, value } = layer;
  const { keys, values } = cache;
  const { blocks: border, young } = pool.spec;
  const all: CacheKind = {
    key,
    value,
    rows: { ...allRows(border), keyBlocks: keys.blocks, valueBlocks: values.blocks },
    keys: keys.buffer,
    values: values.buffer,
  };
  if (young == null || (keys.young === null && values.young === null)) return { pool, kinds: [all] };
  const float: KvFormat = { kind: 'float', dtype: young.dtype };
  const own = (side: SideCache): { readonly blocks: number; readonly base: number } =>
    side.young === null ? { blocks: side.blocks, base: 0 } : { blocks: young.blocks, base: border };
  const [ofKeys, ofValues] = [own(keys), own(values)];
  return {
    pool,
    kinds: [
      { ...all, rows: { ...all.rows, only: 'old' } },
      {
        key: float,
        value: float,
        rows: {
          only: 'young',
          border,
          keyBlocks: ofKeys.blocks,
          keyBase: ofKeys.base,
          valueBlocks: ofValues.blocks,
          valueBase: ofValues.base,
        },
        keys: keys.young ?? keys.buffer,
        values: values.young ?? values.buffer,
      },
    ],
  };
}

function mismatch(message: string): KvantError {
  return new KvantError('shape-mismatch', `compile: ${message}.`, {
    where: 'compile',
    fix: 'Make the pool from the same model as the graph.',
  });
}
