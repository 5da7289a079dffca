import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Random, worstRow } from '../../../../test/devices/numbers.js';
import * as reference from '../../../../test/devices/reference.js';
import { uploadTo } from '../../../../test/setup/raw-buffers.js';
import { runKernel } from '../../../../test/setup/run-kernel.js';
import { openTestDevice } from '../../../../test/setup/swiftshader.js';
import type { WebGpuDevice } from '../device.js';
import type { LinearShape } from '../kernel.js';
import { HALVES, halvesStage } from './linear-halves.js';

const ROWS = 3;

/** Halves are widened to f32 here, for a software GPU has none: what is tested is who reads what, and the sums. */
describe('the stage that makes halves of x', () => {
  let device: WebGpuDevice;
  let raw: GPUDevice;
  beforeAll(async () => {
    ({ device, raw } = await openTestDevice());
  });
  afterAll(async () => {
    await device[Symbol.asyncDispose]();
  });

  async function run(
    k: number,
    xStride: number,
    eps: number | null,
    x: Float32Array,
    gain: Float32Array,
    bucket = ROWS,
  ) {
    const shape: LinearShape = {
      rowKind: 'tokens',
      rows: bucket,
      n: 32,
      k,
      weight: { kind: 'float', dtype: 'f32' },
      xStride,
      outStride: 32,
      outOffset: 0,
      bias: false,
      residual: false,
      norm: eps === null ? null : { eps },
      glu: null,
    };
    const stage = halvesStage(shape, device.capabilities.subgroupMinSize);
    const bindings = stage.bindings.map((b) => ({ ...b, name: b.name === HALVES ? 'out' : b.name }));
    const out = raw.createBuffer({ size: ROWS * k * 4, usage: 128 | 4 });
    const roles = { x: uploadTo(raw, x), norm: uploadTo(raw, gain), out };
    const widened = (wgsl: string): string => wgsl.replace('enable f16;', '').replace(/\bf16\b/g, 'f32');
    const got = await runKernel(raw, { stages: [{ ...stage, bindings }] }, ROWS, roles, widened);
    for (const buffer of Object.values(roles)) buffer.destroy();
    return got;
  }

  // Less than a thread each, some threads with more than others, all that registers hold, and rows that are read twice.
  it.each([40, 1024, 1000, 3080, 8192, 8200])('norms rows of %i', async (k) => {
    const random = new Random(k);
    const xStride = k + 4;
    const x = random.normals(ROWS * xStride, 3);
    const gain = random.normals(k);
    const tight = Float32Array.from(
      { length: ROWS * k },
      (_, i) => x[Math.floor(i / k) * xStride + (i % k)]!,
    );
    const wanted = reference.rmsNorm(tight, gain, ROWS, k, 1e-5);
    expect(worstRow(await run(k, xStride, 1e-5, x, gain), wanted, ROWS, k)).toBeLessThan(1e-6);
    expect(await run(k, xStride, null, x, gain)).toEqual(tight);
  });

  it('finds its rows in a bucket that has more of them than a dimension has workgroups', async () => {
    const k = 40;
    const x = new Random(2).normals(ROWS * k);
    const gain = new Random(3).normals(k);
    for (const eps of [null, 1e-5])
      expect(await run(k, k, eps, x, gain, 65_536)).toEqual(await run(k, k, eps, x, gain));
  });

  it('keeps a row that went wrong wrong, and what no half holds the largest half', async () => {
    const k = 1032;
    const x = new Random(1).normals(ROWS * k);
    x[k + 7] = Number.NaN;
    const gain = new Float32Array(k).fill(1e7);
    const normed = await run(k, k, 1e-5, x, gain);
    expect(normed.subarray(k, 2 * k).every(Number.isNaN)).toBe(true);
    for (const row of [0, 2]) {
      const own = normed.subarray(row * k, (row + 1) * k);
      expect(own.every((v) => Math.abs(v) <= 65504)).toBe(true);
      expect(own.some((v) => v === -65504)).toBe(true);
    }
    const plain = await run(k, k, null, x, gain);
    expect(plain[k + 7]).toBeNaN();
    expect(plain[k + 8]).toBe(x[k + 8]);
  });
});
