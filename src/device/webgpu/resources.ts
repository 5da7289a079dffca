/** What nodes are resolved with: the buffers and facts of a program, and what comes of it, kernels bound to buffers. */

import type { KvantError } from '../../errors.js';
import type { Matrix, Vector } from '../device.js';
import type { RowKind, Tensor } from '../graph.js';
import type { KvCaches } from '../kv.js';
import type { RopeTable } from '../rope.js';
import { internalFault } from './faults.js';
import type { Fusions } from './fusion.js';
import type { Capabilities, Kernel } from './kernel.js';
import type { GpuKvPool } from './kv-pool.js';
import { GpuMatrix, GpuVector, type Shard } from './matrix.js';

/** A kernel with a buffer for each of its roles, scratch left out. */
export interface Bound {
  readonly kernel: Kernel;
  readonly buffers: Readonly<Record<string, GPUBuffer>>;
}

/** The first bytes of a buffer: a multiple of four. */
export interface Part {
  readonly buffer: GPUBuffer;
  readonly bytes: number;
}

/** What a program has for its nodes. */
export interface Resources {
  readonly capabilities: Capabilities;
  readonly caches: KvCaches<GpuKvPool> | null;
  readonly maxContext: number;
  readonly maxTokens: number;
  readonly maxSequences: number;
  readonly maxItems: number;
  readonly maxOutputs: number;
  readonly fusions: Fusions;
  /** Experts whose stacks are not on the GPU are computed by the host. */
  readonly hostExperts: boolean;
  readonly step: GPUBuffer;
  readonly ids: GPUBuffer;
  readonly lastToken: GPUBuffer;
  tensor(tensor: Tensor): GPUBuffer;
  /** The fine table, then the coarse one. */
  rope(table: RopeTable): GPUBuffer;
  /** The starts of vectors, one after the other, in a buffer of their own. */
  joined(label: string, parts: readonly Part[]): GPUBuffer;
}

/** Elements from a row of a tensor to the next. */
export function strideOf(cols: number): number {
  return Math.ceil(cols / 4) * 4;
}

/** Rows of a plan, by kind. */
export type Bucket = Readonly<Record<RowKind, number>>;

export function bound(kernel: Kernel, r: Resources, buffers: Record<string, GPUBuffer>): Bound {
  return { kernel, buffers: { step: r.step, ...buffers } };
}

export function need<T>(variant: T | undefined, op: string): T {
  if (variant === undefined) throw internalFault(`No kernel of ${op} takes a shape of this model`, op);
  return variant;
}

export function planes(shard: Shard): Record<string, GPUBuffer> {
  return {
    codes: shard.codes,
    ...(shard.metas === null ? {} : { metas: shard.metas }),
    ...(shard.bias === null ? {} : { bias: shard.bias }),
  };
}

export function matrix(value: Matrix): GpuMatrix {
  if (value instanceof GpuMatrix) return value;
  throw foreign('matrix');
}

export function vector(value: Vector): GPUBuffer {
  if (value instanceof GpuVector) return value.buffer;
  throw foreign('vector');
}

function foreign(what: string): KvantError {
  return internalFault(`A ${what} of another device was given to a WebGPU program`, what);
}
