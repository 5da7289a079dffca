/** What a program is compiled of, and what follows from it for single nodes. */
import type { Precision, ProgramLimits } from '../device.js';
import type { Graph, NodeOf, Tensor } from '../graph.js';
import type { KvCaches } from '../kv.js';
import type { CpuKvPool } from './kv-pool.js';
import type { MemorySet } from './memory.js';

export interface CompileOptions {
  readonly set: MemorySet;
  readonly graph: Graph;
  readonly limits: ProgramLimits;
  readonly caches: KvCaches<CpuKvPool> | null;
  readonly threads: number;
  readonly precision: Precision;
}

/** Most rows that a tensor has. */
export function mostRows({ limits }: CompileOptions, tensor: Tensor): number {
  return tensor.rows === 'tokens' ? limits.maxTokens : limits.maxOutputs;
}

/** An exact product takes its activations as they are. */
export function precisionOf({ precision }: CompileOptions, node: NodeOf<'linear'>): Precision {
  return node.exact === true ? 'reference' : precision;
}
