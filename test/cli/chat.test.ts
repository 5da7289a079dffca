/** `kvant chat` as a process: on a pipe, and on a terminal (that of `script`, from util-linux). */
import { spawn } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';
import { picture } from '../setup/picture.js';
import { toPng } from '../setup/png.js';
import { kvant } from './kvant.js';

const main = fileURLToPath(new URL('../../dist/cli/main.js', import.meta.url));
const CHAT = ['chat', 'models/demo-text', '--device', 'cpu', '--max-context', '512', '--temperature', '0'];

const talk = (lines: readonly string[], ...flags: string[]): ReturnType<typeof kvant> =>
  kvant([...CHAT, ...flags], { input: lines.join('\n') });

/** Without the news of loading, which a slow machine has. */
const told = (stderr: string): string[] => stderr.split('\n').filter((line) => !/^$| …$/.test(line));

describe('kvant chat on a pipe', () => {
  it('answers go to stdout, rates to stderr; blocks, system message and settings count', async () => {
    const { code, stdout, stderr } = await talk([
      '"""',
      'What is the',
      'capital of Japan?',
      '"""',
      '/system Be brief.',
      '/set max-tokens 2',
      'What is the capital of France?',
      '/exit',
      'never asked',
    ]);
    expect(stdout).toBe(
      'The capital of Japan is Tokyo.\nSystem message: Be brief.\nmax-tokens 2\nThe capital\n',
    );
    expect(told(stderr)).toEqual([
      expect.stringMatching(/^10 tokens, first after \d+ ms, [\d.]+ tok\/s$/),
      expect.stringMatching(/^2 tokens, first after \d+ ms, [\d.]+ tok\/s, cut at the limit of tokens$/),
    ]);
    expect(code).toBe(0);
  });

  it('what is refused is an error on stderr, and the exit code tells; the rest is done', async () => {
    const { code, stdout, stderr } = await talk(
      ['/nope', '/set temperature hot', 'What is the capital of Japan?', 'word '.repeat(600)],
      '--quiet',
    );
    expect(stdout).toBe('The capital of Japan is Tokyo.\n');
    expect(told(stderr)).toEqual([
      expect.stringMatching(/^error There is no command \/nope\. See \/help\./),
      expect.stringMatching(/^error `temperature` cannot be hot\./),
      expect.stringMatching(/^error .* \/reset forgets the conversation\.$/),
    ]);
    expect(code).toBe(2);
  });

  it('a picture that cannot be decoded is named, and does not go before the next question', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'kvant-chat-'));
    const [whole, cut] = [join(folder, 'whole.png'), join(folder, 'cut.png')];
    const png = toPng(56, 56, picture(56, 56, 1).pixels);
    writeFileSync(whole, png);
    writeFileSync(cut, png.subarray(0, png.length / 2));
    const lines = [`/image ${whole}`, `/image ${cut}`, 'What is in the picture?', '/image', 'And now?'];
    const flags = ['--device', 'cpu', '--max-context', '512', '--max-tokens', '2', '--quiet'];
    const { code, stdout, stderr } = await kvant(['chat', 'models/demo-vision', ...flags], {
      input: lines.join('\n'),
    });
    rmSync(folder, { recursive: true });
    expect(told(stderr)).toEqual([
      expect.stringMatching(`^error ${cut} is no picture that can be read: it is cut off`),
    ]);
    expect(stdout.split('\n')).toEqual([
      `Before the next question: ${whole}`,
      `Before the next question: ${whole}, ${cut}`,
      `Before the next question: ${whole}`,
      expect.stringMatching(/\w/),
      '',
    ]);
    expect(code).toBe(2);
  });

  it('a signal stops the answer and ends it', async () => {
    const { code, stdout } = await kvant(CHAT, {
      input: 'Tell me a story about a dragon.\nWhat is the capital of Japan?\n',
      during: (child) => child.stdout.once('data', () => child.kill('SIGINT')),
    });
    expect(code).toBe(130);
    expect(stdout).not.toBe('');
    expect(stdout).not.toContain('Tokyo');
  });
});

/** Types at a terminal when it has shown what is waited for. Resolves with all that it showed, and the exit code. */
function typed(
  steps: readonly (readonly [shown: RegExp, keys: string])[],
  env: NodeJS.ProcessEnv = {},
): Promise<{ screen: string; code: number | null }> {
  const words = [process.execPath, main, ...CHAT];
  const args =
    process.platform === 'darwin'
      ? ['-q', '/dev/null', ...words]
      : ['-qefc', words.map((word) => `'${word}'`).join(' '), '/dev/null'];
  // Node shows no colours where CI is set, terminal or not.
  const { NO_COLOR: _, CI: __, ...inherited } = process.env;
  const child = spawn('script', args, {
    env: { ...inherited, TERM: 'xterm-256color', ...env },
    stdio: ['pipe', 'pipe', 'inherit'],
    timeout: 120_000,
  });
  return new Promise((resolve, reject) => {
    let screen = '';
    let from = 0;
    let step = 0;
    child.stdout.on('data', (data) => {
      screen += data;
      const next = steps[step];
      if (next === undefined || !next[0].test(screen.slice(from))) return;
      from = screen.length;
      step++;
      child.stdin.write(next[1]);
    });
    child.on('error', reject);
    child.on('close', (code) => resolve({ screen, code }));
  });
}

describe('kvant chat on a terminal', () => {
  it('takes a paste as one message; Ctrl-C stops an answer, a second one ends', async () => {
    const prompt = /\[1m> \S*$/;
    const { screen, code } = await typed([
      [prompt, '\x1b[200~What is the\rcapital of Italy?\x1b[201~\r'],
      [/tok\/s[\s\S]*\[1m> /, '/nope\r'],
      [/error[\s\S]*\[1m> /, 'Tell me a story about a dragon.\r'],
      [/dragon\.\r+\n\S+ \S+/, '\x03'],
      [/stopped[\s\S]*\[1m> /, '\x03'],
    ]);
    expect(screen).toContain('[paste 1: 2 lines, 29 characters]');
    expect(screen).toContain('The capital of Italy is Rome.');
    // biome-ignore lint/suspicious/noControlCharactersInRegex: colours are what is looked for
    expect(screen).toMatch(/\x1b\[2m10 tokens, first after \d+ ms, [\d.]+ tok\/s\x1b\[22m/);
    expect(screen).toContain('\x1b[31merror\x1b[39m There is no command /nope.');
    // The terminal is given back as it was.
    expect(screen.endsWith('\x1b[?2004l')).toBe(true);
    expect(code).toBe(0);
  });

  it('NO_COLOR is heeded; a block has a prompt of its own, Ctrl-C drops it, Ctrl-D ends', async () => {
    const { screen, code } = await typed(
      [
        [/\n[^\n]*> /, '"""never mind\r'],
        [/… /, '\x03'],
        [/> /, 'What is the capital of Japan?\r'],
        [/tok\/s[\s\S]*> /, '\x04'],
      ],
      { NO_COLOR: '1' },
    );
    expect(screen).toContain('The capital of Japan is Tokyo.');
    // biome-ignore lint/suspicious/noControlCharactersInRegex: colours are what must not be there
    expect(screen).not.toMatch(/\x1b\[[\d;]+m/);
    expect(code).toBe(0);
  });
});
