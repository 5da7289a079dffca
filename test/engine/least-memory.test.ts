/** The least memory of a cache that serves a request: what is refused names it, and with so much an engine loads and answers. */
import { expect, it } from 'vitest';
import { Engine } from '../../src/engine/engine.js';
import type { EngineOptions } from '../../src/engine/types.js';
import type { KvantError } from '../../src/errors.js';

const TEXT = 'models/demo-text';
const HYBRID = 'models/demo-hybrid';
const CASES: readonly [string, string, EngineOptions][] = [
  ['attention', TEXT, {}],
  ['attention, quantised late', TEXT, { kvBits: 4, quantizedKvStart: 40 }],
  ['attention, with a float head and tail', TEXT, { kvBits: 4, kvFloatHead: 32, kvFloatTail: 16 }],
  ['recurrent layers', HYBRID, {}],
  ['recurrent layers, a context', HYBRID, { maxContext: 100 }],
  ['recurrent layers, quantised, many snapshots', HYBRID, { kvBits: 8, prefixSnapshotBytes: 2 ** 30 }],
  [
    'recurrent layers, quantised late, no prefixes',
    HYBRID,
    { kvBits: 8, kvSkipLayers: [], quantizedKvStart: 40, prefixCache: false },
  ],
];

it.each(CASES)('%s', async (_, model, options) => {
  const load = (kvMemory: number): Promise<Engine> =>
    Engine.load(model, { device: 'cpu', threads: 1, worker: false, ...options, kvMemory });
  const refusal = async (kvMemory: number): Promise<string> => {
    const error = await load(kvMemory).then(
      () => null,
      (thrown: unknown) => thrown,
    );
    expect(error).toMatchObject({ code: 'kv-memory-too-small', where: 'kvMemory' });
    return (error as KvantError).message;
  };
  const message = await refusal(20_000);
  expect(message).toMatch(/there are 20000\.$/);
  const need = Number(/needs (\d+) bytes/.exec(message)![1]);
  expect(await refusal(need - 1)).toContain(`needs ${need} bytes`);
  await using engine = await load(need);
  expect(engine.info.kv.bytes).toBeLessThanOrEqual(need);
  const { maxContext } = engine.info.limits;
  expect(maxContext).toBeGreaterThanOrEqual(options.maxContext ?? 16);
  // One that fills the context, and others that wait for its memory.
  const ask = (tokens: number) =>
    engine.generate({ prompt: [5, 6, 7], maxTokens: tokens, ignoreEos: true, temperature: 0 }).result;
  const answers = await Promise.all([ask(maxContext - 3), ask(4), ask(maxContext - 3)]);
  expect(answers.map(({ tokenIds }) => tokenIds.length)).toEqual([maxContext - 3, 4, maxContext - 3]);
  expect(answers[2]!.tokenIds).toEqual(answers[0]!.tokenIds);
  expect(answers[1]!.tokenIds).toEqual(answers[0]!.tokenIds.slice(0, 4));
});
