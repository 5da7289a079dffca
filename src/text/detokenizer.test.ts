import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { Worker } from 'node:worker_threads';
import { Tokenizer as LibraryTokenizer } from '@huggingface/tokenizers';
import { describe, expect, it } from 'vitest';
import { Detokenizer, type DetokenizerOptions } from './detokenizer.js';
import { TOKEN_KNOWN, TOKEN_SPECIAL, type TokenTable, tokenBytes } from './token-bytes.js';
import { Tokenizer } from './tokenizer.js';

/** A small generator with a fixed seed (Marsaglia's xorshift32). */
function generator(seed: number): (below: number) => number {
  let state = seed;
  return (below) => {
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    return (state >>> 0) % below;
  };
}

const FOLDERS = [
  'models/demo-text',
  'test/fixtures/text/byte-level',
  'test/fixtures/text/sentencepiece',
  'test/fixtures/text/metaspace',
];

async function load(folder: string): Promise<{ tokenizer: Tokenizer; library: LibraryTokenizer }> {
  const read = async (name: string): Promise<object> =>
    JSON.parse(await readFile(join(folder, name), 'utf8')) as object;
  const library = new LibraryTokenizer(await read('tokenizer.json'), await read('tokenizer_config.json'));
  return { tokenizer: await Tokenizer.load(folder), library };
}

function pieces(table: TokenTable, ids: readonly number[], options: DetokenizerOptions): string[] {
  const detokenizer = new Detokenizer(table, options);
  return [...ids.map((id) => detokenizer.push(id)), detokenizer.flush()];
}

describe.each(FOLDERS)('Detokenizer over %s', (folder) => {
  it("gives the library's whole decode for random ids, in pieces that are whole characters", async () => {
    const { tokenizer, library } = await load(folder);
    const table = tokenizer.tokenTable;
    const random = generator(12345);
    // Half of the ids are drawn from tokens of broken UTF-8, which plain drawing seldom puts side by side.
    const strict = new TextDecoder('utf-8', { fatal: true });
    const partial: number[] = [];
    for (let id = 0; id < table.size; id++) {
      try {
        strict.decode(tokenBytes(table, id).slice());
      } catch {
        partial.push(id);
      }
    }
    expect(partial.length > 0).toBe(!folder.endsWith('metaspace'));
    let replaced = 0;
    for (let round = 0; round < 4000; round++) {
      const ids = Array.from({ length: 1 + random(12) }, () =>
        partial.length > 0 && random(2) === 0 ? partial[random(partial.length)]! : random(table.size),
      );
      for (const skipSpecialTokens of [true, false]) {
        // The library refuses an empty list and drops a byte order mark at the start of a byte run.
        const whole = library.decode(ids, {
          skip_special_tokens: skipSpecialTokens,
          clean_up_tokenization_spaces: false,
        });
        const out = pieces(table, ids, { skipSpecialTokens });
        if (out.join('') !== whole) {
          throw new Error(
            JSON.stringify({ ids, tokens: ids.map((id) => tokenizer.tokenOf(id)), out, whole }),
          );
        }
        if (whole.includes('\ufffd')) replaced++;
        for (const piece of out) expect(/\p{Surrogate}/u.test(piece)).toBe(false);
      }
    }
    if (partial.length > 0) expect(replaced).toBeGreaterThan(1000);
  });

  it('gives back any text it encodes', async () => {
    const { tokenizer } = await load(folder);
    const text = 'The lazy dog sleeps. Größe and café, 日本! \u{1F600}';
    const whole = tokenizer.encode(text, { addSpecialTokens: false });
    // The unigram fixture has no bytes to fall back to: characters it never saw are lost.
    const expected = folder.includes('metaspace') ? tokenizer.decode(whole) : text;
    expect(pieces(tokenizer.tokenTable, [...whole], {}).join('')).toBe(expected);
  });
});

describe('Detokenizer', () => {
  it('holds back the bytes of an unfinished character and no more', async () => {
    const { tokenizer } = await load('models/demo-text');
    const bytes = (...values: number[]): number[] =>
      values.map((value) => {
        for (let id = 0; id < tokenizer.vocabSize; id++) {
          const piece = tokenBytes(tokenizer.tokenTable, id);
          if (piece.length === 1 && piece[0] === value) return id;
        }
        throw new Error(`no token for byte ${value}`);
      });
    const face = bytes(0xf0, 0x9f, 0x98, 0x80);
    expect(pieces(tokenizer.tokenTable, face, {})).toEqual(['', '', '', '\u{1F600}', '']);
    expect(pieces(tokenizer.tokenTable, face.slice(0, 3), {})).toEqual(['', '', '', '\ufffd']);
    expect(pieces(tokenizer.tokenTable, bytes(0xe2, 0x41), {})).toEqual(['', '\ufffdA', '']);
    expect(pieces(tokenizer.tokenTable, bytes(0xe0, 0x80), {})).toEqual(['', '\ufffd\ufffd', '']);
    expect(pieces(tokenizer.tokenTable, bytes(0xef, 0xbb, 0xbf, 0x41), {}).join('')).toBe('\ufeffA');

    const detokenizer = new Detokenizer(tokenizer.tokenTable);
    detokenizer.push(face[0]!);
    expect(detokenizer.pending).toBe(true);
    expect(detokenizer.flush()).toBe('\ufffd');
    expect(detokenizer.pending).toBe(false);
    expect(face.map((id) => detokenizer.push(id)).join('')).toBe('\u{1F600}');
  });

  it('skips or shows special tokens, and has no text for ids beyond the tokenizer', async () => {
    const { tokenizer } = await load('models/demo-text');
    const table = tokenizer.tokenTable;
    const ids = [4094, 4085, 4095];
    expect(pieces(table, ids, {}).join('')).toBe('<think></think>');
    expect(pieces(table, ids, { skipSpecialTokens: false }).join('')).toBe('<think><|im_end|></think>');
    expect(pieces(table, [-1, 4096, 1e9], { skipSpecialTokens: false }).join('')).toBe('');
  });

  it('drops the leading space of a text, once, and keeps it when the ids continue one', async () => {
    const { tokenizer } = await load('test/fixtures/text/sentencepiece');
    const table = tokenizer.tokenTable;
    const ids = [...tokenizer.encode('The dog', { addSpecialTokens: false })];
    expect(pieces(table, ids, {}).join('')).toBe('The dog');
    expect(pieces(table, ids, { continuation: true }).join('')).toBe(' The dog');
    expect(pieces(table, [tokenizer.idOf('<s>')!, ...ids], {}).join('')).toBe('The dog');
    const space = tokenizer.idOf('\u2581')!;
    expect(pieces(table, [space, space, ...ids], {}).join('')).toBe('  The dog');
    const detokenizer = new Detokenizer(table);
    const twice = [0, 1].map(() => ids.map((id) => detokenizer.push(id)).join('') + detokenizer.flush());
    expect(twice).toEqual(['The dog', 'The dog']);
  });

  it('takes time per token that does not grow with the text', async () => {
    // Counted, not timed: a token reads only its own bytes and the few that are held.
    const { tokenizer } = await load('models/demo-text');
    const { offsets } = tokenizer.tokenTable;
    let read = 0;
    const counting = new Proxy(tokenizer.tokenTable.data, {
      get(target, key) {
        if (typeof key === 'string' && /^\d+$/.test(key)) read++;
        const value: unknown = Reflect.get(target, key, target);
        return typeof value === 'function' ? (value as (...args: unknown[]) => unknown).bind(target) : value;
      },
    });
    const byteToken = tokenizer.idOf('ð')!;
    const detokenizer = new Detokenizer({ ...tokenizer.tokenTable, data: counting });
    for (let i = 0; i < 5000; i++) detokenizer.push(byteToken);
    expect(offsets[byteToken + 1]! - offsets[byteToken]!).toBe(1);
    expect(read).toBe(5000);
  });

  it('works on a table posted to another thread, which shares its memory', async () => {
    const { tokenizer } = await load('models/demo-text');
    const table = tokenizer.tokenTable;
    for (const part of [table.data, table.offsets, table.flags]) {
      expect(part.buffer).toBeInstanceOf(SharedArrayBuffer);
    }
    const worker = new Worker(
      `const { parentPort, workerData: t } = require('node:worker_threads');
       const id = 4094;
       parentPort.postMessage({
         text: new TextDecoder().decode(t.data.slice(t.offsets[id], t.offsets[id + 1])),
         shared: t.data.buffer instanceof SharedArrayBuffer,
         size: t.size,
       });`,
      { eval: true, workerData: table },
    );
    const seen = await new Promise((resolve, reject) => {
      worker.once('message', resolve);
      worker.once('error', reject);
    });
    await worker.terminate();
    expect(seen).toEqual({ text: '<think>', shared: true, size: 4096 });
    expect(table.flags[4094]).toBe(TOKEN_KNOWN);
    expect(table.flags[4085]).toBe(TOKEN_KNOWN | TOKEN_SPECIAL);
  });
});
