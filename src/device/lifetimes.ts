/**
 * The lifetime planner: which tensors of a graph may share memory.
 *
 * A tensor lives from the node that writes it to the last node that reads it. Two tensors may have one storage if
 * their lives do not touch; a node's output never shares with that node's inputs, for kernels read and write at
 * once. The widest come first, of those the longest lived, and each takes the narrowest storage that is free while it lives:
 * no storage grows for a tensor that found only narrow ones free, and short lives fill the gaps of wide storages. Rows of
 * `tokens` and of `outputs` scale apart, so they are kept apart.
 */

import type { Graph, Node, RowKind, Tensor } from './graph.js';

export interface Storage {
  readonly id: number;
  readonly rows: RowKind;
  /** Width of a row: the widest tensor that lives here. */
  readonly cols: number;
}

export interface LifetimePlan {
  readonly storages: readonly Storage[];
  /** Storage of each tensor, by tensor id. −1 for a tensor that nothing makes. */
  readonly storageOf: Int32Array;
}

/** The tensors a node reads. */
export function nodeInputs(node: Node): readonly Tensor[] {
  switch (node.op) {
    case 'input':
    case 'embed':
      return [];
    case 'rms-norm':
    case 'norm':
    case 'glu':
    case 'act':
    case 'scale':
    case 'clamp':
    case 'add-features':
    case 'short-conv':
    case 'head-linear':
    case 'select-outputs':
      return [node.x];
    case 'linear':
      return node.residual === null ? [node.x] : [node.x, node.residual];
    case 'rope-append':
      return [node.qkv];
    case 'attend':
      return [node.q];
    case 'gated-delta':
      return [node.qkv, node.gates];
    case 'selective-scan':
      return [node.x, node.steps];
    case 'gate':
      return [node.x, node.gate];
    case 'columns':
      return [...new Set(node.parts.map(({ x }) => x))];
    case 'add':
      return [node.a, node.b];
    case 'add-gathered':
      return node.taps === 'position' ? [node.x] : [node.x, node.taps];
    case 'rotate':
      return [node.x, node.angles];
    case 'attend-segments':
      return [node.qkv, node.bounds];
    case 'route':
    case 'sample':
      return [node.logits];
    case 'experts':
      return node.residual === null ? [node.x, node.route] : [node.x, node.route, node.residual];
  }
}

/** The tensor a node makes, if any. */
export function nodeOutput(node: Node): Tensor | null {
  return node.op === 'sample' ? null : node.out;
}

/** `keptAlive`: tensors that must live until a node although it does not read them, for a device that fuses nodes. */
export function planLifetimes(
  graph: Graph,
  keptAlive: ReadonlyMap<Node, readonly Tensor[]> = new Map(),
): LifetimePlan {
  const lastUse = new Int32Array(graph.tensors.length).fill(-1);
  const forever = graph.nodes.length;
  graph.nodes.forEach((node, at) => {
    for (const tensor of nodeInputs(node)) lastUse[tensor.id] = at;
    for (const tensor of keptAlive.get(node) ?? []) lastUse[tensor.id] = at;
    const out = nodeOutput(node);
    if (out !== null && lastUse[out.id]! < at) lastUse[out.id] = at;
    // The host fills inputs before the step: nothing may write there earlier.
    if (node.op === 'input') lastUse[node.out.id] = forever;
  });
  for (const tensor of graph.kept) lastUse[tensor.id] = forever;

  const lives: Life[] = graph.nodes.flatMap((node, at) => {
    const out = nodeOutput(node);
    return out === null ? [] : { out, from: node.op === 'input' ? -1 : at, to: lastUse[out.id]! };
  });
  const storages: (Storage & { readonly lives: Life[] })[] = [];
  const storageOf = new Int32Array(graph.tensors.length).fill(-1);
  const length = ({ from, to }: Life): number => to - from;
  for (const life of lives.sort(
    (a, b) => b.out.cols - a.out.cols || length(b) - length(a) || a.from - b.from,
  )) {
    const { rows, cols } = life.out;
    const apart = (other: Life): boolean => other.to < life.from || other.from > life.to;
    let storage = storages.findLast((s) => s.rows === rows && s.lives.every(apart));
    if (storage === undefined) {
      storage = { id: storages.length, rows, cols, lives: [] };
      storages.push(storage);
    }
    storage.lives.push(life);
    storageOf[life.out.id] = storage.id;
  }
  return { storages: storages.map(({ id, rows, cols }) => ({ id, rows, cols })), storageOf };
}

/** A tensor, and the first and last node at which its memory is its own. */
interface Life {
  readonly out: Tensor;
  readonly from: number;
  readonly to: number;
}
