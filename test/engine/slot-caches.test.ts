/** What runs without an engine, on a model with recurrent layers: a state for each sequence, not for each block. */
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { createCpuDevice } from '../../src/device/cpu/index.js';
import { kvBlockBytes } from '../../src/device/kv.js';
import { calibrateKv } from '../../src/engine/calibrate.js';
import { slotCacheBytes, slotCaches } from '../../src/engine/slot-caches.js';
import { loadFolder, MODEL_FIXTURES } from '../parity/runner.js';

const SIZES = { slots: 2, context: 200, blockTokens: 16 };

describe('caches of a hybrid', () => {
  it('take blocks for each position, and a state for each sequence', async () => {
    await using device = await createCpuDevice({ threads: 1 });
    const model = await loadFolder(join(MODEL_FIXTURES, 'qwen3.5-moe'), device);
    const of = (recurrent: boolean) =>
      model.kvLayers.filter(({ state }) => (state !== undefined) === recurrent);
    const wanted = 2 * (13 * kvBlockBytes(of(false), 16) + kvBlockBytes(of(true), 16));
    expect(slotCacheBytes(model.kvLayers, SIZES)).toBe(wanted);
    const caches = slotCaches(device, model.kvLayers, SIZES);
    expect(caches.pools.map(({ spec }) => spec.blocks)).toEqual([26, 2]);
    expect(caches.layers.map(({ group }) => group)).toEqual([1, 0, 1]);
    caches.dispose();
  });

  it('calibrate the layers that attend', async () => {
    await using device = await createCpuDevice({ threads: 1, precision: 'reference' });
    const model = await loadFolder(join(MODEL_FIXTURES, 'qwen3.5-moe'), device);
    const caches = slotCaches(device, model.kvLayers, { ...SIZES, slots: 1 });
    const texts = [150, 40].map((length, text) =>
      Int32Array.from({ length }, (_, i) => 3 + ((i * 7 + text) % 60)),
    );
    const { layers, tokens } = await calibrateKv(model, device, caches, texts);
    expect(tokens).toBe(190);
    expect(layers.map(({ kvHeads, headDim }) => [kvHeads, headDim])).toEqual([[1, 16]]);
    expect(layers[0]!.keys.every((square) => Number.isFinite(square) && square > 0)).toBe(true);
    caches.dispose();
  });
});
