/**
 * Experts in company: a row has the bits that it has alone at every place and among any others, what its experts made is added up by
 * their ids, and no number of an expert that was not chosen is read. Of the counts of rows each kernel that a device has takes some.
 */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Device, Matrix } from '../../src/device/device.js';
import type { MatrixFormat, MatrixSource } from '../../src/device/weights.js';
import { type DeviceSpec, kernelDevices } from './devices.js';
import { Random } from './numbers.js';
import { runOnce } from './run.js';
import { randomMatrix, vectorSource } from './sources.js';

const f32: MatrixFormat = { kind: 'float', dtype: 'f32' };
const COUNT = 6;
const K = 3;
const COLS = 64;
const INNER = 32;
const OUTS = 96;

const FORMATS: readonly MatrixFormat[] = [
  f32,
  { kind: 'float', dtype: 'bf16' },
  { kind: 'affine', bits: 4, groupSize: 32, dtype: 'f16' },
  { kind: 'lut4', bits: 4, table: 'e2m1', scale: 'f32-e4m3', dtype: 'f32' },
];

interface Stacks {
  readonly gateUp: Matrix;
  readonly down: Matrix;
}

/** `damaged`: the experts whose numbers are NaN. A CPU refuses to load such weights: there their biases are. */
async function stacksOf(
  device: Device,
  sourceOf: (rows: number, cols: number) => MatrixSource,
  damaged: (expert: number) => boolean = () => false,
): Promise<Stacks> {
  const stack = (rows: number, cols: number): Promise<Matrix> => {
    const all = Array.from({ length: COUNT }, () => sourceOf(rows, cols));
    const nan = vectorSource(new Float32Array(rows).fill(Number.NaN));
    const bias = all.map((_, e) => (damaged(e) ? nan : null));
    return device.loadMatrix(
      all.map((source, e) => (damaged(e) && device.info.kind !== 'cpu' ? withoutNumbers(source) : source)),
      { use: 'linear', unit: rows, ...(bias.some((one) => one !== null) && { bias }) },
    );
  };
  return { gateUp: await stack(2 * INNER, COLS), down: await stack(OUTS, INNER) };
}

function randomSources(format: MatrixFormat): (rows: number, cols: number) => MatrixSource {
  const random = new Random(31);
  return (rows, cols) => randomMatrix(random, rows, cols, format).source;
}

/** NaN in the place of all its floats: of a matrix of codes its scales. */
function withoutNumbers(source: MatrixSource): MatrixSource {
  const { format } = source;
  const fill = (bytes: Uint8Array): Uint8Array => {
    if (format.dtype === 'f32')
      return new Uint8Array(new Float32Array(bytes.length / 4).fill(Number.NaN).buffer);
    const bits = format.dtype === 'f16' ? 0x7e00 : 0x7fc0;
    return new Uint8Array(new Uint16Array(bytes.length / 2).fill(bits).buffer);
  };
  return {
    ...source,
    readRows: async (start, end) => {
      const rows = await source.readRows(start, end);
      return format.kind === 'float'
        ? { ...rows, data: fill(rows.data) }
        : { ...rows, scales: fill(rows.scales!) };
    },
  };
}

const slices = (all: Float32Array, cols: number): Float32Array[] =>
  Array.from({ length: all.length / cols }, (_, r) => all.slice(r * cols, (r + 1) * cols));

describe.each(kernelDevices)('experts on $name', (spec: DeviceSpec) => {
  let device: Device;
  beforeAll(async () => {
    device = await spec.create();
  });
  afterAll(async () => {
    await device[Symbol.asyncDispose]();
  });

  /** Whether one kernel serves any number of rows: by default a GPU has one for few and one for many. */
  const oneKernel = spec.kind === 'cpu' || spec.slow || spec.bitwise || spec.precision === 'reference';
  const counts = spec.slow ? [2, 7, 33] : [2, 3, 5, 17, 33, 50, 200, 256];

  const run = (stacks: Stacks, x: Float32Array, route: Float32Array): Promise<Float32Array> =>
    runOnce(device, x.length / COLS, { cols: COLS, data: x }, (_, t) => t, {
      cols: 2 * K,
      data: route,
      use: (ops, t, e) => ops.experts(t, e, { count: COUNT, activation: 'silu', ...stacks, residual: null }),
    });

  it.each(FORMATS)('a row is itself at every place: %j', async (format) => {
    const stacks = await stacksOf(device, randomSources(format));
    const random = new Random(9);
    const own = random.normals(COLS);
    const chosen = [1, 2, 4, 0.5, 0.125, 0.75];
    const [alone] = slices(await run(stacks, own, Float32Array.from(chosen)), OUTS);
    expect(alone!.some((value) => value !== 0)).toBe(true);
    for (const rows of counts) {
      const found: Float32Array[] = [];
      for (const parity of [0, 1]) {
        const x = random.normals(rows * COLS);
        const route = new Float32Array(rows * 2 * K);
        for (let r = 0; r < rows; r++) {
          const skipped = random.int(COUNT - K + 1);
          route.set([skipped, skipped + 1, skipped + 2, random.uniform(), random.uniform(), 1], r * 2 * K);
          if (r % 2 !== parity) continue;
          x.set(own, r * COLS);
          route.set(chosen, r * 2 * K);
        }
        found.push(...slices(await run(stacks, x, route), OUTS).filter((_, r) => r % 2 === parity));
      }
      for (const row of found) expect(row, `${rows} rows`).toEqual(oneKernel ? alone : found[0]);
    }
  });

  it('what experts made is added up by their ids, whatever they weigh and who comes first', async () => {
    // An expert makes 1 of a row [1, 0, …]: silu(64) is 64, and up is 1/64.
    const stacks = await stacksOf(device, (rows, cols) => ({
      name: 'ones',
      rows,
      cols,
      format: f32,
      readRows: async (start, end) => {
        const data = new Float32Array((end - start) * cols);
        for (let r = start; r < end; r++)
          data[(r - start) * cols] = rows === OUTS && cols === INNER ? 1 : r < INNER ? 64 : 1 / 64;
        return { data: new Uint8Array(data.buffer) };
      },
    }));
    const [a, b, c] = [2 ** 25, 1, -(2 ** 25)];
    const orders = [
      [a, b, c],
      [a, c, b],
      [b, a, c],
      [b, c, a],
      [c, a, b],
      [c, b, a],
    ] as const;
    for (const rows of spec.slow ? [6, 31] : [6, 31, 200]) {
      const x = new Float32Array(rows * COLS);
      const route = new Float32Array(rows * 2 * K);
      for (let r = 0; r < rows; r++) {
        x[r * COLS] = 1;
        // Now this expert is the first to have been asked, now that one.
        const ids = [
          [0, 2, 4],
          [2, 3, 4],
          [0, 1, 2],
        ][r % 3]!;
        route.set([...ids, ...orders[r % 6]!], r * 2 * K);
      }
      const out = slices(await run(stacks, x, route), OUTS);
      for (const [r, row] of out.entries()) {
        const sum = orders[r % 6]!.reduce((total, weight) => Math.fround(total + weight), 0);
        expect(row, `row ${r} of ${rows}`).toEqual(new Float32Array(OUTS).fill(sum));
      }
    }
  });

  it.each(FORMATS)('reads no number of an expert that was not chosen: %j', async (format) => {
    const whole = await stacksOf(device, randomSources(format));
    const broken = await stacksOf(device, randomSources(format), (expert) => expert % 3 === 0);
    const random = new Random(8);
    for (const rows of spec.slow ? [1, 9] : [1, 2, 9, 70]) {
      const x = random.normals(rows * COLS);
      const route = new Float32Array(rows * 2 * K);
      for (let r = 0; r < rows; r++)
        route.set(r % 2 === 0 ? [1, 2, 4, 0.25, 0.5, 1] : [2, 4, 5, 1, 0.5, 0.25], r * 2 * K);
      const plain = await run(whole, x, route);
      expect(plain.every(Number.isFinite)).toBe(true);
      expect(await run(broken, x, route), `${rows} rows`).toEqual(plain);
      // The damage is there: a row that goes there has it.
      route.set([1, 2, 3], 0);
      expect((await run(broken, x, route)).subarray(0, OUTS).every(Number.isNaN)).toBe(true);
    }
  });
});
