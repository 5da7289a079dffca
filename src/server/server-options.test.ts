import { describe, expect, it } from 'vitest';
import { ApiKeys } from './api-keys.js';
import { createApp, type EnginePort, listen } from './index.js';

// What is wrong is found before the engine is asked anything.
const never = (): never => {
  throw new Error('the engine was asked');
};
const engine = { info: {}, stats: never, generate: never, chat: never } as unknown as EnginePort;

describe('options of the server', () => {
  it('are refused if there are none of that name', async () => {
    expect(() => createApp({ engine, apikey: 'k' } as never)).toThrow(
      expect.objectContaining({ code: 'unknown-option', where: 'apikey', fix: 'Did you mean `apiKey`?' }),
    );
    await expect(listen({ engine, ports: 0 } as never)).rejects.toMatchObject({
      code: 'unknown-option',
      where: 'ports',
      fix: 'Did you mean `port`?',
    });
    // An application has no socket.
    expect(() => createApp({ engine, port: 0 } as never)).toThrow(expect.objectContaining({ where: 'port' }));
  });

  it('are refused if they are of another kind', async () => {
    for (const [options, where] of [
      [{ engine: undefined }, 'engine'],
      [{ apiKey: 5 }, 'apiKey'],
      [{ apiKey: ['k', null] }, 'apiKey'],
      [{ apiKey: [['k']] }, 'apiKey'],
      [{ adminKey: { key: 'k' } }, 'adminKey'],
      [{ apiKey: new ApiKeys(['k']), adminKey: 'a' }, 'adminKey'],
      [{ maxPriority: 11 }, 'maxPriority'],
      [{ maxPriority: 'high' }, 'maxPriority'],
      [{ prefixCacheShared: 'yes' }, 'prefixCacheShared'],
      [{ bodyLimit: '1MiB' }, 'bodyLimit'],
      [{ corsOrigin: true }, 'corsOrigin'],
      [{ keepAliveMs: 0 }, 'keepAliveMs'],
      [{ reasoningFormat: 'hidden' }, 'reasoningFormat'],
      [{ port: '8080' }, 'port'],
      [{ port: 70_000 }, 'port'],
      [{ host: '' }, 'host'],
      [{ corsOrigin: ['https://a.example', 5] }, 'corsOrigin'],
      [{ allowedHosts: 'a.example' }, 'allowedHosts'],
      [{ address: 5 }, 'address'],
      [{ maxConnections: '5' }, 'maxConnections'],
      [{ writeTimeoutMs: -1 }, 'writeTimeoutMs'],
    ] as const)
      await expect(listen({ engine, ...options } as never), where).rejects.toMatchObject({
        code: 'invalid-option',
        where,
      });
  });
});
