import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { brotliCompressSync, gzipSync } from 'node:zlib';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { KvantError } from '../../errors.js';
import { atPlace } from './picture-line.js';
import { judgeAnswer, readQuestions, setName } from './question-sets.js';

describe('question sets', () => {
  let folder: string;
  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'kvant-questions-'));
  });
  afterAll(async () => {
    await rm(folder, { recursive: true });
  });

  const read = async (...lines: string[]) => {
    const path = join(folder, 'set.jsonl');
    await writeFile(path, lines.join('\n'));
    return readQuestions(path);
  };

  it('reads a packed set, and says that it cannot where it is none', async () => {
    for (const [ending, pack] of [
      ['gz', gzipSync],
      ['br', brotliCompressSync],
    ] as const) {
      const path = join(folder, `packed.jsonl.${ending}`);
      await writeFile(path, pack('{"messages": [], "answer": "é"}\n'));
      expect((await readQuestions(path))[0]!.answer).toBe('é');
      expect(setName(path)).toBe('packed');
      await writeFile(path, '{"messages": []}');
      await expect(readQuestions(path)).rejects.toMatchObject({ code: 'file-not-readable' });
    }
  });

  it('judges facts by equality', async () => {
    const [q] = await read(
      '{"messages": [], "answer": "It is Rome.", "expected": "Rome", "type": "capital"}',
    );
    expect(q!.group).toBe('capital');
    expect(judgeAnswer(q!, 'It is Rome.')).toBe(true);
    expect(judgeAnswer(q!, 'It is Rome')).toBe(false);
  });

  it('judges recall by what the answer holds', async () => {
    const [q] = await read(
      '{"messages": [], "answer": "The code is X7.", "expected": "x7", "bucket": "100-500"}',
    );
    expect(judgeAnswer(q!, 'I think it is X7, yes')).toBe(true);
    expect(judgeAnswer(q!, 'I do not know')).toBe(false);
  });

  it('judges tool calls as JSON', async () => {
    const [q] = await read(
      '{"messages": [], "tools": [], "expected": {"name": "add", "arguments": {"a": 1, "b": [2, 3]}}}',
    );
    const call = (json: string): string => `<tool_call>\n${json}\n</tool_call>`;
    expect(judgeAnswer(q!, call('{"arguments": {"b": [2, 3], "a": 1}, "name": "add"}'))).toBe(true);
    expect(judgeAnswer(q!, call('{"name": "add", "arguments": {"a": 1, "b": [3, 2]}}'))).toBe(false);
    expect(judgeAnswer(q!, call('{"name": "add", "arguments": {"a": 1, "b": [2, 3], "c": 0}}'))).toBe(false);
    expect(judgeAnswer(q!, call('{"name": "add"'))).toBe(false);
    expect(judgeAnswer(q!, '{"name": "add", "arguments": {"a": 1, "b": [2, 3]}}')).toBe(false);
  });

  it('says where a set is broken', async () => {
    await expect(read('{"messages": []}', '{nope')).rejects.toThrow(/set\.jsonl:2/);
    await expect(read('')).rejects.toMatchObject({ code: 'invalid-question-set' });
    await expect(read('{"prompt": 1}')).rejects.toMatchObject({ code: 'invalid-question-set' });
    await expect(readQuestions(join(folder, 'absent.jsonl'))).rejects.toMatchObject({
      code: 'file-not-readable',
    });
  });

  const png = 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNoAAAAggCBd81ytgAAAABJRU5ErkJggg==';
  const seen = (images: unknown): string => JSON.stringify({ images, question: 'What?', answer: 'A dot.' });

  it('makes a conversation of pictures and a question', async () => {
    const [q] = await read(seen([{ png_base64: png }]));
    const url = `data:image/png;base64,${png}`;
    expect(q).toMatchObject({
      pictures: true,
      messages: [{ role: 'user', content: [{ image_url: { url } }, { text: 'What?' }] }],
    });
  });

  it.each([
    ['an empty list', [], 'invalid-question-set', ' images'],
    ['no list', png, 'invalid-question-set', ' images'],
    ['no base64', [{ png_base64: png }, { png: png }], 'invalid-question-set', ' images[1].png_base64'],
    ['what is not base64', [{ png_base64: 'ä' }], 'invalid-image-url', ' images[0].png_base64'],
    ['no picture', [{ png_base64: 'QUJD' }], 'unsupported-image', ' images[0].png_base64'],
  ])('refuses images that are %s, naming the line', async (_, images, code, at) => {
    const where = `${join(folder, 'set.jsonl')}:3${at}`;
    const error = { code, where, message: expect.stringContaining(where) };
    await expect(read('{"messages": [], "answer": ""}', '', seen(images))).rejects.toMatchObject(error);
  });

  it('refuses pictures without a question, or without an answer', async () => {
    for (const [line, what] of [
      [{ messages: [], answer: '' }, 'question'],
      [{ question: 'What?' }, 'answer'],
    ] as const)
      await expect(read(JSON.stringify({ images: [{ png_base64: png }], ...line }))).rejects.toMatchObject({
        code: 'invalid-question-set',
        message: expect.stringContaining(`set.jsonl:1 has images and no ${what}`),
      });
  });

  it.each([`data:image/png;base64,${png}`, `${png.slice(0, 40)}\n${png.slice(40)}`])(
    'says how a file writes a picture, where it has %j',
    async (given) => {
      const error = {
        code: 'invalid-image-url',
        fix: expect.stringContaining('no line ends, and no “data:”'),
      };
      await expect(read(seen([{ png_base64: given }]))).rejects.toMatchObject(error);
    },
  );

  it('tells what the engine says of a question in the place of its line', () => {
    const of = (where: string) =>
      new KvantError('invalid-image', `${where} is broken.`, {
        kind: 'invalid-request',
        where,
        fix: 'Mend it.',
      });
    const told = (where: string, pictures: boolean) => atPlace(of(where), { place: 's.jsonl:7', pictures });
    const part = 'messages[0].content[1].image_url.url';
    const image = 's.jsonl:7 images[1].png_base64';
    expect(told(part, true)).toMatchObject({
      code: 'invalid-image',
      fix: 'Mend it.',
      where: image,
      message: `${image} is broken.`,
    });
    // Of what is said of the request as a whole the line is named.
    const many = new KvantError('too-many-images', 'The request has 17 pictures.', {
      kind: 'invalid-request',
      where: part,
    });
    expect(atPlace(many, { place: 's.jsonl:7', pictures: true })).toMatchObject({
      where: image,
      message: 's.jsonl:7: The request has 17 pictures.',
    });
    expect(told(part, false)).toMatchObject({ where: 's.jsonl:7', message: `s.jsonl:7: ${part} is broken.` });
    expect(told('messages', true)).toMatchObject({
      where: 's.jsonl:7',
      message: 's.jsonl:7: messages is broken.',
    });
  });
});
