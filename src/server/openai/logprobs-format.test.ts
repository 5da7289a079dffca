import { describe, expect, it } from 'vitest';
import { LogprobsWriter } from './logprobs-format.js';

const PIECES: Record<number, number[]> = {
  1: [72, 105],
  2: [0xe2, 0x82],
  3: [0xac],
  4: [0xf0, 0x9f, 0x98, 0x80],
  9: [60, 47, 115, 62],
};
const token = (id: number, logprob: number, top: [number, number][] = []) => ({
  id,
  logprob,
  rank: 1,
  top: top.map(([other, value]) => ({ id: other, logprob: value })),
});
const writer = (kind: 'chat' | 'text') =>
  new LogprobsWriter({
    kind,
    bytesOf: (id) => Uint8Array.from(PIECES[id] ?? []),
    textBytesOf: (id) => Uint8Array.from(id === 9 ? [] : (PIECES[id] ?? [])),
    endIds: new Set([9]),
  });

describe('LogprobsWriter', () => {
  it('writes chat entries with bytes, and leaves the end id out', () => {
    const chat = writer('chat').push({
      logprobs: [
        token(1, -0.5, [
          [1, -0.5],
          [2, Number.NEGATIVE_INFINITY],
        ]),
        token(9, -0.1),
      ],
      finishReason: 'stop',
    });
    expect(chat.take()).toEqual({
      content: [
        {
          token: 'Hi',
          logprob: -0.5,
          bytes: [72, 105],
          top_logprobs: [
            { token: 'Hi', logprob: -0.5, bytes: [72, 105] },
            { token: 'bytes:\\xe2\\x82', logprob: -9999, bytes: [0xe2, 0x82] },
          ],
        },
      ],
      refusal: null,
    });
    expect(chat.take()).toBeNull();
  });

  it('keeps an end id that ended nothing', () => {
    const chat = writer('chat').push({ logprobs: [token(9, -0.1)], finishReason: 'length' });
    expect(chat.take()).toMatchObject({ content: [{ token: '</s>' }] });
  });

  it('writes completion lists, with offsets in characters that go on', () => {
    const text = writer('text');
    text.push({ logprobs: [token(1, -1, [[4, -0.25]])], finishReason: null });
    text.push({ logprobs: [token(4, -2)], finishReason: null });
    expect(text.take()).toEqual({
      tokens: ['Hi', '😀'],
      token_logprobs: [-1, -2],
      top_logprobs: [{ '😀': -0.25, Hi: -1 }, { '😀': -2 }],
      text_offset: [0, 2],
    });
    expect(text.push({ logprobs: [token(1, -1)], finishReason: 'length' }).take()).toMatchObject({
      text_offset: [3],
    });
  });

  it('counts characters of the text, not of what stands for bytes and special tokens', () => {
    // "Hi", an emoji in one token, a euro sign in two, an end that ended nothing, "Hi".
    const ids = [1, 4, 2, 3, 9, 1];
    const text = writer('text').push({ logprobs: ids.map((id) => token(id, -1)), finishReason: 'length' });
    expect(text.take()).toMatchObject({
      tokens: ['Hi', '😀', 'bytes:\\xe2\\x82', 'bytes:\\xac', '</s>', 'Hi'],
      text_offset: [0, 2, 3, 3, 4, 4],
    });
    const streamed = writer('text');
    const offsets = ids.flatMap((id) => {
      const piece = streamed.push({ logprobs: [token(id, -1)], finishReason: null }).take();
      return (piece as { text_offset: number[] }).text_offset;
    });
    expect(offsets).toEqual([0, 2, 3, 3, 4, 4]);
  });
});
