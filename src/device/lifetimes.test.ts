import { describe, expect, it } from 'vitest';
import type { Matrix } from './device.js';
import { nodeInputs, nodeOutput, planLifetimes } from './lifetimes.js';
import { Ops } from './ops.js';

const matrix = (rows: number, cols: number): Matrix => ({
  kind: 'matrix',
  rows,
  cols,
  bytes: rows * cols * 4,
});

/** A small random program: every op takes random earlier tensors. */
function randomGraph(seed: number) {
  let state = seed;
  const next = (below: number): number => {
    state = (Math.imul(state, 1103515245) + 12345) >>> 0;
    return (state >>> 8) % below;
  };
  const ops = new Ops();
  const made = [ops.embed(matrix(10, 8))];
  for (let i = 0; i < 30; i++) {
    const x = made[next(made.length)]!;
    const kind = next(3);
    if (kind === 0) made.push(ops.linear(x, matrix([8, 16, 24][next(3)]!, x.cols)));
    else if (kind === 1) {
      const same = made.filter((t) => t.cols === x.cols);
      made.push(ops.add(x, same[next(same.length)]!));
    } else if (x.cols % 2 === 0) made.push(ops.glu(x, 'silu'));
    if (next(8) === 0) ops.keep(made[made.length - 1]!);
  }
  ops.keep(made[made.length - 1]!);
  return ops.finish();
}

describe('planLifetimes', () => {
  it('never lets a living tensor be overwritten', () => {
    for (let seed = 1; seed < 300; seed++) {
      const graph = randomGraph(seed);
      const plan = planLifetimes(graph);
      // Replay: remember which tensor each storage holds, and demand that what is read is still there.
      const holds = new Map<number, number>();
      for (const node of graph.nodes) {
        for (const input of nodeInputs(node)) expect(holds.get(plan.storageOf[input.id]!)).toBe(input.id);
        const out = nodeOutput(node);
        if (out === null) continue;
        const storage = plan.storageOf[out.id]!;
        for (const input of nodeInputs(node)) expect(plan.storageOf[input.id]).not.toBe(storage);
        expect(plan.storages[storage]!.cols).toBeGreaterThanOrEqual(out.cols);
        expect(plan.storages[storage]!.rows).toBe(out.rows);
        holds.set(storage, out.id);
      }
      for (const kept of graph.kept) expect(holds.get(plan.storageOf[kept.id]!)).toBe(kept.id);
    }
  });

  it('lets no node overwrite what is kept alive until it', () => {
    let shared = 0;
    for (let seed = 1; seed < 100; seed++) {
      const graph = randomGraph(seed);
      const keptAlive = new Map(
        graph.nodes.flatMap((node, at) => {
          const earlier = graph.nodes.slice(0, at).flatMap((other) => nodeOutput(other) ?? []);
          return at % 3 === 0 && earlier.length > 0
            ? [[node, [earlier[(seed * 7 + at) % earlier.length]!]]]
            : [];
        }),
      );
      const plan = planLifetimes(graph, keptAlive);
      const holds = new Map<number, number>();
      for (const node of graph.nodes) {
        const out = nodeOutput(node)!;
        const storage = plan.storageOf[out.id]!;
        for (const tensor of keptAlive.get(node) ?? []) {
          expect(holds.get(plan.storageOf[tensor.id]!)).toBe(tensor.id);
          expect(storage).not.toBe(plan.storageOf[tensor.id]);
        }
        if (holds.has(storage)) shared++;
        holds.set(storage, out.id);
      }
    }
    expect(shared).toBeGreaterThan(1000);
  });

  it('takes no more for the layers of a decoder than is alive at once', () => {
    const ops = new Ops();
    const [hidden, qkv, q, wide] = [48, 64, 32, 256];
    let x = ops.embed(matrix(10, hidden));
    const norm = { kind: 'vector', length: hidden } as const;
    for (let layer = 0; layer < 5; layer++) {
      const shape = { layer, heads: 2, kvHeads: 1, headDim: 16 };
      const rotated = ops.ropeAppend(ops.linear(ops.rmsNorm(x, norm, 1e-6), matrix(qkv, hidden)), {
        ...shape,
        rope: null,
      });
      x = ops.linear(ops.attend(rotated, shape), matrix(hidden, q), x);
      const both = ops.linear(ops.rmsNorm(x, norm, 1e-6), matrix(2 * wide, hidden));
      x = ops.linear(ops.glu(both, 'silu'), matrix(hidden, wide), x);
    }
    ops.keep(x);
    // The residual beside gate and up, and what the glu makes of them.
    const { storages } = planLifetimes(ops.finish());
    expect(storages.reduce((sum, { cols }) => sum + cols, 0)).toBe(2 * wide + wide + hidden);
  });

  it('reuses memory along a chain', () => {
    const ops = new Ops();
    let x = ops.embed(matrix(10, 8));
    for (let i = 0; i < 20; i++) x = ops.linear(x, matrix(8, 8));
    ops.keep(x);
    expect(planLifetimes(ops.finish()).storages.length).toBe(2);
  });

  it('gives every input a storage of its own', () => {
    const ops = new Ops();
    const a = ops.input('tokens', 8);
    const b = ops.input('tokens', 8);
    const c = ops.add(a, a);
    ops.keep(ops.add(c, b));
    const plan = planLifetimes(ops.finish());
    expect(new Set([plan.storageOf[a.id], plan.storageOf[b.id], plan.storageOf[c.id]]).size).toBe(3);
  });

  it('keeps token rows and output rows apart', () => {
    const ops = new Ops();
    const x = ops.embed(matrix(10, 8));
    const y = ops.selectOutputs(x);
    ops.sample(ops.linear(y, matrix(10, 8)));
    const plan = planLifetimes(ops.finish());
    expect(plan.storages.filter((s) => s.rows === 'tokens')).toHaveLength(1);
    expect(plan.storages.filter((s) => s.rows === 'outputs')).toHaveLength(2);
  });
});
