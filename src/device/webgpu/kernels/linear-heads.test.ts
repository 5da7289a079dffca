import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { LARGE } from '../../../../test/devices/large-gpu.js';
import { Random, worstRow } from '../../../../test/devices/numbers.js';
import * as reference from '../../../../test/devices/reference.js';
import { randomMatrix } from '../../../../test/devices/sources.js';
import { emulateMatrices } from '../../../../test/setup/emulate-matrices.js';
import { Q4, shapeOf } from '../../../../test/setup/linear-inputs.js';
import { uploadTo } from '../../../../test/setup/raw-buffers.js';
import { runKernel } from '../../../../test/setup/run-kernel.js';
import { openTestDevice } from '../../../../test/setup/swiftshader.js';
import type { WebGpuDevice } from '../device.js';
import type { LinearShape } from '../kernel.js';
import { gemmOf, specOf } from './linear-choice.js';
import { headsLinear, headsTile } from './linear-heads.js';
import type { MatrixGemmConfig } from './linear-matrix-plan.js';

/** GLM-4.7-Flash: what makes keys into queries, and values of sums of latents. */
const KEYS = (rows: number): LinearShape =>
  shapeOf(rows, 20 * 512, 192, {
    weight: { kind: 'float', dtype: 'f16' },
    xStride: 20 * 256,
    heads: { rows: 512, from: 0, step: 256, first: 0 },
  });
const VALUES = (rows: number): LinearShape =>
  shapeOf(rows, 20 * 256, 512, { xStride: 20 * 512, heads: { rows: 256, from: 0, step: 512, first: 0 } });

describe('products of heads on matrices', () => {
  let device: WebGpuDevice;
  let raw: GPUDevice;
  beforeAll(async () => {
    ({ device, raw } = await openTestDevice({ minLanes: 4 }));
  });
  afterAll(async () => {
    await device[Symbol.asyncDispose]();
  });

  it.each([
    ['f32', { kind: 'float', dtype: 'f32' }],
    ['4 bits', { ...Q4, groupSize: 32 }],
  ] as const)('emulated: %s, of a shard that begins within', async (_, weight) => {
    const [rows, each, k, from, step, first] = [11, 16, 64, 8, 72, 2];
    const [heads, width] = [3, 8 + 5 * 72];
    const random = new Random(3);
    const format = weight.kind === 'float' ? weight : ({ ...weight, dtype: 'f16' } as const);
    const { source, values } = randomMatrix(random, heads * each, k, format);
    const x = random.normals(rows * width);
    const shape = shapeOf(rows, heads * each, k, {
      weight,
      xStride: width,
      outStride: 5 * each,
      outOffset: first * each,
      heads: { rows: each, from, step, first },
    });
    const expected = new Float64Array(rows * heads * each);
    for (let h = 0; h < heads; h++) {
      const own = Float32Array.from(
        { length: rows * k },
        (_, i) => x[Math.floor(i / k) * width + from + (first + h) * step + (i % k)]!,
      );
      const part = reference.linear(own, values.subarray(h * each * k, (h + 1) * each * k), rows, k, each);
      for (let r = 0; r < rows; r++)
        expected.set(part.subarray(r * each, (r + 1) * each), (r * heads + h) * each);
    }
    const { codes, metas } = (await device.loadMatrix([source], { use: 'linear' })).shards[0]!;
    const matrix = { m: 4, n: 4, k: 4, component: 'f32', result: 'f32' };
    const base = { matrix, subgroupSize: 1, sk: 1, buffers: 1, workgroupBytes: 16384 } as const;
    const configs: readonly MatrixGemmConfig[] = [
      { ...base, bm: 4, bn: 8, bk: 32, sm: 1, sn: 2, depth: 2 },
      { ...base, bm: 8, bn: 16, bk: 64, sm: 2, sn: 2, depth: 1 },
    ];
    const results: Float32Array[] = [];
    for (const config of configs) {
      const roles = {
        x: uploadTo(raw, x),
        step: uploadTo(raw, new Uint32Array([rows, rows, 1, 0])),
        codes,
        metas: metas ?? codes,
        out: raw.createBuffer({ size: rows * 5 * each * 4, usage: 128 | 4 | 8 }),
      };
      const kernel = gemmOf(shape, { ...specOf(shape), heads: shape.heads! }, config, 256);
      const all = await runKernel(raw, kernel, rows, roles, (text) => emulateMatrices(text, 4));
      const got = Float32Array.from(expected, (_, i) => {
        const [r, f] = [Math.floor(i / (heads * each)), i % (heads * each)];
        return all[r * 5 * each + first * each + f]!;
      });
      expect(worstRow(got, expected, rows, heads * each)).toBeLessThan(2e-5);
      results.push(got);
    }
    expect(results[1]).toEqual(results[0]);
  });

  it('have tiles of any size for any number of rows, or none', () => {
    for (const shape of [KEYS, VALUES]) {
      const tiles = [1, 16, 32, 64, 512].map((rows) => headsTile(LARGE, shape(rows)));
      expect(tiles.map((tile) => tile?.bm)).toEqual([16, 16, 32, 32, 128]);
      // K is never shared out.
      for (const tile of tiles) expect(tile).toMatchObject({ sk: 1 });
      for (const tile of tiles) expect(tile?.splitK).toBeUndefined();
    }
    const narrow = { ...VALUES(1), heads: { rows: 8, from: 0, step: 512, first: 0 } };
    for (const rows of [1, 512]) expect(headsTile(LARGE, { ...narrow, rows })).toBeNull();
    expect(headsTile({ ...LARGE, deterministic: true }, KEYS(1))).toBeNull();
    expect(headsLinear(LARGE, narrow).stages[0]!.label).toMatch(/^linear gemv/);
  });
});
