/** What the command calls things: itself, models, and what there is not. */
import { once } from 'node:events';
import { mkdtemp, rm, symlink } from 'node:fs/promises';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { kvant, kvantInTurn, kvantServe } from './kvant.js';

const demo = resolve('models/demo-text');

describe('commands', () => {
  it('run is chat', async () => {
    const { code, stdout } = await kvant(['run', '--help']);
    expect([code, /^Usage: kvant chat\|run/.test(stdout)]).toEqual([0, true]);
  });

  it.each([
    [['help', 'nope'], /no command "nope".*\n.*serve, chat/],
    [['nope'], /no command "nope"/],
    [['ls'], /no command "ls".*\n.*keeps no list/],
    [['version'], /kvant --version/],
    [['help', 'srve'], /Did you mean `kvant serve`/],
  ])('%j: code 2, and what is wrong', async (args, said) => {
    const { code, stdout, stderr } = await kvant(args);
    expect([code, stdout]).toEqual([2, '']);
    expect(stderr).toMatch(said);
  });
});

describe('models', () => {
  let folder: string;
  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'kvant-names-'));
    await symlink(demo, join(folder, 'my-model'));
  });
  afterAll(() => rm(folder, { recursive: true }));

  it('a path that leads nowhere says so, and the hub is not asked', async () => {
    let asked = 0;
    const hub = createServer((_, response) => {
      asked++;
      response.writeHead(500).end();
    }).listen(0, '127.0.0.1');
    await once(hub, 'listening');
    try {
      const env = { HF_ENDPOINT: `http://127.0.0.1:${(hub.address() as AddressInfo).port}`, HF_HOME: folder };
      const commands = ['inspect', 'pull', 'serve', 'chat'];
      const ran = await kvantInTurn(
        commands.map((command) => [command, 'models/demo-tex']),
        env,
      );
      expect(ran).toHaveLength(commands.length);
      for (const { code, stderr } of ran) {
        expect(code).toBe(2);
        expect(stderr).toMatch(/no folder "models\/demo-tex".*\n.*Did you mean models\/demo-text\?/);
      }
      expect(asked).toBe(0);
    } finally {
      hub.close();
    }
  });

  it('a server names the folder and no path of the machine, and writes no warnings of a GPU that is not there', async () => {
    const serving = await kvantServe([
      `${join(folder, 'my-model')}/`,
      '--max-context',
      '256',
      '--device',
      'auto',
    ]);
    const read = async (path: string, init?: RequestInit): Promise<string> =>
      (await fetch(serving.url + path, init)).text();
    const post = (body: object): RequestInit => ({ method: 'POST', body: JSON.stringify(body) });
    const said = [
      await read('/v1/models'),
      await read('/health'),
      await read('/metrics'),
      await read('/v1/cache'),
      await read('/v1/models/nope'),
      await read('/v1/completions', post({ model: 'nope', prompt: 'x' })),
      await read('/v1/completions', post({ model: join(folder, 'my-model'), prompt: 'x', max_tokens: 1 })),
    ];
    const { stdout, stderr } = await serving.stop('SIGTERM');
    expect(JSON.parse(said[0]!).data[0].id).toBe('my-model');
    expect(JSON.parse(said.at(-1)!).model).toBe('my-model');
    for (const text of [...said, stdout, stderr]) expect(text).not.toContain(folder);
    expect(stderr).not.toMatch(/warning: .*vulkan|vkCreateInstance/i);
  });
});
