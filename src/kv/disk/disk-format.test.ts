import { describe, expect, it } from 'vitest';
import { blockFileBytes, decodeBlock, encodeHead } from './disk-format.js';

const signature = '00112233445566778899aabbccddeeff';
const key = `${'f'.repeat(31)}0`;
const tokens = Uint32Array.of(1, 2, 0xffff_fff0, 4);
const block = { signature, key, tokens };

function fileOf(data: Uint8Array, of = block): Uint8Array {
  const head = encodeHead(of, data);
  const file = new Uint8Array(head.length + data.length);
  file.set(head);
  file.set(data, head.length);
  return file;
}

/** Bytes that look random and are the same each time. */
function noise(length: number): Uint8Array {
  let state = 1;
  return new Uint8Array(length).map(() => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state >>> 24;
  });
}

describe('block file', () => {
  it('gives back what went in, whatever its length', () => {
    for (const length of [4, 64, 1000, 2 ** 18, 2 ** 18 + 4, 600_000]) {
      const data = noise(length);
      const file = fileOf(data);
      expect(file).toHaveLength(blockFileBytes(tokens.length, length));
      expect((file.length - length) % 64).toBe(0);
      expect(Buffer.compare(decodeBlock(file, block, length) as Uint8Array, data)).toBe(0);
    }
  });

  it('is not used with any bit flipped, nor cut, nor longer', () => {
    const data = noise(100);
    const file = fileOf(data);
    for (let bit = 0; bit < file.length * 8; bit++) {
      const bad = file.slice();
      bad[bit >> 3]! ^= 1 << (bit & 7);
      const kind = bit < 64 ? 'foreign' : bit < 96 ? 'other' : 'corrupt';
      expect(decodeBlock(bad, block, data.length), `bit ${bit}`).toBe(kind);
    }
    for (let length = 0; length < file.length; length++)
      expect(decodeBlock(file.subarray(0, length), block, data.length)).toBe(
        length < 8 ? 'foreign' : 'corrupt',
      );
    expect(decodeBlock(Uint8Array.of(...file, 0), block, data.length)).toBe('corrupt');
  });

  it('is not used with chunks in another order', () => {
    const chunk = 2 ** 18;
    const data = noise(2 * chunk);
    const file = fileOf(data);
    const start = file.length - data.length;
    file.set(data.subarray(chunk), start);
    file.set(data.subarray(0, chunk), start + chunk);
    expect(decodeBlock(file, block, data.length)).toBe('corrupt');
  });

  it('is not used for another signature, key, length or other tokens', () => {
    const data = noise(128);
    const file = fileOf(data);
    const others = [
      { ...block, signature: signature.replace('00', '01') },
      { ...block, key: key.replace('f0', 'f1') },
      { ...block, tokens: Uint32Array.of(1, 2, 0xffff_fff0, 5) },
      { ...block, tokens: Uint32Array.of(1, 2, 0xffff_fff0) },
    ];
    for (const other of others) expect(decodeBlock(file, other, data.length)).toBe('other');
    expect(decodeBlock(file, block, 124)).toBe('other');
  });
});
