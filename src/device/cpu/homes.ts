/** Which memory each op runs in, and so where each tensor is made. */
import { KvantError } from '../../errors.js';
import type { Graph, Node, NodeOf, Tensor } from '../graph.js';
import { nodeInputs, nodeOutput } from '../lifetimes.js';
import type { CpuKvPool } from './kv-pool.js';
import type { DeviceMemory, MemorySet } from './memory.js';
import { ownMatrix, ownVector } from './resident.js';

export interface Homes {
  /** By the index of the node. */
  readonly ofNode: readonly DeviceMemory[];
  readonly ofTensor: ReadonlyMap<Tensor, DeviceMemory>;
}

/** An op runs where its weights or its cache are; one that has neither, where its first input was made. */
export function homesOf(set: MemorySet, graph: Graph, pool: CpuKvPool | null): Homes {
  const ofNode: DeviceMemory[] = [];
  const ofTensor = new Map<Tensor, DeviceMemory>();
  graph.nodes.forEach((node, index) => {
    let home = fixedHome(set, node, pool);
    if (home === null && node.op === 'input') {
      // Where it is first read.
      const reader = graph.nodes.slice(index + 1).find((later) => nodeInputs(later).includes(node.out));
      if (reader !== undefined) home = fixedHome(set, reader, pool);
    } else if (home === null) home = ofTensor.get(nodeInputs(node)[0]!) ?? null;
    home ??= set.memory(0);
    ofNode.push(home);
    const out = nodeOutput(node);
    if (out !== null) ofTensor.set(out, home);
  });
  return { ofNode, ofTensor };
}

function fixedHome(set: MemorySet, node: Node, pool: CpuKvPool | null): DeviceMemory | null {
  switch (node.op) {
    case 'embed':
      return ownMatrix(set, node.table).memory;
    case 'rms-norm':
      return ownVector(set, node.weight).memory;
    case 'linear':
      return ownMatrix(set, node.weight).memory;
    case 'rope-append':
    case 'attend':
      return poolOf(pool, node).layers[node.layer]!.memory;
    default:
      return null;
  }
}

/** The pool that a node's layer is in. Throws where it does not fit. */
export function poolOf(pool: CpuKvPool | null, node: NodeOf<'rope-append' | 'attend'>): CpuKvPool {
  const layer = pool?.spec.layers[node.layer];
  const { kvHeads, headDim } = node.shape;
  if (pool === null || layer === undefined || layer.kvHeads !== kvHeads || layer.headDim !== headDim) {
    const got = layer === undefined ? 'none' : `${layer.kvHeads} heads of ${layer.headDim}`;
    throw new KvantError(
      'shape-mismatch',
      `${node.op}: layer ${node.layer} wants ${kvHeads} KV heads of ${headDim}, the pool has ${got}.`,
      { where: node.op, fix: 'Compile the graph with the KV pool that was made for its model.' },
    );
  }
  return pool;
}
