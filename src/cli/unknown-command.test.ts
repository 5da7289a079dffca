import { describe, expect, it } from 'vitest';
import { unknownCommand } from './unknown-command.js';

const KNOWN = [
  'serve',
  'chat',
  'generate',
  'bench',
  'tune',
  'eval',
  'simulate',
  'inspect',
  'quantize',
  'pull',
];
const fix = async (name: string): Promise<string | undefined> => (await unknownCommand(name, KNOWN)).fix;

describe('unknownCommand', () => {
  it.each([
    ['srve', 'serve'],
    ['Serve', 'serve'],
    ['chatt', 'chat'],
    ['genrate', 'generate'],
    ['quantise', 'quantize'],
    ['pul', 'pull'],
    ['gen', 'generate'],
    ['quant', 'quantize'],
    ['show', 'inspect'],
    ['download', 'pull'],
    ['benchmark', 'bench'],
  ])('%s: did you mean %s', async (name, meant) => {
    expect(await fix(name)).toBe(`Did you mean \`kvant ${meant}\`?`);
  });

  it.each(['ls', 'list', 'LIST', 'lits', 'models'])(
    '%s: there is no list, and where models are',
    async (name) => {
      expect(await fix(name)).toMatch(/keeps no list.*kvant inspect/);
    },
  );

  it.each(['version', 'verson'])('%s: a flag tells it', async (name) => {
    expect(await fix(name)).toContain('kvant --version');
  });

  it('a model alone lacks what to do with it', async () => {
    expect(await fix('Qwen/Qwen3-0.6B')).toContain('kvant chat Qwen/Qwen3-0.6B');
    expect(await fix('models/demo-text/')).toContain('kvant serve models/demo-text/');
  });

  it('anything else: the commands there are, whatever it is', async () => {
    for (const name of ['nope', 'x'.repeat(100_000), 'constructor', '__proto__', '\u001b[2J', ''])
      expect(await fix(name)).toContain('serve, chat, generate');
    const long = await unknownCommand('x'.repeat(100_000), KNOWN);
    expect(long.message.length).toBeLessThan(400);
    expect(long).toMatchObject({ code: 'unknown-command', kind: 'invalid-request' });
    expect((await unknownCommand('\u001b[2J', KNOWN)).message).not.toContain('\u001b');
  });
});
