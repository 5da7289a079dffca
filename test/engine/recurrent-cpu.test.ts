/**
 * Models with recurrent layers on the CPU, bitwise: whatever the cut, the company, the slot, a snapshot from memory or from disk, a
 * row gives the tokens of a cold start alone.
 */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { beforeAll, describe, expect, it } from 'vitest';
import { createCpuDevice } from '../../src/device/cpu/index.js';
import { loadFolder, MODEL_FIXTURES, Runner } from '../parity/runner.js';
import { Asker, DRAWS, type Said } from './asker.js';
import { seeded } from './core-harness.js';

const random = seeded(27);
const tokens = (length: number): number[] => Array.from({ length }, () => 3 + Math.floor(random() * 64));

/** Some begin alike; their ends are at, and one beside, borders of blocks. */
const BASE = tokens(130);
const PROMPTS = [1, 15, 16, 17, 40, 64, 130].map((length) => [...BASE.slice(0, length), ...tokens(2)]);

const ids = (said: readonly Said[]): unknown => said.map((answer) => answer.ids);

describe.each(['lfm2', 'qwen3.5-moe'])('%s', (name) => {
  const expected: number[][] = [];

  beforeAll(async () => {
    await using device = await createCpuDevice({ threads: 1 });
    const kvFormat = { kind: 'float', dtype: 'f16' } as const;
    const model = await loadFolder(join(MODEL_FIXTURES, name), device, { maxContext: 512, kvFormat });
    await using runner = await Runner.create(device, model, { context: 512, chunk: 64 });
    for (const prompt of PROMPTS) expected.push((await runner.generate(prompt, DRAWS)).tokens);
  });

  it('says the same alone and in company, in steps of any length', async () => {
    for (const maxBatchTokens of [5, 32]) {
      await using off = await Asker.open(name, { prefixCache: false, maxBatchTokens });
      const { groups, layers } = off.info.kv;
      expect(groups).toHaveLength(2);
      expect(groups[1]).toMatchObject({ bytesPerToken: 0, blocks: 4 });
      expect(groups[1]!.stateBytes).toBe(layers.reduce((sum, { stateBytes = 0 }) => sum + stateBytes, 0));
      expect(groups[1]!.layers).toEqual(layers.flatMap(({ kind }, i) => (kind === 'recurrent' ? [i] : [])));
      expect(ids(await Promise.all(PROMPTS.map((prompt) => off.ask(prompt))))).toEqual(expected);
    }
  });

  it('goes on from snapshots', async () => {
    await using on = await Asker.open(name);
    expect(ids(await on.inTurn(PROMPTS))).toEqual(expected);
    const again = await on.inTurn(PROMPTS);
    expect(ids(again)).toEqual(expected);
    expect(again.map(({ cached }) => cached)).toEqual(
      PROMPTS.map(({ length }) => Math.floor((length - 1) / 16) * 16),
    );
    expect(ids(await Promise.all(PROMPTS.map((prompt) => on.ask(prompt))))).toEqual(expected);
    // A snapshot of a row that was stopped is what a cold start comes to.
    const [prompt, wanted] = [PROMPTS[5]!, expected[5]!];
    const longer = [...prompt, ...wanted.slice(0, 30)];
    expect((await on.ask(longer, { maxTokens: DRAWS - 30 })).ids).toEqual(wanted.slice(30));
  });

  it.each([{ kvBits: 8 }, { kvBits: 4, kvSkipLayers: [] }, { kvFormat: 'turbo3.5', kvSkipLayers: [] }])(
    'says the same alone and in company where keys and values are codes: %j',
    async (kv) => {
      const asked = PROMPTS.slice(3);
      await using alone = await Asker.open(name, { kv, prefixCache: false, maxRows: 1 });
      const wanted = ids(await alone.inTurn(asked));
      await using together = await Asker.open(name, { kv, maxBatchTokens: 11 });
      expect(ids(await Promise.all(asked.map((prompt) => together.ask(prompt))))).toEqual(wanted);
      expect(ids(await together.inTurn(asked))).toEqual(wanted);
    },
  );

  it('keeps no more snapshots than it may', async () => {
    await using asker = await Asker.open(name);
    const { stateBytes } = asker.info.kv.groups[1]!;
    await using few = await Asker.open(name, { prefixSnapshotBytes: 2.5 * stateBytes });
    expect(few.info.kv.groups[1]!.blocks).toBe(4 + 2);
    expect(ids(await few.inTurn(PROMPTS))).toEqual(expected);
    const again = await few.inTurn(PROMPTS.slice(-3));
    expect(ids(again)).toEqual(expected.slice(-3));
    await using none = await Asker.open(name, { prefixSnapshotBytes: 0 });
    expect(none.info.kv.groups[1]!.blocks).toBe(4);
    expect(ids(await none.inTurn(PROMPTS.slice(-2)))).toEqual(expected.slice(-2));
    expect((await none.inTurn(PROMPTS.slice(-2))).map(({ cached }) => cached)).toEqual([0, 0]);
  });

  it('gives way and is computed again', async () => {
    const long = PROMPTS.slice(-2);
    await using off = await Asker.open(name, { prefixCache: false });
    const { bytesPerToken, groups } = off.info.kv;
    const wanted: number[][] = [];
    for (const prompt of long) wanted.push([...(await off.ask(prompt, { maxTokens: 330 })).ids]);
    // Blocks for 640 tokens: one comes to an end, two do not.
    const kvMemory = 2 * groups[1]!.stateBytes + 640 * bytesPerToken;
    for (const prefixCache of [false, true]) {
      const options = { prefixCache, prefixSnapshotBytes: 0, kvMemory, maxContext: 480, maxRows: 2 };
      await using small = await Asker.open(name, options);
      const said = await Promise.all(long.map((prompt) => small.ask(prompt, { maxTokens: 330 })));
      expect(ids(said)).toEqual(wanted);
      expect(small.stats().preemptions).toBeGreaterThan(0);
    }
  });

  it('brings snapshots back from disk after a restart', async () => {
    const prefixCacheDir = mkdtempSync(join(tmpdir(), 'kvant-recurrent-'));
    try {
      {
        await using first = await Asker.open(name, { prefixCacheDir });
        expect(ids(await first.inTurn(PROMPTS))).toEqual(expected);
      }
      await using second = await Asker.open(name, { prefixCacheDir, maxBatchTokens: 9 });
      const said = await second.inTurn(PROMPTS.slice(3));
      expect(ids(said)).toEqual(expected.slice(3));
      expect(said.map(({ cached }) => cached)).toEqual(
        PROMPTS.slice(3).map(({ length }) => Math.floor((length - 1) / 16) * 16),
      );
    } finally {
      rmSync(prefixCacheDir, { recursive: true });
    }
  });
});
