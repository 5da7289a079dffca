/** What pictures add to rows: rows of the feature slab behind a layer, weighed rows of a table. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Device } from '../../src/device/device.js';
import { FEATURE_TOKEN } from '../../src/device/feature-slab.js';
import { kernelDevices } from './devices.js';
import { Random } from './numbers.js';
import { record, rowsStep, stepOf, withProgram } from './run.js';
import { vectorSource } from './sources.js';

const f32 = Math.fround;

describe.each(kernelDevices)('rows that are added on $name', (spec) => {
  let device: Device;
  const random = new Random(11);
  beforeAll(async () => {
    device = await spec.create();
  });
  afterAll(async () => {
    await device[Symbol.asyncDispose]();
  });

  it.each([
    [64, 128, 64],
    [36, 76, 40],
    [7, 12, 4],
    [5, 5, 0],
  ])('%i of a slab with %i columns, from column %i', async (cols, slabCols, column) => {
    const slab = device.createFeatureSlab({ rows: 9, cols: slabCols });
    const data = random.normals(9 * slabCols);
    slab.write(0, data);
    const { graph, tensors } = record((ops) => {
      const x = ops.input('tokens', cols);
      return { x, out: ops.keep(ops.addFeatures(x, slab, column)) };
    });
    await withProgram(device, graph, null, async (program) => {
      const tokens = [3, FEATURE_TOKEN + 8, FEATURE_TOKEN, FEATURE_TOKEN - 1, FEATURE_TOKEN + 8, -1, 0];
      const x = random.normals(tokens.length * cols);
      program.write(tensors.x, x);
      const step = rowsStep(tokens.length);
      step.tokens.set(tokens);
      await program.submit(step);
      const got = await program.read(tensors.out, tokens.length);
      const want = x.map((value, i) => {
        const token = tokens[Math.floor(i / cols)]!;
        if (token < FEATURE_TOKEN) return value;
        return f32(value + data[(token - FEATURE_TOKEN) * slabCols + column + (i % cols)]!);
      });
      expect(got).toEqual(want);
      const beyond = rowsStep(1);
      beyond.tokens[0] = FEATURE_TOKEN + 9;
      const refused = expect.objectContaining({ code: 'invalid-step' });
      await expect((async () => program.submit(beyond))()).rejects.toEqual(refused);
    });
    const shape = expect.objectContaining({ code: 'shape-mismatch' });
    for (const at of [slabCols, 1, -4])
      expect(() => record((ops) => ops.addFeatures(ops.input('tokens', cols), slab, at))).toThrowError(shape);
    slab.dispose();
  });

  it.each([
    [1, 64, 1],
    [3, 36, 4],
    [9, 7, 4],
    [40, 130, 2],
    [5, 6, 16],
  ])('%i rows of %i columns, %i taps of a table', async (rows, cols, count) => {
    const tableRows = 13;
    const values = random.normals(tableRows * cols);
    const table = await device.loadVector(vectorSource(values));
    const { graph, tensors } = record((ops) => {
      const x = ops.input('tokens', cols);
      const taps = ops.input('tokens', 2 * count);
      return { x, taps, out: ops.keep(ops.addGathered(x, table, taps)) };
    });
    const x = random.normals(rows * cols);
    const taps = new Float32Array(rows * 2 * count);
    for (let r = 0; r < rows; r++)
      for (let j = 0; j < count; j++) {
        taps[r * 2 * count + j] = (r * 5 + j * 7) % tableRows;
        taps[r * 2 * count + count + j] = random.normals(1)[0]!;
      }
    await withProgram(device, graph, null, async (program) => {
      program.write(tensors.x, x);
      program.write(tensors.taps, taps);
      await program.submit(rowsStep(rows));
      const got = await program.read(tensors.out, rows);
      x.forEach((value, i) => {
        const [r, c] = [Math.floor(i / cols), i % cols];
        let want = value;
        for (let j = 0; j < count; j++)
          want += taps[r * 2 * count + count + j]! * values[taps[r * 2 * count + j]! * cols + c]!;
        expect(Math.abs(got[i]! - want)).toBeLessThan(4e-6);
      });
      // A row alone has the bits that it has in company.
      program.write(tensors.x, x.subarray((rows - 1) * cols));
      program.write(tensors.taps, taps.subarray((rows - 1) * 2 * count));
      await program.submit(rowsStep(1));
      expect(await program.read(tensors.out, 1)).toEqual(got.subarray((rows - 1) * cols));
    });
    const shape = expect.objectContaining({ code: 'shape-mismatch' });
    for (const [width, taps] of [
      [cols, 3],
      [cols + 1, 2],
    ] as const)
      expect(() =>
        record((ops) => ops.addGathered(ops.input('tokens', width), table, ops.input('tokens', taps))),
      ).toThrowError(shape);
  });

  it.each([64, 7])('rows of %i columns by the positions of their tokens', async (cols) => {
    const tableRows = 6;
    const values = random.normals(tableRows * cols);
    const table = await device.loadVector(vectorSource(values));
    const { graph, tensors } = record((ops) => {
      const x = ops.input('tokens', cols);
      return { x, out: ops.keep(ops.addGathered(x, table, 'position')) };
    });
    // The last one is beyond the table: it takes the last row.
    const positions = [0, 1, 2, 4, 5, 6];
    const x = random.normals(positions.length * cols);
    await withProgram(device, graph, null, async (program) => {
      program.write(tensors.x, x);
      await program.submit(stepOf([3, 3], [0, 4]));
      const got = await program.read(tensors.out, positions.length);
      const want = x.map((value, i) => {
        const row = Math.min(positions[Math.floor(i / cols)]!, tableRows - 1);
        return f32(value + values[row * cols + (i % cols)]!);
      });
      expect(got).toEqual(want);
    });
    expect(() =>
      record((ops) => ops.addGathered(ops.input('outputs', cols), table, 'position')),
    ).toThrowError(expect.objectContaining({ code: 'shape-mismatch' }));
  });
});
