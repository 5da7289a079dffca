/**
 * Kinds of layers on a GPU with one order of sums, to the bits of log-probabilities: a row says what it says alone, in any company and
 * in any pieces, from the cache in memory, and from disk after a restart. A software adapter has a few of them; DeltaNet has host-experts.test.ts too.
 */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { devices } from '../devices/devices.js';
import { everyCase } from '../setup/every-case.js';
import { Asker, type Said } from './asker.js';
import { seeded } from './core-harness.js';
import { KINDS, WAYS, words } from './kinds.js';
import { writeRandomCheckpoint } from './random-checkpoint.js';

const random = seeded(12);
const tokens = (length: number): number[] => Array.from({ length }, () => 3 + Math.floor(random() * 60));
const BASE = tokens(40);
const PROMPTS = [1, 33, 40].map((length) => [...BASE.slice(0, length), ...tokens(2)]);
const ASKED = { maxTokens: 4, logprobs: true };

const FEW = ['sinks', 'latent attention', 'composite'];
const kinds = KINDS.filter(([kind]) => everyCase || FEW.includes(kind));

let folder: string;
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'kvant-kinds-'));
});
afterAll(() => rmSync(folder, { recursive: true }));

describe.each(devices.filter(({ kind, bitwise }) => kind === 'webgpu' && bitwise))('$name', (spec) => {
  it.each(kinds)('%s', { timeout: 300_000 }, async (_, fixture, fields) => {
    const path = mkdtempSync(join(folder, 'model-'));
    writeRandomCheckpoint(path, fixture, fields);
    const kv = WAYS[0][0];
    const open = (more: Parameters<typeof Asker.open>[1]): Promise<Asker> =>
      Asker.open(
        fixture,
        { maxContext: 128, weights: { kind: 'folder', path }, kv, ...more },
        async (cpu) => {
          await cpu[Symbol.asyncDispose]();
          return spec.create();
        },
      );
    const cold: Said[] = [];
    {
      await using alone = await open({ prefixCache: false, maxRows: 1, maxBatchTokens: 48 });
      expect(alone.info.kv.layers.some(({ key }) => key.startsWith('affine8'))).toBe(true);
      for (const prompt of PROMPTS) cold.push(await alone.ask(prompt, ASKED));
    }
    const prefixCacheDir = mkdtempSync(join(folder, 'disk-'));
    {
      await using cached = await open({ maxRows: 4, maxBatchTokens: 11, prefixCacheDir });
      const together = (): Promise<Said[]> => Promise.all(PROMPTS.map((prompt) => cached.ask(prompt, ASKED)));
      expect(words(await together())).toEqual(words(cold));
      const again = await together();
      expect(words(again)).toEqual(words(cold));
      expect(Math.max(...again.map(({ cached: hit }) => hit))).toBeGreaterThanOrEqual(32);
    }
    await using restarted = await open({ maxRows: 4, maxBatchTokens: 11, prefixCacheDir });
    const [restored] = [await restarted.ask(PROMPTS[2]!, ASKED)];
    expect(words([restored])).toEqual(words([cold[2]!]));
    expect(restored.cached).toBeGreaterThanOrEqual(32);
  });
});
