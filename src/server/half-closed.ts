/**
 * A client may close its half of a connection once it has sent its request, and still wait for the answer. One that is
 * gone altogether looks the same until something is sent to it: then its side resets the connection. So what was to be
 * sent anyway is sent early, bit by bit: the first bytes of the answer, which are the same for every status, or a
 * comment on a stream of events.
 */
import type { ServerResponse } from 'node:http';
import type { Socket } from 'node:net';

/** How every answer of HTTP/1 begins. */
const BEGINNING = 'HTTP/1.1 ';
/** Between one sign and the next. The first brings the reset, the second hears of it. */
const WAITS_MS = [0, 100, 900, 4000, 10_000, 15_000, 30_000, 60_000, 120_000] as const;

/** An answer under way. */
export interface Flight {
  readonly outgoing: ServerResponse;
  /** It is a stream of server-sent events. */
  readonly isEventStream: boolean;
}

/** Sends signs to a client that has closed its half, as long as there is an answer to wait for: `current`. */
export function probeHalfClosed(socket: Socket, current: () => Flight | undefined): void {
  const write = socket.write;
  let sent = 0;
  let timer: NodeJS.Timeout | undefined;
  /** The answer itself begins with what is on its way already. */
  const shortened = (chunk: string | Uint8Array, ...rest: unknown[]): boolean => {
    socket.write = write;
    const skip = sent;
    sent = 0;
    const left = typeof chunk === 'string' ? chunk.slice(skip) : chunk.subarray(skip);
    return Reflect.apply(write, socket, [left, ...rest]) as boolean;
  };
  const sign = ({ outgoing, isEventStream }: Flight): void => {
    if (!outgoing.headersSent && sent < BEGINNING.length) {
      Reflect.apply(write, socket, [BEGINNING[sent]]);
      sent++;
      socket.write = shortened as typeof write;
    } else if (isEventStream && !outgoing.writableEnded && !outgoing.writableNeedDrain)
      outgoing.write(':\n\n');
  };
  let turn = 0;
  const next = (): void => {
    const wait = WAITS_MS[turn++];
    if (wait === undefined) return;
    timer = setTimeout(() => {
      const flight = current();
      if (flight === undefined || socket.destroyed) return;
      sign(flight);
      next();
    }, wait);
  };
  socket.once('close', () => clearTimeout(timer));
  next();
}
