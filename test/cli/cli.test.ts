import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, readdir, rm, writeFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { readPackedText } from '../fixtures/read-packed.js';
import { kvant } from './kvant.js';

const demo = 'models/demo-text';
const cpu = ['--device', 'cpu', '--max-context', '1024'];

describe('the kvant command', () => {
  let folder: string;
  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'kvant-cli-'));
  });
  afterAll(async () => {
    await rm(folder, { recursive: true });
  });

  it('explains itself', async () => {
    const { code, stdout } = await kvant(['--help']);
    expect(code).toBe(0);
    for (const name of [
      'serve',
      'chat',
      'generate',
      'bench',
      'eval',
      'simulate',
      'inspect',
      'calibrate',
      'quantize',
      'pull',
    ]) {
      expect(stdout).toContain(name);
      const help = await kvant([name, '--help']);
      expect([help.code, help.stdout.includes('Example')], name).toEqual([0, true]);
    }
  });

  it('generates JSON with text, ids, finish reason, usage and timings', async () => {
    const { code, stdout } = await kvant([
      'generate',
      demo,
      ...cpu,
      '--prompt',
      'What is the capital of Japan?',
      '--max-tokens',
      '20',
      '--temperature',
      '0',
      '--json',
    ]);
    expect(code).toBe(0);
    const result = JSON.parse(stdout);
    expect(result).toMatchObject({
      text: 'The capital of Japan is Tokyo.',
      finishReason: 'stop',
      usage: { completionTokens: 10 },
    });
    expect(result.tokenIds.at(-1)).toBe(4085);
    expect(result.usage.totalTokens).toBe(result.usage.promptTokens + 10);
    expect(result.timings.totalMs).toBeGreaterThan(0);
  });

  it('continues a raw prompt, also from standard input', async () => {
    const args = ['generate', demo, ...cpu, '--raw', '--temperature', '0', '--max-tokens', '2'];
    expect((await kvant([...args, '--prompt', 'The capital of France is'])).stdout).toBe(' Paris.\n');
    expect((await kvant([...args, '--prompt', '-'], { input: 'The capital of France is' })).stdout).toBe(
      ' Paris.\n',
    );
  });

  it('takes a conversation with tools from a file', async () => {
    const tool = {
      type: 'function',
      function: {
        name: 'get_time',
        description: 'Get the time in a city',
        parameters: { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] },
      },
    };
    const path = join(folder, 'chat.json');
    await writeFile(
      path,
      JSON.stringify({ messages: [{ role: 'user', content: 'What time is it in Rome?' }], tools: [tool] }),
    );
    const { stdout, code } = await kvant([
      'generate',
      demo,
      ...cpu,
      '--messages',
      path,
      '--temperature',
      '0',
      '--max-tokens',
      '60',
    ]);
    expect(code).toBe(0);
    expect(stdout).toMatch(
      /<tool_call>\s*\{"name": "get_time", "arguments": \{"city": "Rome"\}\}\s*<\/tool_call>/,
    );
  });

  it('takes a line of a question set as a conversation', async () => {
    const [line] = readPackedText('test/fixtures/eval/eval-tools.jsonl.br').split('\n');
    const path = join(folder, 'line.jsonl');
    await writeFile(path, `${line}\n`);
    const args = ['--messages', path, '--temperature', '0', '--max-tokens', '90'];
    const { stdout, code, stderr } = await kvant(['generate', demo, ...cpu, ...args]);
    expect([code, stdout.trimEnd()]).toEqual([0, JSON.parse(line!).reference]);
    // Rates go to stderr, also where that is no terminal, unless they are not wanted.
    const rates = /^\d+ \+ \d+ tokens, first after \d+ ms, [\d.]+ tok\/s, stop, on .*, [\d.]+ MiB at most$/m;
    expect(stderr).toMatch(rates);
    const quiet = await kvant(['generate', demo, ...cpu, ...args, '--quiet']);
    expect([quiet.code, quiet.stdout]).toEqual([0, stdout]);
    expect(quiet.stderr).not.toMatch(rates);
  });

  it('talks, as long as there is input', async () => {
    const lines = [
      'What is the capital of Japan?',
      '/help',
      '',
      '/reset',
      'What is the capital of France?',
      '/exit',
      'x',
    ];
    const { stdout, code } = await kvant(['chat', demo, ...cpu, '--temperature', '0'], {
      input: lines.join('\n'),
    });
    expect(code).toBe(0);
    expect(stdout).toMatch(/Tokyo.*forgets the conversation.*Paris/s);
    const cut = await kvant(['chat', demo, ...cpu, '--temperature', '0'], { input: lines[0]! });
    expect([cut.code, cut.stdout.includes('Tokyo')]).toEqual([0, true]);
    expect((await kvant(['chat', demo, ...cpu], { input: '' })).code).toBe(0);
  });

  it('quantises a checkpoint that then answers, and refuses to write over it', async () => {
    const out = join(folder, 'demo-8bit');
    const first = await kvant(['quantize', demo, out, '--bits', '8', '--group-size', '64', '--json']);
    expect(first.code).toBe(0);
    expect(await readdir(out)).toContain('model.safetensors');
    const answer = await kvant([
      'generate',
      out,
      ...cpu,
      '--prompt',
      'What is the capital of Japan?',
      '--temperature',
      '0',
    ]);
    expect(answer.stdout).toBe('The capital of Japan is Tokyo.\n');
    const again = await kvant(['quantize', demo, out]);
    expect(again.code).toBe(2);
    expect(again.stderr).toContain('fix');
    const twice = await kvant(['quantize', out, join(folder, 'twice'), '--bits', '8', '--group-size', '64']);
    expect([twice.code, twice.stderr.includes('already')]).toEqual([2, true]);
  });

  it('quantises on load', async () => {
    const { stdout } = await kvant([
      'generate',
      demo,
      ...cpu,
      '--quantize',
      '8',
      '--prompt',
      'What is the capital of Japan?',
      '--temperature',
      '0',
    ]);
    expect(stdout).toBe('The capital of Japan is Tokyo.\n');
  });

  it('measures', async () => {
    const { code, stdout } = await kvant([
      'bench',
      demo,
      '--device',
      'cpu',
      '--rows',
      '1,2',
      '--prompt',
      '16',
      '--generate',
      '6',
      '--repeats',
      '1',
      '--json',
    ]);
    expect(code).toBe(0);
    const { results, vocab, device } = JSON.parse(stdout);
    expect([vocab, results.length, typeof device]).toEqual([4096, 2, 'string']);
    for (const r of results)
      expect(Math.min(r.prefillTokensPerSecond, r.decodeTokensPerSecond, r.stepMs)).toBeGreaterThan(0);
  });

  it('asks question sets', async () => {
    const { code, stdout } = await kvant([
      'eval',
      demo,
      ...cpu,
      '--set',
      'test/fixtures/eval/eval-facts.jsonl.br',
      '--limit',
      '4',
      '--json',
    ]);
    expect(code).toBe(0);
    expect(JSON.parse(stdout).sets[0]).toMatchObject({ questions: 4, right: 4 });
  });

  it('ends quietly when interrupted, whatever it was doing', async () => {
    // A hub that takes the connection and says nothing.
    const hub = createServer(() => {}).listen(0, '127.0.0.1');
    await once(hub, 'listening');
    const env = { HF_ENDPOINT: `http://127.0.0.1:${(hub.address() as AddressInfo).port}`, HF_HOME: folder };
    const interrupt = (child: ChildProcess) => hub.once('connection', () => child.kill('SIGINT'));
    for (const args of [
      ['generate', 'org/model', '--prompt', 'a'],
      ['pull', 'org/model'],
      ['inspect', 'org/model'],
    ]) {
      const { code, stdout, stderr } = await kvant(args, { env, during: interrupt });
      expect([code, stdout], args.join(' ')).toEqual([130, '']);
      expect(stderr).toMatch(/^(Fetching …\n)?interrupted\n$/);
    }
    hub.closeAllConnections();
    hub.close();
    const endless = ['--prompt', 'Tell me a story.', '--ignore-eos', '--max-tokens', '900'];
    const telling = await kvant(['generate', demo, ...cpu, ...endless], {
      during: (child) => child.stdout.once('data', () => child.kill('SIGINT')),
    });
    expect(telling.code).toBe(130);
    expect(telling.stderr).not.toMatch(/error|fault/);
    expect(telling.stdout).toMatch(/[^\n]\n$/);
  });

  it('loads for a command what it needs', async () => {
    await writeFile(
      join(folder, 'hook.mjs'),
      "import { writeSync } from 'node:fs';\nexport const load = (url, context, next) => { writeSync(2, url + '\\n'); return next(url, context); };",
    );
    const registering = join(folder, 'register.mjs');
    await writeFile(
      registering,
      "import { register } from 'node:module';\nregister('./hook.mjs', import.meta.url);",
    );
    const node = ['--import', registering];
    const loaded = async (...args: string[]): Promise<string> => (await kvant(args, { node })).stderr;
    for (const args of [['--help'], ['--version'], ['serve', '--help'], ['generate', '--help']]) {
      const modules = await loaded(...args);
      expect(modules, args.join(' ')).toContain('cli/main.js');
      expect(modules, args.join(' ')).not.toMatch(
        /zod|pino|hono|prom-client|@huggingface|dist\/(engine\/engine|server|models|weights)/,
      );
    }
    const generating = await loaded('generate', demo, ...cpu, '--prompt', 'a', '--max-tokens', '1');
    expect(generating).toContain('engine/engine.js');
    expect(generating).not.toMatch(/zod|pino|hono|prom-client|@huggingface\/hub|dist\/server/);
  });
});
