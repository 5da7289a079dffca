import { createHash } from 'node:crypto';
import { describe, expect, it } from 'vitest';
import { ChainKeys, chainRoot, KEY_WORDS, tokensOf } from './chain-keys.js';
import { SHA256_START, sha256Compress } from './sha256.js';

/** SHA-256 of words (big-endian bytes), with the padding that the standard asks for. */
function digest(words: readonly number[], state = Uint32Array.from(SHA256_START), before = 0): string {
  const padded = [...words, 0x80000000];
  while (padded.length % 16 !== 14) padded.push(0);
  padded.push(0, (before + words.length) * 32);
  for (let at = 0; at < padded.length; at += 16)
    sha256Compress(state, Uint32Array.from(padded.slice(at, at + 16)));
  return [...state].map((word) => word.toString(16).padStart(8, '0')).join('');
}

function bytesOf(words: readonly number[]): Buffer {
  const bytes = Buffer.alloc(words.length * 4);
  words.forEach((word, i) => {
    bytes.writeUInt32BE(word >>> 0, i * 4);
  });
  return bytes;
}

const ids = (count: number, of = (i: number) => (i * 7919) % 151_643): number[] =>
  Array.from({ length: count }, (_, i) => of(i));

describe('sha256Compress', () => {
  it('is SHA-256', () => {
    for (const length of [0, 1, 13, 14, 15, 16, 40]) {
      const words = ids(length, (i) => Math.imul(i + 1, 0x9e3779b1) >>> 0);
      expect(digest(words)).toBe(createHash('sha256').update(bytesOf(words)).digest('hex'));
    }
  });
});

describe('ChainKeys', () => {
  it('are the chaining values of SHA-256 over root and tokens', () => {
    for (const blockTokens of [16, 32, 64]) {
      const root = chainRoot('a model', 'salt');
      const tokens = ids(blockTokens * 3);
      const keys = new ChainKeys(root, blockTokens);
      keys.extend(tokensOf(tokens), 3);
      for (let block = 0; block < 3; block++) {
        // From the root on, the standard's own function over the same tokens.
        const state = root.slice();
        for (let at = 0; at < (block + 1) * blockTokens; at += 16)
          sha256Compress(state, Uint32Array.from(tokens.slice(at, at + 16)));
        const hex = [...state.subarray(0, KEY_WORDS)].map((w) => w.toString(16).padStart(8, '0')).join('');
        expect(keys.hex(block)).toBe(hex);
        expect(hex).toHaveLength(32);
      }
    }
  });

  it('the root is a digest of identity and salt', () => {
    const text = JSON.stringify(['m', 's']);
    const words = [text.length];
    const bytes = Buffer.alloc(60);
    bytes.write(text);
    for (let i = 0; i < 15; i++) words.push(bytes.readUInt32BE(i * 4));
    expect(digest([], chainRoot('m', 's'), 16)).toBe(
      createHash('sha256').update(bytesOf(words)).digest('hex'),
    );
  });

  it('differ with every token, place, identity, salt and adapter, and with nothing else', () => {
    const tokens = ids(48);
    const keyOf = (list: readonly number[], root = chainRoot('m'), at = 2): string => {
      const keys = new ChainKeys(root, 16);
      keys.extend(tokensOf(list), at + 1);
      return keys.hex(at);
    };
    const key = keyOf(tokens);
    expect(keyOf([...tokens])).toBe(key);
    const others = new Set([key]);
    for (let i = 0; i < 48; i++) others.add(keyOf(tokens.map((id, j) => (i === j ? id + 1 : id))));
    expect(others.size).toBe(49);
    const roots = [
      chainRoot('m'),
      chainRoot('n'),
      chainRoot('m', ''),
      chainRoot('m', 'x'),
      chainRoot('m"', 'x'),
      chainRoot('m', '"x'),
      chainRoot('mx', ''),
      chainRoot('m', null, ''),
      chainRoot('m', null, 'x'),
      chainRoot('m', 'x', 'x'),
      chainRoot('m', '"x","x'),
      chainRoot('m'.repeat(70)),
      chainRoot('m'.repeat(71)),
    ];
    expect(new Set(roots.map((root) => keyOf(tokens, root))).size).toBe(roots.length);
    // The same tokens in another block of the chain.
    const same = Array<number>(48).fill(5);
    expect(new Set([0, 1, 2].map((at) => keyOf(same, chainRoot('m'), at))).size).toBe(3);
  });

  it('come out the same whether made at once or as the sequence grows', () => {
    const tokens = ids(16 * 40);
    const whole = new ChainKeys(chainRoot('m'), 16);
    whole.extend(tokensOf(tokens), 40);
    const grown = new ChainKeys(chainRoot('m'), 16);
    for (let blocks = 0; blocks <= 40; blocks += 3)
      grown.extend(tokensOf(tokens.slice(0, blocks * 16)), blocks);
    grown.extend(tokensOf(tokens), 40);
    grown.extend(tokensOf(tokens), 7);
    expect(grown.count).toBe(40);
    for (let block = 0; block < 40; block++) expect(grown.sameAt(block, whole)).toBe(true);
    expect(grown.sameAt(40, whole)).toBe(false);
    const fork = grown.fork();
    fork.extend(tokensOf([...tokens, ...tokens]), 80);
    whole.extend(tokensOf([...tokens, ...tokens.slice(0, 16)]), 41);
    expect([fork.sameAt(0, whole), fork.sameAt(40, whole), grown.count]).toEqual([true, true, 40]);
    const other = new ChainKeys(chainRoot('m'), 16);
    other.extend(tokensOf([...tokens.slice(0, 40), 1, ...tokens.slice(41)]), 3);
    expect([0, 1, 2].map((block) => other.sameAt(block, whole))).toEqual([true, true, false]);
  });
});
