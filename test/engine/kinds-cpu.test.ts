/**
 * The promises for each kind of layers, with K and V as floats and as codes, bitwise on the CPU: a row says what it says alone, cold and
 * whole, in any company and in any pieces, from the cache in memory, after it gave way, and from disk after a restart.
 */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { everyCase } from '../setup/every-case.js';
import { Asker, type Said } from './asker.js';
import { seeded } from './core-harness.js';
import { FLOATS, KINDS, WAYS, words } from './kinds.js';
import { writeRandomCheckpoint } from './random-checkpoint.js';

const random = seeded(32);
const tokens = (length: number): number[] => Array.from({ length }, () => 3 + Math.floor(random() * 60));
const BASE = tokens(100);
/** Some begin alike; their ends are at, and beside, borders of blocks. */
const PROMPTS = [1, 17, 33, 64, 79, 100].map((length) => [...BASE.slice(0, length - 1), ...tokens(2)]);
const SHORT = { maxTokens: 12, logprobs: true };
const LONG = { maxTokens: 170, logprobs: true };

/** Whole blocks before a prompt's last token. */
const border = ({ length }: { readonly length: number }): number => Math.floor((length - 1) / 16) * 16;

let folder: string;
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'kvant-kinds-'));
});
afterAll(() => rmSync(folder, { recursive: true }));

async function inTurn(
  asker: Asker,
  prompts: readonly (readonly number[])[],
  options: object,
): Promise<Said[]> {
  const said: Said[] = [];
  for (const prompt of prompts) said.push(await asker.ask(prompt, options));
  return said;
}

const together = (asker: Asker, prompts: readonly (readonly number[])[], options: object): Promise<Said[]> =>
  Promise.all(prompts.map((prompt) => asker.ask(prompt, options)));

describe.each(KINDS)('%s', (kind, fixture, fields) => {
  const options = { maxContext: 256, weights: { kind: 'folder', path: '' } };
  beforeAll(() => {
    options.weights.path = mkdtempSync(join(folder, 'model-'));
    writeRandomCheckpoint(options.weights.path, fixture, { ...fields, max_position_embeddings: 4096 });
  });
  const open = (more: Parameters<typeof Asker.open>[1]): Promise<Asker> =>
    Asker.open(fixture, { ...options, ...more } as Parameters<typeof Asker.open>[1]);

  // A format to each kind, and all where sinks or two caches meet them.
  const own = KINDS.findIndex(([name]) => name === kind) % WAYS.length;
  const all = everyCase || kind === 'sinks' || kind === 'composite';
  // A part of a rotated vector is a part of nothing.
  const possible = kind === 'latent attention' ? WAYS.slice(0, 2) : all ? WAYS : [WAYS[own]!];
  it.each([...possible, FLOATS])('says the same with %j', async (kv, codes) => {
    await using alone = await open({ kv, prefixCache: false, maxRows: 1, maxBatchTokens: 256 });
    // It is the format, and not another in its place.
    const quantised = alone.info.kv.layers.filter(({ kind: of }) => of === 'full' || of === 'latent');
    expect(quantised.length).toBeGreaterThan(0);
    for (const { key, value } of quantised)
      expect([key, value]).toEqual([expect.stringMatching(codes), expect.stringMatching(codes)]);
    const cold = await inTurn(alone, PROMPTS, SHORT);

    const prefixCacheDir = mkdtempSync(join(folder, 'disk-'));
    {
      await using cached = await open({ kv, maxRows: 16, maxBatchTokens: 11, prefixCacheDir });
      expect(words(await together(cached, PROMPTS, SHORT))).toEqual(words(cold));
      const again = await inTurn(cached, PROMPTS, SHORT);
      expect(words(again)).toEqual(words(cold));
      for (const [i, { cached: hit }] of again.entries())
        expect(hit).toBeGreaterThanOrEqual(border(PROMPTS[i]!));
    }
    await using restarted = await open({ kv, maxBatchTokens: 24, prefixCacheDir });
    const restored = await inTurn(restarted, PROMPTS.slice(2), SHORT);
    expect(words(restored)).toEqual(words(cold.slice(2)));
    for (const { cached: hit } of restored) expect(hit).toBeGreaterThan(0);
  });

  it('goes on from what a row that was stopped has left', async () => {
    const [kv] = WAYS[own]!;
    const sizes = { kv, maxContext: 2304, maxBatchTokens: 256 };
    // It crosses the border at which states are kept while it answers.
    const prompt = Array.from({ length: 2040 }, (_, i) => BASE[(i * i + (i >> 5)) % 100]!);
    await using alone = await open({ ...sizes, prefixCache: false, maxRows: 1 });
    const whole = await alone.ask(prompt, { maxTokens: 40, logprobs: true });
    await using cached = await open({ ...sizes, maxRows: 2 });
    expect((await cached.ask(prompt, { maxTokens: 20 })).ids).toEqual(whole.ids.slice(0, 20));
    const longer = [...prompt, ...whole.ids.slice(0, 14)];
    const { ids, logprobs, cached: kept } = await cached.ask(longer, { maxTokens: 26, logprobs: true });
    expect([ids, logprobs]).toEqual([whole.ids.slice(14), whole.logprobs.slice(14)]);
    expect(kept).toBeGreaterThanOrEqual(2048);
  });

  // Of recurrent layers alone recurrent-cpu.test.ts shows it.
  if (kind === 'recurrent' || kind === 'short convolution') return;
  it('gives way and is computed again', async () => {
    const [kv] = WAYS[own]!;
    // Both come in at once, and grow.
    const pair = PROMPTS.slice(1, 3);
    const options = { kv, prefixCache: false, maxRows: 2, maxContext: 224 };
    await using alone = await open(options);
    const solo = await inTurn(alone, pair, LONG);
    // Full layers have 15 blocks then: enough for one of them, and not for both.
    let { bytes: kvMemory } = alone.info.kv;
    const wanted = 15;
    const opened = async (tries: number): Promise<Asker> => {
      const asker = await open({ ...options, kvMemory });
      const [full] = asker.info.kv.groups as [(typeof asker.info.kv.groups)[number]];
      if (full.blocks === wanted) return asker;
      if (tries === 0) throw new Error(`${full.blocks} blocks with ${kvMemory} bytes`);
      await asker[Symbol.asyncDispose]();
      kvMemory -= (full.blocks - wanted) * 16 * full.bytesPerToken;
      return opened(tries - 1);
    };
    await using small = await opened(4);
    expect(words(await together(small, pair, LONG))).toEqual(words(solo));
    expect(small.stats().preemptions).toBeGreaterThan(0);
  });
});
