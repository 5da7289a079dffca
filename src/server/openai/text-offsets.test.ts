import { describe, expect, it } from 'vitest';
import { TextOffsets } from './text-offsets.js';

const offsets = (tokens: readonly Uint8Array[]): number[] => {
  const text = new TextOffsets();
  return tokens.map((token) => text.next(token));
};

/** Cut at these bytes. */
function cut(bytes: Uint8Array, at: readonly number[]): Uint8Array[] {
  const ends = [...at, bytes.length];
  return ends.map((end, i) => bytes.subarray(ends[i - 1] ?? 0, end));
}

describe('offsets of tokens', () => {
  it('are those of the characters that their first bytes are of, wherever a text is cut', () => {
    const text = 'Hi 世界, 😀👩‍👩‍👧 e\u0301 ﷽ \ufeff\u0000 \ufffd end';
    const bytes = Buffer.from(text);
    // The character of each byte, counted by the characters' own lengths.
    const owner = [...text].flatMap((character, i) => Array.from(Buffer.from(character), () => i));
    let seed = 1;
    const random = (): number => {
      seed = (seed * 48271) % 2147483647;
      return seed / 2147483647;
    };
    for (let round = 0; round < 300; round++) {
      const often = random();
      const at = owner.map((_, i) => i).filter((i) => i > 0 && random() < often);
      expect(offsets(cut(bytes, at))).toEqual([0, ...at].map((start) => owner[start]));
    }
  });

  it('count what is broken as the character that stands in its place', () => {
    const of = (...tokens: number[][]): number[] => offsets(tokens.map((token) => Uint8Array.from(token)));
    // An emoji that is never ended, and a letter.
    expect(of([0x61], [0xf0, 0x9f], [0x98], [0x62], [0x63])).toEqual([0, 1, 1, 2, 3]);
    // Another that begins at once.
    expect(of([0xf0, 0x9f], [0xf0, 0x9f, 0x98, 0x80], [0x61])).toEqual([0, 1, 2]);
    // Bytes that begin nothing are a character each.
    expect(of([0x80], [0xff, 0xff], [0x61])).toEqual([0, 1, 3]);
    // U+FFFD itself, in two pieces, is whole.
    expect(of([0xef, 0xbf], [0xbd], [0x61])).toEqual([0, 0, 1]);
    // Half a surrogate pair: ED begins a character that A0 does not go on with.
    expect(of([0xed], [0xa0], [0x61])).toEqual([0, 1, 2]);
  });

  it('are not moved by tokens that add nothing to the text, within a character either', () => {
    const none = new Uint8Array(0);
    const [one, two] = cut(Buffer.from('😀'), [2]);
    expect(offsets([none, one!, none, two!, none, Buffer.from('a')])).toEqual([0, 0, 0, 0, 1, 1]);
  });
});
