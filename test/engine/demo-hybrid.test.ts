/**
 * The promises on the hybrid demo model, bitwise on the CPU: layers of DeltaNet and of attention, MLPs and experts, weights of
 * 4 and 3 bits, texts that it was trained for. A row says what it says alone, cold and whole: in company and in pieces, from snapshots in
 * memory and on disk, where it was stopped, and after it gave way.
 */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { readPacked } from '../fixtures/read-packed.js';
import { Asker, type Said } from './asker.js';

const MODEL = '../../../models/demo-hybrid';
const { cases } = readPacked(new URL('../fixtures/demo-hybrid.json.br', import.meta.url)) as {
  readonly cases: readonly { readonly prompt_ids: readonly number[] }[];
};
const DRAWS = 12;
/** From 5 to 254 tokens, with two that begin alike. */
const PROMPTS = cases.map((one) => one.prompt_ids).filter(({ length }) => length < 300);
PROMPTS.push(PROMPTS.at(-1)!.slice(0, 100));

type Options = Parameters<Asker['ask']>[1];
/** Every second one is drawn. */
const how = (i: number, more: Options = {}): Options => ({
  maxTokens: DRAWS,
  ...(i % 2 === 1 && { temperature: 0.8, seed: 100 + i }),
  ...more,
});
const together = (asker: Asker, more: Options = {}): Promise<Said[]> =>
  Promise.all(PROMPTS.map((prompt, i) => asker.ask(prompt, how(i, more))));
async function inTurn(asker: Asker): Promise<Said[]> {
  const said: Said[] = [];
  for (const [i, prompt] of PROMPTS.entries()) said.push(await asker.ask(prompt, how(i)));
  return said;
}
const ids = (said: readonly Said[]): unknown => said.map((answer) => answer.ids);
/** Whole blocks before a prompt's last token. */
const borders = PROMPTS.map(({ length }) => Math.floor((length - 1) / 16) * 16);

let folder: string;
let alone: Asker;
let cold: Said[];
beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), 'kvant-hybrid-'));
  alone = await Asker.open(MODEL, { prefixCache: false, maxRows: 1, maxBatchTokens: 256 });
  cold = await inTurn(alone);
});
afterAll(async () => {
  await alone[Symbol.asyncDispose]();
  rmSync(folder, { recursive: true });
});

it('is the model that it should be', () => {
  const { layers } = alone.info.kv;
  expect(layers.map(({ kind }) => kind === 'recurrent')).toEqual(
    Array.from({ length: 8 }, (_, layer) => layer % 4 !== 3),
  );
  expect(new Set(cold.map((said) => said.ids.join())).size).toBe(PROMPTS.length);
});

it.each([7, 48])('says the same in company, in steps of at most %i tokens', async (maxBatchTokens) => {
  await using asker = await Asker.open(MODEL, { prefixCache: false, maxBatchTokens });
  expect(ids(await together(asker))).toEqual(ids(cold));
});

it('goes on from snapshots, in memory and from disk after a restart', async () => {
  const prefixCacheDir = join(folder, 'disk');
  const room = { prefixSnapshotBytes: 64 << 20, maxRows: 8, prefixCacheDir };
  {
    await using asker = await Asker.open(MODEL, { ...room, maxBatchTokens: 64 });
    expect(ids(await together(asker))).toEqual(ids(cold));
    const again = await inTurn(asker);
    expect(ids(again)).toEqual(ids(cold));
    for (const [i, { cached }] of again.entries()) expect(cached).toBeGreaterThanOrEqual(borders[i]!);
    // What a row left that was stopped is what a cold start comes to.
    const [first, ...rest] = [PROMPTS[5]!, ...cold[5]!.ids];
    const longer = [...first, ...rest.slice(0, 6)];
    const wanted = (await alone.ask(longer, how(0))).ids;
    expect((await asker.ask(longer, how(0))).ids).toEqual(wanted);
  }
  await using restarted = await Asker.open(MODEL, { ...room, maxBatchTokens: 24 });
  const restored = await inTurn(restarted);
  expect(ids(restored)).toEqual(ids(cold));
  expect(restored.map(({ cached }) => cached > 0)).toEqual(borders.map((border) => border > 0));
});

it('gives way and is computed again', async () => {
  const { prompt_ids: prompt } = cases.find((one) => one.prompt_ids.length === 788)!;
  const pair = [prompt.slice(388), prompt.slice(389)];
  const options = { prefixCache: false, maxRows: 2, maxContext: 1024, maxBatchTokens: 256 };
  // Half of it is the state of two rows; the rest is 100 blocks, and the two begin with 50 and come to 104.
  const kvMemory = 4 * alone.info.kv.groups[1]!.stateBytes;
  await using small = await Asker.open(MODEL, { ...options, kvMemory });
  expect(small.info.kv.groups.map(({ blocks }) => blocks)).toEqual([100, 2]);
  const long = (i: number) => how(i, { maxTokens: 430 });
  const said = await Promise.all(pair.map((ids, i) => small.ask(ids, long(i))));
  expect(small.stats().preemptions).toBeGreaterThan(0);
  await using roomy = await Asker.open(MODEL, { ...options, maxRows: 1 });
  for (const [i, one] of pair.entries()) expect(said[i]!.ids).toEqual((await roomy.ask(one, long(i))).ids);
});
