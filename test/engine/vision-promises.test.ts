/** Prompts with pictures, cut anywhere and computed again: the same tokens. */
import { describe, expect, it } from 'vitest';
import { Engine } from '../../src/engine/engine.js';
import type { EngineOptions } from '../../src/engine/types.js';
import { cases, MODEL, withImages } from './vision-cases.js';

async function answers(
  options: EngineOptions,
  sampling: { ignoreEos?: boolean; maxTokens?: number } = {},
): Promise<{ ids: (readonly number[])[]; preemptions: number }> {
  await using engine = await Engine.load(MODEL, {
    device: 'cpu',
    worker: false,
    threads: 2,
    maxContext: 512,
    ...options,
  });
  const runs = cases.map((one) =>
    engine.chat({ messages: withImages(one), temperature: 0, maxTokens: 40, ...sampling }),
  );
  const ids = (await Promise.all(runs.map(({ result }) => result))).map(({ tokenIds }) => tokenIds);
  return { ids, preemptions: (await engine.stats()).preemptions };
}

const wanted = cases.map(({ continuation_ids }) => continuation_ids);

describe('prompts with pictures', () => {
  it.each([16, 37, 100])('cut into chunks of %i tokens give the same answers', async (maxBatchTokens) => {
    expect((await answers({ maxBatchTokens, maxRows: 4 })).ids).toEqual(wanted);
  });

  it('give the same answers where rows give way and are computed again', async () => {
    const long = { ignoreEos: true, maxTokens: 80 };
    const { ids: roomy } = await answers({ maxContext: 256, maxRows: 6 }, long);
    // Room for one sequence of the longest, and a little more.
    const kvMemory = 4 * 2 * 2 * 64 * 2 * 288;
    const options = { kvMemory, maxContext: 256, maxRows: 6, prefixCache: false };
    const { ids, preemptions } = await answers(options, long);
    expect(ids).toEqual(roomy);
    expect(preemptions).toBeGreaterThan(0);
  });
});
