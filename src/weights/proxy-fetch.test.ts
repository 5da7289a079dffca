import { readFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { failure } from '../../test/fixtures/weights/build.js';
import { HubFixture, shard1 } from '../../test/fixtures/weights/hub-repo.js';
import { type ProxyRules, TestProxy } from '../../test/fixtures/weights/test-proxy.js';

const hub = HubFixture.use();
const SHARD = 'model-00001-of-00002.safetensors';

async function through(
  rules: ProxyRules,
  env: (host: string) => Record<string, string>,
  check: (proxy: TestProxy, fetching: Promise<{ folder: string }>) => Promise<void>,
): Promise<void> {
  await using proxy = await TestProxy.start(rules);
  await check(proxy, hub.resolve('org/model', env(proxy.host)));
}

describe('a download', () => {
  it.each(['HTTP_PROXY', 'http_proxy', 'ALL_PROXY', 'all_proxy'])(
    'goes through %s, files and all',
    async (name) => {
      await through(
        {},
        (host) => ({ [name]: `http://${host}` }),
        async (proxy, fetching) => {
          const { folder } = await fetching;
          expect(readFileSync(join(folder, SHARD)).equals(shard1)).toBe(true);
          // The hub, and the second server that it redirects to.
          expect(new Set(proxy.tunnels).size).toBe(2);
          expect(proxy.tunnels).toContain(new URL(hub.server.endpoint).host);
        },
      );
    },
  );

  it('is passed on by a proxy that gives no tunnels', async () => {
    await through(
      { refuse: 405 },
      (host) => ({ HTTP_PROXY: host }),
      async (proxy, fetching) => {
        expect(readFileSync(join((await fetching).folder, SHARD)).equals(shard1)).toBe(true);
        expect(proxy.passed.some((url) => url.startsWith(hub.server.endpoint))).toBe(true);
      },
    );
  });

  it('goes straight where NO_PROXY says so', async () => {
    const env = (host: string): Record<string, string> => ({
      HTTP_PROXY: host,
      NO_PROXY: 'a.example,127.0.0.0/8',
    });
    await through({}, env, async (proxy, fetching) => {
      await fetching;
      expect([...proxy.tunnels, ...proxy.passed]).toEqual([]);
    });
  });

  it('gives the credentials, encoded ones too', async () => {
    const env = (host: string): Record<string, string> => ({ HTTP_PROXY: `http://me:p%40s%3As@${host}` });
    await through({ credentials: 'me:p@s:s' }, env, async (_, fetching) => {
      expect(readFileSync(join((await fetching).folder, SHARD)).equals(shard1)).toBe(true);
    });
  });
});

describe('a proxy that does not let through is named, without its password, and asked once:', () => {
  it.each([
    [
      'asks for credentials',
      { credentials: 'a:b' },
      '',
      /asks for a name and a password \(407\)/,
      /NAME:PASSWORD/,
    ],
    [
      'does not take them',
      { credentials: 'a:b' },
      'me:secret@',
      /does not take the name and password/,
      /HTTPS_PROXY/,
    ],
    [
      'forbids the host',
      { refuse: 403 },
      '',
      /does not let requests through to huggingface\.test.*403/,
      /NO_PROXY/,
    ],
  ] as const)('%s', async (_, rules, user, message, fix) => {
    await using proxy = await TestProxy.start(rules);
    const error = await failure(
      hub.resolve('org/model', {
        HF_ENDPOINT: 'https://huggingface.test',
        HTTPS_PROXY: `http://${user}${proxy.host}`,
      }),
    );
    expect(error.code).toBe('hub-proxy');
    expect(error.message).toMatch(message);
    expect(error.message).toContain(`http://${proxy.host} (HTTPS_PROXY)`);
    expect(error.fix).toMatch(fix);
    expect(error.message + error.fix).not.toContain('secret');
    expect(proxy.tunnels).toEqual(['huggingface.test:443']);
  });

  it('is not there', async () => {
    const free = createServer().listen(0, '127.0.0.1');
    await new Promise((resolve) => free.once('listening', resolve));
    const { port } = free.address() as { port: number };
    await new Promise((resolve) => free.close(resolve));
    const error = await failure(hub.resolve('org/model', { HTTP_PROXY: `127.0.0.1:${port}` }));
    expect(error).toMatchObject({ code: 'hub-proxy', message: expect.stringContaining('ECONNREFUSED') });
    expect(error.fix).toContain('HTTP_PROXY');
  });
});
