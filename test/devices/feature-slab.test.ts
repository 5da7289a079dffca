/** Tokens that are rows of the feature slab, between ids and what slots drew last. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Device } from '../../src/device/device.js';
import { FEATURE_TOKEN } from '../../src/device/feature-slab.js';
import type { MatrixFormat } from '../../src/device/weights.js';
import { kernelDevices } from './devices.js';
import { Random } from './numbers.js';
import { LIMITS, record, rowsStep, withProgram } from './run.js';
import { randomMatrix } from './sources.js';

const VOCAB = 96;
const Q4: MatrixFormat = { kind: 'affine', bits: 4, groupSize: 32, dtype: 'f16' };
const F32: MatrixFormat = { kind: 'float', dtype: 'f32' };

describe.each(kernelDevices)('the feature slab on $name', (spec) => {
  let device: Device;
  const random = new Random(5);
  beforeAll(async () => {
    device = await spec.create();
  });
  afterAll(async () => {
    await device[Symbol.asyncDispose]();
  });

  it.each([
    ['of hidden states', 64, 64, F32],
    ['with more behind them, of a quantised table', 96, 288, Q4],
    ['of an odd width', 36, 39, F32],
  ] as const)('holds rows %s', async (_, hidden, cols, format) => {
    const table = randomMatrix(random, VOCAB, hidden, format);
    const weight = await device.loadMatrix([table.source], { use: 'embedding' });
    const slab = device.createFeatureSlab({ rows: 12, cols });
    const data = random.normals(12 * cols);
    slab.write(0, data.subarray(0, 5 * cols));
    slab.write(5, data.subarray(5 * cols));
    const { graph, tensors } = record((ops) => ops.keep(ops.embed(weight, 2, slab)));
    await withProgram(device, graph, null, async (program) => {
      const tokens = [
        3,
        FEATURE_TOKEN + 11,
        VOCAB - 1,
        FEATURE_TOKEN,
        FEATURE_TOKEN + 5,
        VOCAB,
        FEATURE_TOKEN - 1,
      ];
      const step = rowsStep(tokens.length);
      step.tokens.set(tokens);
      await program.submit(step);
      const got = await program.read(tensors, tokens.length);
      tokens.forEach((token, t) => {
        const row = [...got.subarray(t * hidden, (t + 1) * hidden)];
        if (token >= FEATURE_TOKEN) {
          // As they are: the scale is that of the table.
          const at = (token - FEATURE_TOKEN) * cols;
          expect(row).toEqual([...data.subarray(at, at + hidden)]);
        } else if (token >= VOCAB) expect(row).toEqual(Array(hidden).fill(0));
        else
          row.forEach((value, i) => {
            expect(value).toBeCloseTo(2 * table.values[token * hidden + i]!, 3);
          });
      });
    });
    slab.dispose();
  });

  it('gives tokens that name rows one row of a table beside it', async () => {
    const hidden = 32;
    const table = randomMatrix(random, 9, hidden, F32);
    const weight = await device.loadMatrix([table.source], { use: 'embedding' });
    const slab = device.createFeatureSlab({ rows: 12, cols: hidden });
    const { graph, tensors } = record((ops) => {
      ops.keep(ops.embed(weight, 1, slab));
      return ops.keep(ops.embedBeside(weight, 0.5, 4));
    });
    await withProgram(device, graph, null, async (program) => {
      const tokens = [3, FEATURE_TOKEN + 11, 8, FEATURE_TOKEN, 9];
      const step = rowsStep(tokens.length);
      step.tokens.set(tokens);
      await program.submit(step);
      const got = await program.read(tensors, tokens.length);
      [3, 4, 8, 4, null].forEach((row, t) => {
        for (let i = 0; i < hidden; i++)
          expect(got[t * hidden + i]).toBeCloseTo(row === null ? 0 : table.values[row * hidden + i]! / 2, 3);
      });
    });
    slab.dispose();
    expect(() => record((ops) => ops.embedBeside(weight, 1, 9))).toThrowError(
      expect.objectContaining({ code: 'shape-mismatch' }),
    );
  });

  it('takes what another program has computed, at any rows and columns', async () => {
    const [hidden, cols] = [32, 96];
    const table = await device.loadMatrix([randomMatrix(random, 8, hidden, F32).source], {
      use: 'embedding',
    });
    const slab = device.createFeatureSlab({ rows: 10, cols });
    const whole = device.createFeatureSlab({ rows: 10, cols: hidden });
    const tower = record((ops) => {
      const x = ops.input('tokens', hidden);
      return { x, y: ops.keep(ops.add(x, x)) };
    });
    const before = device.stats().buffers;
    await withProgram(device, tower.graph, null, async (program) => {
      const x = random.normals(4 * hidden);
      program.write(tower.tensors.x, x);
      await program.submit(rowsStep(4));
      slab.write(0, new Float32Array(10 * cols).fill(7));
      program.store(tower.tensors.y, slab, { first: 6, rows: 4 });
      program.store(tower.tensors.y, slab, { first: 2, rows: 3, column: 64 });
      program.store(tower.tensors.y, whole, { first: 1, rows: 4 });
      program.store(tower.tensors.y, whole, { first: 5, rows: 2, from: 1 });
      const refused = expect.objectContaining({ code: 'shape-mismatch' });
      for (const place of [
        { first: 7, rows: 4 },
        { first: 0, rows: 1, column: 68 },
        { first: -1, rows: 1 },
        { first: 0, rows: LIMITS.maxTokens + 1 },
        { first: 0, rows: 2, from: LIMITS.maxTokens - 1 },
        { first: 0, rows: 1, from: -1 },
      ])
        expect(() => program.store(tower.tensors.y, slab, place)).toThrowError(refused);
      expect(() => program.store(tower.tensors.x, slab, { first: 0, rows: 1, column: 1.5 })).toThrowError();
      for (const [from, rows] of [
        [slab, [7, 7, 7, 7, 7, 7, 0, 1, 2, 3]],
        [whole, [null, 0, 1, 2, 3, 1, 2]],
      ] as const) {
        const text = record((ops) => ops.keep(ops.embed(table, 1, from)));
        await withProgram(device, text.graph, null, async (reader) => {
          const step = rowsStep(rows.length);
          step.tokens.set(rows.map((_, i) => FEATURE_TOKEN + i));
          await reader.submit(step);
          const got = await reader.read(text.tensors, rows.length);
          rows.forEach((row, r) => {
            if (row === null) return;
            const wanted =
              row === 7
                ? Array(hidden).fill(7)
                : [...x.subarray(row * hidden, (row + 1) * hidden)].map((v) => 2 * v);
            expect([...got.subarray(r * hidden, (r + 1) * hidden)]).toEqual(wanted);
          });
        });
      }
    });
    expect(device.stats().buffers).toBe(before);
    slab.dispose();
    whole.dispose();
  });

  it('is refused where it has no such row, or does not fit', async () => {
    const table = await device.loadMatrix([randomMatrix(random, 8, 32, F32).source], { use: 'embedding' });
    const slab = device.createFeatureSlab({ rows: 3, cols: 32 });
    const refused = expect.objectContaining({ code: 'invalid-step' });
    for (const [features, row] of [
      [slab, 3],
      [null, 0],
    ] as const) {
      const { graph } = record((ops) => ops.keep(ops.embed(table, 1, features)));
      await withProgram(device, graph, null, async (program) => {
        const step = rowsStep(1);
        step.tokens[0] = FEATURE_TOKEN + row;
        await expect((async () => program.submit(step))()).rejects.toEqual(refused);
      });
    }
    const shape = expect.objectContaining({ code: 'shape-mismatch' });
    expect(() => slab.write(2, new Float32Array(64))).toThrowError(shape);
    expect(() => slab.write(0, new Float32Array(33))).toThrowError(shape);
    const narrow = device.createFeatureSlab({ rows: 3, cols: 16 });
    expect(() => record((ops) => ops.embed(table, 1, narrow))).toThrowError(shape);
    slab.dispose();
    narrow.dispose();
  });
});
