import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
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
    const path = join(folder, 'packed.jsonl.gz');
    await writeFile(path, gzipSync('{"messages": [], "answer": "é"}\n'));
    expect((await readQuestions(path))[0]!.answer).toBe('é');
    expect(setName(path)).toBe('packed');
    await writeFile(path, '{"messages": []}');
    await expect(readQuestions(path)).rejects.toMatchObject({ code: 'file-not-readable' });
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
});
