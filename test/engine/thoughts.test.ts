/** Thoughts of a real model: bounded, switched off, counted, and before answers of a form and calls. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Engine } from '../../src/engine/engine.js';
import type { ChatRequest } from '../../src/engine/types.js';
import { MODEL, refusal } from './engine-harness.js';

const messages = [{ role: 'user', content: 'Is a dog an animal?' }];

describe('thoughts', () => {
  let engine: Engine;
  let logitBias: Record<string, number>;
  beforeAll(async () => {
    engine = await Engine.load(MODEL, {
      device: 'cpu',
      threads: 2,
      maxRows: 4,
      maxContext: 512,
      worker: false,
    });
    // This model does not think unless it is pushed to.
    logitBias = { [engine.tokenize('<think>', { addSpecialTokens: false })[0]!]: 100 };
  });
  afterAll(() => engine.close());
  const ask = (more: Partial<ChatRequest>) =>
    engine.chat({ messages, temperature: 1, seed: 5, maxTokens: 60, ...more }).result;

  it('end when their budget is used up, and the answer goes on, of a form too', async () => {
    const [free, bounded, formed, called] = await Promise.all([
      ask({ logitBias }),
      ask({ logitBias, thinkingBudget: 6 }),
      ask({ logitBias, thinkingBudget: 6, choice: ['yes', 'no'] }),
      ask({
        logitBias,
        thinkingBudget: 6,
        tools: [{ type: 'function', function: { name: 'f' } }],
        toolChoice: { name: 'f' },
      }),
    ]);
    expect(free.usage.reasoningTokens).toBeGreaterThan(8);
    for (const { usage, reasoning } of [bounded, formed, called]) {
      expect(reasoning).not.toBe('');
      // Both marks count, and what stands before the second.
      expect(usage.reasoningTokens).toBeGreaterThanOrEqual(6);
      expect(usage.reasoningTokens).toBeLessThanOrEqual(6 + 8);
      expect(usage.reasoningTokens).toBeLessThan(usage.completionTokens);
    }
    expect(formed.finishReason).toBe('stop');
    expect(['yes', 'no']).toContain(formed.text);
    expect(called.toolCalls.map((call) => call.function)).toEqual([
      { name: 'f', arguments: expect.stringMatching(/^\{\s*\}$/) },
    ]);
  });

  it('count nothing where there are none', async () => {
    const { usage, reasoning } = await ask({ temperature: 0, maxTokens: 8, thinkingBudget: 3 });
    expect([reasoning, usage.reasoningTokens]).toEqual(['', 0]);
    const plain = await ask({ temperature: 0, maxTokens: 8 });
    const { tokenIds } = await ask({ temperature: 0, maxTokens: 8, thinkingBudget: 3 });
    expect(tokenIds).toEqual(plain.tokenIds);
  });

  it('refuse what is no budget and no effort', async () => {
    for (const bad of [{ thinkingBudget: -1 }, { thinkingBudget: 1.5 }, { reasoningEffort: 'much' }])
      expect(await refusal(engine.chat({ messages, ...(bad as object) }).accepted)).toMatchObject({
        code: 'invalid-parameter',
        where: Object.keys(bad)[0],
      });
  });
});
