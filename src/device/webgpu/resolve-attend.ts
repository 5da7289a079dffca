/** From attention to its kernels, for each kind of rows: items, what merges them, tiles, and what puts these together with a float tail. */

import type { Node, NodeOf } from '../graph.js';
import { chooseVariant, type Handed, type Kernel, type Variant } from './kernel.js';
import { type AttendShape, portableTiles } from './kernels/attend.js';
import { tileWorkgroups, wideItemsFrom } from './kernels/attend-fast.js';
import { mergesPartials } from './kernels/attend-merged.js';
import { handedBytesStage, type LeftBytes } from './kernels/attend-out.js';
import { attendScratch, tileScratch } from './kernels/attend-plan.js';
import { reduceStage } from './kernels/attend-reduce.js';
import { tailEndStage } from './kernels/attend-tail.js';
import { hasItemOfRow } from './kernels/kv-head.js';
import { fixedLanes } from './kernels/linear-fast.js';
import { attendItemsVariants, attendTilesVariants, reduceSlices } from './kernels/registry.js';
import { cacheOf, tailUnsupported } from './layer-caches.js';
import { either, handsOn, mergeOf, only } from './resolve-linear.js';
import { type Bound, type Bucket, bound, need, type Resources, strideOf, vector } from './resources.js';

/** A kind of rows of an attend node, as kernels see it. */
interface AttendKind {
  readonly shape: AttendShape;
  readonly keys: GPUBuffer;
  readonly values: GPUBuffer;
  readonly tables: GPUBuffer;
}

type AttendFacts = 'caches' | 'maxItems' | 'maxTokens' | 'maxSequences';

/** The shapes of an attention, one for each kind of rows. */
export function attendShapes(
  node: NodeOf<'attend'>,
  r: Pick<Resources, AttendFacts>,
): readonly AttendShape[] {
  return rowKinds(node, r).map(({ shape }) => shape);
}

/** Without float heads and tails: of those there is one small item a row. */
function rowKinds(node: NodeOf<'attend'>, r: Pick<Resources, AttendFacts>): AttendKind[] {
  return attendKinds(node, r).filter(({ shape }) => !hasItemOfRow(shape.rows.only));
}

function attendKinds(node: NodeOf<'attend'>, r: Pick<Resources, AttendFacts>): AttendKind[] {
  const { pool, kinds } = cacheOf(r, node.layer, node.shape);
  if (node.window !== null && kinds.some(({ rows }) => rows.tail))
    throw tailUnsupported('A float tail of a layer that slides', 'Give it to layers that see all.');
  return kinds.map(({ key, value, rows, keys, values, tables }) => ({
    shape: {
      ...node.shape,
      key,
      value,
      rows,
      blockTokens: pool.spec.blockTokens,
      maxBlocksPerSlot: pool.spec.maxBlocksPerSlot,
      scale: node.scale,
      // A tail is a window of its pool.
      window: rows.only === 'tail' ? rows.tail!.tokens : node.window,
      softcap: node.softcap,
      ...(node.sinks && { sinks: true }),
      maxItems: r.maxItems,
      ...(rows.tail && { most: { tokens: r.maxTokens, rows: r.maxSequences } }),
    },
    keys,
    values,
    tables,
  }));
}

/** Splits in a step from which on its items are wide, the same for all nodes; infinite if one has no kernel for such. */
export function wideFrom(nodes: readonly Node[], r: Resources): number {
  if (r.maxItems === 0) return Number.POSITIVE_INFINITY;
  let from = 0;
  for (const node of nodes) {
    if (node.op !== 'attend') continue;
    for (const { shape } of rowKinds(node, r)) from = Math.max(from, wideItemsFrom(r.capabilities, shape));
  }
  return from === 0 ? Number.POSITIVE_INFINITY : from;
}

/** Workgroups of a tile of prompts, the most of all nodes; 0 if one has no kernel that takes a part of its positions. */
export function workgroupsOfTile(nodes: readonly Node[], r: Resources): number {
  let most = 0;
  for (const node of nodes) {
    if (node.op !== 'attend') continue;
    for (const { shape } of rowKinds(node, r)) {
      const count = tileWorkgroups(r.capabilities, shape);
      if (count === 0) return 0;
      most = Math.max(most, count);
    }
  }
  return most;
}

/**
 * What becomes of what attention leaves: halves or bytes for the product behind it, or partials that this merges itself where
 * there are few (the launch of the merge stands by), or f32 as any node leaves.
 */
export function attendFor(
  node: NodeOf<'attend'>,
  bucket: Bucket,
  r: Resources,
): Handed | 'partials' | 'floats' {
  const product = r.fusions.consumers.get(node);
  if (product === undefined) return 'floats';
  if (mergeOf(product, bucket, r) !== null) return 'partials';
  return handsOn(node, bucket, r) ?? 'floats';
}

/**
 * Items of every kind of rows, the reduce of them all, tiles of every kind. The reduce binds the values of the
 * quantised blocks, for what it turns sums back with lies there. Where bytes are left, a step with tiles has f32 of all its rows
 * first, and these made bytes in a launch.
 */
export function resolveAttend(node: NodeOf<'attend'>, bucket: Bucket, r: Resources): Bound[] {
  const left = attendFor(node, bucket, r);
  const bytes: LeftBytes | null =
    typeof left === 'string' ? null : { layout: left, lanes: fixedLanes(r.capabilities) };
  const pick = (variants: readonly Variant<AttendShape>[], shape: AttendShape): Kernel => {
    const variant = need(chooseVariant(variants, r.capabilities, shape), 'attend');
    return once(r, variant.name, shape, () => variant.build(r.capabilities, shape));
  };
  // Pictures that look ahead are rare among steps: the portable kernel does those alone.
  const tilesOf = (shape: AttendShape, ahead: boolean | 'window'): Kernel => {
    const back = pick(attendTilesVariants, shape);
    return ahead !== false
      ? either(pick([portableTiles], { ...shape, ahead }), back, (facts) => facts.ahead > 0)
      : back;
  };
  const items: Bound[] = [];
  const reduces: Bound[] = [];
  const tiles: Bound[] = [];
  const ends: Bound[] = [];
  for (const { shape: plain, keys, values, tables } of attendKinds(node, r)) {
    const shape: AttendShape = left === 'halves' ? { ...plain, outHanded: true } : plain;
    const sinks = node.sinks ? { sinks: vector(node.sinks) } : {};
    const buffers = { q: r.tensor(node.q), tables, out: r.tensor(node.out), keys, values, ...sinks };
    // Tiles read a float head with what is behind it.
    const { only: part, tail } = shape.rows;
    // What is seen ahead is of the tail.
    const ahead = tail === undefined || part === 'tail' ? (node.ahead ?? false) : false;
    if (part !== 'head') {
      const kernel = tilesOf(shape, ahead);
      tiles.push(bound({ ...kernel, scratch: { ...kernel.scratch, ...tileScratch(shape) } }, r, buffers));
    }
    if (tail !== undefined && !hasItemOfRow(part))
      ends.push(
        bound(
          once(r, 'tail end', shape, () => ({ stages: [tailEndStage(shape)] })),
          r,
          buffers,
        ),
      );
    if (shape.maxItems === 0) continue;
    const kernel = pick(attendItemsVariants, plain);
    const scratch = { ...attendScratch(shape), ...kernel.scratch };
    items.push(bound({ ...kernel, scratch }, r, buffers));
    if (hasItemOfRow(part) || part === 'floatStart') continue;
    const { valueDim = shape.headDim } = shape;
    // Of latents partials are merged in order, as tiles do (attend-latent.ts).
    const slices =
      shape.valueDim === undefined ? reduceSlices(r.capabilities, bucket[node.out.rows], valueDim) : 1;
    const reduceTo = (form: LeftBytes | null): Kernel =>
      once(r, `reduce ${slices} ${JSON.stringify(form)}`, shape, () => ({
        stages: [reduceStage({ ...shape, headDim: valueDim }, slices, form)],
      }));
    let reduce = reduceTo(null);
    if (left === 'partials') reduce = only(reduce, (facts) => !mergesPartials(facts));
    if (bytes !== null) reduce = either(reduceTo(bytes), reduce, ({ tiles }) => tiles === 0);
    reduces.push(bound(reduce, r, buffers));
  }
  const all = [...items, ...reduces, ...tiles, ...ends];
  if (bytes === null) return all;
  const { rows, cols } = node.out;
  const shape = { k: cols, xStride: strideOf(cols), rowKind: rows };
  const stage = handedBytesStage(shape, bytes, r.capabilities.workgroupThreads);
  const made = only({ stages: [stage] }, ({ tiles }) => tiles > 0);
  return [...all, bound(made, r, { x: r.tensor(node.out) })];
}

/** Kernels of attention of a program: layers of one shape, and buckets that differ in nothing else, share their text. */
const built = new WeakMap<Resources, Map<string, Kernel | null>>();

export function once<K extends Kernel | null>(r: Resources, name: string, shape: object, build: () => K): K {
  const kernels = built.get(r) ?? new Map<string, Kernel | null>();
  built.set(r, kernels);
  const key = `${name} ${JSON.stringify(shape)}`;
  if (!kernels.has(key)) kernels.set(key, build());
  return kernels.get(key) as K;
}
