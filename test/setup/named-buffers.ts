/** Weights, pools and all else that nodes are resolved with, of buffers that are names: for tests of who binds what. */

import type { Tensor } from '../../src/device/graph.js';
import type { KvFormat } from '../../src/device/kv.js';
import { kvCaches } from '../../src/device/kv.js';
import { findFusions } from '../../src/device/webgpu/fusion.js';
import type { Capabilities } from '../../src/device/webgpu/kernel.js';
import type { GpuKvPool } from '../../src/device/webgpu/kv-pool.js';
import { GpuMatrix, GpuVector, type Shard } from '../../src/device/webgpu/matrix.js';
import type { Bucket, Resources } from '../../src/device/webgpu/resources.js';
import { LARGE } from '../devices/large-gpu.js';
import type { Recorded } from '../devices/run.js';

let names = 0;
/** A buffer of which only the name is ever looked at. */
export const named = (label: string): GPUBuffer =>
  ({ label: `${label} ${names++}`, size: 2 ** 20 }) as GPUBuffer;
export const vector = (length: number): GpuVector => new GpuVector(length, named('vector'));
/** 4-bit weights in shards that begin at these rows. */
export function weights(
  rows: number,
  cols: number,
  starts: readonly number[] = [0],
  bias = false,
): GpuMatrix {
  const layout = { kind: 'affine', bits: 4, groupSize: 64, meta: 'f16' } as const;
  const shards = starts.map(
    (rowStart, i): Shard => ({
      rowStart,
      rows: (starts[i + 1] ?? rows) - rowStart,
      layout,
      codes: named('codes'),
      metas: named('metas'),
      bias: bias ? named('bias') : null,
    }),
  );
  return new GpuMatrix(rows, cols, (rows * cols) / 2, shards);
}

export function resourcesOf(
  { graph }: Recorded<unknown>,
  capabilities: Capabilities = LARGE,
  pool: GpuKvPool | null = null,
): Resources {
  const tensors = new Map<Tensor, GPUBuffer>();
  return {
    capabilities,
    caches: kvCaches(pool),
    maxContext: 64,
    maxTokens: 64,
    maxSequences: 8,
    maxItems: 0,
    maxOutputs: 64,
    fusions: findFusions(graph),
    hostExperts: false,
    step: named('step'),
    ids: named('ids'),
    lastToken: named('last tokens'),
    tensor: (tensor) => {
      const buffer = tensors.get(tensor) ?? named(`tensor ${tensor.id}`);
      tensors.set(tensor, buffer);
      return buffer;
    },
    rope: () => named('rope'),
    joined: (label) => named(label),
  };
}
export const bucketOf = (rows: number): Bucket => ({ tokens: rows, outputs: rows });

/** A pool of one layer. */
export function poolOf(kvHeads: number, headDim: number, format: KvFormat, floatStart = false): GpuKvPool {
  const side = () => ({
    buffer: named('cache'),
    blocks: 8,
    floatStart: floatStart ? named('floatStart') : null,
  });
  const pool = {
    spec: {
      layers: [{ kvHeads, headDim, key: format, value: format, group: 0 }],
      blocks: 8,
      blockTokens: 16,
      maxBlocksPerSlot: 4,
      floatStart: floatStart ? { blocks: 4, dtype: 'f16' } : null,
    },
    layers: [{ keys: side(), values: side() }],
    tables: named('tables'),
  };
  return pool as unknown as GpuKvPool;
}
