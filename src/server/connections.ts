/**
 * The connections of a server: how many there may be, and how long one may keep the server waiting. A client that does
 * not read, or sends a byte now and then, costs itself the connection and nobody else anything.
 */
import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import type { Logger } from 'pino';
import { KvantError } from '../errors.js';
import { type Flight, probeHalfClosed } from './half-closed.js';
import { statusOf } from './http-errors.js';
import { answerError, rawAnswer, requestTimeout } from './raw-answers.js';
import { RequestId } from './request-id.js';

/** Times in milliseconds; 0 for no limit. */
export interface ConnectionLimits {
  /** Connections at once; more get a 503. Default 4096. */
  readonly maxConnections: number;
  /** Of these, from one address (of IPv6, one /64). Default 1024. */
  readonly maxConnectionsPerAddress: number;
  /** For the head of a request to arrive. Default 30 s. */
  readonly headerTimeoutMs: number;
  /** In which a body under way must bring something. Default 30 s. */
  readonly bodyTimeoutMs: number;
  /** For a whole request to arrive. Default 300 s. */
  readonly requestTimeoutMs: number;
  /** In which a client must take something of what is sent to it, of much at least 100 bytes a second. Default 60 s. */
  readonly writeTimeoutMs: number;
  /** For which a connection is kept for the next request. Default 75 s, a bit longer than usual clients and proxies do. */
  readonly keepAliveTimeoutMs: number;
}

/** Some of them; 0 is no limit. */
export type ConnectionOptions = {
  readonly [Name in keyof ConnectionLimits]?: ConnectionLimits[Name] | undefined;
};

export const CONNECTION_LIMITS: ConnectionLimits = {
  maxConnections: 4096,
  maxConnectionsPerAddress: 1024,
  headerTimeoutMs: 30_000,
  bodyTimeoutMs: 30_000,
  requestTimeoutMs: 300_000,
  writeTimeoutMs: 60_000,
  keepAliveTimeoutMs: 75_000,
};

/** Connections beyond the limit that are open at a time only to be told so, and how long they are. */
const TURNED_AWAY = { most: 128, ms: 1000 };
/** What a refused client still sends is taken for so long: to close at once could lose the answer on its way. */
const LINGER_MS = 500;
/** Bytes a millisecond. What is slower holds memory for hours. */
const LEAST_TAKEN = 0.1;
const CHECK_MS = { least: 25, most: 5000 };

interface RequestFlight extends Flight {
  readonly incoming: IncomingMessage;
  isEventStream: boolean;
}

interface Connection {
  readonly socket: Socket;
  /** Requests whose answers have not ended, in their order. */
  readonly flights: RequestFlight[];
  /** Why it gets no answer but this. */
  turnedAway: KvantError | null;
  refused: boolean;
  /** When something last moved, and where the counts stood. */
  read: { at: number; bytes: number };
  written: { at: number; bytes: number };
}

export class Connections {
  readonly #limits: ConnectionLimits;
  readonly #log: Logger | undefined;
  readonly #all = new Map<Socket, Connection>();
  readonly #perAddress = new Map<string, number>();
  #turnedAway = 0;

  constructor(server: Server, limits: ConnectionLimits, log?: Logger) {
    this.#limits = limits;
    this.#log = log;
    server.on('connection', (socket: Socket) => this.#open(socket));
    const times = [limits.bodyTimeoutMs, limits.writeTimeoutMs].filter((ms) => ms > 0);
    if (times.length === 0) return;
    const every = Math.min(Math.max(Math.min(...times) / 4, CHECK_MS.least), CHECK_MS.most);
    const clock = setInterval(() => this.#check(performance.now()), every).unref();
    server.once('close', () => clearInterval(clock));
  }

  /** Writes a request down until its answer has ended. Null: it has been answered, its connection is one too many. */
  begin(incoming: IncomingMessage, outgoing: ServerResponse): RequestFlight | null {
    const connection = this.#all.get(incoming.socket);
    const flight: RequestFlight = { incoming, outgoing, isEventStream: false };
    if (connection === undefined) return flight;
    if (connection.refused) return null;
    if (connection.turnedAway !== null) {
      const id = new RequestId();
      answerError(outgoing, connection.turnedAway, id);
      this.#tell(connection.socket, connection.turnedAway, id);
      return null;
    }
    connection.flights.push(flight);
    connection.read = { at: performance.now(), bytes: incoming.socket.bytesRead };
    outgoing.once('close', () => connection.flights.splice(connection.flights.indexOf(flight), 1));
    return flight;
  }

  /** Ends a connection with an error: once what it asked before is answered, and unless an answer has begun. */
  refuse(socket: Socket, error: KvantError): void {
    const connection = this.#all.get(socket);
    if (connection === undefined) {
      socket.destroy();
      return;
    }
    if (connection.refused) return;
    connection.refused = true;
    const id = new RequestId();
    this.#tell(socket, error, id);
    const asked = connection.flights.filter(({ incoming }) => incoming.complete);
    const broken = connection.flights.find(({ incoming }) => !incoming.complete);
    const end = (): void => {
      if (broken?.outgoing.headersSent === true || !socket.writable) socket.destroy();
      else endWith(socket, rawAnswer(error, id));
    };
    let left = asked.length;
    if (left === 0) end();
    for (const { outgoing } of asked)
      outgoing.once('close', () => {
        left--;
        if (left === 0) end();
      });
  }

  /** Closes those on which nothing has been asked, or all is answered. Who is told why it gets no answer still hears it. */
  closeUnused(): void {
    for (const { socket, flights, refused, turnedAway } of this.#all.values())
      if (flights.length === 0 && !refused && turnedAway === null && socket.writableLength === 0)
        socket.destroy();
  }

  #open(socket: Socket): void {
    const now = performance.now();
    const address = addressGroup(socket.remoteAddress);
    const connection: Connection = {
      socket,
      flights: [],
      turnedAway: this.#oneTooMany(address),
      refused: false,
      read: { at: now, bytes: 0 },
      written: { at: now, bytes: 0 },
    };
    if (connection.turnedAway !== null) {
      if (this.#turnedAway >= TURNED_AWAY.most) {
        socket.destroy();
        return;
      }
      this.#turnedAway++;
      const timer = setTimeout(() => socket.destroy(), TURNED_AWAY.ms);
      socket.once('close', () => {
        clearTimeout(timer);
        this.#turnedAway--;
        this.#all.delete(socket);
      });
      this.#all.set(socket, connection);
      return;
    }
    this.#all.set(socket, connection);
    this.#perAddress.set(address, (this.#perAddress.get(address) ?? 0) + 1);
    socket.once('close', () => {
      this.#all.delete(socket);
      const left = this.#perAddress.get(address)! - 1;
      if (left > 0) this.#perAddress.set(address, left);
      else this.#perAddress.delete(address);
    });
    socket.once('end', () => probeHalfClosed(socket, () => connection.flights[0]));
  }

  #oneTooMany(address: string): KvantError | null {
    const { maxConnections: all, maxConnectionsPerAddress: each } = this.#limits;
    const here = this.#perAddress.get(address) ?? 0;
    if (all > 0 && this.#all.size - this.#turnedAway >= all)
      return tooMany(`The server has ${all} connections, as many as it takes.`, '--max-connections');
    if (each > 0 && address !== '' && here >= each)
      return tooMany(`There are ${here} connections from your address.`, '--max-connections-per-address');
    return null;
  }

  #check(now: number): void {
    const { bodyTimeoutMs, writeTimeoutMs } = this.#limits;
    for (const connection of this.#all.values()) {
      const { socket, written, read, flights } = connection;
      const taken = takenOf(socket);
      if (socket.writableLength === 0 || taken - written.bytes >= LEAST_TAKEN * writeTimeoutMs)
        connection.written = { at: now, bytes: taken };
      else if (writeTimeoutMs > 0 && now - written.at >= writeTimeoutMs) {
        const fields = { client: socket.remoteAddress, unsent: socket.writableLength };
        this.#log?.info(fields, 'a client did not take its answer');
        socket.destroy();
        continue;
      }
      const last = flights.at(-1)?.incoming;
      // What has come and is not read yet is for the server to take.
      const waits =
        last !== undefined && !last.complete && last.readableFlowing === true && last.readableLength === 0;
      if (!waits || socket.bytesRead !== read.bytes) connection.read = { at: now, bytes: socket.bytesRead };
      else if (bodyTimeoutMs > 0 && now - read.at >= bodyTimeoutMs) this.refuse(socket, requestTimeout());
    }
  }

  #tell(socket: Socket, error: KvantError, id: RequestId): void {
    const { code, message } = error;
    this.#log?.info({ ...id.fields, client: socket.remoteAddress, status: statusOf(error), code }, message);
  }
}

function tooMany(message: string, flag: string): KvantError {
  return new KvantError('too-many-connections', message, {
    kind: 'overloaded',
    fix: `Use connections again, or come back later; the server's ${flag} sets the limit.`,
    retryAfter: 1,
  });
}

/** Sends a last text, takes what the client still sends for a moment, and closes. */
function endWith(socket: Socket, text: string): void {
  socket.write(text);
  socket.end();
  const timer = setTimeout(() => socket.destroy(), LINGER_MS);
  socket.once('close', () => clearTimeout(timer));
}

/** Bytes that the system has taken, to send them: of a chunk that is under way, those that have gone. */
function takenOf(socket: Socket): number {
  const { _handle: handle } = socket as {
    readonly _handle?: { readonly bytesWritten?: number; readonly writeQueueSize?: number };
  };
  // Without the handle's counts a chunk counts once all of it has gone.
  if (handle?.bytesWritten === undefined) return socket.bytesWritten - socket.writableLength;
  return handle.bytesWritten - (handle.writeQueueSize ?? 0);
}

/** Whose connections are counted together: an address of IPv4; of IPv6 the 64 bits that one host may have to itself. */
export function addressGroup(address: string | undefined): string {
  if (address === undefined) return '';
  if (!address.includes(':')) return address;
  const mapped = /^::ffff:(\d+\.\d+\.\d+\.\d+)$/i.exec(address);
  if (mapped !== null) return mapped[1]!;
  const [head = '', tail] = address.split('%')[0]!.split('::');
  const first = head === '' ? [] : head.split(':');
  const last = tail === undefined || tail === '' ? [] : tail.split(':');
  const zeros = Array.from({ length: tail === undefined ? 0 : 8 - first.length - last.length }, () => '0');
  return [...first, ...zeros, ...last].slice(0, 4).join(':');
}
