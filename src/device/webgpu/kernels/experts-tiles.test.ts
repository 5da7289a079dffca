import { describe, expect, it } from 'vitest';
import type { Capabilities, MatrixConfig } from '../kernel.js';
import type { ShardLayout } from '../weights-layout.js';
import type { ExpertShard, ExpertsShape } from './experts.js';
import { chooseExpertTiles, expertTilesDown, expertTilesUp } from './experts-tiles.js';
import { matrixGemmOrder } from './linear-matrix-plan.js';
import type { LinearSpec } from './linear-spec.js';

const halves = (size: number): MatrixConfig => ({
  m: size,
  n: size,
  k: size,
  component: 'f16',
  result: 'f32',
});

function capabilitiesOf(matrix: MatrixConfig, workgroupBytes: number, workgroupThreads = 1024): Capabilities {
  return {
    f16: true,
    subgroups: true,
    subgroupMinSize: 32,
    subgroupMaxSize: 32,
    minLanes: 32,
    matrices: [matrix],
    deterministic: false,
    precision: 'default',
    workgroupBytes,
    workgroupThreads,
    storageBuffers: 10,
  } as unknown as Capabilities;
}

const AFFINE: ShardLayout = { kind: 'affine', bits: 4, groupSize: 32, meta: 'f16' };
const FLOAT: ShardLayout = { kind: 'float', dtype: 'f16' };

/** Of gpt-oss-20b, of Gemma 4 26B-A4B, and one whose columns only steps of 32 divide. */
const SHAPES = [
  { count: 32, k: 4, cols: 2880, inner: 2880 },
  { count: 128, k: 8, cols: 2816, inner: 704 },
  { count: 8, k: 2, cols: 1056, inner: 96 },
];

function shapeOf({ k, cols, inner }: (typeof SHAPES)[number], rows: number): ExpertsShape {
  return {
    rowKind: 'tokens',
    rows,
    k,
    cols,
    inner,
    outCols: cols,
    activation: 'silu',
    pieceCols: 4,
    workgroupBytes: 49_152,
  };
}

describe('tiles of experts', () => {
  it.each([
    ['a large GPU', capabilitiesOf(halves(16), 49_152)],
    ['less workgroup memory', capabilitiesOf(halves(16), 32_768)],
    ['few threads', capabilitiesOf(halves(16), 32_768, 128)],
    ['matrices of 8 × 8', capabilitiesOf(halves(8), 32_768, 256)],
  ])('add up in one order at every number of rows: %s', (_, capabilities) => {
    for (const sizes of SHAPES)
      for (const layout of [AFFINE, FLOAT]) {
        const shard: ExpertShard = { first: 0, end: sizes.count, layout, bias: true };
        const orders = new Set<string>();
        for (let rows = 1; rows <= 8192; rows *= 2) {
          const shape = shapeOf(sizes, rows);
          const tiles = chooseExpertTiles(capabilities, shape, sizes.count, [shard], [shard]);
          expect(tiles !== null, `${rows} rows`).toBe(rows * sizes.k >= 2 * sizes.count);
          if (tiles === null) continue;
          for (const config of [tiles.up, tiles.down]) {
            expect(config.bm).toBe(tiles.bm);
            // The order of what goes through workgroup memory: with a stack always.
            const spec = {
              n: 64,
              k: 64,
              rows: 64,
              stack: {},
              glu: null,
              out: 'f16',
            } as unknown as LinearSpec;
            orders.add(matrixGemmOrder(spec, config));
          }
          for (const kernel of [expertTilesUp(shape, shard, tiles), expertTilesDown(shape, shard, tiles)])
            for (const { wgsl } of kernel.stages)
              expect(Number(/workgroup_size\((\d+)\)/.exec(wgsl)![1])).toBeLessThanOrEqual(
                capabilities.workgroupThreads,
              );
        }
        expect(orders.size).toBe(1);
      }
  });

  it('has subgroups that only load where an expert has few rows: they neither multiply nor store', () => {
    const capabilities = capabilitiesOf(halves(16), 49_152);
    const sizes = SHAPES[0]!;
    const shard: ExpertShard = { first: 0, end: sizes.count, layout: AFFINE, bias: false };
    const shape = shapeOf(sizes, 32);
    const tiles = chooseExpertTiles(capabilities, shape, sizes.count, [shard], [shard])!;
    expect(tiles.up).toMatchObject({ bm: 16, sm: 1, sn: 2, sk: 1, loaders: 2 });
    const [stage] = expertTilesUp(shape, shard, tiles).stages;
    expect(stage!.wgsl).toContain('@workgroup_size(128)');
    // Every product and every store of a matrix stands in a block of those that multiply.
    const blocks = stage!.wgsl.split('if (sub < 2u) {');
    expect(blocks[0]).not.toMatch(/subgroupMatrix(MultiplyAccumulate|Store)/);
    for (const block of blocks.slice(1)) {
      let depth = 1;
      let at = 0;
      while (depth > 0) depth += { '{': 1, '}': -1 }[block[at++]!] ?? 0;
      expect(block.slice(at)).not.toMatch(/subgroupMatrix(MultiplyAccumulate|Store)/);
    }
  });
});
