/** Which memory each op runs in, and so where each tensor is made. */
import { KvantError } from '../../errors.js';
import type { Graph, Node, NodeOf, Tensor } from '../graph.js';
import { type KvCaches, type KvLayerSpec, type KvPoolSpec, kvPoolOf, kvTailOf, sameHeads } from '../kv.js';
import { nodeInputs, nodeOutput } from '../lifetimes.js';
import type { StateShape } from '../state.js';
import type { Vector } from '../weights.js';
import type { TailPlace } from './command-place.js';
import { ownSlab } from './feature-slab.js';
import { SIDE_CODES } from './kv-layout.js';
import type { CpuKvLayer, CpuKvPool } from './kv-pool.js';
import type { DeviceMemory, MemorySet } from './memory.js';
import { ownMatrix, ownVector } from './resident.js';

export interface Placement {
  /** By the index of the node. */
  readonly ofNode: readonly DeviceMemory[];
  readonly ofTensor: ReadonlyMap<Tensor, DeviceMemory>;
}

/** An op runs where its weights or its cache are; one that has neither, where its first input was made. */
export function placementOf(set: MemorySet, graph: Graph, caches: KvCaches<CpuKvPool> | null): Placement {
  const ofNode: DeviceMemory[] = [];
  const ofTensor = new Map<Tensor, DeviceMemory>();
  graph.nodes.forEach((node, index) => {
    let home = fixedHome(set, node, caches);
    if (home === null && node.op === 'input') {
      // Where it is first read.
      const reader = graph.nodes.slice(index + 1).find((later) => nodeInputs(later).includes(node.out));
      if (reader !== undefined) home = fixedHome(set, reader, caches);
    } else if (home === null) home = ofTensor.get(nodeInputs(node)[0]!) ?? null;
    home ??= set.memory(0);
    ofNode.push(home);
    const out = nodeOutput(node);
    if (out !== null) ofTensor.set(out, home);
  });
  return { ofNode, ofTensor };
}

function fixedHome(set: MemorySet, node: Node, caches: KvCaches<CpuKvPool> | null): DeviceMemory | null {
  switch (node.op) {
    case 'embed':
      return ownMatrix(set, node.table).memory;
    case 'rms-norm':
      return ownVector(set, node.weight).memory;
    case 'linear':
    case 'head-linear':
      return ownMatrix(set, node.weight).memory;
    case 'experts':
      return ownMatrix(set, node.gateUp).memory;
    case 'rope-append':
    case 'attend':
      return cacheOf(caches, node).layer.memory;
    case 'short-conv':
    case 'gated-delta':
    case 'selective-scan':
      return stateOf(caches, node).memory;
    case 'norm': {
      const vector = node.parts.map(({ weight, bias }) => weight ?? bias).find((one) => one !== null);
      return vector === undefined ? null : ownVector(set, vector).memory;
    }
    case 'act':
      return node.parameters === null ? null : ownVector(set, node.parameters).memory;
    case 'route':
      return vectorHome(set, node.spec.bias ?? node.spec.expertScales ?? null);
    case 'gate':
      return node.norm === null ? null : ownVector(set, node.norm.weight).memory;
    case 'add-features':
      return ownSlab(set, node.features).memory;
    case 'add-gathered':
      return ownVector(set, node.table).memory;
    case 'clamp':
      return ownVector(set, node.bounds).memory;
    case 'input':
    case 'glu':
    case 'add':
    case 'scale':
    case 'columns':
    case 'rotate':
    case 'attend-segments':
    case 'select-outputs':
    case 'sample':
      return null;
  }
}

function vectorHome(set: MemorySet, vector: Vector | null): DeviceMemory | null {
  return vector === null ? null : ownVector(set, vector).memory;
}

/** A node's layer: where its K and V are, and the block tables beside them. */
export interface NodeCache {
  readonly layer: CpuKvLayer;
  readonly formats: KvLayerSpec;
  readonly spec: KvPoolSpec;
  /** Address of its group's block tables. */
  readonly tables: number;
  readonly tail: TailPlace | null;
}

/** The cache of a node's layer. Throws where it does not fit. */
export function cacheOf(
  caches: KvCaches<CpuKvPool> | null,
  node: NodeOf<'rope-append' | 'attend'>,
): NodeCache {
  const place = kvPoolOf(caches, node.layer);
  const formats = place?.pool.spec.layers[place.index];
  const { kvHeads, headDim } = node.shape;
  if (place === null || formats === undefined || !sameHeads(formats, node.shape)) {
    const got = formats === undefined ? 'none' : `${formats.kvHeads} heads of ${formats.headDim}`;
    throw new KvantError(
      'shape-mismatch',
      `${node.op}: layer ${node.layer} wants ${kvHeads} KV heads of ${headDim}, the pool has ${got}.`,
      { where: node.op, fix: 'Compile the graph with the KV pool that was made for its model.' },
    );
  }
  const { pool, index } = place;
  const layer = pool.layers[index]!;
  const tail = tailOf(caches, node.layer, layer.memory);
  return { layer, formats, spec: pool.spec, tables: pool.tables(layer.memory), tail };
}

function tailOf(caches: KvCaches<CpuKvPool> | null, layer: number, memory: DeviceMemory): TailPlace | null {
  const tail = kvTailOf(caches, layer);
  if (tail === null) return null;
  const { pool, index, tokens } = tail;
  const own = pool.layers[index]!;
  if (own.memory === memory) return { store: own.store, tables: pool.tables(memory), tokens };
  throw new KvantError(
    'device-out-of-memory',
    `The float tail of layer ${layer} found no room in the memory that has the layer's cache.`,
    { where: 'kvFloatTail', fix: 'Give the cache less memory (kvMemory), or leave the tail out.' },
  );
}

/** A recurrent node's state. */
export interface NodeState {
  readonly memory: DeviceMemory;
  readonly shape: StateShape;
  /** Address of the first slot of the layer. */
  readonly at: number;
  /** Address of the group's block tables, and entries of one. */
  readonly tables: number;
  readonly maxBlocksPerSlot: number;
}

/** The state of a node's layer. Throws where the pools hold none. */
export function stateOf(
  caches: KvCaches<CpuKvPool> | null,
  node: { readonly op: string; readonly layer: number },
): NodeState {
  const place = kvPoolOf(caches, node.layer);
  const shape = place?.pool.spec.layers[place.index]?.state;
  if (place === null || shape === undefined) {
    throw new KvantError('shape-mismatch', `${node.op}: layer ${node.layer} has no state in the pools.`, {
      where: node.op,
      fix: 'Compile the graph with the KV pools that were made for its model.',
    });
  }
  const { pool, index } = place;
  const { memory, store } = pool.layers[index]!;
  const at = memory.u32(store + SIDE_CODES, 1)[0]!;
  return { memory, shape, at, tables: pool.tables(memory), maxBlocksPerSlot: pool.spec.maxBlocksPerSlot };
}
