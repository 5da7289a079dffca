/** A server over the demo model, for the suites in this folder. */
import { pino } from 'pino';
import { Engine } from '../../src/engine/engine.js';
import type { EngineOptions, EngineStats } from '../../src/engine/types.js';
import { type ListenOptions, listen, type RunningServer } from '../../src/server/index.js';

export interface Serving {
  readonly engine: Engine;
  readonly server: RunningServer;
  readonly url: string;
  post(path: string, body: unknown, init?: RequestInit): Promise<Response>;
  close(): Promise<void>;
}

export async function serveDemo(
  engineOptions: EngineOptions = {},
  serverOptions: Partial<ListenOptions> = {},
): Promise<Serving> {
  const engine = await Engine.load('models/demo-text', { device: 'cpu', maxContext: 4096, ...engineOptions });
  const server = await listen({ engine, log: pino({ level: 'silent' }), port: 0, ...serverOptions });
  return {
    engine,
    server,
    url: server.url,
    post: (path, body, init = {}) =>
      fetch(`${server.url}${path}`, {
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body: typeof body === 'string' ? body : JSON.stringify(body),
        ...init,
      }),
    close: async () => {
      await server.close(1000);
      await engine.close();
    },
  };
}

/** Waits until nothing runs and nothing is held. Throws if that takes longer than a second or two. */
export async function untilIdle(engine: Engine): Promise<EngineStats> {
  for (let i = 0; i < 200; i++) {
    const stats = await engine.stats();
    if (stats.queued + stats.prefilling + stats.decoding + stats.slotsUsed + stats.blocksUsed === 0)
      return stats;
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
  throw new Error(`not idle: ${JSON.stringify(await engine.stats())}`);
}

export const question = (text: string): { role: 'user'; content: string }[] => [
  { role: 'user', content: text },
];
