/** What the command refuses, with which exit code and words. */
import { once } from 'node:events';
import { cp, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { beforeAll, describe, expect, it } from 'vitest';
import { kvant, kvantInTurn, type Ran } from './kvant.js';

const demo = 'models/demo-text';
const cpu = ['--device', 'cpu', '--max-context', '1024'];

const blind = 'test/fixtures/models/qwen2-bias';
const PNG =
  'data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNoAAAAggCBd81ytgAAAABJRU5ErkJggg==';

const env = { VK_ICD_FILENAMES: '/nonexistent.json' };

const REFUSED = [
  ['no prompt', ['generate', demo], 2, /prompt/],
  ['a prompt without its flag', ['generate', demo, 'What', 'now?'], 2, /--prompt "What now\?"/],
  [
    'a prompt behind pictures',
    ['generate', demo, '--image', 'a.png', 'What?'],
    2,
    /behind --image are files/,
  ],
  [
    'a host that is none',
    ['serve', demo, '--allowed-media-domains', 'a.example,https://b.example'],
    2,
    /https:\/\/b\.example is no host/,
  ],
  ['two prompts', ['generate', demo, '--prompt', 'a', '--messages', 'b'], 2, /more than one/],
  ['a bad number', ['generate', demo, '--prompt', 'a', '--temperature', 'hot'], 2, /number/],
  ['a temperature below zero', ['generate', demo, '--prompt', 'a', '--temperature', '-1'], 2, /0 to 100/],
  ['an unknown flag', ['generate', demo, '--frobnicate'], 2, /unknown option/],
  ['an unknown command', ['frobnicate'], 2, /no command "frobnicate".*unknown-command/s],
  ['an absent folder', ['generate', './nowhere', '--prompt', 'a'], 2, /nowhere/],
  ['an absent file', ['generate', demo, '--messages', './nowhere.json'], 2, /nowhere\.json/],
  // Before anything is loaded, as all that is read.
  [
    'an absent picture',
    ['generate', 'models/demo-vision', '--prompt', 'a', '--image', './nowhere.png'],
    2,
    /^error There is no file \.\/nowhere\.png\. \[image-unreadable\]\nfix /,
  ],
  [
    'a picture that is none',
    ['generate', 'models/demo-vision', '--prompt', 'a', '--image', 'README.md'],
    2,
    /^error README\.md is no picture that kvant knows\. \[unsupported-image\]\nfix /,
  ],
  [
    'a folder as picture',
    ['generate', 'models/demo-vision', '--prompt', 'a', '--image', 'docs'],
    2,
    /^error docs is no plain file\. \[image-unreadable\]\nfix /,
  ],
  [
    'a picture of the network',
    ['generate', 'models/demo-vision', '--prompt', 'a', '--image', 'https://example.com/a.png'],
    2,
    /^error https:\/\/example\.com\/a\.png is on the network; .*\[image-url-not-allowed\]\nfix /,
  ],
  [
    'a data URL that is no picture',
    ['generate', 'models/demo-vision', '--prompt', 'a', '--image', 'data:image/png;base64,AAAA'],
    2,
    /^error The data URL is no picture that kvant knows\. \[unsupported-image\]\nfix /,
  ],
  // From its configuration alone: the folder has no weights that could be read.
  [
    'a picture for a model that reads text only',
    ['generate', blind, '--prompt', 'a', '--system', 'b', '--image', PNG],
    2,
    /^error The data URL is of type "image": this model reads text only \[unsupported-content\]\nfix +Leave the part out/,
  ],
  [
    'questions about pictures for a model that reads text only',
    ['eval', blind, '--set', 'test/fixtures/eval/vision.jsonl.br'],
    2,
    /^error test\/fixtures\/eval\/vision\.jsonl\.br:1 images\[0\]\.png_base64 is of type .*\[unsupported-content\]\nfix +Leave/,
  ],
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
  ['a URL of pictures for a host', ['serve', demo, '--allowed-media-domains', 'a:80'], 2, /\*\.example\.com/],
  ['a time below none', ['serve', demo, '--write-timeout', '-1'], 2, /number from 0/],
  ['a reasoning format it has not', ['serve', demo, '--reasoning-format', 'deepseek'], 2, /auto, none/],
  [
    'what says nothing of a calibration',
    ['calibrate', demo, '--out', '/nowhere/a.kvcal', '--kv-bytes-per-token', '999', '--kv-skip-layers', '0'],
    2,
    /--kv-skip-layers/,
  ],
  ['an absent model', ['inspect', './nowhere'], 2, /nowhere/],
  ['no command', [], 2, /serve a model/],
  ['unknown shapes', ['bench', '--shapes', 'gpt-9'], 2, /qwen3-0\.6b/],
] as const;

/** Run in a process of their own. */
const APART: readonly string[] = [
  'no prompt',
  'an unknown flag',
  'an unknown command',
  'a context beyond the model',
  'no GPU',
  'an empty key',
  'no bits',
  'no command',
  'unknown shapes',
  'what says nothing of a calibration',
];

describe('the kvant command', () => {
  // A process of its own has one of each command and of each way to be refused.
  let ran: readonly Ran[];
  beforeAll(async () => {
    const together = REFUSED.filter(([name]) => !APART.includes(name));
    ran = await kvantInTurn(
      together.map(([, args]) => args),
      env,
    );
    expect(ran).toHaveLength(REFUSED.length - APART.length);
  }, 180_000);

  it.each(REFUSED)('refuses %s with exit code and fix', async (name, args, exit, message) => {
    const together = REFUSED.filter(([other]) => !APART.includes(other));
    const at = together.findIndex(([other]) => other === name);
    const { code, stdout, stderr } = at < 0 ? await kvant(args, { env }) : ran[at]!;
    expect(stderr).toMatch(message);
    expect(code, stderr).toBe(exit);
    expect(stdout).toBe('');
  });

  it('refuses what needs a chat template before weights are read', async () => {
    // There are none: whoever looks for them says so.
    const bare = await mkdtemp(join(tmpdir(), 'kvant-bare-'));
    await cp('test/fixtures/models/qwen2.5-vl/config.json', join(bare, 'config.json'));
    await cp(`${demo}/tokenizer.json`, join(bare, 'tokenizer.json'));
    const picture = join(bare, 'a.png');
    await writeFile(picture, PNG.slice(PNG.indexOf(',') + 1), 'base64');
    const ask = ['generate', bare, ...cpu, '--prompt', 'Hi'];
    const ran = await kvantInTurn(
      [[...ask, '--image', picture], [...ask, '--system', 'Be kind.'], ask, ['chat', bare, ...cpu]],
      env,
    );
    await rm(bare, { recursive: true });
    expect(ran.map(({ code, stderr }) => [code, stderr.split('\n')[0]])).toEqual([
      [2, 'error The model has no chat template, which --image is for. [invalid-flags]'],
      [2, 'error The model has no chat template, which --system is for. [invalid-flags]'],
      [expect.any(Number), expect.stringMatching(/weights/)],
      [2, expect.stringMatching(/has no chat template\. \[no-chat-template\]$/)],
    ]);
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
    const asked = [
      ['generate', './nowhere', '--prompt', 'a'],
      ['generate', demo, '--prompt', 'a', '--frobnicate'],
      ['generate', demo],
      ['generate'],
      ['inspect', './nowhere'],
      ['bench', '--shapes', 'gpt-9'],
    ].map((args) => [...args, '--json']);
    const [first, ...others] = asked;
    const ends = [await kvant(first!), ...(await kvantInTurn(others, {}))];
    expect(ends).toHaveLength(asked.length);
    for (const [i, { code, stdout, stderr }] of ends.entries()) {
      expect([code, stderr], asked[i]!.join(' ')).toEqual([2, '']);
      expect(JSON.parse(stdout).error).toMatchObject({
        code: expect.any(String),
        message: expect.any(String),
        fix: expect.any(String),
      });
    }
  });
});
