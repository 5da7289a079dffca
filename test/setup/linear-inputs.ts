/** What a product's kernels read, on a bare device, and its result in float64. */

import type { WebGpuDevice } from '../../src/device/webgpu/device.js';
import type { LinearShape } from '../../src/device/webgpu/kernel.js';
import type { ShardLayout } from '../../src/device/webgpu/weights-layout.js';
import type { MatrixFormat } from '../../src/device/weights.js';
import type { Random } from '../devices/numbers.js';
import * as reference from '../devices/reference.js';
import { randomMatrix } from '../devices/sources.js';
import { uploadTo } from './raw-buffers.js';

/** As models have most of their weights. */
export const Q4 = { kind: 'affine', bits: 4, groupSize: 64, meta: 'f16' } as const;
/** The plainest product of so many rows, features and columns, but for `more`. */
export const shapeOf = (
  rows: number,
  n: number,
  k: number,
  more: Partial<LinearShape> = {},
): LinearShape => ({
  rowKind: 'tokens',
  rows,
  n,
  k,
  weight: Q4,
  xStride: k,
  outStride: more.glu == null ? n : n / 2,
  outOffset: 0,
  bias: false,
  residual: false,
  norm: null,
  glu: null,
  ...more,
});

/** The format that is laid out so, with numbers of 16 bits where it lets one choose. */
function storedFormat(weight: Exclude<ShardLayout, { kind: 'float' }>): MatrixFormat {
  switch (weight.kind) {
    case 'affine':
      return { kind: 'affine', bits: weight.bits, groupSize: weight.groupSize, dtype: 'f16' };
    case 'symmetric':
      return { ...weight, groupSize: 32, dtype: 'f16' };
    case 'k-quant':
      return { ...weight, dtype: 'f16' };
    default:
      return { ...weight, dtype: weight.scale === 'f32-e4m3' ? 'f32' : 'f16' };
  }
}

/** Buffers by role, `out` empty, and `expected`, `[rows][outStride]`. */
export async function linearInputs(
  device: WebGpuDevice,
  raw: GPUDevice,
  shape: LinearShape,
  random: Random,
): Promise<{ readonly roles: Record<string, GPUBuffer>; readonly expected: Float64Array | number[] }> {
  const { rows, n, k, weight } = shape;
  const format = weight.kind === 'float' ? weight : storedFormat(weight);
  const { source, values } = randomMatrix(random, n, k, format);
  const loaded = await device.loadMatrix([source], { use: 'linear' });
  const x = random.normals(rows * k);
  const width = shape.outStride;
  const residual = random.normals(rows * width);
  const gain = random.normals(k);
  const normed = shape.norm === null ? x : reference.rmsNorm(x, gain, rows, k, shape.norm.eps);
  const both = reference.linear(normed, values, rows, k, n);
  const product = shape.glu === null ? both : reference.glu(both, rows, n / 2, shape.glu);
  const expected = product.map((v, i) => v + (shape.residual ? residual[i]! : 0));
  const shard = loaded.shards[0]!;
  const roles: Record<string, GPUBuffer> = {
    x: uploadTo(raw, x),
    residual: uploadTo(raw, residual),
    norm: uploadTo(raw, gain),
    step: uploadTo(raw, new Uint32Array([rows, rows, 1, 0])),
    codes: shard.codes,
    metas: shard.metas ?? shard.codes,
    out: raw.createBuffer({ size: rows * width * 4, usage: 128 | 4 | 8 }),
  };
  return { roles, expected };
}
