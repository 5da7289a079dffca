/** Prompts that take long to tokenise: on a thread of their own, with the same result, and nobody waits for them. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Engine } from '../../src/engine/engine.js';
import { QUICK_TEXT } from '../../src/engine/texts/texts.js';
import { MODEL, refusal } from './engine-harness.js';

/** Text of which no part is like another. */
const story = (characters: number): string => {
  let text = '';
  for (let i = 0; text.length < characters; i++)
    text += `Line ${i * 7919} says that ${i ** 3} dragons came. `;
  return text.slice(0, characters);
};
/** The engine's thread with a device that computes nothing: what it says is of no interest here. */
const workerScript = new URL('../../bench/instant-worker.mjs', import.meta.url);
const load = (): Promise<Engine> => Engine.load(MODEL, { maxContext: 4096, maxRows: 4 }, { workerScript });
const short = 'The capital of France is';

describe('long prompts', () => {
  let engine: Engine;
  beforeAll(async () => {
    engine = await load();
  });
  afterAll(async () => {
    await engine.close();
  });
  const one = { maxTokens: 1, temperature: 0 };

  it('become the tokens that they are', async () => {
    const text = story(4500);
    expect(text.length).toBeGreaterThan(QUICK_TEXT);
    const generation = engine.generate({ prompt: text, ...one });
    expect(generation.promptTokenIds).toEqual([]);
    await generation.accepted;
    expect(generation.promptTokenIds).toEqual(engine.tokenize(text));
    const { usage, timings } = await generation.result;
    expect(usage.promptTokens).toBe(generation.promptTokenIds.length);
    expect(timings.ttftMs).toBeGreaterThan(0);
  });

  it('are rendered by the template that short ones are rendered by', async () => {
    const tools = [{ type: 'function', function: { name: 'f', parameters: { type: 'object' } } }];
    const messages = [
      { role: 'system', content: 'Be brief.' },
      { role: 'user', content: story(4500) },
    ];
    const chat = engine.chat({ messages, tools, templateOptions: { enable_thinking: false }, ...one });
    await chat.accepted;
    const rendered = engine.renderChat(messages, { tools, templateOptions: { enable_thinking: false } });
    expect(chat.promptTokenIds).toEqual(engine.tokenize(rendered, { addSpecialTokens: false }));
    const ids = Int32Array.from(chat.promptTokenIds);
    const again = engine.generate({ prompt: ids, ...one });
    expect(again.promptTokenIds).toEqual([...ids]);
    expect((await again.result).usage).toMatchObject({ promptTokens: ids.length, completionTokens: 1 });
  });

  it('are taken also where they cannot be given to a thread', async () => {
    const messages = [{ role: 'user', content: story(4500), own: () => 1 }];
    const chat = engine.chat({ messages, ...one });
    await chat.accepted;
    expect(engine.detokenize(chat.promptTokenIds)).toContain('Line 7919 says');
  });

  it('are refused where they are too long, and where their chat is wrong', async () => {
    const counted = await refusal(engine.generate({ prompt: story(9000), ...one }).accepted);
    const { length } = engine.tokenize(story(9000));
    expect(counted).toMatchObject({ code: 'context-length-exceeded', kind: 'invalid-request' });
    expect(counted.message).toContain(` ${length} tokens`);
    for (const text of [' '.repeat(900_000), 'x1'.repeat(450_000)]) {
      const error = await refusal(engine.generate({ prompt: text, ...one }).accepted);
      expect(error).toMatchObject({ code: 'context-length-exceeded' });
      expect(error.message).toMatch(/at least \d+ tokens/);
    }
    const messages = [{ role: 'user', content: [{ type: 'image_url', text: story(4500) }] }];
    expect((await refusal(engine.chat({ messages, ...one }).accepted)).code).toBe('unsupported-content');
    const wrong = engine.generate({ prompt: story(4500), maxTokens: 0 });
    expect((await refusal(wrong.accepted)).where).toBe('maxTokens');
  });

  it('do not keep short ones waiting', async () => {
    // A third of a second of work; the short one takes a few milliseconds.
    const long = Array.from({ length: 40 }, () => engine.generate({ prompt: story(5000), ...one }));
    const quick = engine.generate({ prompt: short, ...one });
    await quick.accepted;
    expect(long.at(-1)!.promptTokenIds).toEqual([]);
    await Promise.all([quick, ...long].map(({ result }) => result));
  });

  it('are let go of when nobody wants them any more', async () => {
    const controller = new AbortController();
    const request = { prompt: story(5000), ...one };
    const before = (await engine.stats()).requests;
    const generations = [
      engine.generate({ ...request, signal: controller.signal }),
      engine.generate(request),
      engine.generate({ ...request, signal: AbortSignal.abort() }),
    ];
    controller.abort();
    generations[1]!.cancel();
    for (const { result } of generations) expect((await result).finishReason).toBe('cancelled');
    expect((await engine.stats()).requests).toBe(before);
  });

  it('have words spelled elsewhere too where there are many', async () => {
    const badWords = Array.from({ length: 200 }, (_, i) => `word${i} and some more`);
    const many = engine.generate({ prompt: short, badWords, ...one });
    expect(many.promptTokenIds).toEqual([]);
    // It is spelled and comes to the device, which here has no kernels at all.
    expect(await refusal(many.accepted)).toMatchObject({ code: 'sampling-unsupported' });
    const broken = engine.generate({ prompt: short, badWords: ['word '.repeat(51)], ...one });
    expect((await refusal(broken.accepted)).where).toBe('badWords');
  });
});

describe('closing', () => {
  const request = { prompt: story(4500), maxTokens: 2, temperature: 0, ignoreEos: true };

  it('waits for what is still tokenised when it drains', async () => {
    const engine = await load();
    const generation = engine.generate(request);
    const closed = engine.close({ drain: true });
    expect((await refusal(engine.generate(request).accepted)).code).toBe('engine-closed');
    expect((await generation.result).finishReason).toBe('length');
    await closed;
  });

  it('ends it at once when it does not', async () => {
    const engine = await load();
    const generations = [engine.generate(request), engine.generate(request)];
    const closed = engine.close();
    for (const { result } of generations) expect((await result).finishReason).toBe('cancelled');
    await closed;
  });
});
