import { describe, expect, it } from 'vitest';

import type { Tensor } from '../graph.js';
import { Ops } from '../ops.js';
import type { Matrix } from '../weights.js';
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
  const { takers, givers } = findFusions(ops.finish());
  for (const [giver, taker] of takers) expect(givers.get(taker)).toBe(giver);
  expect(givers.size).toBe(takers.size);
  return [...takers.keys()].map(({ op }) => op);
}

describe('what nodes hand over', () => {
  it('is what attention and what a glu leave for the one linear that reads it', () => {
    const found = handovers(({ attend, project, gate, down }) => {
      project(attend());
      down(gate());
    });
    expect(found.sort()).toEqual(['attend', 'linear']);
  });

  it('is one thing at a time: between giver and taker nobody else gives', () => {
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
