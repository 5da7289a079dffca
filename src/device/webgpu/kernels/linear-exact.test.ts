import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Random, worstRow } from '../../../../test/devices/numbers.js';
import * as reference from '../../../../test/devices/reference.js';
import { formatLabel, randomMatrix } from '../../../../test/devices/sources.js';
import { shapeOf } from '../../../../test/setup/linear-inputs.js';
import { uploadTo } from '../../../../test/setup/raw-buffers.js';
import { runKernel } from '../../../../test/setup/run-kernel.js';
import { openTestDevice } from '../../../../test/setup/swiftshader.js';
import type { MatrixFormat } from '../../weights.js';
import type { WebGpuDevice } from '../device.js';
import { exactLinear } from './linear-exact.js';

const BF16 = { kind: 'float', dtype: 'bf16' } as const;
const F16 = { kind: 'float', dtype: 'f16' } as const;
const F32 = { kind: 'float', dtype: 'f32' } as const;
const Q8 = { kind: 'affine', bits: 8, groupSize: 64, dtype: 'f16' } as const;

/** Formats, features, columns and rows. Rows of 64 pieces and more have 64 lanes: of 256 columns in f32, of 512 in halves, of 2,048 in codes. */
const CASES: readonly (readonly [MatrixFormat, features: number, cols: number, rows: number])[] = [
  // Fewer pieces than lanes.
  [BF16, 4, 48, 64],
  [F32, 37, 61, 64],
  [F16, 64, 504, 513],
  // As many, and one lane with one more.
  [BF16, 4, 512, 513],
  [F16, 27, 519, 64],
  [F32, 60, 259, 513],
  // A part of the passes has one more.
  [BF16, 128, 773, 64],
  [F32, 32, 451, 70],
  // Several in each lane, and experts as models have them.
  [BF16, 256, 2048, 64],
  [BF16, 128, 1409, 513],
  [F16, 1, 1030, 64],
  [F32, 3, 1027, 129],
  [Q8, 36, 2112, 65],
];

describe('exact products', () => {
  let device: WebGpuDevice;
  let raw: GPUDevice;
  beforeAll(async () => {
    ({ device, raw } = await openTestDevice());
  });
  afterAll(async () => {
    await device[Symbol.asyncDispose]();
  });

  it.each(CASES.map(([format, ...sizes]) => [formatLabel(format), sizes, format] as const))(
    '%s, %j: rows have the same bits in every form',
    async (_, [n, k, rows], format) => {
      const random = new Random(n * k + rows);
      const { source, values } = randomMatrix(random, n, k, format);
      const shard = (await device.loadMatrix([source], { use: 'linear' })).shards[0]!;
      const x = random.normals(rows * k);
      // What pads a row may be anything.
      const stride = Math.ceil(k / 4) * 4;
      const padded = new Float32Array(rows * stride).fill(Number.NaN);
      for (let r = 0; r < rows; r++) padded.set(x.subarray(r * k, (r + 1) * k), r * stride);
      const run = async (from: number, count: number): Promise<Float32Array> => {
        const more = { weight: shard.layout, xStride: stride, outStride: n };
        const kernel = exactLinear(shapeOf(count, n, k, more));
        const roles = {
          params: uploadTo(raw, kernel.stages[0]!.params!, 64 | 8),
          x: uploadTo(raw, padded.subarray(from * stride, (from + count) * stride)),
          step: uploadTo(raw, new Uint32Array([count, count, 1, 0])),
          codes: shard.codes,
          metas: shard.metas ?? shard.codes,
          out: raw.createBuffer({ size: count * n * 4, usage: 128 | 4 | 8 }),
        };
        const out = await runKernel(raw, kernel, count, roles);
        for (const role of ['params', 'x', 'step', 'out'] as const) roles[role].destroy();
        return out;
      };
      const out = await run(0, rows);
      const bound = shard.layout.kind === 'float' ? 2e-6 : 2e-3;
      const expected = reference.linear(x, values, rows, k, n);
      if (n > 1) expect(worstRow(out, expected, rows, n)).toBeLessThan(bound);
      else for (const [r, v] of out.entries()) expect(Math.abs(v - expected[r]!)).toBeLessThan(bound * 4);
      // One row, some, and as many as the kernels of few rows take: all of these rows between them.
      for (let from = 0; from < rows; ) {
        const count = Math.min(from === 0 ? 1 : from === 1 ? 7 : 63, rows - from);
        expect(await run(from, count)).toEqual(out.slice(from * n, (from + count) * n));
        from += count;
      }
    },
  );
});
