/** What each kind of key may do, whose prefixes it shares, and how urgent it may be. */
import { createHash } from 'node:crypto';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pino } from 'pino';
import { describe, expect, it } from 'vitest';
import { ApiKeys, type AppOptions, createApp } from '../../src/server/index.js';
import { ScriptedEngine } from './scripted-engine.js';
import { question, serveDemo, untilIdle } from './serving.js';

const messages = question('Hi');
const sha256 = (text: string): string => createHash('sha256').update(text).digest('hex');

function appWith(options: Partial<AppOptions>) {
  const engine = new ScriptedEngine();
  const app = createApp({ engine, ...options });
  const call = (path: string, key?: string, init: RequestInit = {}) =>
    app.request(path, {
      ...init,
      headers: {
        ...(key === undefined ? {} : { authorization: `Bearer ${key}` }),
        ...(init.headers as object),
      },
    });
  const ask = (key?: string, body: object = {}, headers: Record<string, string> = {}) =>
    call('/v1/chat/completions', key, {
      method: 'POST',
      headers,
      body: JSON.stringify({ messages, ...body }),
    });
  return { engine, call, ask };
}

const ADMIN = [
  ['GET', '/metrics'],
  ['HEAD', '/metrics'],
  ['GET', '/v1/cache'],
  ['DELETE', '/v1/cache'],
] as const;

describe('rights', () => {
  const statuses = async (options: Partial<AppOptions>, key?: string) => {
    const { call, ask } = appWith(options);
    const admin = new Set<number>();
    for (const [method, path] of ADMIN) admin.add((await call(path, key, { method })).status);
    return {
      health: (await call('/health', key)).status,
      models: (await call('/v1/models', key)).status,
      ask: (await ask(key)).status,
      admin: [...admin],
    };
  };
  const all = { health: 200, models: 200, ask: 200, admin: [200] };
  const plain = { ...all, admin: [403] };
  const none = { health: 200, models: 401, ask: 401, admin: [401] };

  it('without keys everybody may do everything, whatever key a client sends', async () => {
    expect(await statuses({})).toEqual(all);
    expect(await statuses({}, 'none')).toEqual(all);
  });

  it('a plain key answers and lists models; an admin’s does all', async () => {
    const options = { apiKey: ['a', { key: 'b', admin: true }], adminKey: ['c'] };
    expect(await statuses(options)).toEqual(none);
    expect(await statuses(options, 'wrong')).toEqual(none);
    expect(await statuses(options, 'a')).toEqual(plain);
    expect(await statuses(options, 'b')).toEqual(all);
    expect(await statuses(options, 'c')).toEqual(all);
    // Without an admin nobody has these rights.
    expect(await statuses({ apiKey: 'a' }, 'a')).toEqual(plain);
    // One key may be both.
    expect(await statuses({ apiKey: 'a', adminKey: 'a' }, 'a')).toEqual(all);
  });

  it('with an admin’s key alone everybody may generate, and only the admin may do the rest', async () => {
    const open = { ...all, admin: [401] };
    expect(await statuses({ adminKey: 'c' })).toEqual(open);
    expect(await statuses({ adminKey: 'c' }, 'none')).toEqual(open);
    expect(await statuses({ adminKey: 'c' }, 'c')).toEqual(all);
  });

  it('no keys is not the same as none asked for', async () => {
    expect(await statuses({ apiKey: [] })).toEqual(none);
    expect(await statuses({ apiKey: new ApiKeys([]) }, 'a')).toEqual(none);
  });

  it('says what is missing', async () => {
    const { call } = appWith({ apiKey: 'a' });
    const refused = await call('/v1/cache', 'a', { method: 'DELETE' });
    expect(await refused.json()).toMatchObject({
      error: {
        type: 'permission_error',
        code: 'admin_key_needed',
        fix: expect.stringContaining('--admin-key'),
      },
    });
    const unknown = await call('/metrics');
    expect(unknown.headers.get('www-authenticate')).toBe('Bearer');
    expect(await unknown.json()).toMatchObject({
      error: { type: 'authentication_error', code: 'invalid_api_key' },
    });
  });

  it('keys that are replaced count at once', async () => {
    const keys = new ApiKeys(['a', { key: 'm', admin: true }]);
    const { ask, call } = appWith({ apiKey: keys });
    expect([(await ask('a')).status, (await ask('b')).status]).toEqual([200, 401]);
    keys.replace(['b', { key: 'm2', admin: true }]);
    expect([(await ask('a')).status, (await ask('b')).status]).toEqual([401, 200]);
    expect([(await call('/metrics', 'm')).status, (await call('/metrics', 'm2')).status]).toEqual([401, 200]);
  });

  it('no log, header or answer says a key or its digest', async () => {
    const lines: string[] = [];
    const log = pino({ level: 'trace' }, { write: (line: string) => lines.push(line) });
    const secrets = ['sk-plain-1', 'sk-admin-2', 'sk-wrong-3'];
    const { ask, call } = appWith({
      log,
      apiKey: [{ name: 'web', key: 'sk-plain-1' }],
      adminKey: 'sk-admin-2',
    });
    const said: string[] = [];
    for (const key of secrets)
      for (const response of [
        await ask(key),
        await ask(key, { priority: 9 }),
        await ask(key, { nonsense: 1 }),
        await ask(key, { cache_salt: 'pepper' }),
        await call('/metrics', key),
        await call('/nowhere', key),
      ])
        said.push(JSON.stringify([...response.headers]), await response.text());
    const logged = lines.join('');
    expect(logged).toContain('"key":"web"');
    const tenants = secrets.map((key) => new ApiKeys([key]).holderOf(`Bearer ${key}`)!.tenant);
    for (const text of [...secrets, ...secrets.map(sha256), ...tenants]) {
      expect(logged).not.toContain(text);
      expect(said.join('')).not.toContain(text);
    }
    expect(logged).not.toContain('cacheSalt');
  });
});

describe('priority', () => {
  const priorityOf = async (
    options: Partial<AppOptions>,
    key: string | undefined,
    body: object,
    header?: string,
  ) => {
    const { engine, ask } = appWith(options);
    const response = await ask(key, body, header === undefined ? {} : { 'x-priority': header });
    if (response.status === 200) return engine.requests[0]!.priority;
    expect(engine.requests).toEqual([]);
    return [response.status, ((await response.json()) as { error: { param: string } }).error.param];
  };

  it('of a client with a key is no higher than the key’s, in body and header', async () => {
    const options = { apiKey: ['a', { key: 'b', priority: 5 }, { key: 'c', priority: -5 }], adminKey: 'm' };
    expect(await priorityOf(options, 'a', {})).toBeUndefined();
    expect(await priorityOf(options, 'a', { priority: -4 })).toBe(-4);
    expect(await priorityOf(options, 'a', { priority: 10 })).toEqual([400, 'priority']);
    expect(await priorityOf(options, 'a', { priority: 1 }, 'low')).toEqual([400, 'priority']);
    expect(await priorityOf(options, 'a', {}, 'high')).toEqual([400, 'X-Priority']);
    expect(await priorityOf(options, 'b', {}, 'high')).toBe(5);
    expect(await priorityOf(options, 'b', { priority: 6 })).toEqual([400, 'priority']);
    expect(await priorityOf(options, 'c', {})).toBe(-5);
    expect(await priorityOf(options, 'c', { priority: 0 })).toEqual([400, 'priority']);
    expect(await priorityOf(options, 'm', { priority: 10 })).toBe(10);
    expect(await priorityOf({ ...options, maxPriority: 3 }, 'a', { priority: 3 })).toBe(3);
  });

  it('of a client without one has the limit of the server', async () => {
    expect(await priorityOf({}, undefined, { priority: 10 })).toBe(10);
    expect(await priorityOf({ maxPriority: 2 }, undefined, { priority: 3 })).toEqual([400, 'priority']);
    expect(await priorityOf({ maxPriority: 2 }, undefined, {}, '2')).toBe(2);
    expect(await priorityOf({ maxPriority: -1 }, undefined, {})).toBe(-1);
    expect(await priorityOf({ adminKey: 'm', maxPriority: 0 }, 'x', {}, 'high')).toEqual([400, 'X-Priority']);
  });

  it('of every prompt of a completion', async () => {
    const { engine, call } = appWith({ apiKey: 'a' });
    const body = { prompt: ['x', 'y'], priority: 1 };
    const refused = await call('/v1/completions', 'a', { method: 'POST', body: JSON.stringify(body) });
    expect([refused.status, engine.requests]).toEqual([400, []]);
  });
});

const LONG = `${'You answer questions about the seas of the world, briefly and truly. '.repeat(12)}`;

describe('cached prefixes', () => {
  const start = async (options: Partial<AppOptions>, prefixCacheDir?: string) => {
    const more = prefixCacheDir === undefined ? {} : { prefixCacheDir };
    const serving = await serveDemo({ maxRows: 4, maxContext: 512, ...more }, options);
    const cached = async (key: string, salt?: string): Promise<number> => {
      const body = {
        prompt: LONG,
        max_tokens: 1,
        temperature: 0,
        ...(salt === undefined ? {} : { cache_salt: salt }),
      };
      const headers = { authorization: `Bearer ${key}` };
      const response = await serving.post('/v1/completions', body, { headers });
      const { usage } = (await response.json()) as {
        usage: { prompt_tokens_details: { cached_tokens: number } };
      };
      await untilIdle(serving.engine);
      return usage.prompt_tokens_details.cached_tokens;
    };
    return { cached, close: () => serving.close() };
  };

  it('are a key’s own, and a salt’s beneath it', async () => {
    const { cached, close } = await start({ apiKey: ['a', 'b'], adminKey: 'm' });
    expect(await cached('a')).toBe(0);
    expect(await cached('a')).toBeGreaterThan(100);
    expect(await cached('b')).toBe(0);
    expect(await cached('m')).toBe(0);
    expect(await cached('a', 's')).toBe(0);
    expect(await cached('b', 's')).toBe(0);
    expect(await cached('a', 's')).toBeGreaterThan(100);
    await close();
  });

  it('are everybody’s where the operator says so, but for salts', async () => {
    const { cached, close } = await start({ apiKey: ['a', 'b'], prefixCacheShared: true });
    expect(await cached('a')).toBe(0);
    expect(await cached('b')).toBeGreaterThan(100);
    expect(await cached('a', 's')).toBe(0);
    expect(await cached('b', 's')).toBeGreaterThan(100);
    await close();
  });

  it('on disk are the same key’s after a restart, whatever the order and names of keys', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'kvant-keys-disk-'));
    try {
      const first = await start({ apiKey: [{ name: 'one', key: 'a' }, 'b'] }, folder);
      expect([await first.cached('a'), await first.cached('b', 's')]).toEqual([0, 0]);
      await first.close();
      const second = await start(
        { apiKey: ['c', { name: 'one', key: 'b' }, { name: 'x', sha256: sha256('a') }] },
        folder,
      );
      expect([await second.cached('b'), await second.cached('c'), await second.cached('c', 's')]).toEqual([
        0, 0, 0,
      ]);
      expect(await second.cached('a')).toBeGreaterThan(100);
      expect(await second.cached('b', 's')).toBeGreaterThan(100);
      await second.close();
    } finally {
      rmSync(folder, { recursive: true, force: true });
    }
  });
});
