import { describe, expect, it } from 'vitest';
import { parsePeer, peerKv, peerOf, readPeerFile, requireMatch } from './peer.js';

const LINES = `gpu vulkan [ 'NVIDIA H200' ]
load s 1.2
{"gpu":"vulkan","kv":"f16","N":1,"P":512,"prefill_tok_s":9000,"decode_tok_s":430.5,"per_step_ms":2.323}
{"gpu":"vulkan","kv":"f16","N":1,"P":512,"prefill_tok_s":40300,"decode_tok_s":425,"per_step_ms":2.35}
{"gpu":"vulkan","kv":"q8_0","N":4,"P":20000,"prefill_tok_s":7300,"decode_tok_s":152,"per_step_ms":26}
{"gpu":"vulkan","kv":"q4_0","N":64,"P":20000,"err":"out of memory"}
`;

const errorOf = (text: string): unknown => {
  try {
    return parsePeer(text, 'peer.json');
  } catch (error) {
    return error;
  }
};

describe('a peer’s figures', () => {
  it('are read from the lines that its bench prints, without its words and its failures', () => {
    expect(parsePeer(LINES, 'x')).toEqual([
      { rows: 1, prompt: 512, kv: 'f16', prefill: 9000, decode: 430.5 },
      { rows: 1, prompt: 512, kv: 'f16', prefill: 40300, decode: 425 },
      { rows: 4, prompt: 20000, kv: 'q8_0', prefill: 7300, decode: 152 },
    ]);
  });

  it('are read from one array, from one case, and from what kvant bench prints', () => {
    const one = { rows: 4, prefillTokensPerSecond: 367, decodeTokensPerSecond: 32.7 };
    const read = [{ rows: 4, prompt: null, kv: null, prefill: 367, decode: 32.7 }];
    expect(parsePeer(JSON.stringify([one]), 'x')).toEqual(read);
    expect(parsePeer(JSON.stringify(one), 'x')).toEqual(read);
    expect(parsePeer(JSON.stringify({ model: 'm', results: [one] }, null, 1), 'x')).toEqual(read);
  });

  it('belong to a case of as many rows, as long a prompt and a cache of about that size; the best of several', () => {
    const peer = parsePeer(LINES, 'x');
    expect(peerOf(peer, 'decode', 1, 512, 'f16')).toBe(430.5);
    expect(peerOf(peer, 'prefill', 1, 512, 'f16')).toBe(40300);
    expect(peerOf(peer, 'decode', 4, 20000, 'affine8')).toBe(152);
    expect(peerOf(peer, 'decode', 4, 20000, 'f16')).toBeNull();
    expect(peerOf(peer, 'decode', 1, 256, 'f16')).toBeNull();
    expect(['f16', 'f32', 'affine8', 'affine6-g32', 'affine4', 'turbo8', 'turbo3'].map(peerKv)).toEqual([
      ...['f16', 'f16', 'q8_0', 'q8_0', 'q4_0', 'q8_0', 'q4_0'],
    ]);
  });

  it('are refused with a word of help where there are none', async () => {
    for (const text of [
      '',
      'no figures',
      '[]',
      '7',
      '[1]',
      '{"N":1}',
      '{"N":1,',
      '[{"N":"1","decode_tok_s":1}]',
    ])
      expect(errorOf(text), text).toMatchObject({
        code: 'peer-file-invalid',
        where: '--peer',
        fix: expect.stringContaining('decode_tok_s'),
      });
    await expect(readPeerFile('/nowhere/peer.json')).rejects.toMatchObject({ code: 'peer-file-missing' });
    const peer = parsePeer(LINES, 'x');
    expect(() => requireMatch(peer, [1, 8], 512)).not.toThrow();
    expect(() => requireMatch(peer, [8], 512)).toThrow(
      expect.objectContaining({ code: 'peer-no-match', fix: expect.stringContaining('1 × 512, 4 × 20000') }),
    );
  });
});
