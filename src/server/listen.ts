/** Puts the application on a socket, and takes it off again without cutting anybody short. */

import type { Server } from 'node:http';
import { type AddressInfo, createServer } from 'node:net';
import { type ArgumentKind, checkArgument, checkOption } from '../arguments.js';
import { KvantError } from '../errors.js';
import { createApp } from './app.js';
import { boundName, hostAndPort, socketHost } from './authority.js';
import {
  CONNECTION_LIMITS,
  type ConnectionLimits,
  type ConnectionOptions,
  type Connections,
} from './connections.js';
import { createHttpServer } from './http-server.js';
import { checkListenOptions, HOST, type ListenOptions, PORT } from './server-options.js';
import { Shutdown } from './shutdown.js';

export interface RunningServer {
  readonly url: string;
  readonly port: number;
  /**
   * Takes no new requests (503, and `/health` says `stopping`), lets those under way and in the queue finish for `graceMs`
   * (default 30 s), then ends them with an error that says so. Resolves when the last connection is closed.
   */
  close(graceMs?: number): Promise<void>;
}

/** What responses have to say that they end, before their connections are cut. */
const FAREWELL_MS = 1000;
const LONGEST_TIMER_MS = 2 ** 31 - 1;
const MILLISECONDS: ArgumentKind = {
  takes: 'a number of milliseconds from 0',
  accepts: (value) => typeof value === 'number' && value >= 0,
};

/**
 * Errors: `address-in-use`, `address-not-available`; `unknown-option`, `invalid-option`, naming it.
 *
 * @example
 * const server = await listen({ engine, port: 8080 });
 * console.log(server.url);
 */
export async function listen(options: ListenOptions): Promise<RunningServer> {
  checkListenOptions(options);
  const { host: given = '127.0.0.1', port: wanted = 8080, shutdown = new Shutdown(), ...rest } = options;
  const host = socketHost(given);
  const [limits, app] = connectionLimits(rest);
  const { fetch } = createApp({ address: host, ...app, shutdown });
  const { log } = app;
  const { server, connections } = createHttpServer({
    fetch,
    // An address with a zone is none in a URL.
    hostname: boundName(host) ?? 'localhost',
    limits,
    ...(log === undefined ? {} : { log }),
  });
  await new Promise<void>((resolve, reject) => {
    const refused = (error: NodeJS.ErrnoException): void => reject(listenError(error, host, wanted));
    server.once('error', refused);
    server.listen(wanted, host, () => {
      server.off('error', refused);
      resolve();
    });
  });
  server.on('error', (err) => log?.error({ err }, 'server error'));
  const { port } = server.address() as AddressInfo;
  let closed: Promise<void> | null = null;
  return {
    port,
    url: `http://${hostAndPort(host, port)}`,
    close: async (graceMs = 30_000) => {
      checkOption('graceMs', graceMs, MILLISECONDS);
      closed ??= close(server, connections, shutdown, Math.min(graceMs, LONGEST_TIMER_MS));
      await closed;
    },
  };
}

/** Takes the limits of connections out of the options: those given, and else the defaults. */
function connectionLimits<T extends object>(
  options: T & ConnectionOptions,
): [ConnectionLimits, Omit<T, keyof ConnectionLimits>] {
  const limits = { ...CONNECTION_LIMITS };
  const rest: Record<string, unknown> = {};
  for (const [name, value] of Object.entries(options)) {
    if (!Object.hasOwn(limits, name)) rest[name] = value;
    else if (value !== undefined) limits[name as keyof ConnectionLimits] = Math.ceil(value as number);
  }
  return [limits, rest as Omit<T, keyof ConnectionLimits>];
}

/** Whether one could listen there, to be known before a model is loaded. Errors: as `listen`. */
export async function checkAddress(host: string, port: number): Promise<void> {
  checkArgument('host', host, HOST);
  checkArgument('port', port, PORT);
  const probe = createServer();
  try {
    await new Promise<void>((resolve, reject) => {
      const address = socketHost(host);
      probe.once('error', (error) => reject(listenError(error, address, port)));
      probe.listen(port, address, resolve);
    });
  } finally {
    await new Promise((resolve) => probe.close(resolve));
  }
}

async function close(
  server: Server,
  connections: Connections,
  shutdown: Shutdown,
  graceMs: number,
): Promise<void> {
  shutdown.drain();
  let cut: NodeJS.Timeout | undefined;
  const timer = setTimeout(() => {
    shutdown.end();
    cut = setTimeout(() => server.closeAllConnections(), FAREWELL_MS);
  }, graceMs);
  // Whoever comes meanwhile, a load balancer say, is told: the socket is closed when nobody is waited for any more.
  await shutdown.idle();
  const closed = new Promise<void>((resolve) => {
    server.close(() => resolve());
  });
  // Such connections would idle until their keep-alive runs out, or never ask: clients keep some ready.
  const idle = setInterval(() => connections.closeUnused(), 50);
  await closed;
  clearInterval(idle);
  clearTimeout(timer);
  clearTimeout(cut);
}

function listenError(error: NodeJS.ErrnoException, host: string, port: number): KvantError {
  if (error.code === 'EADDRINUSE') {
    return new KvantError('address-in-use', `Port ${port} on ${host} is taken.`, {
      kind: 'invalid-request',
      where: 'port',
      fix: 'Choose another with --port, or stop the program that holds it.',
      cause: error,
    });
  }
  return new KvantError(
    'address-not-available',
    `Cannot listen on ${hostAndPort(host, port)}: ${error.message}.`,
    {
      kind: 'invalid-request',
      where: 'host',
      fix: 'Check --host and --port.',
      cause: error,
    },
  );
}
