/** From a rope-append to its kernels, one for each kind of rows, or to the product of one token that does it itself. */

import { KvantError } from '../../errors.js';
import type { NodeOf } from '../graph.js';
import { ROPE_FINE, type RopeTable } from '../rope.js';
import { chooseVariant, type Kernel, type LinearShape } from './kernel.js';
import { linearFits } from './kernels/linear-choice.js';
import { chooseLinear } from './kernels/linear-fast.js';
import { CONSTANTS, type Constant, constantLengths } from './kernels/linear-gemv-append.js';
import type { SplitKSums } from './kernels/linear-split-k.js';
import { linearVariants } from './kernels/registry.js';
import { ropeAppendKernel, tailRole } from './kernels/rope-append.js';
import { type CacheKind, cacheOf } from './layer-caches.js';
import { linearWork } from './linear-work.js';
import type { Shard } from './matrix.js';
import {
  type Bound,
  type Bucket,
  bound,
  need,
  type Part,
  planes,
  type Resources,
  vector,
} from './resources.js';
import type { KvRows, RopeAppendShape } from './shapes.js';

/** A rope-append of one kind of rows, and the cache it is for. */
interface AppendKind {
  readonly shape: RopeAppendShape;
  readonly keys: GPUBuffer;
  readonly values: GPUBuffer;
  readonly tables: GPUBuffer;
  /** Of a float tail: its pool's buffers, `keys` and `values` being those that its vectors are rotated by. */
  readonly tail?: { readonly keys: GPUBuffer; readonly values: GPUBuffer };
}

function ropeShape({ dims, style, axes }: RopeTable): RopeAppendShape['rope'] {
  return axes ? { dims, style, axes: [...axes] } : { dims, style };
}

function appendKinds(node: NodeOf<'rope-append'>, r: Pick<Resources, 'caches'>): AppendKind[] {
  const { pool, kinds } = cacheOf(r, node.layer, node.shape);
  const { norm, rope } = node;
  // What stores behind a float head stores the head too. A tail is stored besides, of all rows, rotated as what it is beside.
  const storing = kinds.flatMap((kind): (CacheKind & Pick<AppendKind, 'tail'>)[] => {
    if (kind.rows.only === 'head' || (kind.rows.only === 'tail' && node.queriesOnly === true)) return [];
    if (kind.rows.only !== 'tail') return [kind];
    const beside = kinds[0]!;
    const rows: KvRows = { ...beside.rows, only: 'tail', tail: kind.rows.tail! };
    return [{ ...beside, rows, tables: kind.tables, tail: { keys: kind.keys, values: kind.values } }];
  });
  return storing.map(({ key, value, rows, keys, values, tables, tail }) => ({
    shape: {
      ...node.shape,
      key,
      value,
      rows,
      blockTokens: pool.spec.blockTokens,
      maxBlocksPerSlot: pool.spec.maxBlocksPerSlot,
      normEps: norm === null ? null : norm.eps,
      rope: rope === null ? null : ropeShape(rope),
      normAfter: norm?.order === 'after',
      queryGrowth: node.queryGrowth,
      centred: node.centre != null,
      ...(node.queriesOnly === true && { queriesOnly: true }),
    },
    keys,
    values,
    tables,
    ...(tail && { tail }),
  }));
}

/** Buffers of the roles that the product that appends, and the launch that does, have in common. */
function appendBuffers(
  node: NodeOf<'rope-append'>,
  { keys, values, tables, tail }: AppendKind,
  r: Resources,
): Record<string, GPUBuffer> {
  const { pool } = cacheOf(r, node.layer, node.shape);
  const { rope } = node;
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
  return {
    tables,
    ...(tail && { [tailRole('keys')]: tail.keys, [tailRole('values')]: tail.values }),
    ...(rope === null ? {} : { rope: r.rope(rope) }),
    out: r.tensor(node.out),
    keys,
    values,
  };
}

/** The norm weights of q, then those of k. */
function headNorms({ norm, shape }: NodeOf<'rope-append'>): Part[] {
  const bytes = shape.headDim * 4;
  return norm === null ? [] : [norm.q, norm.k].map((of) => ({ buffer: vector(of), bytes }));
}

/** Behind them, where keys have a centre, that. Errors: `kv-centre-unsupported`, for one that turns. */
function ofHeads(node: NodeOf<'rope-append'>): Part[] {
  const { centre, shape } = node;
  if (centre == null) return headNorms(node);
  if (centre.turns)
    throw new KvantError('kv-centre-unsupported', 'WebGPU has no centres of keys that turn.', {
      kind: 'unsupported',
      where: 'rope-append',
      fix: 'Give one that is the same at all positions.',
    });
  const bytes = 3 * shape.kvHeads * shape.headDim * 4;
  return [...headNorms(node), { buffer: vector(centre.vector), bytes }];
}

/** Of a product that appends: threads of a head are as many as for this one. */
const WIDEST_HEAD = 256;

/** A product that appends what it makes. */
export interface AppendingWork {
  readonly append: NodeOf<'rope-append'>;
  readonly kind: AppendKind;
  readonly shape: LinearShape & { readonly append: RopeAppendShape };
  readonly shard: Shard;
}

/**
 * What a product of one token does of the rope-append behind it: all, or null where no kernel does. FloatStart rows are left to
 * their launches.
 */
export function appendingWork(
  node: NodeOf<'linear'>,
  bucket: Bucket,
  r: Pick<Resources, 'caches' | 'capabilities' | 'fusions'>,
): AppendingWork | null {
  const append = r.fusions.appendOf.get(node);
  if (
    append === undefined ||
    append.centre != null ||
    append.shape.headDim > WIDEST_HEAD ||
    bucket[node.x.rows] !== 1 ||
    r.fusions.producers.get(node)?.op === 'attend'
  )
    return null;
  const [kind, ...kinds] = appendKinds(append, r);
  const [work, ...works] = linearWork(node, bucket, r);
  if (kind === undefined || work === undefined || kinds.length > 0 || works.length > 0) return null;
  const shape = { ...work.shape, append: kind.shape };
  const takes = chooseVariant(linearVariants, r.capabilities, shape)?.name === 'gemv';
  return takes ? { append, kind, shape, shard: work.shard } : null;
}

/** `norm`: the one of the row that is folded in. */
export function resolveAppending(
  node: NodeOf<'linear'>,
  norm: NodeOf<'rms-norm'> | null,
  { append, kind, shape, shard }: AppendingWork,
  r: Resources,
): Bound {
  const lengths = constantLengths(shape, shape.append);
  const heads = headNorms(append);
  const given: Readonly<Record<Constant, GPUBuffer | null>> = {
    norm: norm === null ? null : vector(norm.weight),
    bias: shard.bias,
    qNorm: heads[0]?.buffer ?? null,
    kNorm: heads[1]?.buffer ?? null,
  };
  const parts = CONSTANTS.flatMap((name) => {
    const buffer = given[name];
    return buffer === null ? [] : { buffer, bytes: lengths[name] * 4 };
  });
  const { codes, metas } = planes(shard);
  const variant = need(chooseVariant(linearVariants, r.capabilities, shape), 'linear');
  return bound(variant.build(r.capabilities, shape), r, {
    ...appendBuffers(append, kind, r),
    x: r.tensor((norm ?? node).x),
    codes: codes!,
    ...(metas === undefined ? {} : { metas }),
    ...(parts.length === 0 ? {} : { constants: r.joined('norms and biases', parts) }),
  });
}

/**
 * The slices of K that a product leaves to the rope-append behind it, which puts them together as it reads: null where there are none, or
 * where the rope-append would bind too many buffers. They lie in scratch that all products share, and nothing writes there
 * before they are read: the rope-append is the very next node (findFusions).
 */
export function splitKLeft(
  node: NodeOf<'linear'>,
  bucket: Bucket,
  r: Pick<Resources, 'caches' | 'capabilities' | 'fusions'>,
): { readonly sums: SplitKSums; readonly bias: GPUBuffer | null } | null {
  const append = r.fusions.appendOf.get(node);
  if (append === undefined || appendingWork(node, bucket, r) !== null) return null;
  const [work, ...works] = linearWork(node, bucket, r);
  if (work === undefined || works.length > 0) return null;
  const choice = chooseLinear(r.capabilities, work.shape);
  if (choice?.family !== 'matrices') return null;
  if (!linearFits(r.capabilities, { ...work.shape, outSplitK: true }, choice)) return null;
  const { rows, bias } = work.shape;
  const sums = { splitK: choice.config.splitK ?? 1, rows, bias };
  // Slices take the place of q, k and v; a bias comes on top.
  const fits = ({ shape }: AppendKind): boolean =>
    storageOf(ropeAppendKernel(shape, sums)) <= r.capabilities.storageBuffers;
  const kinds = appendKinds(append, r);
  return (bias || kinds.some(({ tail }) => tail)) && !kinds.every(fits)
    ? null
    : { sums, bias: work.shard.bias };
}

/** Storage buffers that a kernel of one stage binds. */
function storageOf({ stages }: Kernel): number {
  return stages[0]!.bindings.filter(({ access }) => access !== 'uniform').length;
}

export function resolveRopeAppend(node: NodeOf<'rope-append'>, bucket: Bucket, r: Resources): Bound[] {
  const product = r.fusions.productOf.get(node);
  if (product !== undefined && appendingWork(product, bucket, r) !== null) return [];
  const left = product === undefined ? null : splitKLeft(product, bucket, r);
  const bias = left?.bias ?? null;
  return appendKinds(node, r).map((kind) =>
    bound(ropeAppendKernel(kind.shape, left?.sums), r, {
      ...appendBuffers(node, kind, r),
      ...(left === null ? { qkv: r.tensor(node.qkv) } : bias === null ? {} : { bias }),
      ...(node.norm === null && node.centre == null
        ? {}
        : { headNorms: r.joined('head norms', ofHeads(node)) }),
    }),
  );
}
