/** The application behind Node's HTTP server: what of a request is no matter of the application is settled here. */
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import { getRequestListener } from '@hono/node-server';
import type { Logger } from 'pino';
import { KvantError } from '../errors.js';
import { shown } from '../printable.js';
import { type ConnectionLimits, Connections } from './connections.js';
import { errorResponse } from './error-answers.js';
import { asKvantError, statusOf } from './http-errors.js';
import { answerError, parserError, rawAnswer, settleHost } from './raw-answers.js';
import { REQUEST_ID, RequestId } from './request-id.js';

export interface HttpServerOptions {
  readonly fetch: (request: Request) => Response | Promise<Response>;
  /** The name that a request has asked for where it tells none. */
  readonly hostname: string;
  readonly limits: ConnectionLimits;
  readonly log?: Logger;
}

/** A client that vanished without a word is found out by probes of its connection. */
const PROBES = { keepAlive: true, keepAliveInitialDelay: 30_000 };

export function createHttpServer({ fetch, hostname, limits, log }: HttpServerOptions): {
  readonly server: Server;
  readonly connections: Connections;
} {
  const { headerTimeoutMs: headers, requestTimeoutMs: whole } = limits;
  const shortest = Math.min(...[headers, whole, 20_000].filter((ms) => ms > 0));
  const server = createServer({
    ...PROBES,
    keepAliveTimeout: limits.keepAliveTimeoutMs,
    requestTimeout: whole,
    // Node wants the part to be no longer than the whole.
    headersTimeout: whole > 0 && headers > 0 ? Math.min(headers, whole) : headers,
    connectionsCheckingInterval: Math.max(25, Math.ceil(shortest / 4)),
    // Its own answer to the lack of one is empty.
    requireHostHeader: false,
  });
  // Headers beyond a number are dropped in silence; 16 KiB of them is bound enough.
  server.maxHeadersCount = 0;
  // A client that has sent all it had to say is answered; see half-closed.ts.
  Object.assign(server, { httpAllowHalfOpen: true });
  const connections = new Connections(server, limits, log);

  const pass = getRequestListener(
    async (request, { outgoing }: { readonly outgoing: unknown }) => {
      const response = await fetch(request);
      const flight = flights.get(outgoing as ServerResponse);
      if (flight !== undefined)
        flight.isEventStream = response.headers.get('content-type')?.startsWith('text/event-stream') === true;
      return response;
    },
    {
      hostname,
      overrideGlobalObjects: false,
      errorHandler: (thrown) => {
        const error = unreadable(thrown);
        const id = new RequestId();
        log?.info({ ...id.fields, status: statusOf(error), code: error.code }, error.message);
        const response = errorResponse(error, '');
        response.headers.set(REQUEST_ID, `${id}`);
        return response;
      },
    },
  );
  const flights = new WeakMap<ServerResponse, { isEventStream: boolean }>();
  const handle = (incoming: IncomingMessage, outgoing: ServerResponse): void => {
    const flight = connections.begin(incoming, outgoing);
    if (flight === null) return;
    flights.set(outgoing, flight);
    try {
      settleHost(incoming);
    } catch (error) {
      refuse(incoming, outgoing, asKvantError(error));
      return;
    }
    void pass(incoming, outgoing);
  };
  const refuse = (
    { method, url = '', headers }: IncomingMessage,
    outgoing: ServerResponse,
    error: KvantError,
  ): void => {
    const status = statusOf(error);
    const id = new RequestId([headers[REQUEST_ID] ?? []].flat()[0]);
    log?.info({ ...id.fields, method, path: shown(url), status, code: error.code }, error.message);
    answerError(outgoing, error, id);
  };
  server.on('request', handle);
  server.on('checkContinue', (incoming, outgoing) => {
    // Who is refused for the head alone need not send the body.
    const go = (event: string | symbol): void => {
      if (event !== 'data' || outgoing.headersSent) return;
      incoming.off('newListener', go);
      outgoing.writeContinue();
    };
    incoming.on('newListener', go);
    handle(incoming, outgoing);
  });
  server.on('checkExpectation', (incoming, outgoing) => {
    if (connections.begin(incoming, outgoing) !== null) refuse(incoming, outgoing, unexpected(incoming));
  });
  server.on('connect', (_, socket) => {
    const error = new KvantError('method-not-allowed', 'This server is no proxy.', {
      kind: 'invalid-request',
      fix: 'Send the request to the server itself.',
    });
    const id = new RequestId();
    log?.info({ ...id.fields, method: 'CONNECT', status: statusOf(error), code: error.code }, error.message);
    socket.on('error', () => socket.destroy());
    socket.end(rawAnswer(error, id));
  });
  server.on('clientError', (error: NodeJS.ErrnoException, socket) => {
    if (error.code === 'ECONNRESET' || !socket.writable) socket.destroy();
    else connections.refuse(socket as Socket, parserError(error));
  });
  return { server, connections };
}

/** A request that cannot be made one for the application, or an error that the application let through. */
function unreadable(error: unknown): KvantError {
  if (!(error instanceof Error) || error.name !== 'RequestError') return asKvantError(error);
  return new KvantError('invalid-url', `The request cannot be read: ${error.message}.`, {
    kind: 'invalid-request',
    fix: 'Send a path that begins with "/".',
  });
}

function unexpected({ headers }: IncomingMessage): KvantError {
  return new KvantError(
    'expectation-failed',
    `The server cannot do what the request expects: "${shown(headers.expect ?? '')}".`,
    {
      kind: 'invalid-request',
      where: 'Expect',
      fix: 'Send "Expect: 100-continue", or no such header.',
    },
  );
}
