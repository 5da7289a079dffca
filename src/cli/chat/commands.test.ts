import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { picture } from '../../../test/setup/picture.js';
import { toPng } from '../../../test/setup/png.js';
import { KvantError } from '../../errors.js';
import { chatHelp, runCommand } from './commands.js';
import { Conversation } from './conversation.js';
import { Settings } from './settings.js';

const engine = {
  info: { model: { modalities: ['text', 'image'] as const } },
  chat: (): never => {
    throw new Error('nothing was asked');
  },
};

function talk(): { conversation: Conversation; run: (line: string) => string | null } {
  const conversation = new Conversation(engine, new Settings({}));
  return { conversation, run: (line) => runCommand(line, conversation, { topK: 20 }) };
}

describe('commands of a chat', () => {
  let folder: string;
  beforeAll(() => {
    folder = mkdtempSync(join(tmpdir(), 'kvant-chat-'));
  });
  afterAll(() => rmSync(folder, { recursive: true }));

  it('help names every command', () => {
    const { run } = talk();
    expect(run('/help')).toBe(chatHelp());
    for (const name of ['/help', '/reset', '/system', '/image', '/set', '/exit', '"""', 'Ctrl-C'])
      expect(chatHelp()).toContain(name);
  });

  it('pictures are put before the next question, shown and taken away', () => {
    const { conversation, run } = talk();
    const file = join(folder, 'a picture.png');
    writeFileSync(file, toPng(4, 4, picture(4, 4, 1).pixels));
    expect(run('/image')).toBe('There are no pictures.');
    expect(run(`/image ${file}`)).toBe(`Before the next question: ${file}`);
    expect(run(`/image "${file}"`)).toBe(`Before the next question: ${file}, ${file}`);
    expect(conversation.images).toEqual([file, file]);
    expect(run('/image ""')).toBe('There are no pictures.');
    run(`/image ${file}`);
    run('/reset');
    expect(conversation.images).toEqual([]);
    for (const path of ['/nowhere.png', import.meta.dirname])
      expect(() => run(`/image ${path}`)).toThrow(expect.objectContaining({ code: 'image-unreadable' }));
    expect(() => run(`/image ${import.meta.filename}`)).toThrow(
      expect.objectContaining({ code: 'unsupported-image', where: import.meta.filename }),
    );
    expect(conversation.images).toEqual([]);
    const blind = { ...engine, info: { model: { modalities: ['text'] as const } } };
    const other = new Conversation(blind, new Settings({}));
    expect(() => runCommand(`/image ${file}`, other, {})).toThrow(
      expect.objectContaining({ code: 'unsupported-content' }),
    );
  });

  it('the system message is set, shown and taken away', () => {
    const { conversation, run } = talk();
    expect(run('/system')).toBe('There is no system message.');
    expect(run('/system Be brief.\nBe kind.')).toBe('System message: Be brief.\nBe kind.');
    expect(conversation.system).toBe('Be brief.\nBe kind.');
    expect(run('/system')).toBe('System message: Be brief.\nBe kind.');
    expect(run('/system ""')).toBe('There is no system message.');
    expect(conversation.system).toBeUndefined();
  });

  it('settings are set and shown', () => {
    const { conversation, run } = talk();
    expect(run('/set temperature 0.2')).toBe('temperature 0.2');
    expect(conversation.settings.sampling).toEqual({ temperature: 0.2 });
    expect(run('/set')).toContain('temperature 0.2\n');
    expect(run('/SET')).toContain('top-k 20 (default)\n');
  });

  it.each(['/exit', '/quit', '/bye', ' /exit '])('%s ends it', (line) => {
    expect(talk().run(line)).toBeNull();
  });

  it.each([
    ['/nope', 'unknown-command', 'See /help.'],
    ['/rset', 'unknown-command', 'Did you mean `/reset`?'],
    ['/', 'unknown-command', '"""quotes"""'],
    ['/exit now', 'invalid-command', 'Write /exit.'],
    ['/reset all', 'invalid-command', 'Write /reset.'],
    ['/set temprature 1', 'unknown-parameter', 'Did you mean `temperature`?'],
  ])('%s is an error that says what to do', (line, code, fix) => {
    const { run } = talk();
    let error: unknown;
    try {
      run(line);
    } catch (caught) {
      error = caught;
    }
    expect(error).toBeInstanceOf(KvantError);
    expect(error).toMatchObject({ code, fix: expect.stringContaining(fix) });
  });
});
