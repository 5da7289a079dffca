import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Random, worstRow } from '../../../../test/devices/numbers.js';
import * as reference from '../../../../test/devices/reference.js';
import { LIMITS, record, rowsStep, withProgram } from '../../../../test/devices/run.js';
import { randomMatrix, vectorSource } from '../../../../test/devices/sources.js';
import { openTestDevice, realGpu } from '../../../../test/setup/swiftshader.js';
import type { WebGpuDevice } from '../device.js';
import { entryName, type TuningEntries, type TuningStore } from './decision.js';
import type { TuneReport } from './session.js';

const HIDDEN = 128;
const WIDE = 48;
const ROWS = [1, 2];

class Memory implements TuningStore {
  entries: TuningEntries = {};
  reads = 0;
  read = async (): Promise<TuningEntries> => {
    this.reads++;
    return this.entries;
  };
  add = async (entries: TuningEntries): Promise<void> => {
    this.entries = { ...this.entries, ...entries };
  };
}

/** Two gated MLPs with their norms, and float64 for them. */
async function makeModel(device: WebGpuDevice) {
  const random = new Random(5);
  const q4 = { kind: 'affine', bits: 4, groupSize: 32, dtype: 'f16' } as const;
  const gain = random.normals(HIDDEN);
  const norm = await device.loadVector(vectorSource(gain));
  const layers = await Promise.all(
    [0, 1].map(async () => {
      const up = randomMatrix(random, 2 * WIDE, HIDDEN, q4);
      const down = randomMatrix(random, HIDDEN, WIDE * 2, { ...q4 });
      return {
        up,
        down,
        upMatrix: await device.loadMatrix([up.source], { use: 'linear' }),
        downMatrix: await device.loadMatrix([down.source], { use: 'linear' }),
      };
    }),
  );
  const recorded = record((ops) => {
    const x = ops.input('tokens', HIDDEN);
    let y = x;
    for (const { upMatrix, downMatrix } of layers)
      y = ops.linear(ops.linear(ops.rmsNorm(y, norm, 1e-5), upMatrix), downMatrix, y);
    return { x, y: ops.keep(y) };
  });
  const expected = (x: Float32Array, rows: number): Float64Array => {
    let y = Float64Array.from(x);
    for (const { up, down } of layers) {
      const wide = reference.linear(
        reference.rmsNorm(y, gain, rows, HIDDEN, 1e-5),
        up.values,
        rows,
        HIDDEN,
        2 * WIDE,
      );
      const narrow = reference.linear(wide, down.values, rows, 2 * WIDE, HIDDEN);
      y = y.map((v, i) => v + narrow[i]!);
    }
    return y;
  };
  return { recorded, expected };
}

/** One product, and float64 for it. */
async function makeProduct(device: WebGpuDevice) {
  const random = new Random(6);
  const q4 = { kind: 'affine', bits: 4, groupSize: 32, dtype: 'f16' } as const;
  const { source, values } = randomMatrix(random, 2 * WIDE, HIDDEN, q4);
  const matrix = await device.loadMatrix([source], { use: 'linear' });
  const recorded = record((ops) => {
    const x = ops.input('tokens', HIDDEN);
    return { x, y: ops.keep(ops.linear(x, matrix)) };
  });
  const expected = (x: Float32Array, rows: number): Float64Array =>
    reference.linear(Float64Array.from(x), values, rows, HIDDEN, 2 * WIDE);
  return { recorded, expected };
}

describe('tuning a device', () => {
  let device: WebGpuDevice;
  let model: Awaited<ReturnType<typeof makeModel>>;
  beforeAll(async () => {
    ({ device } = await openTestDevice({ minLanes: 4 }, {}, true));
    model = await makeModel(device);
  });
  afterAll(async () => {
    await device[Symbol.asyncDispose]();
  });

  const x = new Random(8).normals(2 * HIDDEN);
  async function outputs(): Promise<Float32Array[]> {
    const { graph, tensors } = model.recorded;
    return withProgram(device, graph, null, async (program) => {
      const list: Float32Array[] = [];
      for (const rows of ROWS) {
        program.write(tensors.x, x.subarray(0, rows * HIDDEN));
        await program.submit(rowsStep(rows));
        list.push(await program.read(tensors.y, rows));
      }
      return list;
    });
  }
  const check = (got: Float32Array[]): void => {
    ROWS.forEach((rows, i) => {
      const want = model.expected(x.subarray(0, rows * HIDDEN), rows);
      // Operands of products are halves on a GPU with matrices.
      expect(worstRow(got[i]!, want, rows, HIDDEN)).toBeLessThan(realGpu ? 5e-3 : 1e-4);
    });
  };
  const tune = (options: Partial<Parameters<WebGpuDevice['tune']>[2]>): Promise<TuneReport> =>
    device.tune(model.recorded.graph, LIMITS, { mode: 'full', rows: ROWS, ...options });

  it('does nothing at all when off', async () => {
    const store = new Memory();
    const { created } = device;
    const report = await tune({ mode: 'off', store });
    expect(report.decisions).toEqual([]);
    expect(store.reads).toBe(0);
    expect(device.created).toBe(created);
  });

  it('measures what it may, leaves nothing on the device, and changes no bit when it is safe', async () => {
    const before = await outputs();
    check(before);
    const { buffers, bytes } = device.stats();
    const store = new Memory();
    const progress: string[] = [];
    const report = await tune({
      mode: 'safe',
      store,
      onProgress: (done, total) => progress.push(`${done}/${total}`),
    });
    expect(report.complaint).toBeNull();
    // Up and down, at one row and at two; both layers are of one shape.
    expect(report.decisions.map((d) => d.by)).toEqual(Array(4).fill('measured'));
    expect(report.decisions.map((d) => d.rows)).toEqual([1, 1, 2, 2]);
    expect(progress).toEqual(['0/4', '1/4', '2/4', '3/4', '4/4']);
    for (const { times, ruleUs, us } of report.decisions) {
      expect(times.every((t) => t.neutral)).toBe(true);
      expect(times.filter((t) => t.us > 0).length).toBeGreaterThan(1);
      expect(us).toBeLessThanOrEqual(ruleUs);
    }
    expect(device.stats()).toMatchObject({ buffers, bytes });
    expect(Object.keys(store.entries)).toEqual(report.decisions.map((d) => entryName('safe', d.key)));
    const after = await outputs();
    expect(after).toEqual(before);
  });

  it('takes what the cache knows without measuring, and stays within the bound whatever it takes', async () => {
    const { device: other } = await openTestDevice({ minLanes: 4 }, {}, true);
    try {
      const { recorded, expected } = await makeProduct(other);
      const run = (mode: 'safe' | 'full', store: TuningStore, budgetMs: number) =>
        other.tune(recorded.graph, LIMITS, { mode, rows: [2], store, budgetMs });
      const store = new Memory();
      const first = await run('full', store, 1e9);
      expect(first.decisions.map((d) => d.by)).toEqual(['measured']);
      // For either mode.
      expect(Object.keys(store.entries)).toHaveLength(2);
      const { created } = other;
      const again = await run('full', store, 0);
      expect(again.decisions.map((d) => [d.by, d.choice])).toEqual(
        first.decisions.map((d) => ['cache', d.choice]),
      );
      expect(other.created).toBe(created);
      const rows = 2;
      await withProgram(other, recorded.graph, null, async (program) => {
        program.write(recorded.tensors.x, x);
        await program.submit(rowsStep(rows));
        const got = await program.read(recorded.tensors.y, rows);
        expect(worstRow(got, expected(x, rows), rows, 2 * WIDE)).toBeLessThan(realGpu ? 5e-3 : 1e-4);
      });
      // Nothing known and no time: the rules choose.
      const none = await run('full', new Memory(), 0);
      expect(none.decisions.map((d) => [d.by, d.choice === d.rule])).toEqual([['skipped', true]]);
    } finally {
      await other[Symbol.asyncDispose]();
    }
  });

  it('has nothing to choose where every sum has one order', async () => {
    const { device: strict } = await openTestDevice({ minLanes: 4, deterministic: true });
    try {
      const { recorded } = await makeModel(strict);
      const { created } = strict;
      const report = await strict.tune(recorded.graph, LIMITS, { mode: 'full', rows: ROWS });
      expect(report.decisions).toEqual([]);
      expect(strict.created).toBe(created);
    } finally {
      await strict[Symbol.asyncDispose]();
    }
  });
});
