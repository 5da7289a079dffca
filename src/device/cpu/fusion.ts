/**
 * Norms and glus that are done while a product's activations are quantised: what they make is then never in memory. That is
 * where one product alone reads it, and wants all of it as integers.
 */
import type { Graph, Node, NodeOf, Tensor } from '../graph.js';
import { nodeInputs } from '../lifetimes.js';

export type Source = NodeOf<'rms-norm' | 'glu'>;

export interface Fusions {
  readonly ofLinear: ReadonlyMap<Node, Source>;
  /** The nodes that vanish. */
  readonly gone: ReadonlySet<Node>;
  /** Tensors that must live until a node although it does not read them. */
  readonly keptAlive: ReadonlyMap<Node, readonly Tensor[]>;
}

/** `allows`: whether a product, at its place among the nodes, can take its activations from the node before it. */
export function findFusions(graph: Graph, allows: (node: NodeOf<'linear'>, at: number) => boolean): Fusions {
  const ofLinear = new Map<Node, Source>();
  const gone = new Set<Node>();
  const keptAlive = new Map<Node, Tensor[]>();
  const reads = new Map<Tensor, number>();
  for (const node of graph.nodes)
    for (const tensor of nodeInputs(node)) reads.set(tensor, (reads.get(tensor) ?? 0) + 1);
  graph.nodes.forEach((node, at) => {
    const before = graph.nodes[at - 1];
    if (node.op !== 'linear' || (before?.op !== 'rms-norm' && before?.op !== 'glu')) return;
    if (before.out !== node.x || reads.get(node.x) !== 1 || graph.kept.includes(node.x)) return;
    if (!allows(node, at)) return;
    ofLinear.set(node, before);
    gone.add(before);
    keptAlive.set(node, [before.x]);
  });
  return { ofLinear, gone, keptAlive };
}
