import { describe, expect, it } from 'vitest';

import type { Tensor } from '../graph.js';
import { Ops } from '../ops.js';
import type { Matrix, Vector } from '../weights.js';
import { findFusions } from './fusion.js';

const SHAPE = { layer: 0, heads: 2, kvHeads: 1, headDim: 32 };
const matrix = (rows: number, cols: number): Matrix => ({ kind: 'matrix', rows, cols, bytes: 0 });

/** Attention and a gated MLP over the same x, in an order that `build` says. */
function handovers(
  build: (parts: {
    readonly attend: () => Tensor;
    readonly project: (attended: Tensor) => Tensor;
    readonly gate: () => Tensor;
    readonly down: (gated: Tensor) => Tensor;
  }) => void,
): string[] {
  const ops = new Ops();
  const x = ops.input('tokens', 64);
  build({
    attend: () => {
      const qkv = ops.linear(x, matrix(128, 64));
      return ops.attend(ops.ropeAppend(qkv, { ...SHAPE, norm: null, rope: null }), SHAPE);
    },
    project: (attended) => ops.keep(ops.linear(attended, matrix(64, 64))),
    gate: () => ops.glu(ops.linear(x, matrix(256, 64)), 'silu'),
    down: (gated) => ops.keep(ops.linear(gated, matrix(64, 128))),
  });
  const { consumers, producers } = findFusions(ops.finish());
  for (const [producer, consumer] of consumers) expect(producers.get(consumer)).toBe(producer);
  expect(producers.size).toBe(consumers.size);
  return [...consumers.keys()].map(({ op }) => op);
}

describe('what nodes hand over', () => {
  it('is what attention and what a glu leave for the one linear that reads it', () => {
    const found = handovers(({ attend, project, gate, down }) => {
      project(attend());
      down(gate());
    });
    expect(found.sort()).toEqual(['attend', 'linear']);
  });

  it('is one thing at a time: between producer and consumer nobody else gives', () => {
    expect(
      handovers(({ attend, project, gate, down }) => {
        const attended = attend();
        down(gate());
        project(attended);
      }),
    ).toEqual(['linear']);
    expect(
      handovers(({ attend, project, gate, down }) => {
        const gated = gate();
        project(attend());
        down(gated);
      }),
    ).toEqual(['attend']);
    // Crossed: what was given first is written over.
    expect(
      handovers(({ attend, project, gate, down }) => {
        const attended = attend();
        const gated = gate();
        project(attended);
        down(gated);
      }),
    ).toEqual(['linear']);
  });

  it('is nothing of attention where another one leaves its partials before they are merged', () => {
    expect(
      handovers(({ attend, project }) => {
        const attended = attend();
        const other = attend();
        project(attended);
        project(other);
        project(other);
      }),
    ).toEqual([]);
    expect(
      handovers(({ attend, project }) => {
        const other = attend();
        const attended = attend();
        project(attended);
        project(other);
        project(other);
      }),
    ).toEqual(['attend']);
  });

  it('is nothing that somebody else reads', () => {
    const found = handovers(({ attend, project }) => {
      const attended = attend();
      project(attended);
      project(attended);
    });
    expect(found).toEqual([]);
  });
});

describe('the norm between two linears', () => {
  const gain: Vector = { kind: 'vector', length: 64 };
  /** How many linears leave what they make normed, in a graph over x and the weights of a norm. */
  const pairs = (build: (ops: Ops, x: Tensor) => Tensor[]): number => {
    const ops = new Ops();
    for (const y of build(ops, ops.input('tokens', 64))) ops.keep(y);
    const graph = ops.finish();
    const { normConsumers, normProducers } = findFusions(graph);
    for (const [producer, consumer] of normConsumers) {
      expect(normProducers.get(consumer)).toBe(producer);
      // Nothing that may write where it is left.
      const between = graph.nodes.slice(graph.nodes.indexOf(producer) + 1, graph.nodes.indexOf(consumer));
      expect(between.map(({ op }) => op)).not.toContain('linear');
    }
    expect(normProducers.size).toBe(normConsumers.size);
    return normConsumers.size;
  };
  const linear = (ops: Ops, x: Tensor): Tensor => ops.linear(x, matrix(64, 64));
  const norm = (ops: Ops, x: Tensor): Tensor => ops.rmsNorm(x, gain, 1e-6);

  it('is left by the first, whoever else reads that', () => {
    expect(pairs((ops, x) => [linear(ops, norm(ops, linear(ops, x)))])).toBe(1);
    const stream = pairs((ops, x) => {
      const y = linear(ops, x);
      return [ops.linear(norm(ops, y), matrix(64, 64), y), ops.add(y, y), y];
    });
    expect(stream).toBe(1);
    const chain = pairs((ops, x) => {
      let y = x;
      for (let i = 0; i < 4; i++) y = linear(ops, norm(ops, y));
      return [y];
    });
    // Before the first norm stands no linear.
    expect(chain).toBe(3);
  });

  it('is not where another linear stands between them', () => {
    const other = pairs((ops, x) => {
      const y = linear(ops, x);
      const z = linear(ops, x);
      return [linear(ops, norm(ops, y)), z];
    });
    expect(other).toBe(0);
    // Two norms of one tensor: the nearer linear.
    const two = pairs((ops, x) => {
      const y = linear(ops, x);
      const [first, second] = [norm(ops, y), norm(ops, y)];
      return [linear(ops, first), linear(ops, second)];
    });
    expect(two).toBe(1);
  });

  it('is not where the norm does not vanish into the second', () => {
    const shared = pairs((ops, x) => {
      const normed = norm(ops, linear(ops, x));
      return [linear(ops, normed), linear(ops, normed)];
    });
    const kept = pairs((ops, x) => {
      const normed = norm(ops, linear(ops, x));
      return [normed, linear(ops, normed)];
    });
    const added = pairs((ops, x) => [linear(ops, norm(ops, ops.add(linear(ops, x), x)))]);
    const selected = pairs((ops, x) => [linear(ops, norm(ops, ops.selectOutputs(linear(ops, x))))]);
    expect([shared, kept, added, selected]).toEqual([0, 0, 0, 0]);
  });
});

describe('a norm that goes with a sum', () => {
  const weight: Vector = { kind: 'vector', length: 64 };
  function found(build: (ops: Ops, x: Tensor, y: Tensor) => readonly Tensor[]): number {
    const ops = new Ops();
    for (const out of build(ops, ops.input('tokens', 64), ops.input('tokens', 64))) ops.keep(out);
    const { normOf, sumOf, keptAlive } = findFusions(ops.finish());
    expect(sumOf.size).toBe(normOf.size);
    for (const [sum, norm] of normOf) expect(keptAlive.get(sum)).toContain(norm.x);
    return normOf.size;
  }

  it('is one that the sum right behind it alone reads', () => {
    expect(found((ops, x, y) => [ops.add(y, ops.rmsNorm(x, weight, 1e-6))])).toBe(1);
    expect(found((ops, x, y) => [ops.add(ops.rmsNorm(x, weight, 1e-6), y)])).toBe(1);
    const more = found((ops, x, y) => {
      const kept = ops.rmsNorm(x, weight, 1e-6);
      const both = ops.rmsNorm(x, weight, 1e-6);
      const far = ops.rmsNorm(x, weight, 1e-6);
      const between = ops.scale(y, 2);
      return [kept, ops.add(kept, y), ops.add(both, both), ops.add(far, between)];
    });
    expect(more).toBe(0);
  });
});

describe('the rotation that attention in segments does itself', () => {
  const heads = 2;
  const headDim = 16;
  function found(build: (ops: Ops, x: Tensor, angles: Tensor) => readonly Tensor[], dims = headDim): boolean {
    const ops = new Ops();
    const x = ops.input('tokens', 3 * heads * headDim);
    const angles = ops.input('tokens', dims);
    for (const out of build(ops, x, angles)) ops.keep(out);
    const graph = ops.finish();
    const { rotationOf, attentionOf, keptAlive } = findFusions(graph);
    expect(attentionOf.size).toBe(rotationOf.size);
    // What is rotated must be there when attention reads it.
    for (const [attend, rotation] of rotationOf) expect(keptAlive.get(attend)).toContain(rotation.x);
    return rotationOf.size > 0;
  }
  const rotated = (
    ops: Ops,
    x: Tensor,
    angles: Tensor,
    style: 'half' | 'interleaved' = 'half',
    all = 2 * heads,
  ) => ops.rotate(x, angles, { heads: all, headDim, style });
  const attended = (ops: Ops, x: Tensor): Tensor =>
    ops.attendSegments(x, ops.input('tokens', 2), { heads, headDim });

  it('is one of all heads of q and k that nobody else reads', () => {
    expect(found((ops, x, angles) => [attended(ops, rotated(ops, x, angles))])).toBe(true);
    expect(found((ops, x, angles) => [attended(ops, rotated(ops, x, angles, 'half', heads))])).toBe(false);
    const shared = found((ops, x, angles) => {
      const both = rotated(ops, x, angles);
      return [attended(ops, both), both];
    });
    expect(shared).toBe(false);
  });

  it('is one of pairs that lie whole vectors apart', () => {
    expect(found((ops, x, angles) => [attended(ops, rotated(ops, x, angles, 'interleaved'))])).toBe(false);
    expect(found((ops, x, angles) => [attended(ops, rotated(ops, x, angles))], 12)).toBe(false);
    expect(found((ops, x, angles) => [attended(ops, rotated(ops, x, angles))], 8)).toBe(true);
  });
});
