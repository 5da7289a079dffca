/** Slices of q, k and v that a product leaves to the rope-append behind it: which do, and who binds what. */
import { describe, expect, it } from 'vitest';

import { affine, F16 } from '../../../test/devices/kv-cases.js';
import { LARGE } from '../../../test/devices/large-gpu.js';
import { record } from '../../../test/devices/run.js';
import { bucketOf, poolOf, resourcesOf, vector, weights } from '../../../test/setup/named-buffers.js';
import type { Tensor } from '../graph.js';
import type { Ops } from '../ops.js';
import { makeRopeTable } from '../rope.js';
import type { Capabilities } from './kernel.js';
import type { GpuMatrix, GpuVector } from './matrix.js';
import { resolveNode, variationOf } from './resolve.js';
import { splitKLeft } from './resolve-append.js';

const [HEADS, KV_HEADS, HEAD_DIM, HIDDEN] = [32, 8, 128, 4096];
const N = (HEADS + 2 * KV_HEADS) * HEAD_DIM;
const rope = makeRopeTable({
  dims: HEAD_DIM,
  style: 'half',
  frequencies: new Float64Array(HEAD_DIM / 2).fill(1),
  attentionFactor: 1,
  maxContext: 64,
});

interface Case {
  readonly weight?: GpuMatrix;
  readonly headNorms?: boolean;
  readonly floatStart?: boolean;
  readonly capabilities?: Capabilities;
  /** Does more with what the product leaves. */
  readonly more?: (ops: Ops, qkv: Tensor) => void;
}

/** The product and the rope-append of a step of so many rows, in order. */
function resolved(
  rows: number,
  {
    weight = weights(N, HIDDEN),
    headNorms = false,
    floatStart = false,
    capabilities = LARGE,
    more,
  }: Case = {},
) {
  const shape = { layer: 0, heads: HEADS, kvHeads: KV_HEADS, headDim: HEAD_DIM };
  const norm = headNorms
    ? { q: vector(HEAD_DIM) as GpuVector, k: vector(HEAD_DIM) as GpuVector, eps: 1e-6 }
    : null;
  const recorded = record((ops) => {
    const x = ops.input('tokens', HIDDEN);
    const qkv = ops.linear(ops.rmsNorm(x, vector(HIDDEN), 1e-6), weight);
    more?.(ops, qkv);
    return ops.keep(ops.ropeAppend(qkv, { ...shape, norm, rope }));
  });
  const pool = poolOf(KV_HEADS, HEAD_DIM, floatStart ? affine(4) : F16, floatStart);
  const r = resourcesOf(recorded, capabilities, pool);
  const [linear] = recorded.graph.nodes.filter((node) => node.op === 'linear');
  const [append] = recorded.graph.nodes.filter((node) => node.op === 'rope-append');
  const bucket = bucketOf(rows);
  return {
    r,
    linear: linear!,
    products: resolveNode(linear!, bucket, r),
    appends: resolveNode(append!, bucket, r),
    variation: variationOf(append!, bucket, r),
    left: splitKLeft(linear!, bucket, r),
  };
}
const bindingsOf = ({ kernel }: ReturnType<typeof resolved>['products'][number], stage: number): string[] =>
  kernel.stages.at(stage)!.bindings.map(({ name, access }) => `${name} ${access}`);

/** Whether slices are left, as all that is resolved says. */
function leaves(rows: number, c?: Case): boolean {
  const { products, appends, left } = resolved(rows, c);
  const labels = products.flatMap(({ kernel }) => kernel.stages.map(({ label }) => label));
  const inSplitK =
    appends.length > 0 && appends.every((bound) => bindingsOf(bound, 0).includes('scratchSplitK read'));
  expect(left !== null).toBe(inSplitK);
  if (inSplitK) expect(labels.some((label) => label.startsWith('split-k'))).toBe(false);
  if (inSplitK) expect(bindingsOf(products.at(-1)!, -1)).toContain('scratchSplitK read_write');
  for (const bound of appends) expect(bindingsOf(bound, 0).includes('qkv read')).toBe(!inSplitK);
  return inSplitK;
}

describe('q, k and v in slices of K', () => {
  it('are put together by the rope-append, where a product of some rows has slices', () => {
    expect([1, 4, 8, 16, 17, 32, 64, 512].map((rows) => leaves(rows))).toEqual([
      false,
      false,
      false,
      false,
      true,
      true,
      true,
      false,
    ]);
    // One row appends in its product.
    expect(resolved(1).appends).toEqual([]);
    const { products, appends, variation } = resolved(32);
    expect(products).toHaveLength(1);
    expect(products[0]!.kernel.stages).toHaveLength(2);
    expect(appends[0]!.kernel.stages[0]!.label).toBe('rope-append 32/8×128 of split-k 8');
    expect(products[0]!.kernel.scratch!.scratchSplitK).toBe(8 * 32 * N * 4);
    // Buckets of other rows have slices elsewhere, or none.
    expect(new Set([variation, resolved(17).variation, resolved(512).variation]).size).toBe(3);
    expect(resolved(256).variation).toBe(resolved(512).variation);
  });

  it('get their bias there', () => {
    const weight = weights(N, HIDDEN, [0], true);
    expect(leaves(32, { weight })).toBe(true);
    const { products, appends } = resolved(32, { weight });
    expect(appends[0]!.buffers.bias).toBe(weight.shards[0]!.bias);
    expect(bindingsOf(appends[0]!, 0)).toContain('bias read');
    expect(bindingsOf(products[0]!, -1)).not.toContain('bias read');
    // With weights of heads too there are nine buffers, and some devices bind eight.
    const full = { weight, headNorms: true };
    expect(leaves(32, full)).toBe(true);
    expect(leaves(32, { ...full, capabilities: { ...LARGE, storageBuffers: 9 } })).toBe(true);
    expect(leaves(32, { ...full, capabilities: { ...LARGE, storageBuffers: 8 } })).toBe(false);
    expect(leaves(32, { headNorms: true, capabilities: { ...LARGE, storageBuffers: 8 } })).toBe(true);
  });

  it('are read by both kernels where rows are of two kinds', () => {
    expect(leaves(32, { floatStart: true })).toBe(true);
    expect(resolved(32, { floatStart: true }).appends).toHaveLength(2);
  });

  it('are none where somebody else wants q, k and v, where they are of several shards, or halves are not to be had', () => {
    const kept = (ops: Ops, qkv: Tensor): void => {
      ops.keep(qkv);
    };
    expect(leaves(32, { more: kept })).toBe(false);
    const read = (ops: Ops, qkv: Tensor): void => {
      ops.keep(ops.add(qkv, qkv));
    };
    expect(leaves(32, { more: read })).toBe(false);
    expect(leaves(32, { weight: weights(N, HIDDEN, [0, 4096]) })).toBe(false);
    expect(leaves(32, { capabilities: { ...LARGE, deterministic: true } })).toBe(false);
    expect(leaves(32, { capabilities: { ...LARGE, matrices: [] } })).toBe(false);
  });
});
