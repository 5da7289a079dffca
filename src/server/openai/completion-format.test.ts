/** The chunks are put together from texts: here they are compared with the objects that they stand for. */
import { describe, expect, it } from 'vitest';
import type { GenerationResult } from '../../engine/types.js';
import {
  answerChunks,
  type Envelope,
  finishChunk,
  makeEnvelope,
  roleChunk,
  textChunk,
  usageChunk,
} from './completion-format.js';
import { LogprobsWriter } from './logprobs-format.js';

const written = (chunks: readonly object[]): string =>
  chunks.map((one) => `data: ${JSON.stringify(one)}\n\n`).join('');

/** As OpenAI documents a chunk, its fields in this order. */
function chunk({ id, created, kind, includeUsage }: Envelope, choice: object | null, more: object = {}) {
  return {
    id,
    object: kind === 'chat' ? 'chat.completion.chunk' : 'text_completion',
    created,
    model: 'a "model"\n',
    choices: choice === null ? [] : [choice],
    ...(includeUsage && choice !== null ? { usage: null } : {}),
    ...more,
  };
}

const NASTY = 'line\nbreak "quoted" \\ back \u2028 \u0000 \ud800 and 🦜';

describe.each([true, false])('chunks, usage wanted: %s', (includeUsage) => {
  const chat = makeEnvelope('chat', 'a "model"\n', { includeUsage });
  const text = makeEnvelope('text', 'a "model"\n', { includeUsage });

  it('of a chat', () => {
    expect(roleChunk(chat, 2)).toBe(
      written([
        chunk(chat, {
          index: 2,
          delta: { role: 'assistant', content: '' },
          logprobs: null,
          finish_reason: null,
        }),
      ]),
    );
    const call = {
      id: 'call_1',
      type: 'function',
      function: { name: 'f', arguments: '{"a": "\n"}' },
    } as const;
    const toolCalls = [
      { index: 3, ...call },
      { index: 4, function: { arguments: '{' } },
    ];
    const piece = { choice: 0, reasoning: 'hm', text: NASTY, toolCalls, tokenIds: [], finishReason: null };
    const delta = (of: object) => ({ index: 0, delta: of, logprobs: null, finish_reason: null });
    expect(answerChunks(chat, 0, piece, null)).toBe(
      written([
        chunk(chat, delta({ reasoning_content: 'hm', reasoning: 'hm' })),
        chunk(chat, delta({ content: NASTY })),
        chunk(chat, delta({ tool_calls: toolCalls })),
      ]),
    );
    expect(answerChunks(chat, 0, { choice: 0, text: '', tokenIds: [1], finishReason: null }, null)).toBe('');
    const last = { index: 1, delta: {}, logprobs: null };
    expect(finishChunk(chat, 1, 'length', 0, null)).toBe(
      written([chunk(chat, { ...last, finish_reason: 'length' })]),
    );
    expect(finishChunk(chat, 1, 'stop', 1, null)).toBe(
      written([chunk(chat, { ...last, finish_reason: 'tool_calls' })]),
    );
  });

  it('of a completion', () => {
    expect(textChunk(text, 7, NASTY, null, null) + textChunk(text, 0, '', 'stop', null)).toBe(
      written([
        chunk(text, { index: 7, text: NASTY, logprobs: null, finish_reason: null }),
        chunk(text, { index: 0, text: '', logprobs: null, finish_reason: 'stop' }),
      ]),
    );
  });

  it('with the log-probabilities that wait, once', () => {
    const bytesOf = (id: number) => new TextEncoder().encode(`<${id}>`);
    const writer = new LogprobsWriter({ kind: 'text', bytesOf, textBytesOf: bytesOf, endIds: new Set() });
    const token = { id: 5, logprob: -0.5, rank: 1, top: [] };
    writer.push({ logprobs: [token], finishReason: null });
    expect(textChunk(text, 0, 'a', null, writer) + textChunk(text, 0, 'b', null, writer)).toBe(
      written([
        chunk(text, {
          index: 0,
          text: 'a',
          logprobs: {
            tokens: ['<5>'],
            token_logprobs: [-0.5],
            top_logprobs: [{ '<5>': -0.5 }],
            text_offset: [0],
          },
          finish_reason: null,
        }),
        chunk(text, { index: 0, text: 'b', logprobs: null, finish_reason: null }),
      ]),
    );
  });

  it('with the usage', () => {
    const usage = {
      promptTokens: 3,
      cachedTokens: 1,
      completionTokens: 4,
      reasoningTokens: 2,
      totalTokens: 7,
    };
    const timings = { queueMs: 1 };
    const results = [{ usage, seed: 9, timings }] as unknown as GenerationResult[];
    expect(usageChunk(chat, results)).toBe(
      written([
        chunk(chat, null, {
          usage: {
            prompt_tokens: 3,
            completion_tokens: 4,
            total_tokens: 7,
            prompt_tokens_details: { cached_tokens: 1 },
            completion_tokens_details: { reasoning_tokens: 2 },
          },
          kvant: { seed: 9, timings },
        }),
      ]),
    );
  });
});

describe('chunks as other servers have them', () => {
  it('are filled up to lengths that tell little of the text', () => {
    const plain = makeEnvelope('chat', 'm', { includeUsage: false });
    const filled = {
      ...makeEnvelope('chat', 'm', { includeUsage: false, obfuscate: true }),
      head: plain.head,
    };
    const lengths = new Set<number>();
    const fillings = new Set<string>();
    for (const text of ['', 'a', 'ü', '🦜', NASTY, 'x'.repeat(37), 'x'.repeat(38), 'x'.repeat(300)]) {
      const delta = { choice: 0, text, tokenIds: [], finishReason: null };
      const event =
        text === '' ? finishChunk(filled, 0, 'stop', 0, null) : answerChunks(filled, 0, delta, null);
      const json = event.slice('data: '.length, -2);
      lengths.add(Buffer.byteLength(json) % 256);
      const { obfuscation, ...rest } = JSON.parse(json) as { obfuscation: string };
      expect(obfuscation).toMatch(/^[\w-]*$/);
      fillings.add(obfuscation);
      const bare = text === '' ? finishChunk(plain, 0, 'stop', 0, null) : answerChunks(plain, 0, delta, null);
      expect(rest).toEqual(JSON.parse(bare.slice('data: '.length)));
    }
    expect([...lengths]).toEqual([0]);
    expect(fillings.size).toBe(8);
  });

  it('tell the tokens so far', () => {
    const envelope = makeEnvelope('text', 'm', { includeUsage: true, continuousUsage: true });
    envelope.soFar!.prompt = 5;
    envelope.soFar!.completion = 2;
    expect(JSON.parse(textChunk(envelope, 0, 'x', null, null).slice('data: '.length))).toMatchObject({
      usage: { prompt_tokens: 5, completion_tokens: 2, total_tokens: 7 },
    });
  });
});
