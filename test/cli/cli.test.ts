import { mkdtemp, readdir, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { kvant, kvantServe } from './kvant.js';

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
    for (const name of ['serve', 'chat', 'generate', 'bench', 'eval', 'inspect', 'quantize', 'pull']) {
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

  it('inspects a model', async () => {
    const { code, stdout } = await kvant(['inspect', demo, '--json', '--memory', '1GiB']);
    expect(code).toBe(0);
    const info = JSON.parse(stdout);
    expect(info).toMatchObject({
      architecture: 'Qwen3ForCausalLM',
      layers: 8,
      headDim: 128,
      tied: true,
      kvBytesPerToken: 8192,
    });
    expect(info.cache).toHaveLength(8);
    expect(info.fit.kvTokens).toBeGreaterThan(10_000);
    const text = (await kvant(['inspect', demo])).stdout;
    expect(text).toContain('layers 0–7: full attention');
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
    const twice = await kvant(['quantize', out, join(folder, 'twice')]);
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
      'test/fixtures/eval/eval-facts.jsonl',
      '--limit',
      '4',
      '--json',
    ]);
    expect(code).toBe(0);
    expect(JSON.parse(stdout).sets[0]).toMatchObject({ questions: 4, right: 4 });
  });

  it.each([
    ['no prompt', ['generate', demo], 2, /prompt/],
    ['two prompts', ['generate', demo, '--prompt', 'a', '--messages', 'b'], 2, /more than one/],
    ['a bad number', ['generate', demo, '--prompt', 'a', '--temperature', 'hot'], 2, /number/],
    ['a temperature below zero', ['generate', demo, '--prompt', 'a', '--temperature', '-1'], 2, /0 to 100/],
    ['an unknown flag', ['generate', demo, '--frobnicate'], 2, /unknown option/],
    ['an unknown command', ['frobnicate'], 2, /unknown command/],
    ['an absent folder', ['generate', './nowhere', '--prompt', 'a'], 2, /nowhere/],
    ['an absent file', ['generate', demo, '--messages', './nowhere.json'], 2, /nowhere\.json/],
    [
      'a context beyond the model',
      ['generate', demo, '--device', 'cpu', '--max-context', '999999', '--prompt', 'a'],
      2,
      /8192/,
    ],
    [
      'a prompt beyond the context',
      ['generate', demo, '--device', 'cpu', '--max-context', '16', '--prompt', 'a b c d e f g h i j k'],
      2,
      /16/,
    ],
    ['no GPU', ['generate', demo, '--device', 'webgpu', '--prompt', 'a'], 1, /GPU|adapter/i],
    ['unknown shapes', ['bench', '--shapes', 'gpt-9'], 2, /qwen3-0\.6b/],
  ] as const)('refuses %s with exit code and fix', async (_, args, exit, message) => {
    const { code, stdout, stderr } = await kvant(args, { env: { VK_ICD_FILENAMES: '/nonexistent.json' } });
    expect(stderr).toMatch(message);
    expect(code, stderr).toBe(exit);
    expect(stdout).toBe('');
  });

  it('puts errors into JSON when asked for JSON', async () => {
    const { code, stdout } = await kvant(['generate', './nowhere', '--prompt', 'a', '--json']);
    expect(code).toBe(2);
    expect(JSON.parse(stdout).error).toMatchObject({
      code: expect.any(String),
      message: expect.any(String),
      fix: expect.any(String),
    });
  });

  it('serves until told to stop, and lets the last answer finish', async () => {
    const serving = await kvantServe([demo, ...cpu, '--log-level', 'debug']);
    const ask = (body: object): Promise<Response> =>
      fetch(`${serving.url}/v1/chat/completions`, {
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body: JSON.stringify({
          messages: [{ role: 'user', content: 'Count from 1 to 20.' }],
          temperature: 0,
          ...body,
        }),
      });
    const answer = await (await ask({})).json();
    expect(JSON.stringify(answer)).toContain('20');
    const streaming = (await ask({ stream: true, max_tokens: 300, ignore_eos: true })).text();
    await new Promise((resolve) => setTimeout(resolve, 100));
    const ran = await serving.stop('SIGTERM');
    expect(await streaming).toContain('data: [DONE]');
    expect(ran.code).toBe(0);
    const lines = ran.stderr
      .trim()
      .split('\n')
      .map((l) => JSON.parse(l) as { msg: string; level: number; parameters?: object });
    const messages = lines.map((l) => l.msg);
    expect(messages).toContain('listening');
    expect(messages.filter((m) => m === 'completed')).toHaveLength(2);
    expect(lines.find((l) => l.msg === 'request')?.parameters).toMatchObject({ temperature: 0 });
    expect(ran.stderr).toMatch(/f16|f32/);
  });
});
