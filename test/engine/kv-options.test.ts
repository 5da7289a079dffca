/** From the engine's options to the pool that the device is asked for, on the oracle device. */
import { describe, expect, it } from 'vitest';
import { loadOracle, model, refusal } from './engine-harness.js';
import { oracle } from './oracle-model.js';

const greedy = { temperature: 0, seed: 0 };

describe('KV options', () => {
  it('become the formats of the layers, reported with their bytes', async () => {
    const { engine, device } = await loadOracle({ kvBits: 8, kvValueBits: 4, kvValueScheme: 'turboquant' });
    const spec = [...device.pools][0]!.spec;
    expect(spec.layers).toHaveLength(8);
    for (const layer of spec.layers.slice(0, 7))
      expect(layer).toMatchObject({
        key: { kind: 'affine', bits: 8, groupSize: 64 },
        value: { kind: 'turboquant', bits: 4 },
      });
    // The oracle calls itself a reference: what stays float is f32.
    expect(spec.layers[7]).toMatchObject({ key: { dtype: 'f32' }, value: { dtype: 'f32' } });
    expect(spec.floatStart ?? null).toBeNull();
    const { kv } = engine.info;
    // 2 heads of 128: 136 bytes of K, 66 of V; as f32 512 each.
    expect(kv.layers[0]).toEqual({
      layer: 0,
      kind: 'full',
      key: 'affine8',
      value: 'turbo4',
      keyBytes: 272,
      valueBytes: 132,
    });
    expect(kv.layers[7]).toMatchObject({ key: 'f32', reason: expect.stringMatching(/last/) });
    expect(kv).toMatchObject({ bytesPerToken: 7 * 404 + 2048, floatStart: null });
    expect(kv.bytes).toBe(kv.blocks * 16 * kv.bytesPerToken);
    await engine.close();
  });

  it('a smaller format makes room for more tokens in the same bytes', async () => {
    const tokens = async (kvFormat: string): Promise<number> => {
      const { engine } = await loadOracle({ kvFormat, kvMemory: 6e6, maxRows: 64 });
      const { blocks, bytes } = engine.info.kv;
      await engine.close();
      expect(bytes).toBeLessThanOrEqual(6e6);
      return blocks * 16;
    };
    // Bytes a token: 8192 as f16; 7 layers of 544, 288 and 232 and one of 2048 (f32, a reference) besides.
    expect(await tokens('f16')).toBe(Math.floor(6e6 / 16 / 8192) * 16);
    expect(await tokens('affine8')).toBe(Math.floor(6e6 / 16 / (7 * 544 + 2048)) * 16);
    expect(await tokens('turbo3.5')).toBe(Math.floor(6e6 / 16 / (7 * 232 + 2048)) * 16);
  });

  it('a start makes float-start blocks, and sequences are converted there', async () => {
    const { engine, device } = await loadOracle({ kvBits: 4, quantizedKvStart: 40, kvSkipLayers: [] });
    const spec = [...device.pools][0]!.spec;
    // 4 rows of 40 tokens.
    expect(spec.floatStart).toEqual({ blocks: 12, dtype: 'f32' });
    expect(engine.info.kv.floatStart).toEqual({ start: 40, dtype: 'f32', blocks: 12 });
    expect(engine.info.kv.bytes).toBe(128 * 16 * 8 * 288 + 12 * 16 * 8 * 2048);
    const prompts = [5, 39, 40, 41, 100].map((length) => Array.from({ length }, (_, i) => (i * 7) % 4000));
    const asked = prompts.map((prompt) =>
      engine.generate({ prompt, maxTokens: 30, temperature: 0, ignoreEos: true }),
    );
    for (const [i, { result }] of asked.entries())
      expect((await result).tokenIds).toEqual(oracle(prompts[i]!, 30, model, greedy, 0, [], 40));
    const stats = await engine.stats();
    expect(stats).toMatchObject({ conversions: 4, floatStartBlocksUsed: 0, floatStartBlocksTotal: 12 });
    await engine.close();
  });

  it('a device that is too small gets less of both', async () => {
    const options = { kvBits: 4, quantizedKvStart: 40 };
    const { engine, device } = await loadOracle(options, 50);
    const spec = [...device.pools][0]!.spec;
    expect(spec.blocks).toBeLessThanOrEqual(50);
    expect(spec.blocks * 16).toBeGreaterThanOrEqual(engine.info.limits.maxContext);
    expect(spec.floatStart!.blocks).toBeLessThan(12);
    expect(spec.floatStart!.blocks).toBeGreaterThanOrEqual(3);
    await engine.close();
    // A start that such a device never comes to is no use.
    expect(await refusal(loadOracle({ kvBits: 4, quantizedKvStart: 500 }, 20))).toMatchObject({
      code: 'device-out-of-memory',
    });
  });

  it('what cannot be meant is refused before anything is loaded', async () => {
    for (const [options, code, where] of [
      [{ kvBits: 3.5, kvQuantScheme: 'uniform' }, 'kv-options-invalid', 'kvQuantScheme'],
      [{ kvBits: 8, kvSkipLayers: [8] }, 'kv-layer-unknown', 'kvSkipLayers'],
      [{ kvFormat: 'affine8', kvBits: 8 }, 'kv-options-invalid', 'kvBits'],
      [{ quantizedKvStart: 100 }, 'kv-options-invalid', 'quantizedKvStart'],
      [{ kvBits: 8, quantizedKvStart: 300, kvMemory: 1e6 }, 'kv-memory-too-small', 'kvMemory'],
    ] as const)
      expect(await refusal(loadOracle(options))).toMatchObject({ code, where, status: 400 });
  });
});
