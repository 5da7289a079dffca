import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Device } from '../../src/device/device.js';
import type { ColumnPart, Tensor } from '../../src/device/graph.js';
import type { Ops } from '../../src/device/ops.js';
import { type DeviceSpec, kernelDevices } from './devices.js';
import { Random } from './numbers.js';
import { runOnce } from './run.js';

/** Heads of 8 and of 4 of two inputs, part of them for every head, and columns that stay empty. */
const COLS = 3 * 16 + 4;
const parts = (a: Tensor, b: Tensor): readonly ColumnPart[] => [
  { x: a, from: 4, to: 0, cols: 8, count: 3, fromStep: 12, toStep: 16 },
  { x: b, from: 0, to: 8, cols: 4, count: 3, fromStep: 0, toStep: 16 },
  { x: a, from: 0, to: 48, cols: 4, count: 1, fromStep: 12, toStep: 4 },
];

describe.each(kernelDevices)('columns side by side on $name', (spec: DeviceSpec) => {
  let device: Device;
  beforeAll(async () => {
    device = await spec.create();
  });
  afterAll(async () => {
    await device[Symbol.asyncDispose]();
  });

  it('puts runs where they belong, and zeros elsewhere', async () => {
    const random = new Random(5);
    const rows = 9;
    const [a, b] = [random.normals(rows * 36), random.normals(rows * 8)];
    const got = await runOnce(device, rows, { cols: 36, data: a }, (_, t) => t, {
      cols: 8,
      data: b,
      use: (ops, t, g) => ops.columns(COLS, parts(t, g)),
    });
    const wanted = new Float32Array(rows * COLS);
    for (let r = 0; r < rows; r++) {
      for (let head = 0; head < 3; head++)
        for (let c = 0; c < 8; c++) {
          wanted[r * COLS + head * 16 + c] = a[r * 36 + head * 12 + 4 + c]!;
          if (c < 4) wanted[r * COLS + head * 16 + 8 + c] = b[r * 8 + c]!;
        }
      wanted.set(a.subarray(r * 36, r * 36 + 4), r * COLS + 48);
    }
    expect(got).toEqual(wanted);
  });

  it.each([
    ['ends behind its input', { from: 8 }],
    ['ends behind the result', { to: 24 }],
    ['is no multiple of 4', { cols: 6 }],
    ['meets the next', { toStep: 4 }],
    ['is none', { count: 0 }],
  ])('refuses a run that %s', async (_, change) => {
    const part = { from: 0, to: 0, cols: 8, count: 3, fromStep: 12, toStep: 16, ...change };
    const run = runOnce(device, 1, { cols: 36, data: new Float32Array(36) }, (ops: Ops, t: Tensor) =>
      ops.columns(COLS, [{ x: t, ...part }]),
    );
    await expect(run).rejects.toMatchObject({ code: 'shape-mismatch' });
  });
});
