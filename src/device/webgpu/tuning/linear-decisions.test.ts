import { describe, expect, it } from 'vitest';
import { LARGE } from '../../../../test/devices/large-gpu.js';
import { record } from '../../../../test/devices/run.js';
import type { Graph } from '../../graph.js';
import { findFusions } from '../fusion.js';
import { GpuMatrix } from '../matrix.js';
import { linearDecisions } from './linear-decisions.js';
import { TunedChoices } from './tuned-choices.js';

/** Weights of which only the shape is ever looked at. */
function weights(rows: number, cols: number): GpuMatrix {
  const size = (rows * cols) / 2;
  const layout = { kind: 'affine', bits: 4, groupSize: 64, meta: 'f16' } as const;
  const codes = { size } as GPUBuffer;
  return new GpuMatrix(rows, cols, size, [{ rowStart: 0, rows, layout, codes, metas: codes, bias: null }]);
}

describe('products as decisions', () => {
  const shape = { heads: 8, kvHeads: 4, headDim: 128, layer: 0 };
  const [o, gateUp, down] = [weights(1024, 1024), weights(6144, 1024), weights(1024, 3072)];
  const { graph } = record((ops) => {
    const x = ops.input('tokens', 1024);
    const qkv = ops.input('tokens', 2048);
    const q = ops.ropeAppend(qkv, { ...shape, norm: null, rope: null });
    let y = x;
    // Two layers of one shape.
    for (let i = 0; i < 2; i++) {
      y = ops.linear(ops.attend(q, { ...shape, window: null, softcap: null }), o, y);
      y = ops.linear(ops.glu(ops.linear(y, gateUp), 'silu'), down, y);
    }
    return { y: ops.keep(y) };
  });
  const decisionsFor = (rows: number, of: Graph = graph) =>
    linearDecisions(
      of,
      findFusions(of),
      [{ tokens: rows, outputs: 0 }],
      null,
      LARGE,
      new TunedChoices(),
      () => {
        throw new Error('nothing is measured');
      },
    );
  const familiesOf = (rows: number): Record<string, string[]> =>
    Object.fromEntries(
      decisionsFor(rows).map(({ key, candidates }) => [
        key.split(' ')[1]!,
        [...new Set(candidates.map(({ id }) => id.split(' ')[0]!))].sort(),
      ]),
    );

  it('are one for each shape, whatever the layers', () => {
    const decisions = decisionsFor(4);
    expect(decisions.map(({ key }) => key.split(' ')[1])).toEqual(['1024x1024', '6144x1024', '1024x3072']);
    // Codes and metas of the test are as large as codes: 2 · 6144 · 512 bytes, then x and the glu's result.
    expect(decisions[1]).toMatchObject({
      bytes: 6144 * 1024 + 4 * 1024 * 4 + 4 * 3072 * 4,
      operations: 2 * 4 * 6144 * 1024,
    });
  });

  it('leave a kernel its family where it does something for a neighbour', () => {
    // One row: the product behind attention merges its splits.
    expect(familiesOf(1)).toEqual({
      '1024x1024': ['gemv'],
      '6144x1024': ['dp4a', 'gemv', 'resident'],
      '1024x3072': ['dp4a', 'gemv', 'resident'],
    });
    expect(familiesOf(4)['1024x1024']).toEqual(['dp4a', 'gemv', 'resident', 'skinny']);
    // Around a glu, GEMMs hand on halves.
    expect(familiesOf(64)).toMatchObject({ '6144x1024': ['matrix'], '1024x3072': ['matrix'] });
    expect(familiesOf(8)['6144x1024']!.length).toBeGreaterThan(1);
  });

  it('leave large products of a few rows the bytes that they hand on, whichever is taken of each', () => {
    const [up, behind] = [weights(28_672, 4096), weights(4096, 14_336)];
    const { graph: mlp } = record((ops) => {
      const x = ops.input('tokens', 4096);
      return { y: ops.keep(ops.linear(ops.glu(ops.linear(x, up), 'silu'), behind, x)) };
    });
    const of = (rows: number) => {
      const [first, second] = decisionsFor(rows, mlp).map(({ candidates }) => candidates.map(({ id }) => id));
      return { first: first!, second: second! };
    };
    // 64 features of a workgroup at least: half of its weight rows.
    const features = (id: string): number => {
      const [, across, each, subgroups, splits] = /l(\d+) p\d r(\d+) s(\d+) k(\d+)/.exec(id)!.map(Number);
      return ((32 / across!) * each! * (subgroups! / splits!)) / 2;
    };
    for (const rows of [4, 8]) {
      const { first, second } = of(rows);
      for (const ids of [first, second]) {
        expect(ids.length).toBeGreaterThan(3);
        expect(ids.every((id) => id.startsWith('dp4a '))).toBe(true);
      }
      for (const id of first) expect(features(id) % 64, id).toBe(0);
      expect(second.some((id) => id.includes(' p1 '))).toBe(true);
    }
    // One row hands nothing on: nothing ties them.
    expect(of(1).first.some((id) => !id.startsWith('dp4a '))).toBe(true);
  });
});
