/** Web pages that nobody let in get nothing, whatever they send; everybody else is served as before. */
import { hostname } from 'node:os';
import { describe, expect, it } from 'vitest';
import { createApp } from '../../src/server/index.js';
import { answerTo } from './raw-client.js';
import { BODY, closeBehindEach, engine, logged, server, start } from './raw-server.js';

closeBehindEach();

interface Asked {
  readonly method?: string;
  readonly path?: string;
  readonly headers?: readonly string[];
  readonly version?: string;
}

/** Sends exactly these headers, to the server's address on the loopback. */
async function ask({ method = 'POST', path = '/v1/chat/completions', headers = [], version = '1.1' }: Asked) {
  const body = method === 'POST' ? BODY : '';
  const lines = [...headers, 'connection: close', `content-length: ${body.length}`];
  const url = `http://127.0.0.1:${server.port}`;
  return answerTo(url, `${method} ${path} HTTP/${version}\r\n${lines.join('\r\n')}\r\n\r\n${body}`);
}
const errorOf = (body: string): { code: string; message: string; fix: string; type: string } =>
  (JSON.parse(body) as { error: { code: string; message: string; fix: string; type: string } }).error;
const hostStatus = async (...hosts: string[]): Promise<number> =>
  (await ask({ headers: hosts.map((host) => `host: ${host}`) })).status;
const originStatus = async (origin: string, host = 'localhost'): Promise<number> =>
  (await ask({ headers: [`host: ${host}`, `origin: ${origin}`] })).status;

describe('the Host on a loopback address', () => {
  it('is a loopback name, however it is written', async () => {
    await start();
    const port = `:${server.port}`;
    for (const name of [
      'localhost',
      'LOCALHOST',
      'localhost.',
      'app.localhost',
      '127.0.0.1',
      '127.1.2.3',
      '127.1',
      '[::1]',
      '[0:0:0:0:0:0:0:1]',
      '[::ffff:127.0.0.1]',
      '0.0.0.0',
    ])
      for (const host of [name, `${name}${port}`, `${name}:1`])
        expect([host, await hostStatus(host)]).toEqual([host, 200]);
  });

  it('is no other name: 403, with the flag that allows it', async () => {
    await start();
    for (const host of [
      'evil.example',
      `evil.example:${server.port}`,
      'localhost.evil.example',
      '127.0.0.1.evil.example',
      'host.docker.internal',
      'x',
      '192.168.1.5:8080',
      '[fe80::1]',
      hostname().replace(/[^a-zA-Z0-9.-]/g, '-'),
    ]) {
      const { status, body } = await ask({ headers: [`host: ${host}`] });
      expect([host, status]).toEqual([host, 403]);
      expect(errorOf(body)).toMatchObject({ code: 'host_not_allowed', type: 'permission_error' });
      expect(errorOf(body).fix).toContain('--allow-host');
    }
    expect(engine.requests).toEqual([]);
  });

  it('guards every route', async () => {
    await start();
    for (const [method, path] of [
      ['GET', '/health'],
      ['GET', '/metrics'],
      ['GET', '/v1/models'],
      ['GET', '/v1/cache'],
      ['DELETE', '/v1/cache'],
      ['POST', '/v1/completions'],
      ['OPTIONS', '/v1/completions'],
      ['GET', '/nowhere'],
    ] as const)
      for (const headers of [['host: evil.example'], ['host: localhost', 'origin: https://evil.example']])
        expect([path, (await ask({ method, path, headers })).status]).toEqual([path, 403]);
  });

  it('is one name and port: else 400, as JSON', async () => {
    await start();
    for (const headers of [
      [],
      ['host:'],
      ['host: localhost', 'host: localhost'],
      ['host: localhost', 'Host: evil.example'],
      ['host: localhost, evil.example'],
      ['host: user@localhost'],
      ['host: localhost/x'],
      ['host: %6cocalhost'],
      ['host: a b'],
      ['host: localhost:99999'],
      ['host: ::1'],
    ]) {
      const { status, body } = await ask({ headers });
      expect([headers, status, errorOf(body).code]).toEqual([headers, 400, 'invalid_host']);
    }
    // HTTP/1.0 has no such header, and no browser.
    expect((await ask({ headers: [], version: '1.0' })).status).toBe(200);
    expect((await ask({ headers: ['host: evil.example'], version: '1.0' })).status).toBe(403);
  });

  it('is what the address of the request says, where that is a whole one', async () => {
    await start();
    const path = '/v1/chat/completions';
    const status = async (url: string, host: string): Promise<number> =>
      (await ask({ path: url, headers: [`host: ${host}`] })).status;
    expect(await status(`http://localhost${path}`, 'evil.example')).toBe(200);
    expect(await status(`http://evil.example${path}`, 'localhost')).toBe(403);
    expect(await status(`http://localhost@evil.example${path}`, 'localhost')).toBe(403);
    expect(await status(`https://evil.example${path}`, 'localhost')).toBe(403);
  });

  it('may be a name that was allowed', async () => {
    await start({ allowedHosts: ['host.docker.internal', '*.lan.example', '[fd00::1]'] });
    for (const host of [
      'host.docker.internal:8080',
      'HOST.docker.internal.',
      'box.lan.example',
      '[fd00::1]:1',
    ])
      expect([host, await hostStatus(host)]).toEqual([host, 200]);
    for (const host of ['docker.internal', 'lan.example', 'lan.example.evil', 'xlan.example'])
      expect([host, await hostStatus(host)]).toEqual([host, 403]);
    await server.close(0);
    await start({ allowedHosts: ['*'] });
    expect(await hostStatus('evil.example')).toBe(200);
  });

  it('is anything where a key is wanted, which no page has', async () => {
    await start({ apiKey: 'secret' });
    expect((await ask({ headers: ['host: x', 'authorization: Bearer secret'] })).status).toBe(200);
    expect(await hostStatus('x')).toBe(401);
  });
});

describe('the Host on an open address', () => {
  it('is a loopback name, an address or a name that was given', async () => {
    await start({ host: '0.0.0.0', allowedHosts: ['kvant'] });
    for (const host of [
      'localhost:8080',
      '127.0.0.1',
      '10.1.2.3:8080',
      '[fd00::1]:8080',
      'kvant:8080',
      hostname(),
    ])
      expect([host, await hostStatus(host)]).toEqual([host, 200]);
    for (const host of ['evil.example', '10.1.2.3.evil.example', 'kvant.evil.example'])
      expect([host, await hostStatus(host)]).toEqual([host, 403]);
    expect(await originStatus('http://10.1.2.3', '10.9.9.9')).toBe(403);
    expect(await originStatus('http://10.1.2.3:8080', '10.1.2.3:8080')).toBe(200);
  });

  it('is not looked at where there is a key', async () => {
    await start({ host: '0.0.0.0', apiKey: 'secret' });
    expect(await hostStatus('evil.example')).toBe(401);
    expect((await ask({ headers: ['host: llm.example', 'authorization: Bearer secret'] })).status).toBe(200);
  });
});

describe('the Origin', () => {
  const foreign = [
    'https://evil.example',
    'http://evil.example',
    'null',
    '',
    'http://localhost:3000',
    'http://127.0.0.1',
    'https://localhost.evil.example',
    'http://localhost@evil.example',
    'tauri://localhost',
    'vscode-webview://0a1b',
    'app://obsidian.md',
    'chrome-extension://abcdef',
    'file://',
    'ftp://localhost',
    'localhost',
    'http://localhost, https://evil.example',
    'http://localhost https://evil.example',
  ];

  it('of a foreign page is refused, whatever type the body says it has', async () => {
    await start();
    for (const origin of foreign) expect([origin, await originStatus(origin)]).toEqual([origin, 403]);
    for (const type of [
      'text/plain',
      'text/plain;charset=UTF-8',
      'application/x-www-form-urlencoded',
      'multipart/form-data; boundary=x',
      'application/json',
    ]) {
      const headers = ['host: localhost', 'origin: https://evil.example', `content-type: ${type}`];
      const { status, body } = await ask({ headers });
      expect([type, status]).toEqual([type, 403]);
      expect(errorOf(body)).toMatchObject({ code: 'origin_not_allowed', type: 'permission_error' });
      expect(errorOf(body).fix).toContain('--cors https://evil.example');
    }
    const panel = await ask({ headers: ['host: localhost', 'origin: vscode-webview://0a1b'] });
    expect(errorOf(panel.body).fix).toContain('--cors vscode-webview:// to');
    expect(await originStatus('http://localhost', 'localhost, x')).toBe(400);
    const two = ['host: localhost', 'origin: http://localhost', 'origin: https://evil.example'];
    expect((await ask({ headers: two })).status).toBe(403);
    expect((await ask({ headers: two.toReversed() })).status).toBe(403);
    expect(engine.requests).toEqual([]);
    expect(logged.at(-1)).toMatchObject({ status: 403, fix: expect.stringContaining('--cors') });
  });

  it('is refused where a key is wanted too', async () => {
    await start({ apiKey: 'secret' });
    const headers = ['host: localhost', 'authorization: Bearer secret', 'origin: https://evil.example'];
    expect((await ask({ headers })).status).toBe(403);
  });

  it('of the server itself is no foreign one', async () => {
    await start();
    for (const [origin, host] of [
      ['http://localhost:8080', 'localhost:8080'],
      ['http://LOCALHOST:8080', 'localhost.:8080'],
      ['http://localhost', 'localhost'],
      ['http://localhost', 'localhost:80'],
      ['http://[::1]:8080', '[::1]:8080'],
      ['http://127.0.0.1:8080', '127.0.0.1:8080'],
      ['https://localhost', 'localhost:443'],
    ] as const)
      expect([origin, await originStatus(origin, host)]).toEqual([origin, 200]);
    expect(await originStatus('http://localhost:8080', 'localhost:8081')).toBe(403);
    expect(await originStatus('http://localhost:8080', '127.0.0.1:8080')).toBe(403);
    // A page whose name leads here asks for itself: its Host betrays it.
    expect(await originStatus('http://evil.example:8080', 'evil.example:8080')).toBe(403);
  });

  it('of TLS that ended before the server is its own', async () => {
    await start({ allowedHosts: ['llm.example'] });
    expect(await originStatus('https://llm.example', 'llm.example')).toBe(200);
    expect(await originStatus('https://llm.example', 'llm.example:443')).toBe(200);
    expect(await originStatus('https://llm.example:8443', 'llm.example')).toBe(403);
  });

  it('may be one that was allowed, and the browser is told', async () => {
    const allowed = [
      'https://app.example',
      'tauri://localhost',
      'vscode-webview://',
      'app://*',
      'http://localhost:*',
    ];
    await start({ corsOrigin: allowed });
    for (const origin of [
      'https://app.example',
      'tauri://localhost',
      'vscode-webview://0a1b',
      'app://x',
      'http://localhost:5173',
    ]) {
      const { status, headers } = await ask({ headers: ['host: localhost', `origin: ${origin}`] });
      expect([status, headers['access-control-allow-origin']]).toEqual([200, origin]);
      expect(headers.vary).toMatch(/origin/i);
      expect(headers['access-control-expose-headers']).toContain('x-request-id');
    }
    for (const origin of ['https://evil.example', 'null', 'tauri://evil', 'https://app.example.evil']) {
      const { status, headers } = await ask({ headers: ['host: localhost', `origin: ${origin}`] });
      expect([origin, status, headers['access-control-allow-origin']]).toEqual([origin, 403, undefined]);
    }
    // An error of a page that may be here can be read by it.
    const wrong = await ask({ path: '/nowhere', headers: ['host: localhost', 'origin: tauri://localhost'] });
    expect([wrong.status, wrong.headers['access-control-allow-origin']]).toEqual([404, 'tauri://localhost']);
  });

  it('may be any with a star, and null where it is named', async () => {
    await start({ corsOrigin: '*' });
    for (const origin of foreign) expect([origin, await originStatus(origin)]).toEqual([origin, 200]);
    await server.close(0);
    await start({ corsOrigin: ['null'] });
    expect(await originStatus('null')).toBe(200);
    expect(await originStatus('https://evil.example')).toBe(403);
  });

  it('is asked about before: preflights, of local networks too, without a key', async () => {
    await start({ corsOrigin: 'https://app.example', apiKey: 'secret' });
    const preflight = (origin: string, ...more: string[]) =>
      ask({
        method: 'OPTIONS',
        headers: [
          'host: localhost',
          `origin: ${origin}`,
          'access-control-request-method: POST',
          'access-control-request-headers: authorization,content-type',
          ...more,
        ],
      });
    const { status, headers } = await preflight(
      'https://app.example',
      'access-control-request-private-network: true',
    );
    expect(status).toBe(204);
    expect(headers).toMatchObject({
      'access-control-allow-origin': 'https://app.example',
      'access-control-allow-private-network': 'true',
    });
    expect(headers['access-control-allow-headers']).toContain('authorization');
    expect(headers['access-control-allow-methods']).toContain('POST');
    expect(
      (await preflight('https://app.example')).headers['access-control-allow-private-network'],
    ).toBeUndefined();
    const refused = await preflight('https://evil.example', 'access-control-request-private-network: true');
    expect(refused.status).toBe(403);
    expect(Object.keys(refused.headers).filter((name) => name.startsWith('access-control'))).toEqual([]);
    await server.close(0);
    await start();
    const closed = await preflight('https://app.example', 'access-control-request-private-network: true');
    expect(closed.status).toBe(403);
    expect(Object.keys(closed.headers).filter((name) => name.startsWith('access-control'))).toEqual([]);
  });

  it('is wanted of WebSockets too', async () => {
    await start();
    const upgrade = [
      'host: localhost',
      'upgrade: websocket',
      'sec-websocket-version: 13',
      'sec-websocket-key: eA==',
    ];
    const path = '/v1/models';
    expect(
      (await ask({ method: 'GET', path, headers: [...upgrade, 'origin: https://evil.example'] })).status,
    ).toBe(403);
    expect((await ask({ method: 'GET', path, headers: upgrade })).status).toBe(200);
  });
});

describe('requests of pages without an Origin', () => {
  const get = async (path: string, ...headers: string[]): Promise<number> =>
    (await ask({ method: 'GET', path, headers: ['host: localhost', ...headers] })).status;
  const fetched = (site: string, mode: string, dest: string): string[] => [
    `sec-fetch-site: ${site}`,
    `sec-fetch-mode: ${mode}`,
    `sec-fetch-dest: ${dest}`,
  ];

  it('are refused where the browser says that another site embeds or fetches', async () => {
    await start();
    for (const path of ['/metrics', '/v1/models', '/v1/cache', '/health'])
      for (const site of ['cross-site', 'same-site']) {
        expect([path, await get(path, ...fetched(site, 'no-cors', 'image'))]).toEqual([path, 403]);
        expect([path, await get(path, ...fetched(site, 'navigate', 'iframe'))]).toEqual([path, 403]);
        expect([path, await get(path, `sec-fetch-site: ${site}`)]).toEqual([path, 403]);
      }
    expect(await get('/metrics', 'sec-fetch-site: none, cross-site')).toBe(403);
    const form = ['host: localhost', ...fetched('cross-site', 'navigate', 'document')];
    expect((await ask({ headers: form })).status).toBe(403);
    expect((await ask({ method: 'DELETE', path: '/v1/cache', headers: form })).status).toBe(403);
  });

  it('are served where a person follows a link, types an address, or the page is the own one', async () => {
    await start();
    expect(await get('/health', ...fetched('cross-site', 'navigate', 'document'))).toBe(200);
    expect(await get('/health', ...fetched('none', 'navigate', 'document'))).toBe(200);
    expect(await get('/metrics', ...fetched('same-origin', 'cors', 'empty'))).toBe(200);
    // The fetch of Node.
    expect(await get('/metrics', 'sec-fetch-mode: cors')).toBe(200);
  });
});

describe('without a browser', () => {
  it('a body is read as JSON, whatever type it says it has', async () => {
    await start();
    for (const type of ['application/x-www-form-urlencoded', 'text/plain', 'application/json', ''])
      expect(
        (await ask({ headers: ['host: localhost', ...(type === '' ? [] : [`content-type: ${type}`])] }))
          .status,
      ).toBe(200);
  });

  it('an application in another server looks at no Host, and at every Origin', async () => {
    await start();
    const app = createApp({ engine });
    const url = 'https://my.app/v1/models';
    expect((await app.request(url)).status).toBe(200);
    expect((await app.request(url, { headers: { origin: 'https://my.app' } })).status).toBe(200);
    expect((await app.request(url, { headers: { origin: 'https://evil.example' } })).status).toBe(403);
  });

  it('says what is no origin and no name before it starts', async () => {
    await start();
    expect(() => createApp({ engine, corsOrigin: 'localhost:3000' })).toThrow(/origin/);
    for (const name of ['http://a.example', 'a.example/x', 'a.example:80', '', 'a b'])
      expect(() => createApp({ engine, allowedHosts: [name] }), name).toThrow(/hosts?/);
  });
});
