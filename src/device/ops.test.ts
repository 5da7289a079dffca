import { describe, expect, it } from 'vitest';
import type { Matrix, Vector } from './device.js';
import { Ops } from './ops.js';

const matrix = (rows: number, cols: number): Matrix => ({ kind: 'matrix', rows, cols, bytes: 0 });
const vector = (length: number): Vector => ({ kind: 'vector', length });
const shape = { heads: 4, kvHeads: 2, headDim: 8 };

describe('Ops', () => {
  it('records nodes and shapes and computes nothing', () => {
    const ops = new Ops();
    const x = ops.embed(matrix(100, 16));
    const h = ops.rmsNorm(x, vector(16), 1e-6);
    const q = ops.ropeAppend(ops.linear(h, matrix(64, 16)), { ...shape, layer: 0, rope: null });
    const y = ops.linear(ops.attend(q, { ...shape, layer: 0 }), matrix(16, 32), x);
    const logits = ops.linear(ops.selectOutputs(y), matrix(100, 16));
    ops.sample(logits);
    const graph = ops.finish();
    expect(graph.nodes.map((n) => n.op)).toEqual([
      'embed',
      'rms-norm',
      'linear',
      'rope-append',
      'attend',
      'linear',
      'select-outputs',
      'linear',
      'sample',
    ]);
    expect(q.cols).toBe(32);
    expect([logits.rows, logits.cols]).toEqual(['outputs', 100]);
    const attend = graph.nodes[4]!;
    expect(attend.op === 'attend' && attend.scale).toBeCloseTo(1 / Math.sqrt(8), 12);
  });

  it.each([
    ['a weight of the wrong width', (o: Ops) => o.linear(o.input('tokens', 8), matrix(4, 9))],
    [
      'a residual of the wrong width',
      (o: Ops) => o.linear(o.input('tokens', 8), matrix(4, 8), o.input('tokens', 5)),
    ],
    [
      'a residual of other rows',
      (o: Ops) => o.linear(o.input('tokens', 8), matrix(4, 8), o.input('outputs', 4)),
    ],
    ['a norm of the wrong length', (o: Ops) => o.rmsNorm(o.input('tokens', 8), vector(7), 1e-6)],
    [
      'a layer norm with a bias of the wrong length',
      (o: Ops) => o.layerNorm(o.input('tokens', 8), null, vector(7), 0),
    ],
    [
      'parts of a norm that overlap',
      (o: Ops) => {
        const part = { cols: 4, groups: 1, weight: null, bias: null };
        return o.norm(
          o.input('tokens', 8),
          'rms',
          [
            { ...part, from: 2 },
            { ...part, from: 4 },
          ],
          0,
        );
      },
    ],
    ['xielu without its numbers', (o: Ops) => o.act(o.input('tokens', 8), 'xielu')],
    ['numbers for an activation that has none', (o: Ops) => o.act(o.input('tokens', 8), 'relu2', vector(4))],
    [
      'qkv of the wrong width',
      (o: Ops) => o.ropeAppend(o.input('tokens', 63), { ...shape, layer: 0, rope: null }),
    ],
    [
      'heads that do not divide',
      (o: Ops) => o.attend(o.input('tokens', 40), { heads: 5, kvHeads: 2, headDim: 8, layer: 0 }),
    ],
    ['an odd gate and up', (o: Ops) => o.glu(o.input('tokens', 7), 'silu')],
    ['unequal summands', (o: Ops) => o.add(o.input('tokens', 8), o.input('tokens', 4))],
    ['sampling of token rows', (o: Ops) => o.sample(o.input('tokens', 8))],
  ])('refuses %s', (_, call) => {
    expect(() => call(new Ops())).toThrowError(expect.objectContaining({ code: 'shape-mismatch' }));
  });
});
