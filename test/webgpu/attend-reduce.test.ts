/** The merge of the partials of rows, against float64: of one, of fewer than are loaded at once, of as many and of more. */
import { afterAll, beforeAll, expect, it } from 'vitest';
import type { WebGpuDevice } from '../../src/device/webgpu/device.js';
import type { AttendShape } from '../../src/device/webgpu/kernels/attend.js';
import { reduceStage } from '../../src/device/webgpu/kernels/attend-reduce.js';
import { allRows } from '../../src/device/webgpu/kernels/kv-rows.js';
import { reduceSlices } from '../../src/device/webgpu/kernels/registry.js';
import { F16 } from '../devices/kv-cases.js';
import { LARGE } from '../devices/large-gpu.js';
import { Random } from '../devices/numbers.js';
import { uploadTo } from '../setup/raw-buffers.js';
import { runKernel } from '../setup/run-kernel.js';
import { openTestDevice } from '../setup/swiftshader.js';

const HEADS = 3;
/** Partials of each row; four slices of 41 are of 11, 11, 11 and 8, and of 2 two are of none; seven are of 6, the last of 5. */
const SPLITS = [1, 2, 7, 8, 9, 17, 41];

let device: WebGpuDevice;
let raw: GPUDevice;
beforeAll(async () => {
  ({ device, raw } = await openTestDevice());
});
afterAll(async () => {
  await device[Symbol.asyncDispose]();
});

it.each([
  [1, 64],
  [4, 64],
  [1, 128],
  [4, 128],
  [7, 64],
  [8, 128],
])('merges partials in %i slices, %i dims', async (slices, headDim) => {
  const random = new Random(5);
  const rows = SPLITS.length;
  const items = SPLITS.reduce((n, s) => n + s, 0);
  const shape: AttendShape = {
    heads: HEADS,
    kvHeads: 1,
    headDim,
    key: F16,
    value: F16,
    rows: allRows(1),
    blockTokens: 32,
    maxBlocksPerSlot: 1,
    scale: 1,
    window: null,
    softcap: null,
    maxItems: items,
  };
  const sums = random.normals(items * HEADS * headDim);
  const tops = random.normals(items * HEADS * 2).map((v, i) => (i % 2 === 0 ? 5 * v : 1 + Math.abs(v)));
  // Rows of the merge lie at vector 3: row of `out`, its first item, its splits.
  const step = new Uint32Array((3 + rows) * 4);
  step[4] = rows;
  step[9] = 3;
  let first = 0;
  SPLITS.forEach((splits, r) => {
    step.set([r, first, splits, 0], (3 + r) * 4);
    first += splits;
  });
  const stage = reduceStage(shape, slices);
  const got = await runKernel(
    raw,
    {
      stages: [
        {
          ...stage,
          workgroups: (_, size) => {
            size[0] = HEADS;
            size[1] = rows;
            size[2] = 1;
          },
        },
      ],
    },
    rows,
    {
      step: uploadTo(raw, step),
      scratchSums: uploadTo(raw, sums),
      scratchTops: uploadTo(raw, tops),
      params: uploadTo(raw, stage.params!, 64 | 8),
      out: raw.createBuffer({ size: rows * HEADS * headDim * 4, usage: 128 | 4 }),
    },
  );
  first = 0;
  SPLITS.forEach((splits, r) => {
    for (let h = 0; h < HEADS; h++) {
      const of = (i: number): number => (first + i) * HEADS + h;
      const indices = Array.from({ length: splits }, (_, i) => i);
      const top = Math.max(...indices.map((i) => tops[of(i) * 2]!));
      const factors = indices.map((i) => Math.exp(tops[of(i) * 2]! - top));
      const total = indices.reduce((sum, i) => sum + factors[i]! * tops[of(i) * 2 + 1]!, 0);
      const want = Array.from(
        { length: headDim },
        (_, d) => indices.reduce((sum, i) => sum + factors[i]! * sums[of(i) * headDim + d]!, 0) / total,
      );
      const at = (r * HEADS + h) * headDim;
      const off = Math.hypot(...want.map((v, d) => v - got[at + d]!)) / Math.hypot(...want);
      expect(off, `${splits} partials, head ${h}`).toBeLessThan(2e-6);
    }
    first += splits;
  });
});

it('cuts few rows into more slices, where a workgroup may have the threads, and none where the order counts', () => {
  expect([1, 4, 5, 32].map((rows) => reduceSlices(LARGE, rows, 128))).toEqual([10, 10, 4, 4]);
  expect(reduceSlices({ ...LARGE, workgroupThreads: 320 }, 1, 128)).toBe(10);
  expect(reduceSlices({ ...LARGE, workgroupThreads: 319 }, 1, 128)).toBe(4);
  expect(reduceSlices({ ...LARGE, workgroupThreads: 320 }, 1, 256)).toBe(4);
  expect(reduceSlices({ ...LARGE, deterministic: true }, 1, 128)).toBe(1);
  expect(reduceSlices({ ...LARGE, precision: 'reference' }, 1, 128)).toBe(1);
});
