/**
 * What may be done in one launch: a norm that only one linear reads goes into that linear, and so does a glu, or a rope-append,
 * that alone reads it; a norm that only a sum reads goes with the sum; and what one node may hand the next in another form than a tensor of f32. Whether it is done is for
 * the kernels to say, bucket by bucket; the memory is planned so that both ways are open.
 */

import type { Graph, Node, NodeOf, Tensor } from '../graph.js';
import { nodeInputs } from '../lifetimes.js';

/** Neighbours that a linear may swallow. */
export interface Fusable {
  readonly norm: NodeOf<'rms-norm'> | null;
  readonly glu: NodeOf<'glu'> | null;
}

/** Attention, or a linear with its glu. */
export type Producer = NodeOf<'attend'> | NodeOf<'linear'>;

export interface Fusions {
  readonly ofLinear: ReadonlyMap<NodeOf<'linear'>, Fusable>;
  /** The linear that alone reads what a producer leaves; and the other way round. */
  readonly consumers: ReadonlyMap<Producer, NodeOf<'linear'>>;
  readonly producers: ReadonlyMap<NodeOf<'linear'>, Producer>;
  /** The linear behind a linear whose norm is of what this leaves; and the other way round. See normedBehind. */
  readonly normConsumers: ReadonlyMap<NodeOf<'linear'>, NodeOf<'linear'>>;
  readonly normProducers: ReadonlyMap<NodeOf<'linear'>, NodeOf<'linear'>>;
  /** The rope-append that alone reads what a linear leaves; and the other way round. */
  readonly appendOf: ReadonlyMap<NodeOf<'linear'>, NodeOf<'rope-append'>>;
  readonly productOf: ReadonlyMap<NodeOf<'rope-append'>, NodeOf<'linear'>>;
  /** The rotation of q and k that attention in segments alone reads; and the other way round. */
  readonly rotationOf: ReadonlyMap<NodeOf<'attend-segments'>, NodeOf<'rotate'>>;
  readonly attentionOf: ReadonlyMap<NodeOf<'rotate'>, NodeOf<'attend-segments'>>;
  /** The norm that alone is read by the sum behind it. */
  readonly normOf: ReadonlyMap<NodeOf<'add'>, NodeOf<'rms-norm'>>;
  /** By norms, the sums they go with. */
  readonly sumOf: ReadonlyMap<NodeOf<'rms-norm'>, NodeOf<'add'>>;
  /** The linear that a norm or a glu may vanish into. */
  readonly into: ReadonlyMap<Node, NodeOf<'linear'>>;
  /** Tensors that must live until a node although it does not read them. */
  readonly keptAlive: ReadonlyMap<Node, readonly Tensor[]>;
}

export function findFusions(graph: Graph): Fusions {
  const readers = new Map<Tensor, Node[]>();
  const makers = new Map<Tensor, Node>();
  for (const node of graph.nodes) {
    for (const tensor of nodeInputs(node)) readers.set(tensor, [...(readers.get(tensor) ?? []), node]);
    if (node.op !== 'sample') makers.set(node.out, node);
  }
  const kept = new Set(graph.kept);
  /** The one reader of a tensor that nobody else wants. */
  const onlyReader = (tensor: Tensor): Node | null => {
    const all = readers.get(tensor) ?? [];
    return all.length === 1 && !kept.has(tensor) ? all[0]! : null;
  };
  const ofLinear = new Map<NodeOf<'linear'>, Fusable>();
  const into = new Map<Node, NodeOf<'linear'>>();
  const keptAlive = new Map<Node, Tensor[]>();
  const consumers = new Map<Producer, NodeOf<'linear'>>();
  const appendOf = new Map<NodeOf<'linear'>, NodeOf<'rope-append'>>();
  const productOf = new Map<NodeOf<'rope-append'>, NodeOf<'linear'>>();
  const rotationOf = new Map<NodeOf<'attend-segments'>, NodeOf<'rotate'>>();
  const normOf = new Map<NodeOf<'add'>, NodeOf<'rms-norm'>>();
  graph.nodes.forEach((node, at) => {
    if (node.op === 'attend-segments') {
      const rotation = makers.get(node.qkv);
      if (rotation?.op !== 'rotate' || onlyReader(node.qkv) !== node || !turnsHeads(rotation, node)) return;
      rotationOf.set(node, rotation);
      keptAlive.set(node, [rotation.x]);
    }
    if (node.op === 'add') {
      const before = graph.nodes[at - 1];
      if (before?.op !== 'rms-norm' || onlyReader(before.out) !== node || node.a === node.b) return;
      normOf.set(node, before);
      keptAlive.set(node, [before.x]);
    }
    // An exact product has kernels of its own, that hand nothing over.
    if (node.op !== 'linear' || node.exact === true) return;
    const before = makers.get(node.x);
    if (before?.op === 'attend' && onlyReader(node.x) === node) consumers.set(before, node);
    const norm = before?.op === 'rms-norm' && onlyReader(node.x) === node ? before : null;
    const after = onlyReader(node.out);
    // Their result is then written where the linear stands: what is free there must be free here, so next.
    const behind = node.residual === null && graph.nodes[at + 1] === after ? after : undefined;
    const glu = behind?.op === 'glu' ? behind : null;
    if (behind?.op === 'rope-append' && behind.queriesOnly !== true) {
      appendOf.set(node, behind);
      productOf.set(behind, node);
      keptAlive.set(behind, [node.x, ...(norm === null ? [] : [norm.x])]);
    }
    if (norm === null && glu === null) return;
    ofLinear.set(node, { norm, glu });
    if (norm !== null) {
      into.set(norm, node);
      keptAlive.set(node, [norm.x]);
    }
    if (glu !== null) {
      into.set(glu, node);
      keptAlive.set(glu, [node.x, ...(norm === null ? [] : [norm.x])]);
      const reader = onlyReader(glu.out);
      if (reader?.op === 'linear' && reader.exact !== true && reader.x === glu.out)
        consumers.set(node, reader);
    }
  });
  dropOverlaps(graph, consumers);
  const producers = inverse(consumers);
  const normConsumers = normedBehind(graph, ofLinear);
  const normProducers = inverse(normConsumers);
  const rotations = { rotationOf, attentionOf: inverse(rotationOf) };
  const sums = { normOf, sumOf: inverse(normOf) };
  const appends = { appendOf, productOf };
  return {
    ofLinear,
    consumers,
    producers,
    normConsumers,
    normProducers,
    ...appends,
    ...rotations,
    ...sums,
    into,
    keptAlive,
  };
}

/** Whether a rotation is of the heads of q and k as attention has them, in pairs that lie whole vectors apart. */
function turnsHeads(
  { heads, headDim, style, angles }: NodeOf<'rotate'>,
  attend: NodeOf<'attend-segments'>,
): boolean {
  const same = heads === 2 * attend.heads && headDim === attend.headDim;
  return same && style === 'half' && angles.cols % 8 === 0;
}

function inverse<A, B>(map: ReadonlyMap<A, B>): Map<B, A> {
  return new Map([...map].map(([from, to]) => [to, from]));
}

/**
 * Linears whose result may be left a second time, as normed halves, for the linear that the norm behind it goes into: where that one
 * would have a launch leave them, in scratch that all products share. Only linears write there, each before its product reads
 * it; so the consumer must be the very next linear behind the producer, and then has no such launch. What the producer had there, its own x,
 * has been read by its product when another launch, behind that, leaves the norm. The result is in its tensor as ever: the residual stream has
 * more readers.
 */
function normedBehind(
  { nodes }: Graph,
  ofLinear: ReadonlyMap<NodeOf<'linear'>, Fusable>,
): Map<NodeOf<'linear'>, NodeOf<'linear'>> {
  const linears = nodes.filter((node) => node.op === 'linear');
  const pairs = linears.flatMap((consumer, i): [NodeOf<'linear'>, NodeOf<'linear'>][] => {
    const producer = linears[i - 1];
    const norm = ofLinear.get(consumer)?.norm ?? null;
    return producer !== undefined && producer.exact !== true && norm?.x === producer.out
      ? [[producer, consumer]]
      : [];
  });
  return new Map(pairs);
}

/**
 * What is handed over lies in scratch that all nodes share. So from the producer on, up to the consumer and with it, no other node may
 * give; nor attend, where attention gave: its partials may be merged by the consumer. Models whose attention and products
 * stand side by side hand over less.
 */
function dropOverlaps(graph: Graph, consumers: Map<Producer, NodeOf<'linear'>>): void {
  const at = new Map(graph.nodes.map((node, i) => [node, i]));
  const producers = new Set<Node>(consumers.keys());
  for (const [producer, consumer] of [...consumers]) {
    const between = graph.nodes.slice(at.get(producer)! + 1, at.get(consumer)! + 1);
    const taken = (node: Node): boolean =>
      producers.has(node) || (producer.op === 'attend' && node.op === 'attend');
    if (between.some(taken)) consumers.delete(producer);
  }
}
