import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { cp, mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { readPackedText } from '../fixtures/read-packed.js';
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
    const [line] = readPackedText('test/fixtures/eval/eval-tools.jsonl.gz').split('\n');
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

  it('plans the memory of a GPU that it cannot see', async () => {
    const args = ['inspect', demo, '--device', 'webgpu'];
    const unknown = await kvant(args);
    expect([unknown.code, unknown.stdout.includes('tokens a GiB')]).toEqual([0, true]);
    expect(JSON.parse((await kvant([...args, '--json'])).stdout).fit).toBeNull();
    // 4096 heads of K at f16 in each of 8 layers: what WebGPU binds is used up long before a TiB is.
    const { fit } = JSON.parse((await kvant([...args, '--json', '--memory', '1024GiB'])).stdout);
    expect(fit.kvTokens).toBe(Math.floor((2 ** 31 - 4) / 512));
    const beside = JSON.parse((await kvant(['inspect', demo, '--json', '--memory', '1024GiB'])).stdout);
    expect(beside.fit.kvTokens).toBeGreaterThan(fit.kvTokens);
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
    const { memory } = info.serve;
    expect(memory.caches).toEqual([info.serve.kvBytes]);
    expect(memory.total).toBe(memory.weights + info.serve.kvBytes + memory.activations);
    const text = (await kvant(['inspect', demo])).stdout;
    expect(text).toContain('layers 0–7: full attention');
    expect(text).toMatch(/takes 30 MiB of weights, [\d.]+ [MG]iB of KV, about 4\.0 MiB of activations: /);
    expect(text).toContain('temperature 0.7, top_k 20, top_p 0.95');
    expect(info.sampling).toEqual({ doSample: true, temperature: 0.7, topK: 20, topP: 0.95, ignored: [] });
    const stretched = ['inspect', demo, '--json', '--rope-scale', '2', '--hf-overrides', '{"rope_theta": 7}'];
    expect(JSON.parse((await kvant(stretched)).stdout)).toMatchObject({
      family: 'qwen3',
      maxContext: 2 * info.maxContext,
      rope: expect.stringMatching(/linear.*7/),
    });
    const model = join(folder, 'beams');
    await cp(demo, model, { recursive: true });
    await writeFile(join(model, 'generation_config.json'), '{"top_p": 0.5, "num_beams": 4}');
    const beams = (await kvant(['inspect', model])).stdout;
    expect(beams).toMatch(/sampling +top_p 0\.5\n +of generation_config\.json left out: num_beams/);
  });

  it('counts no more of a sequence than its windows keep', async () => {
    const model = join(folder, 'sliding');
    await cp(new URL('../fixtures/models/mistral-window', import.meta.url), model, { recursive: true });
    const config = JSON.parse(await readFile(join(model, 'config.json'), 'utf8'));
    await writeFile(join(model, 'config.json'), JSON.stringify({ ...config, max_position_embeddings: 8192 }));
    const args = ['inspect', model, '--memory', '1GiB'];
    const { groups, fit } = JSON.parse((await kvant([...args, '--json'])).stdout);
    expect(groups).toMatchObject([{ window: 64 }]);
    // Blocks of 16 for 63 tokens before the next one and two chunks of 256.
    const kept = (Math.ceil((63 + 512) / 16) + 1) * 16;
    expect(fit.sequenceBytes).toBe(kept * groups[0].bytesPerToken);
    expect(fit.fullContexts).toBe(Math.floor(fit.kvBytes / fit.sequenceBytes));
    expect((await kvant(args)).stdout).toContain('behind 64 tokens it is given back');
  });

  it('counts the groups of a model of full and sliding layers apart', async () => {
    const model = join(folder, 'mixed');
    await cp(new URL('../fixtures/models/gemma3-list', import.meta.url), model, { recursive: true });
    const config = JSON.parse(await readFile(join(model, 'config.json'), 'utf8'));
    await writeFile(
      join(model, 'config.json'),
      JSON.stringify({ ...config, max_position_embeddings: 32_768 }),
    );
    const { groups, fit } = JSON.parse(
      (await kvant(['inspect', model, '--memory', '1GiB', '--json'])).stdout,
    );
    // K and V of one head of 32 at f16 are 128 bytes a token and layer.
    expect(groups).toEqual([
      { window: null, layers: [2], bytesPerToken: 128, stateBytes: 0 },
      { window: 32, layers: [0, 1, 3], bytesPerToken: 3 * 128, stateBytes: 0 },
    ]);
    const kept = (Math.ceil((31 + 512) / 16) + 1) * 16;
    expect(fit.sequenceBytes).toBe(32_768 * 128 + kept * 3 * 128);
  });

  it('counts experts that stay in host memory apart', async () => {
    const model = 'test/fixtures/models/qwen3-moe';
    const args = ['inspect', model, '--device', 'webgpu', '--memory', '1GiB'];
    const read = async (...more: string[]) => JSON.parse((await kvant([...args, ...more, '--json'])).stdout);
    const { weights, weightBytes, hostBytes, fit, serve } = await read();
    expect(hostBytes).toBe(0);
    // Of two layers: the other one is dense.
    const each = weights.find(({ kind }: { kind: string }) => kind === 'experts').bytes / 2;
    const one = await read('--cpu-experts', '1');
    expect(one.hostBytes).toBe(each);
    expect(one.weightBytes).toBe(weightBytes);
    expect(one.fit.weightBytes).toBe(fit.weightBytes - each);
    expect(one.serve.memory.weights).toBe(serve.memory.weights - each);
    expect(one.serve.memory.host).toBe(each);
    expect((await kvant([...args, '--cpu-experts', '1'])).stdout).toContain('of experts in host memory');
  });

  it('reports the effective KV format of each layer, padding counted, and why', async () => {
    const args = ['inspect', demo, '--kv-bits', '3.5', '--json'];
    const { cache, kvBytesPerToken } = JSON.parse((await kvant(args)).stdout);
    // 2 heads of 128: 48 bytes of codes and a 2-byte norm for K, 64 and 2 for V.
    expect(cache[0]).toMatchObject({
      keyFormat: 'turbo3',
      valueFormat: 'turbo4',
      keyBytes: 100,
      valueBytes: 132,
    });
    expect(cache[7]).toMatchObject({
      keyFormat: 'f16',
      bytesPerToken: 1024,
      reason: expect.stringMatching(/last/),
    });
    expect(kvBytesPerToken).toBe(7 * 232 + 1024);
    const mixed = [
      'inspect',
      demo,
      '--kv-bits',
      '8',
      '--kv-value-bits',
      '4',
      '--kv-value-scheme',
      'turboquant',
    ];
    const text = (await kvant([...mixed, '--kv-group-size', '32', '--kv-skip-layers', '0,-1'])).stdout;
    expect(text).toContain('layers 1–6: full attention, K affine8-g32, V turbo4, 2 × 128, 420 B a token');
    expect(text).toMatch(/layers 0, 7: .*K f16, V f16.*layers to skip/);
    const late = ['inspect', demo, '--kv-bits', '4', '--quantized-kv-start', '500'];
    expect((await kvant(late)).stdout).toContain('f16 in every layer, 8192 B a token, before 500 tokens');
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
      'test/fixtures/eval/eval-facts.jsonl.gz',
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
    ['an unknown command', ['frobnicate'], 2, /no command "frobnicate".*unknown-command/s],
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
    ['a KV format it has not', ['generate', demo, '--prompt', 'a', '--kv-format', 'f8'], 2, /f16, f32/],
    [
      'a fraction of a bit without TurboQuant',
      ['generate', demo, '--prompt', 'a', '--kv-bits', '3.5', '--kv-quant-scheme', 'uniform'],
      2,
      /3\.5 bits mean TurboQuant/,
    ],
    ['no bits', ['inspect', demo, '--kv-key-scheme', 'turboquant'], 2, /no bits are given/],
    ['a KV scheme it has not', ['serve', demo, '--kv-quant-scheme', 'magic'], 2, /uniform, turboquant/],
    ['layers that are none', ['serve', demo, '--kv-bits', '8', '--kv-skip-layers', 'some'], 2, /0,1,-1/],
    [
      'a layer beyond the model',
      ['inspect', demo, '--kv-bits', '8', '--kv-skip-layers', '8'],
      2,
      /layer 8 of 8/,
    ],
    [
      'experts on the CPU of more layers than there are',
      ['inspect', 'test/fixtures/models/qwen3-moe', '--device', 'webgpu', '--cpu-experts', '9'],
      2,
      /cpuExperts is 9: .* the model has \d layers/,
    ],
    [
      'experts on the CPU beside a CPU',
      ['generate', demo, '--prompt', 'a', '--device', 'cpu', '--cpu-experts', '1'],
      2,
      /all of the model is on the CPU already/,
    ],
    ['an odd block', ['generate', demo, '--prompt', 'a', '--block-tokens', '24'], 2, /16, 32, 64/],
    ['an unknown log level', ['serve', demo, '--log-level', 'loud'], 2, /silent/],
    [
      'two context lengths',
      ['generate', demo, '--prompt', 'a', '--max-context', '64', '--max-kv-size', '32'],
      2,
      /--max-kv-size/,
    ],
    [
      'the alias of the context',
      ['generate', demo, ...cpu.slice(0, 2), '--prompt', 'a', '--max-kv-size', '999999'],
      2,
      /8192/,
    ],
    [
      'a system message without template',
      ['generate', demo, '--raw', '--prompt', 'a', '--system', 'b'],
      2,
      /--system/,
    ],
    ['tools without template', ['generate', demo, '--raw', '--prompt', 'a', '--tools', 'b'], 2, /--tools/],
    ['a conversation without template', ['generate', demo, '--raw', '--messages', 'b'], 2, /--messages/],
    ['an empty key', ['serve', demo, '--api-key', ''], 2, /empty/],
    [
      'an origin without a scheme',
      ['serve', demo, '--cors', 'localhost:3000'],
      2,
      /https:\/\/app\.example\.com/,
    ],
    ['a host with a port', ['serve', demo, '--allow-host', 'a.example:80'], 2, /host\.docker\.internal/],
    [
      'a URL of pictures for a host',
      ['serve', demo, '--allowed-media-domains', 'a:80'],
      2,
      /\*\.example\.com/,
    ],
    ['a time below none', ['serve', demo, '--write-timeout', '-1'], 2, /number from 0/],
    ['a reasoning format it has not', ['serve', demo, '--reasoning-format', 'deepseek'], 2, /auto, none/],
    [
      'what says nothing of a calibration',
      [
        'calibrate',
        demo,
        '--out',
        '/nowhere/a.kvcal',
        '--kv-bytes-per-token',
        '999',
        '--kv-skip-layers',
        '0',
      ],
      2,
      /--kv-skip-layers/,
    ],
    ['an absent model', ['inspect', './nowhere'], 2, /nowhere/],
    ['no command', [], 2, /serve a model/],
    ['unknown shapes', ['bench', '--shapes', 'gpt-9'], 2, /qwen3-0\.6b/],
  ] as const)('refuses %s with exit code and fix', async (_, args, exit, message) => {
    const { code, stdout, stderr } = await kvant(args, { env: { VK_ICD_FILENAMES: '/nonexistent.json' } });
    expect(stderr).toMatch(message);
    expect(code, stderr).toBe(exit);
    expect(stdout).toBe('');
  });

  it('refuses an empty key in the environment, and a port that is taken', async () => {
    const args = ['serve', demo, ...cpu];
    const empty = await kvant(args, { env: { KVANT_API_KEY: '' } });
    expect([empty.code, empty.stderr]).toEqual([2, expect.stringMatching(/empty/)]);
    const other = createServer().listen(0, '127.0.0.1');
    await once(other, 'listening');
    const { port } = other.address() as AddressInfo;
    const taken = await kvant([...args, '--port', String(port)]);
    other.close();
    expect([taken.code, taken.stderr]).toEqual([2, expect.stringMatching(new RegExp(`${port}.*taken`))]);
    const nowhere = await kvant([...args, '--host', '203.0.113.7']);
    expect([nowhere.code, nowhere.stderr]).toEqual([2, expect.stringMatching(/203\.0\.113\.7/)]);
    // Nothing was loaded in vain.
    expect(taken.stderr + nowhere.stderr).not.toContain('loading');
  });

  it('puts errors into JSON when asked for JSON', async () => {
    for (const args of [
      ['generate', './nowhere', '--prompt', 'a'],
      ['generate', demo, '--prompt', 'a', '--frobnicate'],
      ['generate', demo],
      ['generate'],
      ['inspect', './nowhere'],
      ['bench', '--shapes', 'gpt-9'],
    ]) {
      const { code, stdout, stderr } = await kvant([...args, '--json']);
      expect([code, stderr], args.join(' ')).toEqual([2, '']);
      expect(JSON.parse(stdout).error).toMatchObject({
        code: expect.any(String),
        message: expect.any(String),
        fix: expect.any(String),
      });
    }
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
      .map((l) => JSON.parse(l) as { msg: string; level: number; parameters?: object; kv?: string[] });
    const messages = lines.map((l) => l.msg);
    expect(messages[0]).toBe('loading model');
    expect(lines.find((l) => l.msg === 'model loaded')?.kv).toHaveLength(8);
    expect(messages).toContain('listening');
    expect(messages.filter((m) => m === 'completed')).toHaveLength(2);
    expect(lines.find((l) => l.msg === 'request')?.parameters).toMatchObject({ temperature: 0 });
    expect(ran.stderr).toMatch(/f16|f32/);
  });

  it('ends at once when told twice', async () => {
    const serving = await kvantServe([demo, ...cpu]);
    const body = { prompt: 'Once', max_tokens: 900, ignore_eos: true, stream: true };
    const response = await fetch(`${serving.url}/v1/completions`, {
      method: 'POST',
      body: JSON.stringify(body),
    });
    const rest = response.text().catch(() => 'cut');
    const ran = serving.stop('SIGINT');
    await new Promise<void>((resolve) => {
      serving.child.stderr.on('data', (data) => String(data).includes('shutting down') && resolve());
    });
    serving.child.kill('SIGINT');
    expect((await ran).code).toBe(130);
    expect(await rest).not.toContain('"finish_reason":"length"');
  });

  it('serves on, whoever reads what it prints', async () => {
    const serving = await kvantServe([demo, ...cpu, '--host', '::1']);
    expect(serving.url).toMatch(/^http:\/\/\[::1\]:\d+$/);
    serving.child.stdout.destroy();
    serving.child.stderr.destroy();
    for (let i = 0; i < 3; i++) expect((await fetch(`${serving.url}/nowhere`)).status).toBe(404);
    expect((await fetch(`${serving.url}/health`)).status).toBe(200);
    expect((await serving.stop('SIGINT')).code).toBe(0);
  });

  it('warns when anybody may use it', async () => {
    const open = await kvantServe([demo, ...cpu, '--host', '0.0.0.0']);
    expect((await open.stop('SIGINT')).stderr).toContain('--api-key');
    const closed = await kvantServe([demo, ...cpu, '--host', '0.0.0.0', '--api-key', 'k']);
    expect((await closed.stop('SIGINT')).stderr).not.toContain('--api-key');
  });
});
