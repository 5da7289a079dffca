/** What loading holds beside the weights themselves: a few pieces on their way, and no tensor twice. */
import { fileURLToPath } from 'node:url';
import { expect, it } from 'vitest';
import { createCpuDevice } from '../../src/device/cpu/index.js';
import type { MatrixRows, MatrixSource } from '../../src/device/weights.js';
import { Engine } from '../../src/engine/engine.js';
import { estimateActivations } from '../../src/engine/memory-use.js';
import { parseModelConfig } from '../../src/models/families.js';
import { loadModel } from '../../src/models/load.js';
import type { WeightSource } from '../../src/models/resolve-weights.js';
import { Checkpoint } from '../../src/weights/checkpoint.js';

const MODEL = fileURLToPath(new URL('../../models/demo-text', import.meta.url));
/** Of that model. */
const WIDTHS = {
  hiddenSize: 384,
  intermediateSize: 1024,
  heads: 4,
  kvHeads: 2,
  headDim: 128,
  vocabSize: 4096,
};
const MB = 1e6;

it('reads every piece into one of three rooms', async () => {
  await using checkpoint = await Checkpoint.open(MODEL);
  await using device = await createCpuDevice({ threads: 1 });
  const rooms = new Set<ArrayBufferLike>();
  let pieces = 0;
  const watched = (source: MatrixSource): MatrixSource => ({
    ...{ name: source.name, rows: source.rows, cols: source.cols, format: source.format },
    async readRows(start, end, room): Promise<MatrixRows> {
      const rows = await source.readRows(start, end, room);
      expect(rows.data.buffer).toBe(room);
      rooms.add(rows.data.buffer);
      pieces++;
      return rows;
    },
  });
  const source: WeightSource = {
    has: (name) => checkpoint.has(name),
    matrix: (name, expected) => watched(checkpoint.matrix(name, expected)),
    vector: (name, length) => checkpoint.vector(name, length),
    info: (name) => checkpoint.info(name),
    unusedNames: () => checkpoint.unusedNames(),
  };
  const model = await loadModel(source, parseModelConfig(checkpoint.config), device);
  expect(pieces).toBeGreaterThan(40);
  // A room that is too small for a later matrix is given up for a larger one.
  const bytes = [...rooms].reduce((sum, room) => sum + room.byteLength, 0);
  expect(rooms.size).toBeLessThanOrEqual(6);
  expect(bytes).toBeLessThan(10 * MB);
  expect(model.parameterBytes).toBeGreaterThan(3 * bytes);
  // Weights as they were stored, with the factors and paddings of their rows.
  expect(device.stats().bytes).toBeLessThan(1.03 * checkpoint.totalBytes);
});

it('takes little beside weights and KV, whatever their size', async () => {
  const over: number[] = [];
  for (const [maxContext, maxRows] of [
    [256, 1],
    [4096, 4],
  ] as const) {
    await using engine = await Engine.load(MODEL, {
      device: 'cpu',
      threads: 2,
      maxContext,
      maxRows,
      worker: false,
    });
    const { device } = await engine.stats();
    const { memory, kv, limits } = engine.info;
    expect(memory.weights).toBe(engine.info.model.weightBytes);
    expect(memory.caches.reduce((sum, bytes) => sum + bytes, memory.floatStart)).toBe(kv.bytes);
    // Rows' own lists come when the engine begins.
    expect(device.bytes - memory.total).toBeLessThan(10_000);
    expect(device.bytes - memory.total).toBeGreaterThanOrEqual(0);
    expect(device.peakBytes).toBeGreaterThanOrEqual(memory.total);
    // What `kvant inspect` says before anything is loaded is near it.
    const told = estimateActivations(WIDTHS, limits.maxBatchTokens, limits.maxRows);
    expect(told / memory.activations).toBeGreaterThan(0.5);
    expect(told / memory.activations).toBeLessThan(1.5);
    over.push(device.bytes - engine.info.model.weightBytes - engine.info.kv.bytes);
  }
  // Activations of a step of 256 tokens and the threads' scratch; with the context grow tables and lists, not copies.
  expect(over[0]).toBeGreaterThan(0);
  expect(over[1]).toBeLessThan(30 * MB);
  expect(over[1]! - over[0]!).toBeLessThan(10 * MB);
});
