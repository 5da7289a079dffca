/**
 * The promises for each kind of layers, with K and V as floats and as codes, bitwise on the CPU: a row says what it says alone, cold and
 * whole, in any company and in any pieces, from the cache in memory, after it gave way, and from disk after a restart.
 */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Asker, type Said } from './asker.js';
import { seeded } from './core-harness.js';
import { writeRandomCheckpoint } from './random-checkpoint.js';

const random = seeded(32);
const tokens = (length: number): number[] => Array.from({ length }, () => 3 + Math.floor(random() * 60));
const BASE = tokens(100);
/** Some begin alike; their ends are at, and beside, borders of blocks. */
const PROMPTS = [1, 17, 33, 64, 79, 100].map((length) => [...BASE.slice(0, length - 1), ...tokens(2)]);
const LONG = { maxTokens: 90 };

const [SLIDING, FULL] = ['sliding_attention', 'full_attention'];
/** Heads of 32 and 64 dims, so that K and V can be codes in every format. */
const KINDS = [
  ['sliding and full', 'gemma3-list', { num_hidden_layers: 3, layer_types: [SLIDING, FULL, FULL] }],
  ['recurrent', 'qwen3.5', {}],
  ['experts', 'qwen3-moe', { head_dim: 32 }],
  ['sinks', 'gpt-oss', { head_dim: 64, num_hidden_layers: 3, layer_types: [SLIDING, FULL, FULL] }],
  [
    'shared keys and values',
    'gemma4-shared',
    { head_dim: 32, global_head_dim: 64, per_layer_config: { 1: { head_dim: 64 }, 5: { head_dim: 64 } } },
  ],
  ['composite', 'falcon-h1', { head_dim: 32 }],
  ['one mixer a layer', 'nemotron-h', { head_dim: 32 }],
] as const;

/** Formats, and what the first layer that may have codes is told to have. */
const WAYS = [
  [{ kvBits: 8, kvSkipLayers: [] }, /^affine8/],
  [{ kvBits: 4, kvSkipLayers: [] }, /^affine4/],
  [{ kvFormat: 'turbo3.5', kvSkipLayers: [] }, /^turbo/],
] as const;

const ids = (said: readonly Said[]): unknown => said.map((answer) => answer.ids);
/** Whole blocks before a prompt's last token. */
const border = ({ length }: { readonly length: number }): number => Math.floor((length - 1) / 16) * 16;

let folder: string;
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'kvant-kinds-'));
});
afterAll(() => rmSync(folder, { recursive: true }));

describe.each(KINDS)('%s', (_, fixture, fields) => {
  const options = { maxContext: 256, weights: { kind: 'folder', path: '' } };
  beforeAll(() => {
    options.weights.path = mkdtempSync(join(folder, 'model-'));
    writeRandomCheckpoint(options.weights.path, fixture, fields);
  });
  const open = (more: Parameters<typeof Asker.open>[1]): Promise<Asker> =>
    Asker.open(fixture, { ...options, ...more } as Parameters<typeof Asker.open>[1]);

  it.each(WAYS)('says the same with %j', async (kv, codes) => {
    await using alone = await open({ kv, prefixCache: false, maxRows: 1, maxBatchTokens: 256 });
    const { layers, groups, bytesPerToken } = alone.info.kv;
    // It is the format, and not floats in its place.
    const quantised = layers.filter(({ kind }) => kind === 'full');
    expect(quantised.length).toBeGreaterThan(0);
    for (const { key, value } of quantised)
      expect([key, value]).toEqual([expect.stringMatching(codes), expect.stringMatching(codes)]);
    const cold = await alone.inTurn(PROMPTS);
    const pair = PROMPTS.slice(-2);
    const solo: Said[] = [];
    for (const prompt of pair) solo.push(await alone.ask(prompt, LONG));

    const prefixCacheDir = mkdtempSync(join(folder, 'disk-'));
    {
      await using cached = await open({ kv, maxBatchTokens: 11, prefixCacheDir });
      expect(ids(await Promise.all(PROMPTS.map((prompt) => cached.ask(prompt))))).toEqual(ids(cold));
      const again = await cached.inTurn(PROMPTS);
      expect(ids(again)).toEqual(ids(cold));
      for (const [i, { cached: hit }] of again.entries()) expect(hit).toBe(border(PROMPTS[i]!));
    }
    await using restarted = await open({ kv, maxBatchTokens: 24, prefixCacheDir });
    const restored = await restarted.inTurn(PROMPTS.slice(2));
    expect(ids(restored)).toEqual(ids(cold.slice(2)));
    for (const [i, { cached: hit }] of restored.entries()) expect(hit).toBe(border(PROMPTS[i + 2]!));

    // Blocks for less than both come to: 190 tokens each. What does not grow with them is for both.
    const fixed = groups.reduce((sum, group) => sum + group.blocks * group.stateBytes, 0);
    const sliding = groups.flatMap((group) => (group.window === null ? [] : [group.bytesPerToken]));
    const each = bytesPerToken - sliding.reduce((sum, bytes) => sum + bytes, 0);
    const windows = sliding.reduce((sum, bytes) => sum + 2 * 64 * bytes, 0);
    const kvMemory = 2 * fixed + windows + 288 * each;
    const tight = { kv, prefixCache: false, kvMemory, maxRows: 2, maxContext: 224 };
    await using small = await open(tight);
    const said = await Promise.all(pair.map((prompt) => small.ask(prompt, LONG)));
    expect(ids(said)).toEqual(ids(solo));
    expect(small.stats().preemptions).toBeGreaterThan(0);
  });
});
