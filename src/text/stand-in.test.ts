import { describe, expect, it } from 'vitest';
import { standInTemplate, standInTokenizer } from './stand-in.js';

describe('the stand-in tokenizer', () => {
  it('reads a text byte by byte, and gives it back', () => {
    const tokenizer = standInTokenizer(300);
    const text = 'A line,\n  and ü 三 🦜.';
    const ids = tokenizer.encode(text);
    expect([...ids]).toEqual([...new TextEncoder().encode(text)]);
    expect(tokenizer.decode(ids)).toBe(text);
  });

  it('has a word of its own for every other id', () => {
    const vocab = 20_000;
    const tokenizer = standInTokenizer(vocab);
    expect(tokenizer.vocabSize).toBe(vocab);
    const words = new Set<string>();
    for (let id = 256; id < vocab; id++) words.add(tokenizer.decode([id]));
    expect(words.size).toBe(vocab - 256);
    for (const word of words) expect(word).toMatch(/^ [a-z]{2,8}$/);
  });
});

it('the stand-in template writes turns with their roles', () => {
  const messages = [
    { role: 'system', content: 'Be brief.' },
    { role: 'user', content: 'Hi' },
  ];
  expect(standInTemplate().render(messages)).toBe('system: Be brief.\nuser: Hi\nassistant:');
});
