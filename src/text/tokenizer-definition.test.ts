import { readFile } from 'node:fs/promises';
import { expect, it } from 'vitest';
import type { JsonObject } from './json-file.js';
import { Tokenizer } from './tokenizer.js';
import { readTokenizerDefinition } from './tokenizer-definition.js';

const MARK = '\u2581';
const preTokenizer = (json: JsonObject) => readTokenizerDefinition(json, {}, 'x').preTokenizer;
const fixture = async (name: string): Promise<JsonObject> =>
  JSON.parse(await readFile(`test/fixtures/text/${name}/tokenizer.json`, 'utf8')) as JsonObject;

/** Marks and letters, with one merge that lies across a word's end where asked for. */
function small(merges: unknown[], vocab: Record<string, number> = {}): JsonObject {
  return {
    normalizer: { type: 'Replace', pattern: { String: ' ' }, content: MARK },
    model: { type: 'BPE', vocab: { [MARK]: 0, a: 1, b: 2, [`${MARK}a`]: 3, ...vocab }, merges },
  };
}

it('cuts a sentencepiece text before its words, so that a megabyte takes no longer than its words', async () => {
  const cut = preTokenizer(await fixture('sentencepiece'));
  expect(cut).toMatchObject({ type: 'Split', behavior: 'Isolated' });
  const metaspace = { type: 'Metaspace', replacement: MARK, prepend_scheme: 'first', split: false };
  expect(preTokenizer({ ...(await fixture('sentencepiece')), pre_tokenizer: metaspace })).toEqual({
    type: 'Sequence',
    pretokenizers: [metaspace, cut],
  });
  // The scores of a Unigram model add up over the whole text.
  expect(preTokenizer(await fixture('metaspace'))).toMatchObject({ type: 'Metaspace', split: false });
  const own = (await fixture('byte-level')).pre_tokenizer;
  expect(preTokenizer(await fixture('byte-level'))).toEqual(own);
});

it('does not cut where a piece lies across, and finds that piece', () => {
  const across = { [`a${MARK}`]: 4 };
  for (const merges of [
    [`a ${MARK}`, `${MARK} a`],
    [
      ['a', MARK],
      [MARK, 'a'],
    ],
  ]) {
    expect(preTokenizer(small(merges, across))).toBeNull();
    expect([...Tokenizer.fromJson(small(merges, across)).encode('b a b')]).toEqual([2, 0, 4, 2]);
  }
  expect(preTokenizer(small([`${MARK} a`]))).not.toBeNull();
  expect([...Tokenizer.fromJson(small([`${MARK} a`])).encode('b a b')]).toEqual([2, 3, 0, 2]);
});

it('does not cut where whole words are looked up before they are merged', () => {
  const json = small([`${MARK} a`]);
  const model = { ...(json.model as JsonObject), ignore_merges: true };
  expect(preTokenizer({ ...json, model })).toBeNull();
});

it('takes words of any length', async () => {
  for (const name of ['metaspace', 'sentencepiece', 'byte-level']) {
    const tokenizer = await Tokenizer.load(`test/fixtures/text/${name}`);
    const word = 'dog'.repeat(100_000);
    expect(tokenizer.decode(tokenizer.encode(word, { addSpecialTokens: false }))).toBe(word);
  }
});

it('refuses with an error of its own what the model cannot write', () => {
  const json = { model: { type: 'Unigram', vocab: [['a', 0]] } };
  expect([...Tokenizer.fromJson(json).encode('aa')]).toEqual([0, 0]);
  expect(() => Tokenizer.fromJson(json).encode('ab')).toThrow(
    expect.objectContaining({ code: 'tokenizer-failed', kind: 'invalid-request' }),
  );
});
