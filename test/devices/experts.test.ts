import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Device, Matrix } from '../../src/device/device.js';
import type { ExpertActivation } from '../../src/device/graph.js';
import type { MatrixFormat } from '../../src/device/weights.js';
import { type DeviceSpec, devices } from './devices.js';
import { Random, worstRow } from './numbers.js';
import * as reference from './reference.js';
import { runOnce } from './run.js';
import { randomMatrix, type TestMatrix, vectorSource } from './sources.js';

const f32: MatrixFormat = { kind: 'float', dtype: 'f32' };
const affine = (bits: 3 | 4 | 5 | 8, groupSize: 32 | 64): MatrixFormat => ({
  kind: 'affine',
  bits,
  groupSize,
  dtype: 'f16',
});

interface Shape {
  readonly name: string;
  readonly count: number;
  readonly k: number;
  readonly cols: number;
  readonly inner: number;
  readonly outs: number;
  readonly activation: ExpertActivation;
  readonly format: MatrixFormat;
  readonly down?: MatrixFormat;
  readonly bias?: boolean;
}

const SHAPES: readonly Shape[] = [
  { name: 'f32', count: 7, k: 3, cols: 72, inner: 40, outs: 24, activation: 'silu', format: f32 },
  {
    name: 'bf16, with biases',
    count: 5,
    k: 2,
    cols: 40,
    inner: 56,
    outs: 72,
    activation: { alpha: 1.702, limit: 1.5 },
    format: { kind: 'float', dtype: 'bf16' },
    bias: true,
  },
  {
    name: '4 bits',
    count: 12,
    k: 4,
    cols: 128,
    inner: 64,
    outs: 136,
    activation: 'gelu-tanh',
    format: affine(4, 64),
  },
  {
    name: '3 and 8 bits',
    count: 4,
    k: 1,
    cols: 96,
    inner: 32,
    outs: 40,
    activation: 'gelu',
    format: affine(3, 32),
    down: affine(8, 32),
  },
  {
    name: '4 bits, many experts of a row',
    count: 35,
    k: 34,
    cols: 32,
    inner: 32,
    outs: 8,
    activation: 'silu',
    format: affine(4, 32),
  },
  {
    name: '5 bits, all of them',
    count: 3,
    k: 3,
    cols: 64,
    inner: 64,
    outs: 64,
    activation: 'silu',
    format: affine(5, 64),
  },
  {
    name: 'Q4_K and Q6_K',
    count: 4,
    k: 2,
    cols: 256,
    inner: 256,
    outs: 40,
    activation: 'silu',
    format: { kind: 'k-quant', bits: 4, dtype: 'f16' },
    down: { kind: 'k-quant', bits: 6, dtype: 'f16' },
  },
  {
    name: 'Q4_0 and Q8_0',
    count: 4,
    k: 2,
    cols: 96,
    inner: 64,
    outs: 24,
    activation: 'silu',
    format: { kind: 'symmetric', bits: 4, groupSize: 32, dtype: 'f16' },
    down: { kind: 'symmetric', bits: 8, groupSize: 32, dtype: 'f16' },
  },
  {
    name: 'MXFP4 and NVFP4, with biases',
    count: 5,
    k: 2,
    cols: 96,
    inner: 32,
    outs: 24,
    activation: 'silu',
    format: { kind: 'lut4', bits: 4, table: 'e2m1', scale: 'e8m0', dtype: 'f16' },
    down: { kind: 'lut4', bits: 4, table: 'e2m1', scale: 'f32-e4m3', dtype: 'f32' },
    bias: true,
  },
];

/** Stacks of a shape. `damaged`: experts whose numbers are NaN. */
async function stacksOf(
  device: Device,
  shape: Shape,
  damaged: readonly number[] = [],
): Promise<{ gateUp: Matrix; down: Matrix; values: reference.ExpertStacks }> {
  const { count, cols, inner, outs, activation, bias = false } = shape;
  const random = new Random(count * 100 + cols);
  const load = async (
    rows: number,
    width: number,
    format: MatrixFormat,
  ): Promise<{ matrix: Matrix; values: Float64Array; biases: Float32Array }> => {
    const parts: TestMatrix[] = Array.from({ length: count }, () =>
      randomMatrix(random, rows, width, format),
    );
    const biases = random.normals(count * rows, 0.3);
    for (const e of damaged) biases.fill(Number.NaN, e * rows, (e + 1) * rows);
    const values = new Float64Array(count * rows * width);
    parts.forEach((part, e) => {
      values.set(part.values, e * rows * width);
    });
    const biased = bias || damaged.length > 0;
    const matrix = await device.loadMatrix(
      parts.map(({ source }) => source),
      {
        use: 'linear',
        unit: rows,
        ...(biased && {
          bias: parts.map((_, e) =>
            bias || damaged.includes(e) ? vectorSource(biases.slice(e * rows, (e + 1) * rows)) : null,
          ),
        }),
      },
    );
    return { matrix, values, biases };
  };
  const up = await load(2 * inner, cols, shape.format);
  const down = await load(outs, inner, shape.down ?? shape.format);
  const biases = bias ? { gateUpBias: up.biases, downBias: down.biases } : {};
  return {
    gateUp: up.matrix,
    down: down.matrix,
    values: { count, cols, inner, outs, activation, gateUp: up.values, down: down.values, ...biases },
  };
}

/** `[rows, 2k]`, as `route` gives it: expert 0 is nobody's where there are more than k. */
function routeOf(random: Random, rows: number, { count, k }: Shape): Float32Array {
  const route = new Float32Array(rows * 2 * k);
  for (let r = 0; r < rows; r++) {
    const ids = Array.from({ length: count }, (_, i) => i);
    if (count > k) ids.shift();
    while (ids.length > k) ids.splice(random.int(ids.length), 1);
    // Most rows go to one expert, so that some have many and some have none.
    if (r % 4 !== 3 && count > k) ids.splice(0, k, ...Array.from({ length: k }, (_, j) => count - k + j));
    route.set(ids, r * 2 * k);
    for (let j = 0; j < k; j++) route[r * 2 * k + k + j] = random.uniform();
  }
  return route;
}

/** As for linear, of three products in a row. */
function bound(spec: DeviceSpec, { format }: Shape): number {
  if (spec.kind === 'cpu' && spec.precision === 'default' && format.kind !== 'float') return 4e-2;
  // Of many rows a GPU's matrices round x, and what is between the products, to halves.
  return ownOrder(spec) ? 5e-5 : 2e-3;
}

/** Whether a row's sums have one order whatever the rows beside it: not where a GPU may take matrices. */
function ownOrder({ kind, precision, bitwise, slow }: DeviceSpec): boolean {
  return kind === 'cpu' || precision === 'reference' || bitwise || slow;
}

describe.each(devices)('experts on $name', (spec: DeviceSpec) => {
  let device: Device;
  beforeAll(async () => {
    device = await spec.create();
  });
  afterAll(async () => {
    await device[Symbol.asyncDispose]();
  });

  const run = (
    shape: Shape,
    stacks: { gateUp: Matrix; down: Matrix },
    rows: number,
    x: Float32Array,
    route: Float32Array,
    residual = false,
  ): Promise<Float32Array> =>
    runOnce(device, rows, { cols: shape.cols, data: x }, (_, t) => t, {
      cols: 2 * shape.k,
      data: route,
      use: (ops, t, e) => {
        const { gateUp, down } = stacks;
        const { count, activation } = shape;
        return ops.experts(t, e, { count, activation, gateUp, down, residual: residual ? t : null });
      },
    });

  it.each(SHAPES)('$name agree with float64, and a row alone with itself in company', async (shape) => {
    const { k, cols, outs } = shape;
    const stacks = await stacksOf(device, shape);
    const random = new Random(3);
    const rows = 61;
    const x = random.normals(rows * cols);
    const route = routeOf(random, rows, shape);
    const out = await run(shape, stacks, rows, x, route);
    const want = new Float64Array(rows * outs);
    for (let r = 0; r < rows; r++) {
      const chosen = [...route.subarray(r * 2 * k, (r + 1) * 2 * k)];
      const row = reference.experts(
        x.subarray(r * cols, (r + 1) * cols),
        chosen.slice(0, k),
        chosen.slice(k),
        stacks.values,
      );
      want.set(row, r * outs);
    }
    expect(worstRow(out, want, rows, outs)).toBeLessThan(bound(spec, shape));
    for (const [from, count] of [
      [5, 1],
      [17, 2],
      [3, 5],
      [20, 19],
    ] as const) {
      const some = await run(
        shape,
        stacks,
        count,
        x.slice(from * cols, (from + count) * cols),
        route.slice(from * 2 * k, (from + count) * 2 * k),
      );
      const same = out.slice(from * outs, (from + count) * outs);
      if (ownOrder(spec)) expect(some, `rows ${from} to ${from + count}`).toEqual(same);
      else expect(worstRow(some, Float64Array.from(same), count, outs)).toBeLessThan(bound(spec, shape));
    }
  });

  it('reads nothing of experts that were not chosen, and adds a residual', async () => {
    const shape = { ...SHAPES.find(({ name }) => name.startsWith('5 bits'))!, name: '', count: 6, k: 2 };
    const whole = await stacksOf(device, shape);
    const damaged = await stacksOf(device, shape, [0, 3]);
    const rows = 9;
    const random = new Random(8);
    const x = random.normals(rows * shape.cols);
    const route = new Float32Array(rows * 4);
    for (let r = 0; r < rows; r++) route.set([1 + (r % 2), 4 + (r % 2), 0.25, 0.75], r * 4);
    const plain = await run(shape, whole, rows, x, route);
    expect(plain.every(Number.isFinite)).toBe(true);
    expect(await run(shape, damaged, rows, x, route)).toEqual(plain);
    const added = await run(shape, whole, rows, x, route, true);
    const want = Float64Array.from(plain, (v, i) => v + x[i]!);
    expect(worstRow(added, want, rows, shape.outs)).toBeLessThan(1e-6);
    // A row that goes there has it, and no other row.
    route.set([1, 3], 4 * 4);
    const hit = await run(shape, damaged, rows, x, route);
    expect(hit.subarray(4 * shape.outs, 5 * shape.outs).every(Number.isNaN)).toBe(true);
    hit.copyWithin(4 * shape.outs, 5 * shape.outs, 6 * shape.outs);
    expect(hit.every(Number.isFinite)).toBe(true);
  });

  it('refuses stacks that do not fit', async () => {
    const shape = SHAPES[0]!;
    const stacks = await stacksOf(device, shape);
    const x = new Float32Array(shape.cols);
    const route = new Float32Array(2 * shape.k);
    const given = (changed: Partial<Shape>): Promise<unknown> =>
      run({ ...shape, ...changed }, stacks, 1, x, route);
    await expect(given({ count: 5 })).rejects.toMatchObject({ code: 'shape-mismatch' });
    await expect(given({ cols: 64 })).rejects.toMatchObject({ code: 'shape-mismatch' });
    const random = new Random(1);
    const mixed = await device.loadMatrix(
      Array.from(
        { length: 14 },
        (_, i) => randomMatrix(random, 40, 72, { kind: 'float', dtype: i % 2 ? 'f16' : 'f32' }).source,
      ),
      { use: 'linear', unit: 80 },
    );
    await expect(run(shape, { ...stacks, gateUp: mixed }, 1, x, route)).rejects.toMatchObject({
      code: 'shape-mismatch',
      where: 'experts',
    });
  });
});
