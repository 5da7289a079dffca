import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Device } from '../../src/device/device.js';
import { type DeviceSpec, kernelDevices } from './devices.js';
import { Random } from './numbers.js';
import { expectScan, RecurrentBench, worst } from './recurrent-bench.js';
import * as recurrent from './recurrent-reference.js';
import { runOnce } from './run.js';
import { vectorSource } from './sources.js';

/** As Qwen3.5 has it, and sizes that pieces of work do not divide. */
const CASES = [
  { name: 'wide heads', keyHeads: 1, heads: 2, rows: 128, cols: 32, conv: null },
  {
    name: 'values wider than keys, behind a convolution',
    keyHeads: 2,
    heads: 4,
    rows: 16,
    cols: 24,
    conv: 3,
  },
  { name: 'rows of no four parts', keyHeads: 2, heads: 2, rows: 20, cols: 4, conv: null },
  { name: 'gates among others', keyHeads: 1, heads: 3, rows: 8, cols: 4, conv: null, gates: [9, 5] },
] as const;

describe.each(kernelDevices)('gated delta rule on $name', (spec: DeviceSpec) => {
  let device: Device;
  beforeAll(async () => {
    device = await spec.create();
  });
  afterAll(async () => {
    await device[Symbol.asyncDispose]();
  });

  it.each(CASES)('with $name', async ({ keyHeads, heads, rows, cols, conv, ...more }) => {
    const [gatesFrom, behind] = 'gates' in more ? more.gates : [undefined, 0];
    const random = new Random(rows);
    // Some heads forget at once, some hardly.
    const decay = Float32Array.from({ length: 2 * heads }, (_, i) =>
      i < heads ? -Math.exp(2 * random.normal() - 2) : random.normal(),
    );
    const vector = await device.loadVector(vectorSource(decay));
    const width = 2 * keyHeads * rows + heads * cols;
    const gatesAt = width + (gatesFrom ?? 0);
    const beside = (gatesFrom ?? 0) + 2 * heads + behind;
    const shape = {
      conv: conv === null ? null : { channels: 8, taps: conv },
      matrix: { heads, rows, cols },
    };
    const sizes = { keyHeads, heads, rows, cols, ...(gatesFrom === undefined ? {} : { gatesFrom }) };
    await using bench = await RecurrentBench.create(device, shape, [width, beside], (ops, [x, gates]) =>
      ops.gatedDelta(x!, gates!, { layer: 1, ...sizes, decay: vector }),
    );
    await expectScan(bench, random, width + beside, 3e-5, (own) => {
      const gates = own.map((row) => row.subarray(gatesAt));
      return recurrent.gatedDelta(own, gates, { ...sizes, decay });
    });
  });

  it.each([
    { name: 'runs normed, then SiLU', cols: 96, width: 24, activation: 'silu' },
    { name: 'a run of an odd width', cols: 38, width: 19, activation: 'sigmoid' },
    { name: 'no norm', cols: 35, width: null, activation: 'sigmoid' },
    { name: 'no norm, wider than a workgroup', cols: 601, width: null, activation: 'silu' },
  ] as const)('gates: $name', async ({ cols, width, activation }) => {
    const random = new Random(cols);
    const count = 7;
    const [x, by] = [random.normals(count * cols), random.normals(count * cols, 3)];
    const weight = width === null ? null : random.normals(width);
    const eps = 1e-3;
    const norm = weight === null ? null : { weight: await device.loadVector(vectorSource(weight)), eps };
    const got = await runOnce(device, count, { cols, data: x }, (_, t) => t, {
      cols,
      data: by,
      use: (ops, t, g) => ops.gate(t, g, activation, norm),
    });
    const run = width ?? cols;
    for (let at = 0; at < x.length; at += run) {
      const part = (all: Float32Array): Float32Array => all.subarray(at, at + run);
      const wanted = recurrent.gate(part(x), part(by), activation, weight === null ? null : { weight, eps });
      expect(worst([part(got)], [wanted])).toBeLessThan(1e-5);
    }
  });

  it('gates: columns of a wider row', async () => {
    const random = new Random(44);
    const [count, cols, from, wide] = [5, 8, 12, 28];
    const [x, by] = [random.normals(count * wide), random.normals(count * cols, 3)];
    const got = await runOnce(device, count, { cols: wide, data: x }, (_, t) => t, {
      cols,
      data: by,
      use: (ops, t, g) => ops.gate(t, g, 'gelu-tanh', null, from),
    });
    for (let r = 0; r < count; r++) {
      const own = x.subarray(r * wide + from, r * wide + from + cols);
      const wanted = recurrent.gate(own, by.subarray(r * cols, (r + 1) * cols), 'gelu-tanh', null);
      expect(worst([got.subarray(r * cols, (r + 1) * cols)], [wanted])).toBeLessThan(1e-5);
    }
  });

  it('gates: by columns of a wider row, in normed runs', async () => {
    const random = new Random(45);
    const [count, cols, from, wide] = [5, 8, 6, 19];
    const [x, by] = [random.normals(count * cols), random.normals(count * wide, 3)];
    const weight = random.normals(4);
    const norm = { weight: await device.loadVector(vectorSource(weight)), eps: 1e-3 };
    const got = await runOnce(device, count, { cols, data: x }, (_, t) => t, {
      cols: wide,
      data: by,
      use: (ops, t, g) => ops.gate(t, g, 'silu', norm, 0, from),
    });
    for (let r = 0; r < count; r++)
      for (const run of [0, 4]) {
        const own = x.subarray(r * cols + run, r * cols + run + 4);
        const gate = by.subarray(r * wide + from + run, r * wide + from + run + 4);
        const wanted = recurrent.gate(own, gate, 'silu', { weight, eps: 1e-3 });
        expect(worst([got.subarray(r * cols + run, r * cols + run + 4)], [wanted])).toBeLessThan(1e-5);
      }
  });

  it('refuses a layer without such a state', async () => {
    const decay = await device.loadVector(vectorSource(new Float32Array(4)));
    const shape = { conv: null, matrix: { heads: 2, rows: 8, cols: 4 } };
    const make = (layer: number, rows: number): Promise<RecurrentBench> =>
      RecurrentBench.create(device, shape, [2 * rows + 8, 4], (ops, [x, gates]) =>
        ops.gatedDelta(x!, gates!, { layer, keyHeads: 1, heads: 2, rows, cols: 4, decay }),
      );
    await expect(make(1, 4)).rejects.toMatchObject({ code: 'shape-mismatch' });
    await expect(make(2, 8)).rejects.toMatchObject({ code: 'shape-mismatch' });
  });
});
