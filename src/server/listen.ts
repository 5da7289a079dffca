/** Puts the application on a socket, and takes it off again without cutting anybody short. */

import type { Server } from 'node:http';
import { type AddressInfo, createServer } from 'node:net';
import { serve } from '@hono/node-server';
import { KvantError } from '../errors.js';
import { type AppOptions, createApp } from './app.js';
import { checkListenOptions } from './server-options.js';
import { Shutdown } from './shutdown.js';

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
   * Takes no new requests (503), lets those under way and in the queue finish for `graceMs` (default 30 s), then
   * ends them with an error that says so. Resolves when the last connection is closed.
   */
  close(graceMs?: number): Promise<void>;
}

/**
 * A client that vanished without a word is found out by probes of its connection. One that keeps its connection for
 * the next request is not cut off sooner than usual clients and proxies let go of theirs.
 */
const SOCKETS = { keepAlive: true, keepAliveInitialDelay: 30_000, keepAliveTimeout: 75_000 };
/** What responses have to say that they end, before their connections are cut. */
const FAREWELL_MS = 1000;
const LONGEST_TIMER_MS = 2 ** 31 - 1;

/**
 * Errors: `address-in-use`, `address-not-available`; `unknown-option`, `invalid-option`, naming it.
 *
 * @example
 * const server = await listen({ engine, port: 8080 });
 * console.log(server.url);
 */
export async function listen(options: ListenOptions): Promise<RunningServer> {
  checkListenOptions(options);
  const { host = '127.0.0.1', port: wanted = 8080, shutdown = new Shutdown(), ...app } = options;
  const { fetch } = createApp({ ...app, shutdown });
  const server = await new Promise<Server>((resolve, reject) => {
    const starting = serve(
      { fetch, hostname: host, port: wanted, overrideGlobalObjects: false, serverOptions: SOCKETS },
      () => {
        starting.off('error', refused);
        resolve(starting);
      },
    ) as Server;
    const refused = (error: NodeJS.ErrnoException): void => reject(listenError(error, host, wanted));
    starting.once('error', refused);
  });
  server.on('error', (err) => options.log?.error({ err }, 'server error'));
  const { port } = server.address() as AddressInfo;
  let closed: Promise<void> | null = null;
  return {
    port,
    url: `http://${host.includes(':') ? `[${host}]` : host}:${port}`,
    close: (graceMs = 30_000) => {
      closed ??= close(server, shutdown, Math.min(graceMs, LONGEST_TIMER_MS));
      return closed;
    },
  };
}

/** Whether one could listen there, to be known before a model is loaded. Errors: as `listen`. */
export async function checkAddress(host: string, port: number): Promise<void> {
  const probe = createServer();
  try {
    await new Promise<void>((resolve, reject) => {
      probe.once('error', (error) => reject(listenError(error, host, port)));
      probe.listen(port, host, resolve);
    });
  } finally {
    await new Promise((resolve) => probe.close(resolve));
  }
}

async function close(server: Server, shutdown: Shutdown, graceMs: number): Promise<void> {
  shutdown.drain();
  const closed = new Promise<void>((resolve) => {
    server.close(() => resolve());
  });
  // A connection whose response has just ended would otherwise idle until its keep-alive runs out.
  const idle = setInterval(() => server.closeIdleConnections(), 50);
  let cut: NodeJS.Timeout | undefined;
  const timer = setTimeout(() => {
    shutdown.end();
    cut = setTimeout(() => server.closeAllConnections(), FAREWELL_MS);
  }, graceMs);
  await closed;
  clearInterval(idle);
  clearTimeout(timer);
  clearTimeout(cut);
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
