/** Prompts with pictures, cut anywhere and computed again: the same tokens. */
import { describe, expect, it } from 'vitest';
import { Engine } from '../../src/engine/engine.js';
import type { EngineOptions } from '../../src/engine/types.js';
import { cases, MODEL, withImages } from './vision-cases.js';

const load = (options: EngineOptions): Promise<Engine> =>
  Engine.load(MODEL, { device: 'cpu', worker: false, threads: 2, maxContext: 512, ...options });

async function ask(
  engine: Engine,
  sampling: { ignoreEos?: boolean; maxTokens?: number } = {},
): Promise<(readonly number[])[]> {
  const runs = cases.map((one) =>
    engine.chat({ messages: withImages(one), temperature: 0, maxTokens: 40, ...sampling }),
  );
  return (await Promise.all(runs.map(({ result }) => result))).map(({ tokenIds }) => tokenIds);
}

const wanted = cases.map(({ continuation_ids }) => continuation_ids);

describe('prompts with pictures', () => {
  it.each([16, 37, 100])('cut into chunks of %i tokens give the same answers', async (maxBatchTokens) => {
    await using engine = await load({ maxBatchTokens, maxRows: 4 });
    expect(await ask(engine)).toEqual(wanted);
  });

  it('give the same answers where rows give way and are computed again', async () => {
    const long = { ignoreEos: true, maxTokens: 80 };
    await using roomy = await load({ maxContext: 256, maxRows: 6 });
    const wantedLong = await ask(roomy, long);
    // Room for one sequence of the longest, and a little more.
    const kvMemory = 4 * 2 * 2 * 64 * 2 * 288;
    await using tight = await load({ kvMemory, maxContext: 256, maxRows: 6, prefixCache: false });
    const preemptions = async (): Promise<number> => (await tight.stats()).preemptions;
    // The first time pictures may come so slowly that a row has ended before the next begins.
    for (let round = 0; round < 8 && (await preemptions()) === 0; round++)
      expect(await ask(tight, long)).toEqual(wantedLong);
    expect(await preemptions()).toBeGreaterThan(0);
  });
});
