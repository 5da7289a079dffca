/** Puts the application on a socket, and takes it off again without cutting anybody short. */

import type { Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { serve } from '@hono/node-server';
import { KvantError } from '../errors.js';
import { type AppOptions, createApp } from './app.js';

export interface ListenOptions extends AppOptions {
  /** Default 127.0.0.1. */
  readonly host?: string;
  /** Default 8080; 0 takes any free port. */
  readonly port?: number;
}

export interface RunningServer {
  readonly url: string;
  readonly port: number;
  /**
   * Takes no new connections, lets responses under way finish for `graceMs` (default 30 s), then ends them.
   * Resolves when the last connection is closed.
   */
  close(graceMs?: number): Promise<void>;
}

/**
 * Errors: `address-in-use`, `address-not-available`.
 *
 * @example
 * const server = await listen({ engine, log, port: 8080 });
 * console.log(server.url);
 */
export async function listen(options: ListenOptions): Promise<RunningServer> {
  const host = options.host ?? '127.0.0.1';
  const app = createApp(options);
  const server = await new Promise<Server>((resolve, reject) => {
    const starting = serve({ fetch: app.fetch, hostname: host, port: options.port ?? 8080 }, () => {
      starting.off('error', refused);
      resolve(starting);
    }) as Server;
    const refused = (error: NodeJS.ErrnoException): void =>
      reject(listenError(error, host, options.port ?? 8080));
    starting.once('error', refused);
  });
  const { port } = server.address() as AddressInfo;
  return {
    port,
    url: `http://${host.includes(':') ? `[${host}]` : host}:${port}`,
    close: (graceMs = 30_000) => close(server, graceMs),
  };
}

async function close(server: Server, graceMs: number): Promise<void> {
  const closed = new Promise<void>((resolve) => {
    server.close(() => resolve());
  });
  // A connection whose response has just ended would otherwise idle until its keep-alive runs out.
  const idle = setInterval(() => server.closeIdleConnections(), 50);
  const timer = setTimeout(() => server.closeAllConnections(), graceMs);
  await closed;
  clearInterval(idle);
  clearTimeout(timer);
}

function listenError(error: NodeJS.ErrnoException, host: string, port: number): KvantError {
  if (error.code === 'EADDRINUSE') {
    return new KvantError('address-in-use', `Port ${port} on ${host} is taken.`, {
      kind: 'invalid-request',
      fix: 'Choose another with --port, or stop the program that holds it.',
      cause: error,
    });
  }
  return new KvantError('address-not-available', `Cannot listen on ${host}:${port}: ${error.message}.`, {
    kind: 'invalid-request',
    fix: 'Check --host and --port.',
    cause: error,
  });
}
