import { describe, expect, it } from 'vitest';
import { PasteInput } from './paste-input.js';

const START = '\x1b[200~';
const END = '\x1b[201~';

/** What the line editor sees of these chunks. */
async function seen(...chunks: readonly (string | Buffer)[]): Promise<{ text: string; input: PasteInput }> {
  const input = new PasteInput({});
  let text = '';
  input.on('data', (data) => {
    text += data;
  });
  const ended = new Promise((resolve) => input.once('end', resolve));
  for (const chunk of chunks) input.write(chunk);
  input.end();
  await ended;
  return { text, input };
}

describe('pasted text', () => {
  it('keys pass as they are, escapes among them', async () => {
    const keys = 'aé\x1b[A\x1b[3~\x03\r\x1bb\x1b';
    expect((await seen(keys)).text).toBe(keys);
    // One key after the other: nothing is kept waiting.
    const input = new PasteInput({});
    const got: string[] = [];
    input.on('data', (data) => got.push(String(data)));
    for (const key of ['\x1b', '\x1b[', 'a']) {
      input.write(key);
      await new Promise((resolve) => setImmediate(resolve));
    }
    expect(got).toEqual(['\x1b', '\x1b[', 'a']);
  });

  it('one short line is as good as typed, and is not entered by its line break', async () => {
    expect((await seen(`say ${START}hello\r${END}!`)).text).toBe('say hello!');
    expect((await seen(`${START}a\tb\x03\x1b[Ac${END}`)).text).toBe('a\tb[Ac');
    expect((await seen(`${START}\n${END}`)).text).toBe('');
  });

  it('several lines have a name, which stands for them', async () => {
    const { text, input } = await seen(`fix ${START}one\r\ntwo\r\rfour\n${END} and ${START}x\ny${END}`);
    expect(text).toBe('fix [paste 1: 4 lines, 13 characters] and [paste 2: 2 lines, 3 characters]');
    expect(input.expand(text)).toBe('fix one\ntwo\n\nfour and x\ny');
    expect(input.expand(text)).toBe('fix one\ntwo\n\nfour and x\ny');
    expect(input.expand('[paste 3: 1 line, 2 characters]')).toBe('[paste 3: 1 line, 2 characters]');
  });

  it('a long one costs the editor nothing, and a replacement pattern in it means nothing', async () => {
    const long = '$& $1 '.repeat(50_000);
    const { text, input } = await seen(START + long + END);
    expect(text).toBe('[paste 1: 1 line, 300000 characters]');
    expect(input.expand(text)).toBe(long);
  });

  it('the pieces in which it comes make no difference', async () => {
    const bytes = Buffer.from(`é${START}ä\n€${END}ö`);
    // Smaller ones break the first mark behind its escape, which is then a key's.
    for (let size = 5; size < bytes.length; size++) {
      const chunks: Buffer[] = [];
      for (let at = 0; at < bytes.length; at += size) chunks.push(bytes.subarray(at, at + size));
      const { text, input } = await seen(...chunks);
      expect([size, input.expand(text)]).toEqual([size, 'éä\n€ö']);
    }
  });

  it('one that never ends is given out when the input is over', async () => {
    const { text, input } = await seen(`${START}one\ntwo`);
    expect(input.expand(text)).toBe('one\ntwo');
  });
});
